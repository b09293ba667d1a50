"""Frames for tests: made by hand, sent by one end of a wire, come in by the other."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiorecv
from tests.namespaces import add_veth, new_network, set_up

OURS, PROBE = 0x88B5, 0x88B6  # for experiments (IEEE 802)
BROADCAST = "ffffffffffff"
_SOL_PACKET, _PACKET_VNET_HDR = 263, 15


def frame(payload: bytes, source: int = 1, to: str = BROADCAST, protocol: int = OURS) -> bytes:
    """An Ethernet frame, not padded."""
    sender = b"\x02\0\0\0" + source.to_bytes(2, "big")
    return bytes.fromhex(to) + sender + struct.pack("!H", protocol) + payload


def address(source: int = 1, protocol: int = OURS, interface: str = "veth0") -> tuple[Any, ...]:
    """What ``recvfrom`` says of such a frame."""
    sender = b"\x02\0\0\0" + source.to_bytes(2, "big")
    return interface, protocol, socket.PACKET_BROADCAST, 1, sender


@contextlib.contextmanager
def new_wire() -> Iterator[socket.socket]:
    """In a network of its own, a socket whose frames come in by ``veth0``, from ``veth1``."""
    with new_network():
        quiet = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        if quiet.exists():  # or the kernel would look for neighbours on the wire
            quiet.write_text("1")
        add_veth("veth0", "veth1")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.bind(("veth1", 0))
            yield sock


def set_up_again(wire: socket.socket, interface: str = "veth0") -> None:
    """Switch the end where frames come in on again; they do from then on.

    The kernel lets the sending end send in a work queue, at most once a second, and tells of it
    too early: net/core/link_watch.c.
    """
    set_up(interface)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as probe:
        probe.bind((interface, PROBE))
        probe.settimeout(0.01)
        for _ in range(1_000):
            with contextlib.suppress(OSError):
                wire.send(frame(bytes(46), protocol=PROBE))
                probe.recv(100)
                return
    raise TimeoutError(f"nothing comes in by {interface}")


def tcp_frame(size: int, source: int = 1) -> bytes:
    """A TCP segment in IPv4 of so many bytes in all."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, size - 14, 1, 0, 64, 6, 0, bytes(4), b"\x0a\0\0\1")
    tcp = struct.pack("!HHIIBBHHH", 1000, 2000, 1, 1, 0x50, 0x10, 1024, 0, 0)
    body = bytes(number % 251 for number in range(size - 14 - 20 - 20))
    return frame(ip + tcp + body, source, protocol=0x0800)


def send_as_one(sock: socket.socket, data: bytes) -> None:
    """Send a TCP frame that a real wire would carry as many: as GSO makes them."""
    # linux/virtio_net.h: checksum to be made, TCPv4, lengths of headers and of a segment.
    header = struct.pack("=BBHHHH", 1, 1, 54, 1448, 34, 16)
    sock.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, True)
    try:
        sock.send(header + data)
    finally:
        sock.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, False)


async def receive_all(receiver: aiorecv.Receiver, count: int) -> list[Any]:
    """The next ``count`` packets, as pairs."""
    received: list[Any] = []
    while len(received) < count:
        with await receiver.receive() as batch:
            received += batch
    assert len(received) == count
    return received
