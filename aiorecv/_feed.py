"""Feeds: reads go to a protocol's callbacks. Part of the endpoint's room.

Reads in the loop's reader callback, and calls ``datagram_received`` once a packet or
``batch_received`` once a read. Keeps what a pause, or the end of a turn, leaves of a read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import length_hint
from time import monotonic
from typing import Any, Protocol

from aiorecv._batch import PacketBatch, Pair
from aiorecv._engine import Engine
from aiorecv._leases import LeasedBatch

# Packets between looks at the clock (50 ns).
_PACKETS_A_LOOK = 32

_NOTHING: Iterator[Pair] = iter(())


class Listener(Protocol):
    """Whose protocol a feed calls."""

    def error_received(self, error: OSError) -> None:
        """The kernel reported an error that can heal."""

    def callback_failed(self, name: str, error: BaseException) -> None:
        """A callback raised this; what comes after it is not affected."""

    def reading_failed(self, error: BaseException) -> None:
        """Nothing more can be read."""

    def reading_ended(self) -> None:
        """The other side has hung up."""


class Feed:
    """Reads one engine, and calls back."""

    __slots__ = (
        "_ahead",
        "_batch",
        "_chunk",
        "_left",
        "_listener",
        "_loop",
        "_packets",
        "_pairs",
        "_protocol",
        "_reader",
        "_readiness",
        "_running",
        "_takes_batches",
        "_turn_limit",
    )

    def __init__(self, engine: Engine, listener: Listener) -> None:
        self._loop = engine.loop
        self._reader = engine.reader
        self._readiness = engine.readiness
        self._turn_limit = engine.turn_limit
        self._listener = listener
        self._running = False
        # Whether the last callback stopped with packets left, so that the next read is immediate.
        self._left = False
        # What is being delivered: the packets under the loop, those after them, and the rest.
        self._batch: PacketBatch | None = None
        self._chunk: list[Pair] = []
        self._packets: Iterator[Pair] = _NOTHING
        self._ahead: list[Pair] = []
        self._pairs: Iterator[Pair] = _NOTHING
        self._takes_batches = False
        self._reader.owner = self
        self._reader.on_error = listener.error_received

    def call(self, protocol: Any, *, batches: bool) -> None:
        """Call this protocol from the next packet on, once a packet or with whole batches."""
        self._interrupt()
        if batches:
            self._pack()
        self._protocol = protocol
        self._takes_batches = batches

    def resume(self) -> None:
        """Read, and go on with what a pause has left; the loop calls back in this context."""
        self._running = True
        self._readiness.wait(self._on_readable)
        if self._batch is not None:
            self._go_on_soon()

    def pause(self) -> None:
        """Call back no more until told to resume, from the next packet on."""
        self._running = False
        self._readiness.waiting = None
        self._interrupt()
        self._pack()

    def stop(self) -> None:
        """Read no more, and forget what has not been delivered; safe to repeat."""
        self.close()
        self._interrupt()
        self._forget()

    def close(self) -> None:
        """The reader has met its end."""
        self._running = False
        if not self._reader.ended:
            self._reader.end()
        self._readiness.stop()

    def keep(self, batch: PacketBatch) -> None:
        """Deliver this batch, though its window's policy failed."""
        self._batch = batch
        self._pairs = iter(batch)

    def _on_readable(self) -> None:
        if self._batch is not None:  # its rest comes first, in a callback of its own
            return
        now = monotonic()
        end = now + self._turn_limit
        polled = not self._left
        self._left = True  # whatever ends this callback early
        while True:
            batch = self._read(now, polled)
            if batch is None:
                self._left = False
                return
            more = batch.full
            if len(batch) == 1 and not self._takes_batches:
                ((data, addr),) = batch
                batch.release()
                try:
                    self._protocol.datagram_received(data, addr)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._listener.callback_failed("datagram_received", error)
            else:
                self.keep(batch)
                if not self._deliver(now, end):
                    return
            if not more:
                self._left = False
                return
            polled = False
            now = monotonic()
            if now >= end or not self._running:
                return

    def _read(self, now: float, polled: bool) -> PacketBatch | None:
        """One read; errors have been told when this returns."""
        reader = self._reader
        errors = reader.errors
        try:
            batch = reader.read(now, polled)
        except (SystemExit, KeyboardInterrupt):
            if self._batch is not None:
                self._go_on_soon()
            raise
        except BaseException as error:
            batch = self._batch
            if batch is None:
                self._listener.reading_failed(error)
                return None
            self._listener.callback_failed("record", error)
        if batch is not None or reader.errors != errors:
            self._readiness.fruitless = 0
        elif reader.ended:
            self._listener.reading_ended()
        else:
            self._readiness.note_fruitless(reader.source.drain_errors)
        return batch

    def _deliver(self, now: float, end: float) -> bool:
        """Call back with what was read; False if the end of the turn or a pause leaves some."""
        while self._running:
            if self._takes_batches:
                return self._deliver_batch()
            chunk = self._ahead or list(islice(self._pairs, _PACKETS_A_LOOK))
            if not chunk:
                self._forget()
                return True
            self._ahead = []
            if now >= end:
                self._ahead = chunk
                self._go_on_soon()
                return False
            self._chunk = chunk
            self._packets = iter(chunk)
            self._deliver_chunk()
            now = monotonic()
        return False

    def _deliver_chunk(self) -> None:
        received = self._protocol.datagram_received
        # After an error this goes on behind the packet that it cost. A pause, a close or another
        # protocol empties the list under the loop, which ends it: so no packet pays for a look.
        while True:
            try:
                for data, addr in self._packets:
                    received(data, addr)
                return
            except (SystemExit, KeyboardInterrupt):
                self._interrupt()
                self._go_on_soon()
                raise
            except BaseException as error:
                self._listener.callback_failed("datagram_received", error)

    def _deliver_batch(self) -> bool:
        batch = self._batch
        assert batch is not None  # its caller has read it
        try:
            self._protocol.batch_received(batch)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._listener.callback_failed("batch_received", error)
        finally:
            self._forget()
        return self._running

    def _go_on_soon(self) -> None:
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Deliver the rest of a read in a turn of its own."""
        if self._batch is not None and self._running:
            now = monotonic()
            self._deliver(now, now + self._turn_limit)

    def _interrupt(self) -> None:
        """End the loop over the chunk, if it runs; what it has not come to is kept."""
        left = length_hint(self._packets)
        if left:
            self._ahead = self._chunk[-left:]
            self._chunk.clear()

    def _pack(self) -> None:
        """Make the rest a batch of its own, which holds no packet memory however long it waits."""
        batch = self._batch
        if isinstance(batch, LeasedBatch):
            rest = len(self._ahead) + len(list(self._pairs))
            copy = batch._copy_from(len(batch) - rest)
            self._forget()
            if rest:
                self.keep(copy)

    def _forget(self) -> None:
        batch, self._batch = self._batch, None
        self._pairs = _NOTHING
        self._ahead = []
        if batch is not None:
            batch.release()
