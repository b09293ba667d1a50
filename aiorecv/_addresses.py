"""Addresses: what the kernel wrote as a peer's name, as ``socket.recvfrom`` would give it.

Owns a table of the peers a loop has seen: C numbers their names, and each is decoded once, when
somebody first asks. A table is bounded; a full one is replaced, and lives on for as long as a
batch refers to its numbers. Never resolves names.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from aiorecv._native._core import ffi, lib

if TYPE_CHECKING:
    from aiorecv._native._core import PeersStruct

Address: TypeAlias = tuple[Any, ...] | str | bytes | None
"""A peer's address as ``socket.recvfrom`` gives it: ``(host, port)`` for IPv4, ``(host, port,
flowinfo, scope_id)`` for IPv6, a ``str`` or, for abstract names, ``bytes`` for AF_UNIX, ``(pid,
groups)`` for netlink, ``(interface, protocol, packet type, hardware type, hardware address)`` for
AF_PACKET; None where the sender has no name. Always hashable."""

_FAMILY = struct.Struct("=H")
_IPV4 = struct.Struct("!2xH4s")
_IPV6 = struct.Struct("!2xHI16s")
_SCOPE = struct.Struct("=I")
_NETLINK = struct.Struct("=4xII")


def _decode(name: bytes) -> Address:
    """One sockaddr: ip(7), ipv6(7), unix(7), netlink(7); a socket without a name has none."""
    if len(name) < _FAMILY.size:
        return None
    (family,) = _FAMILY.unpack_from(name)
    if family == socket.AF_INET:
        port, host = _IPV4.unpack_from(name)
        return socket.inet_ntop(socket.AF_INET, host), port
    if family == socket.AF_INET6:
        port, flowinfo, host = _IPV6.unpack_from(name)
        (scope_id,) = _SCOPE.unpack_from(name, _IPV6.size)
        return socket.inet_ntop(socket.AF_INET6, host), port, flowinfo, scope_id
    if family == socket.AF_UNIX:
        path = name[_FAMILY.size :]
        # An abstract name is all its bytes, a path ends at its first NUL.
        return path if path[:1] == b"\0" else os.fsdecode(path.partition(b"\0")[0])
    if family == socket.AF_NETLINK:
        return _NETLINK.unpack_from(name)
    return None


class AddressTable:
    """Peers by number; ``core`` is what the C side numbers them in."""

    __slots__ = ("known", "core")

    def __init__(self) -> None:
        core = lib.aiorecv_peers_new(int.from_bytes(os.urandom(8), "little"))
        if core == ffi.NULL:
            raise OSError(ffi.errno, f"no memory for peers: {os.strerror(ffi.errno)}")
        self.core: PeersStruct = ffi.gc(core, lib.aiorecv_peers_free)
        self.known: list[Address] = []
        """The addresses decoded so far, by number; ``one`` and ``many`` see to the others."""

    def _all(self) -> list[Address]:
        known = self.known
        for number in range(len(known), self.core.count):
            entry = self.core.entries[number]
            known.append(self.decode(bytes(ffi.buffer(entry.name, entry.size))))
        return known

    def decode(self, name: bytes) -> Address:
        """The address that a sockaddr says."""
        return _decode(name)

    def one(self, number: int) -> Address:
        """The address of one peer."""
        try:
            return self.known[number]
        except IndexError:
            return self._all()[number]

    def many(self, numbers: Sequence[int]) -> Sequence[Address]:
        """The addresses of two or more peers, in the order of ``numbers``."""
        addresses: tuple[Address, ...] = itemgetter(*numbers)(self._all())
        return addresses
