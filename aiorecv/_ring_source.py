"""The source of a packet ring: a block a read, without a call to the kernel."""

from __future__ import annotations

import errno
import os
import socket

from aiorecv._native._core import lib
from aiorecv._packet import Metadata
from aiorecv._packet_source import PacketSource
from aiorecv._payloads import SLOTS_SHIFT
from aiorecv._ring import Ring
from aiorecv._ring_batch import RingBatch
from aiorecv._sources import LoopMemory

# A block as a read in one number: one of one, so that the next is looked for at once, which costs
# a look at memory.
_A_BLOCK = 1 | 1 << SLOTS_SHIFT


class RingSource(PacketSource):
    """An AF_PACKET socket with a ring. Never an endpoint's: they take reads apart."""

    __slots__ = ("_received", "ring")

    detachable = False

    def __init__(
        self,
        sock: socket.socket,
        memory: LoopMemory,
        slot_size: int,
        metadata: Metadata,
        ring: Ring,
    ) -> None:
        super().__init__(sock, memory, slot_size, metadata)
        self.ring = ring
        self._received = 0

    def read(self, slots: int, polled: bool) -> int:
        """The next block; the ring has no call that would return an error, so it is asked for."""
        if self.sock.fileno() == -1:
            raise OSError(errno.EBADF, "the socket was closed under its receiver")
        received = self.ring.read(self.core, polled)
        if received > 0:
            self._received = received
            return _A_BLOCK
        if received == -lib.AIORECV_PEERS_FULL:
            self._renew_peers()
            return self.read(slots, polled)
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._note_error(error)
            raise OSError(error, os.strerror(error))
        self._check_end()
        return 0

    def batch(self, read: int, polled: bool) -> RingBatch:
        """The block that was read, which the batch gives back."""
        return RingBatch(self.ring, self._peers, self._received, polled, self._metadata)

    def close(self) -> None:
        """The same; blocks that are held stay readable where they are."""
        self.ring.close()
        super().close()

    def close_copy(self) -> None:
        """The same; its memory, too, would keep the socket open."""
        self.ring.close()
        super().close_copy()

    def advice(self) -> str:
        """Why frames are dropped, and what to do."""
        return (
            f"the ring had no free block; {self.ring.held} of its blocks are held by batches or "
            "views. Keep batch.copy() in their place, or give RingConfig more blocks"
        )

    def held_bytes(self) -> int:
        """The whole ring, which is there whatever it holds."""
        return self.ring.nbytes
