"""Sources: one small class a kind of descriptor. A source reads, at once or not at all.

It owns the descriptor's C record and takes slabs from the loop's memory for each read. Never
waits.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Protocol

from aiorecv._addresses import AddressTable
from aiorecv._batch import PacketBatch
from aiorecv._native._core import ffi, lib
from aiorecv._slabs import SlabPool
from aiorecv._statistics import KernelDrops

if TYPE_CHECKING:
    from aiorecv._native._core import ReceiverStruct

_receive = lib.aiorecv_receive


class LoopMemory(Protocol):
    """Slabs and peers, shared by the sources of one event loop."""

    pool: SlabPool
    peers: AddressTable


class MessageSource:
    """A datagram socket, read by ``recvmmsg``: a batch a call."""

    __slots__ = (
        "_drops",
        "_memory",
        "_peers",
        "_stacks",
        "core",
        "receive_buffer_size",
        "slot_size",
        "sock",
    )

    def __init__(self, sock: socket.socket, memory: LoopMemory, slot_size: int) -> None:
        self.core: ReceiverStruct = ffi.new("struct aiorecv_receiver *")
        lib.aiorecv_receiver_init(self.core, sock.fileno())
        self.sock = sock
        self.slot_size = slot_size
        self.receive_buffer_size = 0
        self._drops = KernelDrops(sock)
        self._memory = memory
        self._stacks = memory.pool.stacks(slot_size)
        self._use_peers(memory.peers)

    def read(self, slots: int, polled: bool) -> PacketBatch | None:
        """What is queued, up to ``slots`` messages; None if nothing is.

        Raises:
            OSError: What the kernel reports, recvmmsg(2).
        """
        stack = self._stacks[slots]
        slab = stack.pop() if stack else self._memory.pool.make(slots, self.slot_size)
        read = _receive(self.core, slab.core, -slots if polled else slots)
        if read > 0:
            slab.holder = self
            return PacketBatch(slab, self._peers, read, polled)
        slab.give()
        if read == -errno.EAGAIN:
            return None
        if read == -lib.AIORECV_PEERS_FULL:
            self._renew_peers()
            return self.read(slots, polled)
        raise OSError(-read, os.strerror(-read))

    def sample(self) -> int:
        """Ask the socket what it alone can tell, and return the kernel's drops so far."""
        self.receive_buffer_size = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        return self._drops.update()

    @property
    def kernel_drops(self) -> int:
        """Drops as of the last sample."""
        return self._drops.total

    def held_bytes(self) -> int:
        """Packet memory of the batches that came from here and are not yet released."""
        return self._memory.pool.held_by(self)

    def _renew_peers(self) -> None:
        # Another receiver of the loop may have put a new table there already.
        if self._memory.peers is self._peers:
            self._memory.peers = AddressTable()
        self._use_peers(self._memory.peers)

    def _use_peers(self, peers: AddressTable) -> None:
        self._peers = peers
        self.core.peers = peers.core
