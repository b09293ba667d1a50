"""Outlets: how packets leave, without waiting. Part of the sender's room.

Hands buffers to C as they are, many in one call; tells a packet that was refused from a socket
that is full. Senders and endpoints stand on it. Never receives.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from aiorecv._addresses import Address
from aiorecv._descriptors import Descriptor
from aiorecv._destinations import Destinations, FrameDestinations
from aiorecv._memory import Memory
from aiorecv._native._core import ffi, lib
from aiorecv._options import gso_forbidden, portable_wanted
from aiorecv._sockets import kind_of
from aiorecv._statistics import SenderStatistics

if TYPE_CHECKING:
    from aiorecv._native._core import SenderStruct, SourceStruct

Report: TypeAlias = Callable[[OSError], object]

_send_one = lib.aiorecv_send_one
_exported = partial(ffi.from_buffer, "uint8_t[]")

# What ICMP turns into, and a peer of AF_UNIX that went away: such an error may speak of a packet
# that was sent before, and the kernel hands it to the next call in the place of sending.
_OF_EARLIER = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENONET,
        errno.ENOPROTOOPT,
        errno.EPROTO,
    }
)

# The shortest and the longest time between such looks, in seconds.
_PAUSES = (0.001, 0.064)

# ::ffff:0:0/96, where IPv6 sockets have IPv4 addresses: ipv6(7).
_MAPPED = bytes(10) + b"\xff\xff"
_KERNEL = (0, 0)


class Outlet:
    """What sends on one socket of a loop, whoever owns it."""

    __slots__ = (
        "_destinations",
        "_errors",
        "_numbers",
        "_outbox",
        "core",
        "family",
        "peer",
        "sock",
    )

    def __init__(self, sock: socket.socket, memory: Memory) -> None:
        """Look at ``sock``; raises what ``kind_of`` does."""
        kind = None if isinstance(sock, Descriptor) else kind_of(sock)
        self.sock = sock
        self.core: SenderStruct = ffi.new("struct aiorecv_sender *")
        lib.aiorecv_sender_init(self.core, sock.fileno())
        self._errors = 0
        self._outbox = memory.outbox
        if kind is None:
            self._write()
            return
        self.family = kind.family
        self.core.gso = kind.is_udp and not gso_forbidden()
        self.core.portable = portable_wanted()
        if kind.family == socket.AF_PACKET:
            self._destinations: Destinations | None = FrameDestinations(sock)
        else:
            self._destinations = memory.destinations(kind.family)
        self.core.peers = self._destinations.core
        self.peer = _peer_name(sock)
        # Of a connected socket the peer is all there is, and needs no name.
        self._numbers: dict[Address, int] = self._destinations.numbers
        if self.peer is not None:
            self._numbers = {None: lib.AIORECV_NO_NAME, self.peer: lib.AIORECV_NO_NAME}

    def _write(self) -> None:
        """To a descriptor, which has no addresses."""
        lib.aiorecv_sender_write(self.core)
        self.family = socket.AF_UNSPEC
        self.peer = None
        self._destinations = None
        self._numbers = {None: lib.AIORECV_NO_NAME}

    def one(self, data: Any, addr: Address, report: Report) -> bool:
        """Send a packet; False if the socket is full. A refused one is reported.

        Raises:
            TypeError: If ``data`` is no contiguous bytes-like object, or ``addr`` no address.
            ValueError: If ``addr`` is not the peer, or is a host name.
            OSError: If the socket is closed.
        """
        reported = 0
        while True:
            # Here, as a report may send elsewhere, and so give this number to another address.
            try:
                number = self._numbers[addr]
            except (KeyError, TypeError):
                number = self._number(addr)
            if type(data) is bytes:
                code = _send_one(self.core, data, len(data), number)
            else:
                buffer = _export(data)
                code = _send_one(self.core, buffer, len(buffer), number)
            if not code:
                return True
            if code == -errno.EAGAIN:
                return False
            if not self._refused(-code, reported, report):
                return True
            reported = -code

    def many(
        self,
        packets: Sequence[tuple[Any, Address]],
        report: Report,
        source: SourceStruct | None = None,
    ) -> int:
        """Send packets in order; returns how many were taken: all, unless the socket is full.

        A refused one is reported, and counts as taken. Raises what ``one`` does.
        """
        sent = first = reported = 0
        while first < len(packets):
            chunk = packets[first : first + lib.AIORECV_MAX_SENDS]
            buffers = self._fill(chunk)  # which have to live until they are sent
            done = 0
            while done < len(buffers):
                sent = lib.aiorecv_send(
                    self.core, self._outbox, done, len(buffers), source or ffi.NULL
                )
                if sent < 0:
                    break
                done += sent
                reported = 0
            first += done
            if sent == -errno.EAGAIN:
                break
            if sent < 0:
                # The report may send, and so fill the outbox anew: go on with a new chunk.
                again = self._refused(-sent, reported, report)
                reported = -sent if again else 0
                first += not again
        return first

    def check(self, data: Any, addr: Address) -> bytes:
        """The packet's bytes as they are now, for a later send; raises what ``one`` does."""
        self._number(addr)
        return data if type(data) is bytes else bytes(_export(data))

    def statistics(self, dropped: int = 0) -> SenderStatistics:
        """What has been sent since this was made."""
        core = self.core
        return SenderStatistics(
            packets=core.packets,
            bytes=core.bytes,
            calls=core.calls,
            gso_sends=core.gso_sends,
            errors=self._errors,
            dropped=dropped,
        )

    def _fill(self, chunk: Sequence[tuple[Any, Address]]) -> list[Any]:
        """Put packets into the outbox; returns what keeps their memory in place."""
        try:
            data, addrs = zip(*chunk, strict=True)
        except (TypeError, ValueError):
            raise TypeError("packets is a sequence of pairs, (data, addr) each") from None
        try:
            buffers = [*map(_exported, data)]
        except (TypeError, BufferError):
            buffers = [*map(_export, data)]  # which names the culprit
        try:
            numbers = [*map(self._numbers.__getitem__, addrs)]
        except (KeyError, TypeError):
            if self.peer is not None or self._destinations is None:
                numbers = [*map(self._number, addrs)]
            else:
                numbers = self._destinations.all(addrs)
        outbox, count = self._outbox, len(buffers)
        outbox.data[0:count] = buffers
        outbox.lengths[0:count] = [*map(len, buffers)]
        outbox.names[0:count] = numbers
        return buffers

    def _number(self, addr: Address) -> int:
        if self._destinations is None:
            if addr is not None:
                raise ValueError(f"addr={addr!r}: {self.sock!r} has no addresses, give None")
        elif self.peer is None:
            return self._destinations.number(addr)
        elif addr is not None and addr != self.peer:
            raise ValueError(f"addr={addr!r}: the socket is connected to {self.peer!r}")
        return lib.AIORECV_NO_NAME

    def _refused(self, number: int, reported: int, report: Report) -> bool:
        """Report an error, once for each packet; returns whether to try the packet again."""
        if number in (errno.EBADF, errno.ENOTSOCK):
            raise OSError(number, os.strerror(number))
        if number != reported:
            self._errors += 1
            report(OSError(number, os.strerror(number)))
            if self.sock.fileno() == -1:  # its number may be somebody else's by now
                raise OSError(errno.EBADF, "the socket was closed while packets were sent")
        return not reported and number in _OF_EARLIER


