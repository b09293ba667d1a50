"""Slabs: memory for the messages of one read, lent to a batch and taken back.

Owns the packet memory of one event loop: stacks of free slabs, one stack for each power of two
of slots and each slot size. Promises that a slab is lent to one batch at a time and that its
memory is not written while a view of it lives. Never knows asyncio, time or sockets: whoever
owns the pool calls ``age()`` now and then, and is told by ``warmed`` when that starts to matter.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from aiorecv._native._core import ffi, lib

if TYPE_CHECKING:
    from aiorecv._native._core import SlabStruct


Cutters: TypeAlias = dict[int, Callable[[Any], tuple[bytes, ...]]]


class Slab:
    """Slots, with their headers built once, for one read of up to ``slots`` messages."""

    __slots__ = (
        "__weakref__",
        "_pool",
        "_stack",
        "buffer",
        "core",
        "cutters",
        "holder",
        "lengths",
        "memory",
        "nbytes",
        "peers",
        "stamp",
        "stride",
    )

    def __init__(
        self, pool: SlabPool, stack: list[Slab], slots: int, slot_size: int, cutters: Cutters
    ) -> None:
        core = lib.aiorecv_slab_new(slots, slot_size)
        if core == ffi.NULL:
            raise OSError(ffi.errno, f"no memory for {slots} slots: {os.strerror(ffi.errno)}")
        self.core: SlabStruct = core
        self.stride = core.stride
        self.nbytes = slots * self.stride
        # The mapping lives as long as this object, which every buffer made of it keeps alive.
        self.memory = ffi.gc(core.memory, lambda _: lib.aiorecv_slab_free(core), self.nbytes)
        self.buffer: Any = ffi.buffer(self.memory, self.nbytes)
        self.lengths = memoryview(ffi.buffer(core.lengths, slots * 4)).cast("I")
        self.peers = memoryview(ffi.buffer(core.peers, slots * 4)).cast("I")
        # Shared by all slabs of this slot size: what cuts a read of equal packets at once.
        self.cutters = cutters
        self.holder: object = None
        self.stamp = 0
        self._pool = pool
        self._stack = stack

    def give(self) -> None:
        """Back to the pool: nobody reads this memory any more."""
        pool = self._pool
        self.holder = None
        self.stamp = pool.now
        self._stack.append(self)
        if not pool.warm:
            pool.warm = True
            pool.warmed()

    def export(self) -> Any:
        """The object all views of one lease hold; when it dies, the slab goes back by itself.

        Exact without polling: memoryviews, casts of them and arrays made from them keep their
        exporter alive, and its weak reference tells of its end.
        """
        exporter = ffi.buffer(self.memory, self.nbytes)
        reference = weakref.ref(exporter, self._pool.returned)
        # By identity: a buffer can't be hashed.
        self._pool.exported[id(reference)] = reference, self
        return exporter


class SlabPool:
    """The free slabs of one event loop, the one used last on top: its pages are warm."""

    __slots__ = ("_cutters", "_kinds", "exported", "now", "slabs", "warm", "warmed")

    def __init__(self, warmed: Callable[[], None]) -> None:
        self.warmed = warmed
        self.warm = False
        self.now = 0
        # All of them, lent ones too: a slab that only its batch knew would be garbage with it, and
        # the collector, which finalizes a whole cycle first, would unmap it before the batch's
        # own end gives it back.
        self.slabs: set[Slab] = set()
        self.exported: dict[int, tuple[weakref.ref[Any], Slab]] = {}
        self._kinds: dict[int, list[list[Slab]]] = {}
        self._cutters: dict[int, Cutters] = {}

    def stacks(self, slot_size: int) -> list[list[Slab]]:
        """Stacks of free slabs with slots of this size, by the number of slots a read wants."""
        stacks = self._kinds.get(slot_size)
        if stacks is None:
            by_class: list[list[Slab]] = [[] for _ in range(lib.AIORECV_MAX_SLOTS.bit_length())]
            stacks = [by_class[(n - 1).bit_length()] for n in range(1, lib.AIORECV_MAX_SLOTS + 1)]
            stacks.insert(0, [])
            self._kinds[slot_size] = stacks
        return stacks

    def make(self, slots: int, slot_size: int) -> Slab:
        """A new slab for a read of ``slots``, rounded up to a power of two."""
        stack = self.stacks(slot_size)[slots]
        cutters = self._cutters.setdefault(slot_size, {})
        slab = Slab(self, stack, 1 << (slots - 1).bit_length(), slot_size, cutters)
        self.slabs.add(slab)
        return slab

    def returned(self, reference: weakref.ref[Any]) -> None:
        """The last view of a lease has died, in whichever thread."""
        self.exported.pop(id(reference))[1].give()

    def age(self) -> bool:
        """Free the slabs that have not been lent since the call before.

        Returns whether to call again: free slabs are left, and ``warmed`` was not called for them.
        """
        self.now += 1
        # First, so that a slab that a view in another thread gives back meanwhile is not missed.
        self.warm = left = False
        for stacks in self._kinds.values():
            for stack in {id(stack): stack for stack in stacks}.values():
                # The stack's bottom is what has been unused for longest.
                stale = 0
                while stale < len(stack) and stack[stale].stamp < self.now - 1:
                    stale += 1
                self.slabs.difference_update(stack[:stale])
                del stack[:stale]
                left = left or bool(stack)
        if left and not self.warm:
            self.warm = True
            return True
        return False

    def held_by(self, holder: object) -> int:
        """Bytes of packet memory in the slabs that are lent to this holder's batches."""
        return sum(slab.nbytes for slab in self.slabs if slab.holder is holder)
