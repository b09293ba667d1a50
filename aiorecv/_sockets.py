"""Sockets: what kind one is, and the kernel options that receiving needs. In the options' room.

Whatever is set on a socket is noted, so that it can be given back as it was.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial

import attrs

from aiorecv._filters import Filter, attach, attached, detach
from aiorecv._options import ReceiveOptions, gro_forbidden
from aiorecv._packet import Metadata

# linux/udp.h; the socket module of Python 3.11 to 3.13 has no name for it.
UDP_GRO = 104
# The largest UDP payload a train is glued to: the kernel merges up to the 16-bit IP length.
TRAIN_SIZE = 65_535
UDP_SLOT_SIZE = 65_536
# AF_UNIX datagrams and netlink messages are far longer than a UDP packet; asyncio reads 256 KiB.
SLOT_SIZE = 262_144
# A full UDP packet on lo is a frame of 65,549 bytes, and GSO makes frames of that size elsewhere.
FRAME_SLOT_SIZE = 65_664

# linux/in.h, linux/in6.h and asm-generic/socket.h (not those of SPARC and PA-RISC).
_TIMESTAMP = (socket.SOL_SOCKET, 35)  # SO_TIMESTAMPNS
_DROPS = (socket.SOL_SOCKET, 40)  # SO_RXQ_OVFL
_IPV4 = {
    Metadata.DESTINATION: (socket.IPPROTO_IP, 8),  # IP_PKTINFO
    Metadata.TOS: (socket.IPPROTO_IP, 13),  # IP_RECVTOS
    Metadata.TTL: (socket.IPPROTO_IP, 12),  # IP_RECVTTL
}
_IPV6 = {
    Metadata.DESTINATION: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO),
    Metadata.TOS: (socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS),
    Metadata.TTL: (socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT),
}
_AUXDATA = (263, 8)  # SOL_PACKET, PACKET_AUXDATA: linux/socket.h, linux/if_packet.h
_OF_IP = Metadata.DESTINATION | Metadata.TOS | Metadata.TTL
# What the kernel never tells of a family. (AF_UNIX drops nothing: a count of 0 is the truth.)
_UNTOLD: dict[int, Metadata] = {
    socket.AF_INET: Metadata.VLAN,
    socket.AF_INET6: Metadata.VLAN,
    socket.AF_UNIX: _OF_IP | Metadata.VLAN,
    socket.AF_NETLINK: _OF_IP | Metadata.VLAN | Metadata.TIMESTAMP | Metadata.DROPS,
    socket.AF_PACKET: _OF_IP,
}
_IP_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_FAMILIES = (*_IP_FAMILIES, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET)


@attrs.frozen
class Kind:
    """What a socket is, asked of the kernel once."""

    family: int
    type: int
    protocol: int

    @property
    def is_udp(self) -> bool:
        """Whether GRO can be."""
        return (
            self.family in _IP_FAMILIES
            and self.type == socket.SOCK_DGRAM
            and self.protocol == socket.IPPROTO_UDP
        )

    @property
    def slot_size(self) -> int:
        """Bytes that hold any packet of it."""
        if self.family == socket.AF_PACKET:
            return FRAME_SLOT_SIZE
        return UDP_SLOT_SIZE if self.family in _IP_FAMILIES else SLOT_SIZE


def kind_of(sock: socket.socket) -> Kind:
    """What ``sock`` is.

    Raises:
        TypeError: If it is no socket.
        ValueError: If it is a stream, or of a family that has no packets to receive here.
        OSError: If it is closed.
    """
    if not isinstance(sock, socket.socket):
        raise TypeError(f"sock is a socket.socket, not {sock!r}")
    if sock.fileno() == -1:
        raise OSError(errno.EBADF, f"sock is closed: {sock!r}")
    # Of the kernel, not of the object, which its maker may have told anything.
    names = (socket.SO_DOMAIN, socket.SO_TYPE, socket.SO_PROTOCOL)
    kind = Kind(*(sock.getsockopt(socket.SOL_SOCKET, name) for name in names))
    if kind.type == socket.SOCK_STREAM:
        raise ValueError(f"sock is a stream, which has no packets: {sock!r}")
    if kind.family not in _FAMILIES:
        raise ValueError(f"sock is neither IP, AF_UNIX, AF_PACKET nor netlink: {sock!r}")
    return kind


class SocketOptions:
    """The options of a socket while a receiver has it, and as they were before."""

    __slots__ = ("_undo", "sock")

    def __init__(
        self,
        sock: socket.socket,
        kind: Kind,
        options: ReceiveOptions,
        filter_: Filter | None = None,
        *,
        ours: bool,
    ) -> None:
        """Set what ``options`` ask for; a socket that is not ``ours`` keeps its GRO by itself.

        One that is ``ours`` has its filter already: it was there before the first packet.

        Raises:
            ValueError: If they don't suit the socket, which is then as it was.
            OSError: If the kernel refuses one; the same.
        """
        self.sock = sock
        self._undo: list[Callable[[], object]] = []
        try:
            self._ask_for(kind, options.metadata)
            if filter_ is not None:
                self._filter(kind, filter_, ours)
            self._choose_gro(kind, options, ours, filter_ is None or filter_.judges_trains)
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """Set everything back to what it was."""
        while self._undo:
            self._undo.pop()()

    def set(self, level: int, name: int, value: int) -> None:
        """Set an option, and note what it was."""
        before = self.sock.getsockopt(level, name)
        if before != value:
            self.sock.setsockopt(level, name, value)
            self._undo.append(partial(self.sock.setsockopt, level, name, before))

    def _ask_for(self, kind: Kind, metadata: Metadata) -> None:
        untold = metadata & _UNTOLD[kind.family]
        if untold:
            who = "AF_PACKET" if untold is Metadata.VLAN else "IP"
            raise ValueError(f"metadata={untold}: only {who} sockets have that")
        if Metadata.TIMESTAMP in metadata:
            self.set(*_TIMESTAMP, True)
        if Metadata.DROPS in metadata:
            self.set(*_DROPS, True)
        if Metadata.VLAN in metadata:
            self.set(*_AUXDATA, True)
        for flag in metadata & _OF_IP:
            # An IPv6 socket also gets IPv4 packets, and tells of them by the IPv4 options.
            self.set(*_IPV4[flag], True)
            if kind.family == socket.AF_INET6:
                self.set(*_IPV6[flag], True)

    def _filter(self, kind: Kind, wanted: Filter, ours: bool) -> None:
        if not ours:
            program, before = wanted.for_socket(self.sock, kind), attached(self.sock)
            attach(self.sock, program)
            undo = partial(attach, self.sock, before) if before else partial(detach, self.sock)
            self._undo.append(undo)
        if kind.family == socket.AF_PACKET and wanted.may_cut:
            self.set(*_AUXDATA, True)  # the length of a frame before it was cut

    def _choose_gro(self, kind: Kind, options: ReceiveOptions, ours: bool, trains: bool) -> None:
        if options.gro and not kind.is_udp:
            raise ValueError("gro=True: only UDP sockets have it, leave gro out")
        if not kind.is_udp:
            return
        if options.gro and gro_forbidden():
            raise ValueError(
                "gro=True, but AIORECV_GRO=0 in the environment forbids it: "
                "unset that, or leave gro out"
            )
        before = self._has_gro()
        slot_size = options.slot_size or kind.slot_size
        wanted = options.gro
        if wanted is None and gro_forbidden():
            wanted = False
        elif wanted is None and ours:
            # All datagrams of a train have one time.
            wanted = slot_size >= TRAIN_SIZE and Metadata.TIMESTAMP not in options.metadata
        elif wanted is None:
            wanted = before
        if not trains and options.gro is None:
            wanted = False  # the filter would judge a train by its first datagram
        if wanted and slot_size < TRAIN_SIZE:
            raise ValueError(
                f"slot_size={slot_size} can't hold a train of datagrams, and what is cut from "
                f"one is lost: give gro=False, or slot_size of at least {TRAIN_SIZE}"
            )
        if wanted != before:
            self._set_gro(wanted, must=options.gro is True)

    def _has_gro(self) -> bool:
        try:
            return bool(self.sock.getsockopt(socket.IPPROTO_UDP, UDP_GRO))
        except OSError:  # Linux before 5.0
            return False

    def _set_gro(self, on: bool, *, must: bool) -> None:
        try:
            self.set(socket.IPPROTO_UDP, UDP_GRO, on)
        except OSError as error:
            if must:
                raise OSError(
                    error.errno, f"gro=True: {error.strerror}; Linux 5.0 has it"
                ) from None


def raise_receive_buffer(sock: socket.socket, size: int | None) -> None:
    """Ask for a receive buffer of ``size`` bytes, as far as the system allows; never lower it.

    Source: socket(7), SO_RCVBUF: the kernel doubles the size and caps it at rmem_max in silence.
    """
    if size is None:
        return
    # The cap may lie below the default, and then no call could bring the default back.
    # Not of the same family: to close a packet socket takes milliseconds.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        before = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        raised = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > before
    if raised:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
