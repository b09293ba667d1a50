"""Leases: the batch that a read makes. It has a slab on loan until it is released or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product, repeat, starmap
from typing import Any, overload

from aiorecv._addresses import Address, AddressTable
from aiorecv._batch import PacketBatch, Pair, Portion, paired, released_error
from aiorecv._packet import Details, Metadata, details
from aiorecv._payloads import (
    AT_ONCE_BYTES,
    BYTES_SHIFT,
    ONE_PEER,
    RECEIVED_MASK,
    SLOTS_SHIFT,
    TRAINS,
    Layout,
    cutter,
    is_full,
    lay_out,
    mixed,
    packets_in,
    payloads,
    portions,
    trains,
)
from aiorecv._slabs import Slab


class LeasedBatch(PacketBatch):
    """Packets where the kernel wrote them: in the slots of a slab."""

    __slots__ = ("_exporter", "_read", "_senders", "_slab")

    def __init__(
        self, slab: Slab, senders: AddressTable, read: int, polled: bool, metadata: Metadata
    ) -> None:
        self._slab: Slab | None = slab
        self._senders = senders
        self._read = read
        self._count = slab.core.packets if read & TRAINS else read & RECEIVED_MASK
        self._exporter: Any = None
        self._layout: Layout | None = None
        self._metadata = metadata
        self.polled = polled

    @property
    def nbytes(self) -> int:
        return self._read >> BYTES_SHIFT

    @property
    def slots(self) -> int:
        return self._read >> SLOTS_SHIFT & RECEIVED_MASK

    @property
    def full(self) -> bool:
        return is_full(self._read)

    @property
    def _received(self) -> int:
        """Slots the read filled: with GRO fewer than there are packets."""
        return self._read & RECEIVED_MASK

    def __iter__(self) -> Iterator[Pair]:
        slab = self._live()
        read = self._read
        cut = cutter(slab, read)
        if cut is not None:
            data = cut(slab.buffer)
            if read & ONE_PEER:
                # The product with one address makes the same pairs as zip does, in half its time.
                return product(data, (self._senders.one(slab.peers[0]),))
            return zip(data, self._message_senders(slab), strict=True)
        if self._count == 1:
            return iter([(slab.buffer[: self.nbytes], self._senders.one(slab.peers[0]))])
        if self.nbytes <= AT_ONCE_BYTES and not read & TRAINS:
            return zip(mixed(slab, read), self._message_senders(slab), strict=True)
        return chain.from_iterable(starmap(paired, self._portions()))

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        if isinstance(index, slice):
            return list(zip(self.payloads()[index], self.addresses()[index], strict=True))
        layout = self._laid_out()
        start = layout.offsets[index]
        data = self._live().buffer[start : start + layout.lengths[index]]
        # One look-up, not one for each packet of the batch.
        peers = self._live().peers
        if self._read & ONE_PEER:
            return data, self._senders.one(peers[0])
        if self._read & TRAINS:
            return data, self.addresses()[index]
        return data, self._senders.one(peers[range(self._count)[index]])

    def payloads(self) -> Sequence[bytes]:
        return payloads(self._live(), self._read)

    def addresses(self) -> Sequence[Address]:
        slab = self._live()
        senders = self._message_senders(slab)
        if not self._read & TRAINS:
            return senders
        counts = (packets_in(slab, message) for message in range(self._received))
        return list(chain.from_iterable(map(repeat, senders, counts)))

    @property
    def buffer(self) -> memoryview:
        slab = self._live()
        if self._exporter is None:
            self._exporter = slab.export()
        used = self._received * slab.stride
        return memoryview(self._exporter)[:used].toreadonly()

    def release(self) -> None:
        slab = self._slab
        if slab is not None:
            self._slab = None
            if self._exporter is None:
                slab.give()
            else:
                self._exporter = None

    def __del__(self) -> None:
        if self._slab is not None:
            self.release()

    def _live(self) -> Slab:
        slab = self._slab
        if slab is None:
            raise released_error()
        return slab

    def _laid_out(self) -> Layout:
        slab = self._live()
        if self._layout is None:
            timestamps = Metadata.TIMESTAMP in self._metadata
            self._layout = lay_out(slab, self._read, self._count, timestamps)
        return self._layout

    def _details(self, start: int) -> Iterator[Details]:
        """What is known of each packet from number ``start`` on."""
        trains = self._read & TRAINS
        for message in range(self._received):
            slab = self._live()
            packets = packets_in(slab, message) if trains else 1
            if start < packets:
                yield from repeat(self._detail(slab, message), packets - start)
            start = max(start - packets, 0)

    def _detail(self, slab: Slab, message: int) -> Details:
        return details(slab, message, self._metadata)

    def _message_senders(self, slab: Slab) -> Sequence[Address]:
        if self._read & ONE_PEER:
            return [self._senders.one(slab.peers[0])] * self._received
        return self._senders.many(slab.peers[: self._received].tolist())

    def _portions(self) -> Iterator[Portion]:
        slab = self._live()  # again: this begins when the first packet is asked for
        read = self._read
        cut = cutter(slab, read)
        if cut is not None:
            yield cut(slab.buffer), self._different_senders(slab)
        elif read & TRAINS:
            for sender, data in zip(self._message_senders(slab), trains(slab, read), strict=True):
                yield data, (sender,)
                self._live()  # before the next train is cut
        else:
            senders = self._different_senders(slab)
            start = 0
            for some in portions(slab, read):
                stop = start + len(some)
                yield some, senders[start:stop] if len(senders) > 1 else senders
                self._live()  # before the next ones are cut
                start = stop

    def _different_senders(self, slab: Slab) -> Sequence[Address]:
        """The address that all messages came from, or that of each."""
        if self._read & ONE_PEER:
            return (self._senders.one(slab.peers[0]),)
        return self._message_senders(slab)
