"""Sources: one small class a kind of descriptor. A source reads, at once or not at all.

It owns the descriptor and its C record, and takes slabs from the loop's memory for each read.
Never waits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from aiorecv._addresses import AddressTable
from aiorecv._batch import PacketBatch, Pair
from aiorecv._leases import LeasedBatch
from aiorecv._native._core import ffi, lib
from aiorecv._options import portable_wanted
from aiorecv._packet import Metadata
from aiorecv._payloads import BYTES_SHIFT, ONE_PEER, RECEIVED_MASK, is_full
from aiorecv._rights import RightsBatch
from aiorecv._slabs import Slab, SlabPool
from aiorecv._statistics import KernelDrops

if TYPE_CHECKING:
    from aiorecv._native._core import ReceiverStruct

_receive = lib.aiorecv_receive

# What a source has between reads: it must keep none alive that the pool has dropped.
_NO_SLAB = cast("Slab", None)


def _rmem_max() -> str:
    try:
        return Path("/proc/sys/net/core/rmem_max").read_text().strip()
    except OSError:  # no procfs, or a network namespace of its own
        return "unknown"


class HungUpError(Exception):
    """The other side has closed, and nothing is left to read."""


class LoopMemory(Protocol):
    """Slabs and peers, shared by the sources of one event loop."""

    pool: SlabPool
    peers: AddressTable


class DropCounter(Protocol):
    """What counts the packets that the kernel drops."""

    @property
    def total(self) -> int: ...  # as of the last update
    @property
    def freezes(self) -> int: ...  # of a ring
    def update(self) -> int: ...  # ask the kernel


class MessageSource:
    """A datagram socket, read by ``recvmmsg`` (or, where that can't be, ``recvmsg``)."""

    __slots__ = (
        "_drops",
        "_make_batch",
        "_memory",
        "_metadata",
        "_peers",
        "_slab",
        "_stacks",
        "counts_refused",
        "core",
        "fanout_group",
        "on_close",
        "receive_buffer_size",
        "slot_size",
        "sock",
    )

    detachable = True

    _drop_counter: Callable[[socket.socket], DropCounter] = KernelDrops

    def __init__(
        self,
        sock: socket.socket,
        memory: LoopMemory,
        slot_size: int,
        metadata: Metadata = Metadata.NONE,
    ) -> None:
        self.core: ReceiverStruct = ffi.new("struct aiorecv_receiver *")
        lib.aiorecv_receiver_init(self.core, sock.fileno())
        if portable_wanted():
            self.core.portable = True
        self.sock = sock
        self.slot_size = slot_size
        self.receive_buffer_size = 0
        self.counts_refused = False
        self.on_close: Callable[[], object] | None = None
        self.fanout_group: int | None = None
        self._make_batch: type[LeasedBatch] = LeasedBatch
        self._set_up(metadata)
        self._metadata = metadata
        self._drops = self._drop_counter(sock)
        self._memory = memory
        self._slab = _NO_SLAB  # of a read that nobody has taken yet
        self._stacks = memory.pool.stacks(slot_size)
        self._use_peers(self._first_peers())

    def read(self, slots: int, polled: bool) -> int:
        """What is queued, up to ``slots`` messages, as a read in one number; 0 if nothing is.

        Whoever asks takes it at once, by ``batch`` or ``packet``.

        Raises:
            OSError: What the kernel reports, recvmmsg(2).
        """
        if self.sock.fileno() == -1:
            # Its number may be somebody else's by now.
            raise OSError(errno.EBADF, "the socket was closed under its receiver")
        stack = self._stacks[slots]
        slab = stack.pop() if stack else self._memory.pool.make(slots, self.slot_size)
        read = _receive(self.core, slab.core, -slots if polled else slots)
        if read > 0:
            self._slab = slab
            return read
        slab.give()
        if read == -errno.EAGAIN:
            return 0
        if read == -lib.AIORECV_PEERS_FULL:
            self._renew_peers()
            return self.read(slots, polled)
        raise OSError(-read, os.strerror(-read))

    def batch(self, read: int, polled: bool) -> PacketBatch:
        """The last read as a batch, which has its slab from now on."""
        slab, self._slab = self._slab, _NO_SLAB
        slab.holder = self
        return self._make_batch(slab, self._peers, read, polled, self._metadata)

    def packet(self, read: int) -> Pair:
        """The last read, if it is a single datagram: for those who need no batch; then ``give``."""
        slab = self._slab
        number = slab.peers[0]
        known = self._peers.known
        addr = known[number] if number < len(known) else self._peers.one(number)
        return slab.buffer[: read >> BYTES_SHIFT], addr

    def give(self) -> None:
        """The last read has been taken as a packet: its slab goes back."""
        slab, self._slab = self._slab, _NO_SLAB
        slab.give()

    def close(self) -> None:
        """Close the descriptor, and undo what opening did elsewhere."""
        with contextlib.suppress(OSError):  # somebody has closed the descriptor
            self.sock.close()
        if self.on_close is not None:
            self.on_close()

    def close_copy(self) -> None:
        """Close what a forked child has of it, and nothing else."""
        self.sock.close()

    def drain_errors(self) -> int:
        """Throw away the error queue, which would keep the descriptor readable for ever."""
        return 0 if self.sock.fileno() == -1 else lib.aiorecv_drain_errors(self.core.fd)

    def owes_error(self) -> bool:
        """Whether a ``recvmsg`` loop met an error behind packets: no readiness tells of it."""
        return bool(self.core.pending_error)

    def sample(self) -> int:
        """Ask the socket what it alone can tell, and return the kernel's drops so far."""
        try:
            self.receive_buffer_size = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        except OSError:  # somebody has closed it
            return self._drops.total
        return self._drops.update()

    @property
    def kernel_drops(self) -> int:
        """Drops as of the last sample."""
        return self._drops.total

    @property
    def ring_freezes(self) -> int:
        """How often a ring has stopped, as of the last sample."""
        return self._drops.freezes

    def advice(self) -> str:
        """Why packets are dropped, and what to do."""
        return (
            f"the receive buffer was full; it has {self.receive_buffer_size} bytes. To make it "
            f"larger, raise net.core.rmem_max (it is {_rmem_max()}) by sysctl, and give "
            "receive_buffer_size"
        )

    def held_bytes(self) -> int:
        """Packet memory of the batches that came from here and are not yet released."""
        return self._memory.pool.held_by(self)

    def _set_up(self, metadata: Metadata) -> None:
        if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_UNIX:
            self._take_descriptors(Metadata.RAW in metadata)

    def _take_descriptors(self, keep: bool) -> None:
        """Descriptors that come with messages: close-on-exec, and closed if nobody asked."""
        self.core.flags = socket.MSG_CMSG_CLOEXEC
        self.core.keep_descriptors = keep
        if keep:
            self._make_batch = RightsBatch

    def _first_peers(self) -> AddressTable:
        return self._memory.peers

    def _renew_peers(self) -> None:
        # Another receiver of the loop may have put a new table there already.
        if self._memory.peers is self._peers:
            self._memory.peers = AddressTable()
        self._use_peers(self._memory.peers)

    def _use_peers(self, peers: AddressTable) -> None:
        self._peers = peers
        self.core.peers = peers.core


class SeqpacketSource(MessageSource):
    """A SOCK_SEQPACKET socket: once its peer has hung up, it gives empty packets without end."""

    __slots__ = ()

    def read(self, slots: int, polled: bool) -> int:
        """The same; empty packets of a peer that has hung up are its end.

        Raises:
            HungUpError: At that end.
            OSError: What the kernel reports.
        """
        read = super().read(slots, polled)
        empty = self._empty_at_end(read & RECEIVED_MASK)
        core = self.core
        if not empty or not lib.aiorecv_hung_up(core.fd):
            return read
        core.packets -= empty
        core.full_reads -= is_full(read)
        read -= empty
        if read & RECEIVED_MASK:
            return read | ONE_PEER if read & RECEIVED_MASK == 1 else read
        self.give()
        core.reads -= 1
        core.polled_reads -= polled
        raise HungUpError

    def _empty_at_end(self, received: int) -> int:
        """How many of the last messages have neither bytes nor ancillary data."""
        left = received
        while left:
            core = self._slab.core
            if core.lengths[left - 1] or core.controls[left - 1]:
                break
            left -= 1
        return received - left
