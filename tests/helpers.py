"""What the tests of the rooms below the receiver share: memory, sources, raw addresses."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

from aiorecv._addresses import AddressTable
from aiorecv._slabs import Slab, SlabPool
from aiorecv._sources import MessageSource

UDP_SEGMENT = 103
UDP_GRO = 104


class LoopMemory:
    """A loop's memory without the loop: nothing ages it but a test."""

    def __init__(self) -> None:
        self.pool = SlabPool(lambda: None)
        self.peers = AddressTable()

    def free(self, slot_size: int) -> list[Slab]:
        """The slabs in the free stacks of this slot size."""
        stacks = {id(stack): stack for stack in self.pool.stacks(slot_size)}
        return [slab for stack in stacks.values() for slab in stack]


@contextlib.contextmanager
def open_source(
    slot_size: int = 65_536, memory: LoopMemory | None = None, *, gro: bool = False
) -> Iterator[MessageSource]:
    """A source on a non-blocking loopback socket of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if gro:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, True)
        yield MessageSource(sock, memory or LoopMemory(), slot_size)


def sockaddr(host: str, port: int, flowinfo: int = 0, scope_id: int = 0) -> bytes:
    """The bytes the kernel writes for an address: ip(7), ipv6(7)."""
    if ":" in host:
        head = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, flowinfo)
        return head + socket.inet_pton(socket.AF_INET6, host) + struct.pack("=I", scope_id)
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(
        host
    ) + bytes(8)


def descriptors() -> list[str]:
    """The descriptors this process has open, with what they are, but for the listing's own."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return sorted(found)
