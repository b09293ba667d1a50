"""Floods an interface with one frame over and over: the sender of ``aiorecv bench dispatchers``.

``python -m aiorecv.bench.frame_flood INTERFACE SIZE SECONDS`` says ``ready``, begins at a line on
its standard input, and prints how many frames the kernel took.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Sequence

from aiorecv.bench._sink import lib

PROTOCOL = 0x0800
"""What a receiver has to ask for: IPv4, as TCP can be sent in one piece larger than the MTU."""

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_QDISC_BYPASS = 263, 15, 20
_MTU = 1514  # Ethernet's, with the header
_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_TCP = struct.Struct("!HHIIBBHHH")
# linux/virtio_net.h: flags, kind, length of headers, of a segment, where the checksum is made.
_VIRTIO = struct.Struct("=BBHHHH")
_HEADERS = _ETHERNET.size + _IPV4.size + _TCP.size


def frame(size: int) -> bytes:
    """A TCP segment in IPv4 in an Ethernet frame of so many bytes, padded."""
    length = size - _ETHERNET.size
    # To another host: the receiver's own kernel throws it away at once.
    head = _ETHERNET.pack(b"\x02\0\0\0\0\x02", b"\x02\0\0\0\0\x01", PROTOCOL)
    ip = _IPV4.pack(0x45, 0, length, 1, 0, 64, 6, 0, b"\xc0\0\2\1", b"\xc0\0\2\2")
    tcp = _TCP.pack(1000, 2000, 1, 1, 0x50, 0x10, 1024, 0, 0)
    return (head + ip + tcp).ljust(size, b"\0")


def open_sender(interface: str, size: int) -> tuple[socket.socket, bytes]:
    """A packet socket that sends by ``interface``, and what to send on it for such a frame.

    What is larger than the MTU is sent as the kernel sends what it leaves to the card to cut (GSO).
    """
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        data = frame(size)
        if size > _MTU:
            sock.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, True)
            data = _VIRTIO.pack(1, 1, _HEADERS, _MTU - _HEADERS, 34, 16) + data
        else:
            sock.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, True)
        sock.bind((interface, 0))
    except BaseException:
        sock.close()
        raise
    return sock, data


def main(argv: Sequence[str] | None = None) -> int:
    """Flood, and print how many frames left."""
    interface, size, seconds = sys.argv[1:] if argv is None else argv
    sock, data = open_sender(interface, int(size))
    with sock:
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic_ns() + int(float(seconds) * 1e9)
        sent = lib.frames_flood(sock.fileno(), data, len(data), until)
    if sent < 0:
        raise OSError(-sent, os.strerror(-sent))
    print(sent)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
