"""Batches: the packets of one read, as pairs, bytes, views or records.

A batch owns the lease of one slab until it is released or dropped. Whatever touches packets
checks that first; numbers about the read stay. Never reads from a socket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product, repeat
from typing import Any, Self, TypeAlias, overload

from aiorecv._addresses import Address, AddressTable
from aiorecv._errors import BatchReleasedError
from aiorecv._packet import NOTHING, Details, Metadata, Packet, details
from aiorecv._payloads import (
    BYTES_SHIFT,
    ONE_PEER,
    RECEIVED_MASK,
    SLOTS_SHIFT,
    TRAINS,
    Layout,
    cutter,
    lay_out,
    packets_in,
    payloads,
    pieces,
)
from aiorecv._slabs import Slab

Pair: TypeAlias = tuple[bytes, Address]


class PacketBatch:
    """The packets of one read, in order of arrival.

    Iterating and indexing give ``(data, addr)`` pairs, a slice a list of them. ``bytes`` are the
    caller's for ever. Views stay right for as long as they live, and hold the packet memory
    until then. After ``release()`` whatever touches packets raises ``BatchReleasedError``;
    ``len()``, ``nbytes``, ``polled``, ``full`` and ``slots`` still answer.
    """

    __slots__ = (
        "__weakref__",
        "_count",
        "_exporter",
        "_layout",
        "_metadata",
        "_read",
        "_received",
        "_senders",
        "_slab",
        "polled",
    )

    polled: bool
    """Whether the read had to wait until the descriptor was reported readable."""

    def __init__(
        self, slab: Slab, senders: AddressTable, read: int, polled: bool, metadata: Metadata
    ) -> None:
        self._slab: Slab | None = slab
        self._senders = senders
        self._read = read
        self._received = read & RECEIVED_MASK
        self._count = slab.core.packets if read & TRAINS else self._received
        self._exporter: Any = None
        self._layout: Layout | None = None
        self._metadata = metadata
        self.polled = polled

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._count} packets, {self.nbytes} bytes>"

    @property
    def nbytes(self) -> int:
        """Payload bytes of all packets together."""
        return self._read >> BYTES_SHIFT

    @property
    def slots(self) -> int:
        """Slots the read offered the kernel."""
        return self._read >> SLOTS_SHIFT & RECEIVED_MASK

    @property
    def full(self) -> bool:
        """Whether the read filled every slot, so that there may have been more."""
        return self._received == self.slots

    def __iter__(self) -> Iterator[Pair]:
        slab = self._live()
        read = self._read
        cut = cutter(slab, read)
        if cut is not None and read & ONE_PEER:
            # The product with one address makes the same pairs as zip does, in half its time.
            return product(cut(slab.buffer), (self._senders.one(slab.peers[0]),))
        if self._count == 1:
            return iter([(slab.buffer[: self.nbytes], self._senders.one(slab.peers[0]))])
        return chain.from_iterable(self._pieces(slab))

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
        """All payloads, copied at once: the fastest way to have them as ``bytes``."""
        return payloads(self._live(), self._read)

    def addresses(self) -> Sequence[Address]:
        """The senders' addresses, one a packet."""
        slab = self._live()
        senders = self._message_senders(slab)
        if not self._read & TRAINS:
            return senders
        counts = (packets_in(slab, message) for message in range(self._received))
        return list(chain.from_iterable(map(repeat, senders, counts)))

    def views(self) -> list[memoryview]:
        """The payloads as read-only memoryviews, without a copy.

        Each holds the whole slab for as long as it lives, the last one of a ``for`` too.
        """
        layout = self._laid_out()
        buffer = self.buffer
        return [
            buffer[start : start + length]
            for start, length in zip(layout.offsets, layout.lengths, strict=True)
        ]

    def packets(self) -> Iterator[Packet]:
        """The packets as records, each made when it is asked for."""
        layout = self._laid_out()
        wire = zip(map(bool, layout.truncated), layout.wire_lengths, strict=True)
        told = self._details(0) if self._metadata else repeat(NOTHING, self._count)
        everything = zip(self, wire, told, strict=True)
        return (
            Packet(data, addr, cut, length, *more)
            for (data, addr), (cut, length), more in everything
        )

    @property
    def buffer(self) -> memoryview:
        """The memory that the packets lie in: read-only bytes.

        What lies between packets is old data of any receiver of the loop; a copy's buffer is
        packed. A view: its memory is not reused while it lives.
        """
        slab = self._live()
        if self._exporter is None:
            self._exporter = slab.export()
        used = self._received * slab.slot_size
        return memoryview(self._exporter)[:used].toreadonly()

    @property
    def offsets(self) -> memoryview:
        """Where each packet starts in ``buffer``, in bytes: uint32, shape ``(len(self),)``.

        An array of its own, which holds no slab.
        """
        return self._laid_out().offsets

    @property
    def lengths(self) -> memoryview:
        """Payload sizes in bytes: uint32, shape ``(len(self),)``, in order of arrival.

        An array of its own, which holds no slab.
        """
        return self._laid_out().lengths

    @property
    def timestamps_ns(self) -> memoryview:
        """When the kernel received each packet: uint64 nanoseconds, shape ``(len(self),)``.

        0 where it did not tell. An array of its own, which holds no slab.

        Raises:
            ValueError: If the receiver was opened without ``Metadata.TIMESTAMP``.
        """
        times = self._laid_out().timestamps_ns
        if times is None:
            raise ValueError("no timestamps: open the receiver with metadata=Metadata.TIMESTAMP")
        return times

    def copy(self) -> PacketBatch:
        """The same packets in memory of their own, packed to ``nbytes``; holds no slab."""
        return self._copy_from(0)

    def release(self) -> None:
        """Give the packet memory back, now or when its last view is gone. Safe to repeat."""
        slab = self._slab
        if slab is not None:
            self._slab = None
            if self._exporter is None:
                slab.give()
            else:
                self._exporter = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        if self._slab is not None:
            self.release()

    def _copy_from(self, start: int) -> PacketBatch:
        """A copy of the packets from number ``start`` on."""
        return CopiedBatch(self, start)

    def _live(self) -> Slab:
        slab = self._slab
        if slab is None:
            raise _released()
        return slab

    def _empty_at_end(self) -> int:
        """How many packets at the end have neither bytes nor ancillary data."""
        core = self._live().core
        left = self._received
        while left and not core.lengths[left - 1] and not core.controls[left - 1]:
            left -= 1
        return self._received - left

    def _drop_last(self, empty: int) -> None:
        """Leave out so many empty packets at the end; some are left."""
        self._received -= empty
        self._count -= empty
        self._read -= empty
        if self._received == 1:
            self._read |= ONE_PEER

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

    def _pieces(self, slab: Slab) -> Iterator[Iterator[Pair]]:
        senders = self._message_senders(slab)
        for first, data in pieces(slab, self._read):
            if self._read & TRAINS:
                yield product(data, senders[first : first + 1])
            else:
                yield zip(data, senders[first : first + len(data)], strict=True)
            self._live()  # before the next piece is cut


