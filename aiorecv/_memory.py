"""The memory of each event loop, and the clock it ages by. Part of the receiver's room."""

from __future__ import annotations

import asyncio
import weakref

from aiorecv._addresses import AddressTable
from aiorecv._slabs import SlabPool

# How often free slabs are looked at: one not lent for a whole round goes back to the system.
_AGE_EVERY = 0.5


class Memory:
    """What the receivers of one event loop share: slabs, and the numbers of their peers."""

    __slots__ = ("__weakref__", "_loop", "peers", "pool")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak: the loop's memory is kept by the loop, not the other way round.
        self._loop = weakref.ref(loop)
        self.pool = SlabPool(self._warmed)
        self.peers = AddressTable()

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
