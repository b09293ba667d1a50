"""Destinations: the addresses that packets are sent to, as the kernel takes them, by number.

One table for each event loop and address family: an address is encoded once, when it is first
sent to. Bounded; numbers are good for one send. Never resolves names, which would block the loop.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiorecv._addresses import Address
from aiorecv._links import check_link_name, link_index
from aiorecv._native._core import ffi, lib

if TYPE_CHECKING:
    from aiorecv._native._core import PeersStruct

_FAMILY = struct.Struct("=H")
_PORT = struct.Struct("!H")
_FLOWINFO = struct.Struct("!I")
_SCOPE = struct.Struct("=I")
_NETLINK = struct.Struct("=HxxII")
_FRAME = struct.Struct("=iHBB8s")  # index, hatype, pkttype, halen, address: packet(7)
# What the socket module makes of these: ip(7), INADDR_ANY and INADDR_BROADCAST.
_SPECIAL = {"": "0.0.0.0", "<broadcast>": "255.255.255.255"}
_NEVER_ASK = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


def encode(addr: Any, family: int) -> bytes:
    """The sockaddr of an address: ip(7), ipv6(7), unix(7), netlink(7).

    An IPv4 address on an IPv6 socket is mapped (``::ffff:192.0.2.1``).

    Raises:
        TypeError: If it is no address of this family.
        ValueError: If a part of it is out of bounds, or its host is a name.
    """
    if family == socket.AF_NETLINK and addr is None:
        return _NETLINK.pack(family, 0, 0)  # to the kernel, as without a name: netlink(7)
    if addr is None:
        raise ValueError("addr is None, but the socket is not connected: say to whom")
    if family in (socket.AF_INET, socket.AF_INET6):
        return _encode_ip(addr, family)
    if family == socket.AF_UNIX and isinstance(addr, str | bytes):
        # The kernel takes a path without its NUL, and an abstract name is all its bytes.
        name = _FAMILY.pack(family) + os.fsencode(addr)
        if len(name) > 110:
            raise ValueError(f"addr={addr!r}: a path or an abstract name has at most 108 bytes")
        return name
    if family == socket.AF_NETLINK and isinstance(addr, tuple) and len(addr) == 2:
        if not all(isinstance(number, int) for number in addr):
            raise TypeError(f"addr is (pid: int, groups: int), not {addr!r}")
        try:
            return _NETLINK.pack(family, *addr)
        except struct.error:
            raise ValueError(f"addr={addr!r}: pid and groups have 32 bits") from None
    raise TypeError(f"addr={addr!r} is no address of {socket.AddressFamily(family).name}")


def _encode_ip(addr: Any, family: int) -> bytes:
    most = 4 if family == socket.AF_INET6 else 2
    if not isinstance(addr, tuple) or not 2 <= len(addr) <= most:
        raise TypeError(f"addr is a tuple (host, port), not {addr!r}")
    host, port, *more = addr
    if not isinstance(host, str) or not all(isinstance(number, int) for number in (port, *more)):
        raise TypeError(f"addr is (host: str, port: int), not {addr!r}")
    if not 0 <= port <= 65_535:
        raise ValueError(f"addr={addr!r}: a port is from 0 to 65535")
    flags = _NEVER_ASK
    if family == socket.AF_INET6:
        flags |= socket.AI_V4MAPPED
        host = host or "::"
    host = _SPECIAL.get(host, host)
    try:
        if "\0" in host:  # where the C library would stop reading
            raise UnicodeError
        found: Any = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM, 0, flags)[0][4]
    except (socket.gaierror, UnicodeError):
        raise ValueError(
            f"addr={addr!r}: socket family mismatch, or a DNS lookup is required, which would "
            "block the loop: give a host in numbers; loop.getaddrinfo() looks a host name up"
        ) from None
    start = _FAMILY.pack(family) + _PORT.pack(port)
    if family == socket.AF_INET:
        return start + socket.inet_aton(found[0]) + bytes(8)
    numeric, _, flowinfo, scope_id = found
    flowinfo, scope_id = (*more, *(flowinfo, scope_id)[len(more) :])
    try:
        return (
            start
            + _FLOWINFO.pack(flowinfo)
            + socket.inet_pton(family, numeric.partition("%")[0])
            + _SCOPE.pack(scope_id)
        )
    except struct.error:
        raise ValueError(f"addr={addr!r}: flowinfo and scope_id have 32 bits") from None


def encode_frame(addr: Any, sock: socket.socket) -> bytes:
    """The sockaddr of a frame's receiver, packet(7), as the socket module takes it.

    Raises:
        TypeError: If it is no ``(interface, protocol[, type[, hardware type[, address]]])``.
        ValueError: If a part of it is out of bounds.
        OSError: ENODEV, if there is no such interface.
    """
    if not isinstance(addr, tuple) or not 2 <= len(addr) <= 5:
        raise TypeError(f"addr is (interface, protocol, ...), as it is received, not {addr!r}")
    whole: tuple[Any, ...] = (*addr, *(0, 0, b"")[len(addr) - 2 :])
    interface, protocol, pkttype, hatype, hardware = whole
    numbers = (protocol, pkttype, hatype)
    if not all(isinstance(number, int) for number in numbers) or not isinstance(hardware, bytes):
        raise TypeError(f"addr is (str, int, int, int, bytes), not {addr!r}")
    check_link_name(interface)
    if not 0 <= protocol <= 0xFFFF or len(hardware) > 8:
        raise ValueError(f"addr={addr!r}: a protocol has 16 bits, an address at most 8 bytes")
    start = _FAMILY.pack(socket.AF_PACKET) + _PORT.pack(protocol)
    try:
        rest = _FRAME.pack(link_index(sock, interface), hatype, pkttype, len(hardware), hardware)
    except struct.error:
        raise ValueError(f"addr={addr!r}: a type is out of bounds") from None
    return start + rest


class Destinations:
    """Addresses of one family by number; ``core`` is what the C side looks them up in."""

    __slots__ = ("_family", "core", "numbers")

    def __init__(self, family: int) -> None:
        core = lib.aiorecv_peers_new(0)
        if core == ffi.NULL:
            raise OSError(ffi.errno, f"no memory for addresses: {os.strerror(ffi.errno)}")
        self.core: PeersStruct = ffi.gc(core, lib.aiorecv_peers_free)
        self.numbers: dict[Address, int] = {}
        self._family = family

    def number(self, addr: Any) -> int:
        """The number of one address; raises what ``encode`` does."""
        return self.all((addr,))[0]

    def all(self, addrs: Iterable[Any]) -> list[int]:
        """The numbers of up to ``AIORECV_MAX_SENDS`` addresses."""
        numbers = self.numbers
        if len(numbers) > lib.AIORECV_MAX_PEERS - lib.AIORECV_MAX_SENDS:
            numbers.clear()
        try:
            return [numbers[addr] if addr in numbers else self._add(addr) for addr in addrs]
        except TypeError:  # what can't be hashed is no address: say so
            for addr in addrs:
                encode(addr, self._family)
            raise  # pragma: no cover - encode() takes nothing of the kind

    def _add(self, addr: Address) -> int:
        name = encode(addr, self._family)
        if isinstance(addr, tuple) and isinstance(addr[0], str) and "%" in addr[0]:
            # Another interface may get the name of this one: looked up anew each time.
            return self._number_of(name, (name,))
        return self._number_of(name, addr)

    def _number_of(self, name: bytes, key: Address) -> int:
        if key in self.numbers:
            return self.numbers[key]
        number = len(self.numbers)
        entry = self.core.entries[number]
        entry.size = len(name)
        ffi.memmove(entry.name, name, len(name))
        self.numbers[key] = number
        return number


class FrameDestinations(Destinations):
    """Those of one packet socket: another interface may get a name, so each is looked up anew."""

    __slots__ = ("_sock",)

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(socket.AF_PACKET)
        self._sock = sock

    def all(self, addrs: Iterable[Any]) -> list[int]:
        """The numbers of up to ``AIORECV_MAX_SENDS`` addresses; None: as the socket is bound."""
        if len(self.numbers) > lib.AIORECV_MAX_PEERS - lib.AIORECV_MAX_SENDS:
            self.numbers.clear()
        return [lib.AIORECV_NO_NAME if addr is None else self._add(addr) for addr in addrs]

    def _add(self, addr: Address) -> int:
        name = encode_frame(addr, self._sock)
        return self._number_of(name, (name,))
