"""Batches: the packets of one read, as pairs, bytes, views or records.

What all batches have in common, and the one that has its packets in memory of its own. Whatever
touches packets raises once the batch is released; numbers about the read stay. Never reads from a
socket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import product, repeat
from typing import Self, TypeAlias, overload

from aiorecv._addresses import Address
from aiorecv._errors import BatchReleasedError
from aiorecv._packet import NOTHING, Details, Metadata, Packet
from aiorecv._payloads import Layout

Pair: TypeAlias = tuple[bytes, Address]

Portion: TypeAlias = tuple[Sequence[bytes], Sequence[Address]]
"""Some packets of a batch: payloads, and the address of each or the one that all have."""


class PacketBatch(ABC):
    """The packets of one read, in order of arrival.

    Iterating and indexing give ``(data, addr)`` pairs, a slice a list of them. ``bytes`` are the
    caller's for ever. Views stay right for as long as they live, and hold the packet memory
    until then. After ``release()`` whatever touches packets raises ``BatchReleasedError``;
    ``len()``, ``nbytes``, ``polled``, ``full`` and ``slots`` still answer.
    """

    __slots__ = ("__weakref__", "_count", "_layout", "_metadata", "polled")

    _count: int
    _layout: Layout | None
    _metadata: Metadata
    polled: bool
    """Whether the read had to wait until the descriptor was reported readable."""

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<PacketBatch of {self._count} packets, {self.nbytes} bytes>"

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Payload bytes of all packets together."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Slots the read offered the kernel. Of a ring: the packets of the block."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether the read filled every slot, so that there may have been more.

        Of a ring: whether the block was full, and not handed over by its timer.
        """

    @abstractmethod
    def __iter__(self) -> Iterator[Pair]: ...

    @overload
    @abstractmethod
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    @abstractmethod
    def __getitem__(self, index: slice) -> list[Pair]: ...

    @abstractmethod
    def payloads(self) -> Sequence[bytes]:
        """All payloads, copied at once: the fastest way to have them as ``bytes``."""

    @abstractmethod
    def addresses(self) -> Sequence[Address]:
        """The senders' addresses, one a packet."""

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
    @abstractmethod
    def buffer(self) -> memoryview:
        """The memory that the packets lie in: read-only bytes.

        What lies between packets is old data of any receiver of the loop; a copy's buffer is
        packed. A view: its memory is not reused while it lives.
        """

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

    @abstractmethod
    def release(self) -> None:
        """Give the packet memory back, now or when its last view is gone. Safe to repeat."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _copy_from(self, start: int) -> PacketBatch:
        """A copy of the packets from number ``start`` on."""
        return CopiedBatch(self, start)

    @abstractmethod
    def _portions(self) -> Iterator[Portion]:
        """The packets in portions, each cut when it is asked for: keep the batch until then."""

    @abstractmethod
    def _laid_out(self) -> Layout:
        """Where the packets lie."""

    @abstractmethod
    def _details(self, start: int) -> Iterator[Details]:
        """What is known of each packet from number ``start`` on."""


def released_error() -> BatchReleasedError:
    return BatchReleasedError(
        "this batch was released, its memory may hold newer packets: take what you need before "
        "asking for the next batch, or keep batch.copy()"
    )


def paired(data: Sequence[bytes], senders: Sequence[Address]) -> Iterator[Pair]:
    """The packets of a portion as pairs."""
    return product(data, senders) if len(senders) == 1 else zip(data, senders, strict=True)


class CopiedBatch(PacketBatch):
    """A batch in memory of its own: what ``copy()`` gives, or what a reader left of a batch."""

    __slots__ = ("_data", "_full", "_nbytes", "_pairs", "_slots", "_told")

    def __init__(self, batch: PacketBatch, start: int) -> None:
        self._data: bytes | None = None
        self._pairs: list[Pair] | None = batch[start:]
        self._layout = batch._laid_out().from_packet(start)
        self._count = len(self._pairs)
        self._nbytes = sum(self._layout.lengths)
        self._slots, self._full = batch.slots, batch.full
        self._metadata = batch._metadata
        self._told = list(batch._details(start)) if batch._metadata else []
        self.polled = batch.polled

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def full(self) -> bool:
        return self._full

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

    def _portions(self) -> Iterator[Portion]:
        yield self.payloads(), self.addresses()

    def _kept(self) -> list[Pair]:
        if self._pairs is None:
            raise released_error()
        return self._pairs

    def _laid_out(self) -> Layout:
        self._kept()
        assert self._layout is not None  # made with the copy
        return self._layout
