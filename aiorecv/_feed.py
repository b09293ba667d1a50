"""Feeds: reads go to a protocol's callbacks. Part of the endpoint's room.

Reads in the loop's reader callback, and calls ``datagram_received`` once a packet or
``batch_received`` once a read. Keeps what a pause, or the end of a turn, leaves of a read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint
from time import monotonic
from typing import Any, Protocol

from aiorecv._addresses import Address
from aiorecv._batch import PacketBatch, Portion
from aiorecv._engine import Engine
from aiorecv._leases import LeasedBatch
from aiorecv._payloads import RECEIVED_MASK, TRAINS, is_full

# Packets between looks at the clock (50 ns).
_PACKETS_A_LOOK = 32

# What a read of one datagram, not a train, has in these bits.
_ONE_DATAGRAM = RECEIVED_MASK | TRAINS

_NO_PORTIONS: Iterator[Portion] = iter(())


class Listener(Protocol):
    """Whose protocol a feed calls."""

    def _error_received(self, error: OSError) -> None:
        """The kernel reported an error that can heal."""

    def _callback_failed(self, name: str, error: BaseException) -> None:
        """A callback raised this; what comes after it is not affected."""

    def _reading_failed(self, error: BaseException) -> None:
        """Nothing more can be read."""

    def _reading_ended(self) -> None:
        """The other side has hung up."""


class Feed:
    """Reads one engine, and calls back."""

    __slots__ = (
        "_batch",
        "_chunk",
        "_items",
        "_left",
        "_listener",
        "_loop",
        "_one_sender",
        "_packets",
        "_portions",
        "_protocol",
        "_reader",
        "_readiness",
        "_running",
        "_sender",
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
        # What is being delivered: the chunk under the loop, the rest of its portion, the others.
        # An item is a payload if its portion has one sender, else a pair.
        self._batch: PacketBatch | None = None
        self._chunk: list[Any] = []
        self._packets: Iterator[Any] = iter(self._chunk)
        self._items: Sequence[Any] = ()
        self._one_sender = False
        self._sender: Address = None
        self._portions = _NO_PORTIONS
        self._takes_batches = False
        self._reader.owner = self
        self._reader.on_error = self._error_came

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
        self._readiness.watch(self._on_readable)
        if self._batch is not None:
            self._go_on_soon()

    def pause(self) -> None:
        """Call back no more until told to resume, from the next packet on."""
        self._running = False
        self._readiness.unwatch()
        self._interrupt()
        if isinstance(self._batch, LeasedBatch):
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

    def _on_readable(self) -> None:
        if self._batch is not None:  # its rest comes first, in a callback of its own
            return
        polled = not self._left
        self._left = True  # whatever ends this callback early
        reader = self._reader
        end = 0.0
        while True:
            try:
                read = reader.read(polled)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._listener._reading_failed(error)
                return
            if not read:
                self._nothing_came()
                return
            if not self._running:  # error_received, before this read, has paused or closed
                self._put_off(reader.source.batch(read, polled))
                return
            # Deliver, then draw conclusions: a lone packet is at its user's sooner.
            if read & _ONE_DATAGRAM == 1 and not self._takes_batches:
                data, addr = reader.source.packet(read)
                try:
                    self._protocol.datagram_received(data, addr)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._listener._callback_failed("datagram_received", error)
                finally:
                    reader.source.give()
                done = True
            else:
                now = monotonic()
                end = end or now + self._turn_limit
                self._take(reader.source.batch(read, polled))
                done = self._deliver(now, end)
            now = self._note(read, polled)
            if not is_full(read):
                self._left = not done and self._running  # the turn is over
                return
            polled = False
            end = end or now + self._turn_limit
            if now >= end or not done or not self._running:
                return

    def _note(self, read: int, polled: bool) -> float:
        """Tell reader and policy of a read that was delivered; returns the time."""
        self._readiness.fruitless = 0
        now = monotonic()
        try:
            self._reader.note(read, now, polled)
        except Exception as error:
            self._listener._callback_failed("record", error)
        return now

    def _nothing_came(self) -> None:
        self._left = False
        if self._reader.ended:
            self._listener._reading_ended()
        else:
            self._readiness.note_fruitless(self._reader.source.drain_errors)

    def _error_came(self, error: OSError) -> None:
        self._readiness.fruitless = -1  # this callback was not in vain
        self._listener._error_received(error)

    def _take(self, batch: PacketBatch) -> None:
        self._batch = batch
        self._portions = batch._portions()

    def _put_off(self, batch: PacketBatch) -> None:
        """Keep what was read until the end of a pause."""
        self._take(batch)
        if self._reader.ended:
            self._forget()
        else:
            self._pack()

    def _deliver(self, now: float, end: float) -> bool:
        """Call back with what was read; False if the end of the turn or a pause leaves some."""
        while self._running and self._batch is not None:
            if self._takes_batches:
                self._deliver_batch(self._batch)
                continue
            if not self._items:
                portion = next(self._portions, None)
                if portion is None:
                    self._forget()
                    return True
                data, senders = portion
                self._one_sender = len(senders) == 1
                self._sender = senders[0]
                self._items = data if self._one_sender else list(zip(data, senders, strict=True))
            if now >= end:
                self._go_on_soon()
                return False
            self._chunk = list(self._items[:_PACKETS_A_LOOK])
            self._items = self._items[_PACKETS_A_LOOK:]
            self._packets = iter(self._chunk)
            try:
                self._deliver_chunk(self._packets)
            except BaseException:  # an interrupt, or an exception handler that exits
                self._interrupt()
                self._go_on_soon()
                raise
            now = monotonic()
        return self._batch is None

    def _deliver_chunk(self, packets: Iterator[Any]) -> None:
        try:
            received = self._protocol.datagram_received
        except AttributeError as error:  # no datagram protocol: it costs all of them
            self._chunk.clear()
            self._listener._callback_failed("datagram_received", error)
            return
        # After an error this goes on behind the packet that it cost. A pause, a close or another
        # protocol empties the list under the loop, which ends it: so no packet pays for a look.
        while True:
            try:
                if self._one_sender:  # a pair for each packet would cost 45 ns more
                    addr = self._sender
                    for data in packets:
                        received(data, addr)
                else:
                    for data, addr in packets:
                        received(data, addr)
                return
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._listener._callback_failed("datagram_received", error)

    def _deliver_batch(self, batch: PacketBatch) -> None:
        # It is the protocol's now: a pause, a close or another protocol leaves it alone.
        self._batch = None
        self._portions = _NO_PORTIONS
        try:
            self._protocol.batch_received(batch)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._listener._callback_failed("batch_received", error)
        finally:
            batch.release()

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
            self._items = [*self._chunk[-left:], *self._items]
            self._chunk.clear()

    def _pack(self) -> None:
        """Make the rest a batch of its own, which holds no packet memory however long it waits."""
        batch = self._batch
        if batch is not None:
            rest = len(self._items) + sum(len(data) for data, _ in self._portions)
            copy = batch._copy_from(len(batch) - rest)
            self._forget()
            if rest:
                self._take(copy)

    def _forget(self) -> None:
        batch, self._batch = self._batch, None
        self._portions = _NO_PORTIONS
        self._items = ()
        if batch is not None:
            batch.release()
