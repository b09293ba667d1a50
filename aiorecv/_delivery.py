"""Delivery: who gets a batch, and when. Part of the receiver's room.

One task at a time asks; it gets a batch at once or suspends. Owns turns and what is kept for the
next reader: nothing read is lost, whoever is cancelled. Never looks inside a packet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic

from aiorecv._batch import PacketBatch
from aiorecv._errors import ReceiverBusyError
from aiorecv._reader import Reader
from aiorecv._readiness import Readiness

# None where no loop runs, in a forked child too; asyncio documents it for those who make loops.
_running_loop = asyncio._get_running_loop


class _Pausing:
    """In the place of a waiter: the reader comes back by itself in the next pass."""

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False


_PAUSING = _Pausing()


class Split:
    """A batch that ``datagrams()`` gives out packet by packet."""

    __slots__ = ("batch", "pairs", "taken")

    def __init__(self, batch: PacketBatch) -> None:
        self.batch = batch
        self.pairs = iter(batch)
        self.taken = 0

    def rest(self) -> PacketBatch | None:
        """What nobody has taken yet, as a batch of its own."""
        left = self.taken < len(self.batch)
        rest = self.batch._copy_from(self.taken) if left else None
        self.batch.release()
        return rest


class Delivery:
    """Hands the batches of one reader to the task that asks for them."""

    __slots__ = (
        "_failure",
        "_kept",
        "_leaving",
        "_loop",
        "_reader",
        "_readiness",
        "_turn_end",
        "_turn_limit",
        "_waiter",
        "closed",
        "split",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: Reader,
        readiness: Readiness,
        turn_limit: float,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._readiness = readiness
        self._turn_limit = turn_limit
        self._turn_end = monotonic() + turn_limit
        self._waiter: asyncio.Future[None] | _Pausing | None = None
        self._kept: PacketBatch | None = None
        self.split: Split | None = None
        self._failure: BaseException | None = None
        self._leaving: set[Callable[[], object]] | None = None
        self.closed = False
        reader.owner = self

    def now(self) -> PacketBatch | None:
        """What is there, or None."""
        self._check()
        batch = self._take()
        if batch is not None or self.closed:
            return batch
        return self._read(monotonic(), False)

    def ready(self) -> PacketBatch | None:
        """A batch if it can be had without suspending; else None, and ``later()`` has it."""
        if self._waiter is not None or _running_loop() is not self._loop:
            self._check()
        if self._kept is not None or self.split is not None or self._failure is not None:
            batch = self._take()
            if batch is not None:
                return batch
        if self.closed:
            return None
        now = monotonic()
        if now < self._reader.try_at:
            return None
        batch = self._read(now, False)
        if batch is None:
            return None
        if now >= self._turn_end:
            # The loop's other tasks come first; keeping the batch keeps it from cancellation.
            self._kept = batch
            return None
        return batch

    async def later(self) -> PacketBatch | None:
        """The next batch after suspending, or None once the receiver is closed."""
        if self._kept is not None:
            await self._pause()
        elif not self.closed:
            # Here, not in a coroutine of its own: its frame would be memory of each idle receiver.
            waiter = self._waiter = self._loop.create_future()
            try:
                self._readiness.wait(self._on_readable)
                if self._reader.source.owes_error():
                    self._loop.call_soon(self._on_readable)
                await waiter
            finally:
                # A reader that came after this one was cancelled has put its own waiter there.
                if self._waiter is waiter:  # pragma: no branch - false only on the way of an error
                    self._waiter = self._readiness.waiting = None
        return self._take()

    async def _pause(self) -> None:
        self._waiter = _PAUSING
        self._readiness.waiting = _PAUSING.done
        try:
            await asyncio.sleep(0)
        finally:
            self._waiter = self._readiness.waiting = None
        self._turn_end = monotonic() + self._turn_limit

    def _on_readable(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():  # its task is about to run
            return
        now = monotonic()
        self._turn_end = now + self._turn_limit
        try:
            self._kept = self._read(now, True)
        except (SystemExit, KeyboardInterrupt):
            if self._kept is not None:  # the next callback would read over it
                self._wake()
            raise
        except BaseException as exc:
            self._failure = exc
        if self._kept is None and self._failure is None:
            if not self.closed:
                self._readiness.note_fruitless(self._reader.source.drain_errors)
        else:
            self._readiness.fruitless = 0
            self._wake()

    def _read(self, now: float, polled: bool) -> PacketBatch | None:
        reader = self._reader
        read = reader.read(polled)
        if not read:
            reader.note_nothing(now)
            return None
        batch = reader.source.batch(read, polled)
        try:
            reader.note(read, now, polled)
        except BaseException:
            self._kept = batch  # it comes with the next call
            raise
        return batch

    def _take(self) -> PacketBatch | None:
        """What waits in user space: an error, the rest of a split batch, a kept one."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self.split is not None:
            split, self.split = self.split, None
            rest = split.rest()
            if rest is not None:
                return rest
        kept, self._kept = self._kept, None
        return kept

    def _wake(self) -> None:
        waiter = self._waiter
        if isinstance(waiter, asyncio.Future) and not waiter.done():
            waiter.set_result(None)

    def _check(self) -> None:
        """Raise if somebody asks who may not."""
        if _running_loop() is not self._loop:
            raise RuntimeError(
                "a receiver belongs to the event loop it was opened on: read it there, "
                "not on another loop, in another thread or in a forked child"
            )
        if self._waiter is not None and not self._waiter.cancelled():
            raise ReceiverBusyError(
                "another task is waiting for this receiver: one reads at a time"
            )

    def close(self) -> None:
        """End reading, for good."""
        if not self.closed:
            self.leave()
            self._reader.source.close()

    def leave(self) -> None:
        """End reading, but leave the descriptor open; whoever waits wakes."""
        self.closed = True  # first: whoever hears of drops at the end may close it too
        self._reader.end()
        # Before the descriptor is closed, or the loop would watch whoever gets its number next.
        self._readiness.stop()
        if not self._loop.is_closed():
            self._wake()
            for call in tuple(self._leaving or ()):
                call()

    def when_left(self, call: Callable[[], object]) -> Callable[[], None]:
        """Have this called when reading ends; returns what takes that back."""
        if self._leaving is None:
            self._leaving = set()
        self._leaving.add(call)
        return partial(self._leaving.discard, call)