def longer(pause: float) -> float:
    """Seconds until the next look at a socket that is reported writable, and is full.

    The kernel reports that of an AF_UNIX socket whose peer is full, if it is not connected to it:
    whoever waited for the report alone would spin.
    """
    return min(max(2 * pause, _PAUSES[0]), _PAUSES[1])


def _export(data: Any) -> Any:
    try:
        return _exported(data)
    except (TypeError, BufferError):
        raise TypeError(
            f"data argument must be a contiguous bytes-like object, not {type(data).__name__!r}"
        ) from None


def source_of(address: str, family: int) -> SourceStruct:
    """A local address to send from.

    Raises:
        TypeError: If it is no ``str``.
        ValueError: If the socket is not IP, or it is no address of its family in numbers.
    """
    if family not in (socket.AF_INET, socket.AF_INET6):
        raise ValueError(f"source={address!r}: only IP sockets send from one of several addresses")
    if not isinstance(address, str):
        raise TypeError(f"source is an address as a str, not {address!r}")
    return _source(address, family)


@lru_cache(maxsize=256)
def _source(address: str, family: int) -> SourceStruct:
    source: SourceStruct = ffi.new("struct aiorecv_source *")
    source.family = family
    try:
        written = socket.inet_pton(family, address)
    except (OSError, ValueError):
        try:
            written = socket.inet_pton(socket.AF_INET, address)
        except (OSError, ValueError):
            written = b""
        # Mapped, since the kernel would pass over a plain one in silence if the peer is IPv6.
        if not written or family == socket.AF_INET:
            raise ValueError(
                f"source={address!r} is no address in numbers of the socket's family"
            ) from None
        written = _MAPPED + written
    ffi.memmove(source.address, written, len(written))
    return source


def _peer_name(sock: socket.socket) -> Address:
    try:
        name: Address = sock.getpeername()
    except OSError:
        return None
    # An unconnected netlink socket has the kernel for a peer, and still sends to others.
    return None if sock.family == socket.AF_NETLINK and name == _KERNEL else name
