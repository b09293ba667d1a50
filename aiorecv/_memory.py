"""The memory of each event loop, and the clock it ages by. Part of the receiver's room."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

from aiorecv._addresses import AddressTable
from aiorecv._destinations import Destinations
from aiorecv._native._core import ffi, lib
from aiorecv._slabs import SlabPool

if TYPE_CHECKING:
    from aiorecv._native._core import OutboxStruct

# How often free slabs are looked at: one not lent for a whole round goes back to the system.
_AGE_EVERY = 0.5


class Memory:
    """What the receivers and senders of one loop share: slabs, headers, numbers of addresses."""

    __slots__ = ("__weakref__", "_destinations", "_loop", "_outbox", "peers", "pool")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak: the loop's memory is kept by the loop, not the other way round.
        self._loop = weakref.ref(loop)
        self.pool = SlabPool(self._warmed)
        self.peers = AddressTable()
        self._destinations: dict[int, Destinations] = {}
        self._outbox: OutboxStruct | None = None

    @property
    def outbox(self) -> OutboxStruct:
        """Headers for one send: it is one call, so that no sender needs any of its own."""
        if self._outbox is None:
            outbox = lib.aiorecv_outbox_new()
            if outbox == ffi.NULL:
                raise MemoryError("no memory for the headers of packets to send")
            self._outbox = ffi.gc(outbox, lib.aiorecv_outbox_free)
        return self._outbox

    def destinations(self, family: int) -> Destinations:
        """The addresses of this family that senders have sent to."""
        if family not in self._destinations:
            self._destinations[family] = Destinations(family)
        return self._destinations[family]

    def _warmed(self) -> None:
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        if asyncio._get_running_loop() is loop:
            loop.call_later(_AGE_EVERY, self._age)
        else:
            # The last view of a batch may die in any thread.
            loop.call_soon_threadsafe(self._age)

    def _age(self) -> None:
        loop = self._loop()
        if self.pool.age() and loop is not None:
            loop.call_later(_AGE_EVERY, self._age)


_MEMORIES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Memory] = (
    weakref.WeakKeyDictionary()
)


def memory_of(loop: asyncio.AbstractEventLoop) -> Memory:
    """The memory that all receivers of ``loop`` share."""
    memory = _MEMORIES.get(loop)
    if memory is None:
        memory = _MEMORIES[loop] = Memory(loop)
    return memory
