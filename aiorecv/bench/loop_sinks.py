"""Sinks on an event loop: users of a receiver, and of the loop's own datagram protocol.

Each adds up its packets' sizes as its way of receiving tells them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable
from typing import Any, Self

import aiorecv
from aiorecv.bench.counters import Stopwatch
from aiorecv.bench.sinks import Counts, Sink

# In a flood something always is there, and the loop's other tasks need their turn.
_NOWAIT_READS = 16


class LoopSink(Sink):
    """Code on an event loop, which waits between stretches as it does in a program."""

    def __init__(self, sock: socket.socket, stopwatch: Stopwatch, packet_size: int) -> None:
        super().__init__(sock, stopwatch, packet_size)
        self._packets = self._nbytes = self._reads = 0
        self._measure: Callable[[bytes], int] = len
        self._wanted = math.inf
        self._done: asyncio.Future[None]

    async def check(self, packets: int) -> int:
        self._measure = sum
        content = (await self.take(packets)).nbytes
        self._measure = len
        return content

    async def _drain(self, packets: int) -> None:
        self._done = asyncio.get_running_loop().create_future()
        self._wanted = self._packets + packets
        await self._done

    def _enough(self) -> None:
        self._wanted = math.inf
        self._ended()
        if not self._done.done():  # it is cancelled if the program is interrupted
            self._done.set_result(None)


class ProtocolSink(LoopSink, asyncio.DatagramProtocol):
    """The event loop's own datagram endpoint, with a protocol that counts."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._lost = loop.create_future()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=self._sock)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()
        await self._lost
        await super().__aexit__()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._packets += 1
        self._nbytes += self._measure(data)
        if self._packets >= self._wanted:
            self._enough()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set_result(None)

    def _counts(self) -> Counts:
        # One packet a call on both loops; how many calls find nothing, neither tells.
        return Counts(self._packets, self._nbytes, self._packets, None)


class ReceiverSink(LoopSink):
    """A task that uses a receiver in one of its ways."""

    async def __aenter__(self) -> Self:
        self._receiver = aiorecv.from_socket(self._sock)
        self._task = asyncio.ensure_future(self._use())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._receiver.close()
        await self._task

    async def _use(self) -> None:
        raise NotImplementedError

    def _took(self, packets: int, nbytes: int) -> None:
        self._packets += packets
        self._nbytes += nbytes
        self._reads += 1  # each gives one batch
        if self._packets >= self._wanted:
            self._enough()

    def _took_batch(self, batch: aiorecv.PacketBatch) -> None:
        if self._measure is len:
            self._took(len(batch), batch.nbytes)
        else:
            self._took(len(batch), sum(sum(view) for view in batch.views()))

    def _counts(self) -> Counts:
        empty_reads = self._receiver.statistics().empty_reads
        return Counts(self._packets, self._nbytes, self._reads, empty_reads)


class BatchesSink(ReceiverSink):
    """Asks each batch for its length and its bytes."""

    async def _use(self) -> None:
        async for batch in self._receiver:
            self._took_batch(batch)


class PairsSink(ReceiverSink):
    """Takes each packet as ``(data, addr)``."""

    async def _use(self) -> None:
        async for batch in self._receiver:
            measure = self._measure
            nbytes = 0
            for data, _addr in batch:
                nbytes += measure(data)
            self._took(len(batch), nbytes)


class NowaitSink(ReceiverSink):
    """Waits for one batch, then asks for more without waiting, until nothing is there."""

    async def _use(self) -> None:
        receiver = self._receiver
        with contextlib.suppress(aiorecv.ReceiverClosedError):
            while True:
                with await receiver.receive() as batch:
                    self._took_batch(batch)
                for _ in range(_NOWAIT_READS):
                    more = receiver.receive_nowait()
                    if more is None:
                        break
                    with more:
                        self._took_batch(more)
