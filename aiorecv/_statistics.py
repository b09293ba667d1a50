"""Statistics: the counters of a receiver as one snapshot. Decides nothing."""

from __future__ import annotations

import socket
import sys

import attrs

# asm-generic/socket.h and linux/sock_diag.h; the socket module has neither.
_SO_MEMINFO = 55
_SK_MEMINFO_DROPS = 8
_WORD = 4
# linux/socket.h and linux/if_packet.h.
_SOL_PACKET, _PACKET_STATISTICS = 263, 6


@attrs.frozen
class ReceiverStatistics:
    """What one receiver has seen since it was opened. A snapshot, never live."""

    packets: int
    """Packets read, after trains were split."""

    bytes: int
    """Payload bytes read, without what was cut off."""

    batches: int
    """Batches made. A socket gives one a read."""

    trains: int
    """Messages that GRO had glued from several datagrams."""

    reads: int
    """Calls of ``recvmmsg`` that brought something: ``polled_reads + immediate_reads``."""

    polled_reads: int
    """Reads that had to wait until the loop reported the descriptor readable."""

    immediate_reads: int
    """Reads that found packets there when they were asked for."""

    full_reads: int
    """Reads that filled every slot of the window: there may have been more."""

    empty_reads: int
    """Calls that found nothing (EAGAIN)."""

    truncated: int
    """Messages cut because they were larger than a slot."""

    errors: int
    """Errors the kernel reported on reading."""

    last_error: OSError | None
    """The last of them."""

    kernel_drops: int
    """Queue entries the kernel threw away because the receive buffer was full.

    With GRO an entry may be a whole train. Source: SO_MEMINFO, SK_MEMINFO_DROPS,
    net/core/sock.c; 32 bits in the kernel, so differences are added up modulo 2**32. For packet
    sockets PACKET_STATISTICS, packet(7). On UDP sockets the kernel also counts what a filter
    refuses.
    """

    ancillary_truncated: int
    """Messages whose ancillary data was cut (MSG_CTRUNC)."""

    ring_freezes: int
    """How often a packet ring had no free block, and stopped until it had one.

    Source: PACKET_STATISTICS, tp_freeze_q_cnt.
    """

    window_slots: int
    """Slots the next read will offer."""

    window_peak: int
    """The most slots offered so far."""

    window_grows: int
    """How often the window became larger."""

    window_shrinks: int
    """How often the window became smaller."""

    buffer_bytes: int
    """Packet memory held now, in bytes: the slabs of batches not yet released."""

    receive_buffer_size: int
    """The kernel's receive buffer (SO_RCVBUF) in bytes, as it reports it: twice what was asked."""


@attrs.frozen
class SenderStatistics:
    """What one sender, or endpoint, has sent since it was made. A snapshot, never live."""

    packets: int
    """Packets the kernel has taken."""

    bytes: int
    """Their payload bytes."""

    calls: int
    """System calls made, vain ones included: ``sendmmsg`` or ``sendmsg``."""

    gso_sends: int
    """Messages of more than one packet, which the kernel has split (UDP_SEGMENT)."""

    errors: int
    """Errors reported: packets that were refused, and what ICMP told of earlier ones."""

    dropped: int
    """Packets given to an endpoint that was closed, or that aborted before it could send them."""


class PacketDrops:
    """What the kernel has dropped of a packet socket's queue since this object was made.

    Source: packet(7), PACKET_STATISTICS, which reading sets to 0.
    """

    __slots__ = ("_sock", "freezes", "total")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.total = self.freezes = 0
        self._take()
        self.total = self.freezes = 0  # not what was before

    def update(self) -> int:
        """Ask the kernel, and return the total. A closed socket keeps what was seen last."""
        if self._sock.fileno() != -1:
            self._take()
        return self.total

    def _take(self) -> None:
        told = self._sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 3 * _WORD)
        # Packets that came, drops, and of a ring how often it stopped.
        words = memoryview(told).cast("I")
        self.total += words[1]
        self.freezes += sum(words[2:])


class KernelDrops:
    """What the kernel has dropped of a socket's queue since this object was made."""

    __slots__ = ("_last", "_sock", "total")

    freezes = 0  # it has no ring

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._last = self._count()
        self.total = 0

    def update(self) -> int:
        """Ask the kernel, and return the total. A closed socket keeps what was seen last."""
        if self._sock.fileno() != -1:
            count = self._count()
            self.total += (count - self._last) % 2**32
            self._last = count
        return self.total

    def _count(self) -> int:
        size = (_SK_MEMINFO_DROPS + 1) * _WORD
        try:
            words = self._sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, size)
        except OSError:  # Linux before 4.12
            return 0
        return int.from_bytes(words[-_WORD:], sys.byteorder)
