"""Iteration: ``async for`` over batches, and over their packets. Part of the receiver's room."""

from __future__ import annotations

from typing import Self
from weakref import ref

from aiorecv._batch import PacketBatch, Pair
from aiorecv._delivery import Delivery, Split


class Batches:
    """One ``async for``: a batch lives until the next is asked for, or the user drops it."""

    __slots__ = ("_delivery", "_last", "_receiver")

    def __init__(self, receiver: object, delivery: Delivery) -> None:
        self._receiver = receiver  # or it would be closed as dropped
        self._delivery = delivery
        self._last: ref[PacketBatch] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PacketBatch:
        last = self._last
        if last is not None:
            batch = last()
            if batch is not None:
                batch.release()
        batch = self._delivery.ready()
        if batch is None:
            batch = await self._delivery.later()
            if batch is None:
                raise StopAsyncIteration
        self._last = ref(batch)
        return batch


class Datagrams:
    """One ``async for`` over packets; what it has not given out stays with the delivery."""

    __slots__ = ("_delivery", "_receiver")

    def __init__(self, receiver: object, delivery: Delivery) -> None:
        self._receiver = receiver  # or it would be closed as dropped
        self._delivery = delivery

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Pair:
        split = self._delivery.split
        if split is not None:
            for pair in split.pairs:
                split.taken += 1
                return pair
        batch = self._delivery.ready()
        if batch is None:
            batch = await self._delivery.later()
            if batch is None:
                raise StopAsyncIteration
        split = self._delivery.split = Split(batch)
        split.taken = 1
        return next(split.pairs)
