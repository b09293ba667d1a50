"""What the tests of the rooms below the receiver share: memory, sources, raw addresses."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from aiorecv import _pcap
from aiorecv._addresses import AddressTable
from aiorecv._leases import LeasedBatch
from aiorecv._options import gro_forbidden
from aiorecv._slabs import Slab, SlabPool
from aiorecv._sources import MessageSource

UDP_SEGMENT = 103
UDP_GRO = 104


class _HasAddress(Protocol):
    @property
    def local_addr(self) -> Any: ...


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
    """A source on a non-blocking loopback socket of its own.

    ``gro`` is for what GRO must not change: where the environment forbids it, it stays off.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if gro and not gro_forbidden():
            sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, True)
        yield MessageSource(sock, memory or LoopMemory(), slot_size)


def read_batch(source: MessageSource, slots: int, polled: bool) -> LeasedBatch | None:
    """One read of ``source`` as a batch; None if nothing is queued."""
    read = source.read(slots, polled)
    if not read:
        return None
    batch = source.batch(read, polled)
    assert isinstance(batch, LeasedBatch)
    return batch


def send(receiver: _HasAddress, *payloads: bytes) -> Any:
    """Send datagrams to a receiver from a socket of their own; returns its address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(receiver.local_addr)
        for data in payloads:
            sock.send(data)
        return sock.getsockname()


def sockaddr(host: str, port: int, flowinfo: int = 0, scope_id: int = 0) -> bytes:
    """The bytes the kernel writes for an address: ip(7), ipv6(7)."""
    if ":" in host:
        head = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, flowinfo)
        return head + socket.inet_pton(socket.AF_INET6, host) + struct.pack("=I", scope_id)
    return (
        struct.pack("=H", socket.AF_INET)
        + struct.pack("!H", port)
        + socket.inet_aton(host)
        + bytes(8)
    )


class OldKernelSocket(socket.socket):
    """A socket as on a Linux that lacks UDP_GRO (before 5.0) and SO_MEMINFO (before 4.12)."""

    def getsockopt(self, level: int, option: int, *size: int) -> Any:
        self._refuse(level, option)
        return super().getsockopt(level, option, *size)

    def setsockopt(self, level: int, option: int, *value: Any) -> None:
        self._refuse(level, option)
        super().setsockopt(level, option, *value)

    def _refuse(self, level: int, option: int) -> None:
        if (level, option) in {(socket.IPPROTO_UDP, UDP_GRO), (socket.SOL_SOCKET, 55)}:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))


@contextlib.contextmanager
def little_memory(size: int) -> Iterator[None]:
    """This process may map just ``size`` bytes more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def libpcap_is_missing() -> bool:
    """Whether texts can't be compiled to filters here."""
    try:
        _pcap._library()
    except OSError:
        return True
    return False


def skip_without_libpcap() -> None:
    """Skip a test whose programs need libpcap."""
    if libpcap_is_missing():
        pytest.skip("needs libpcap, to compile a filter")


def descriptors() -> list[str]:
    """The kinds of the sockets and epoll descriptors that this process has open.

    By kind alone: loops replace descriptors of their own from one run to the next. Other kinds
    are not ours, and the test runner's come and go.
    """
    kinds = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            kinds.append(os.readlink(f"/proc/self/fd/{fd}").partition(":[")[0])
    return sorted(kind for kind in kinds if kind in {"socket", "anon_inode"})