def _released() -> BatchReleasedError:
    return BatchReleasedError(
        "this batch was released, its memory may hold newer packets: take what you need before "
        "asking for the next batch, or keep batch.copy()"
    )


class CopiedBatch(PacketBatch):
    """A batch in memory of its own: what ``copy()`` gives, or what a reader left of a batch."""

    __slots__ = ("_data", "_pairs", "_told")

    def __init__(self, batch: PacketBatch, start: int) -> None:
        self._slab = None
        self._exporter = None
        self._data: bytes | None = None
        self._pairs: list[Pair] | None = batch[start:]
        self._layout = batch._laid_out().from_packet(start)
        self._count = len(self._pairs)
        about = batch._read & ~TRAINS & (1 << BYTES_SHIFT) - 1
        self._read = about | sum(self._layout.lengths) << BYTES_SHIFT
        self._received = batch._received
        self._metadata = batch._metadata
        self._told = list(batch._details(start)) if batch._metadata else []
        self.polled = batch.polled

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._kept())

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        return self._kept()[index]

    def payloads(self) -> Sequence[bytes]:
        return [data for data, _ in self._kept()]

    def addresses(self) -> Sequence[Address]:
        return [addr for _, addr in self._kept()]

    @property
    def buffer(self) -> memoryview:
        if self._data is None:
            self._data = b"".join(self.payloads())
        return memoryview(self._data)

    def release(self) -> None:
        self._pairs = self._data = None

    def _details(self, start: int) -> Iterator[Details]:
        return iter(self._told[start:])

    def _kept(self) -> list[Pair]:
        if self._pairs is None:
            raise _released()
        return self._pairs

    def _laid_out(self) -> Layout:
        self._kept()
        assert self._layout is not None  # made with the copy
        return self._layout
