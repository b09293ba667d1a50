"""Batches of a ring: the frames of a block, where the kernel wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import chain, islice, starmap
from struct import Struct
from typing import Any, overload

from aiorecv._addresses import Address, AddressTable
from aiorecv._batch import PacketBatch, Pair, Portion, paired, released_error
from aiorecv._native._core import ffi, lib
from aiorecv._packet import Details, Metadata, described
from aiorecv._payloads import EQUAL, ONE_PEER, Layout, laid_out
from aiorecv._ring import Ring

# Bytes of the ring that are cut at once: what was cut is still in the first cache when it is used.
_PORTION_BYTES = 32 << 10
# Frames of several sizes that become ``bytes`` together: the next ones take their memory.
_PORTION = 32

# Fewer frames are not worth a cutter of their own: see _payloads.
_CUT_FROM = 4

_allocate = ffi.new_allocator(should_clear_after_alloc=False)


@lru_cache(maxsize=256)
def _cutter(length: int, stride: int, count: int) -> Callable[..., tuple[bytes, ...]]:
    """What cuts so many frames of one length out of a buffer."""
    skip = f"{length}s{stride - length}x" * (count - 1)
    return Struct(f"{skip}{length}s").unpack_from


class RingBatch(PacketBatch):
    """The frames of a block, which the kernel gets back when this and its views are gone."""

    __slots__ = (
        "_block",
        "_bytes",
        "_exporter",
        "_first",
        "_flags",
        "_full",
        "_ring",
        "_senders",
        "_stride",
    )

    def __init__(
        self, ring: Ring, senders: AddressTable, count: int, polled: bool, metadata: Metadata
    ) -> None:
        core = ring.core
        self._ring: Ring | None = ring
        self._senders = senders
        self._count = count
        self._block = core.block
        self._first = core.first
        self._flags = core.flags
        self._stride = core.stride
        self._bytes = core.bytes
        self._full = bool(core.full)
        self._exporter: Any = None
        self._layout: Layout | None = None
        self._metadata = metadata
        self.polled = polled

    @property
    def nbytes(self) -> int:
        return self._bytes

    @property
    def slots(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._full

    def __iter__(self) -> Iterator[Pair]:
        self._live()
        return chain.from_iterable(starmap(paired, self._portions()))

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        if isinstance(index, slice):
            return list(zip(self.payloads()[index], self.addresses()[index], strict=True))
        packet = range(self._count)[index]
        core, entry = self._live().core, self._entry() + packet
        start = self._start() + core.offsets[entry]
        data = self._live().buffer[start : start + core.lengths[entry]]
        return data, self._senders.one(core.peers[entry])

    def payloads(self) -> Sequence[bytes]:
        return list(chain.from_iterable(self._cuts()))

    def addresses(self) -> Sequence[Address]:
        senders = self._different_senders()
        return [senders[0]] * self._count if len(senders) < self._count else senders

    @property
    def buffer(self) -> memoryview:
        """The block, with what the kernel writes between frames."""
        ring = self._live()
        if self._exporter is None:
            self._exporter = ring.export(self._block)
        start = self._start()
        whole = memoryview(self._exporter)
        return whole[start : start + ring.core.block_size].toreadonly()

    def release(self) -> None:
        ring, self._ring = self._ring, None
        if ring is not None:
            self._exporter = None
            ring.give(self._block)

    def __del__(self) -> None:
        self.release()

    def _live(self) -> Ring:
        ring = self._ring
        if ring is None:
            raise released_error()
        return ring

    def _start(self) -> int:
        """Where the block starts in the ring."""
        return self._block * self._live().core.block_size

    def _entry(self) -> int:
        """The first packet's place in the ring's arrays."""
        return self._block * self._live().core.most + self._first

    def _numbers(self, array: Any, start: int, count: int) -> list[int]:
        return ffi.unpack(array + self._entry() + start, count)

    def _cuts(self) -> Iterator[Sequence[bytes]]:
        """The frames' bytes, some at a time; each time the batch must not be released yet."""
        many = self._count >= _CUT_FROM
        return self._equal() if many and self._flags & EQUAL else self._mixed()

    def _equal(self) -> Iterator[Sequence[bytes]]:
        start = self._start() + self._live().core.offsets[self._entry()]
        length, stride = self._bytes // self._count, self._stride
        step = max(_PORTION_BYTES // stride, 1)
        for first in range(0, self._count, step):
            cut = _cutter(length, stride, min(step, self._count - first))
            yield cut(self._live().buffer, start + first * stride)

    def _mixed(self) -> Iterator[Sequence[bytes]]:
        """Packed by C, frames become bytes one by one, by a number each and no slice object."""
        first = 0
        while first < self._count:
            core = self._live().core
            lengths = self._numbers(core.lengths, first, min(256, self._count - first))
            many = _fitting(lengths)
            room = _allocate("uint8_t[]", sum(lengths[:many]) or 1)
            lib.aiorecv_ring_pack(core, self._block, self._first + first, many, room)
            packed = map(BytesIO(ffi.buffer(room)).read, lengths[:many])
            while some := list(islice(packed, _PORTION)):
                yield some
                self._live()
            first += many

    def _portions(self) -> Iterator[Portion]:
        senders = self._different_senders()
        start = 0
        for data in self._cuts():
            stop = start + len(data)
            yield data, senders[start:stop] if len(senders) > 1 else senders
            start = stop

    def _different_senders(self) -> Sequence[Address]:
        """The address that all frames came from, or that of each."""
        core = self._live().core
        if self._flags & ONE_PEER:
            return (self._senders.one(core.peers[self._entry()]),)
        return self._senders.many(self._numbers(core.peers, 0, self._count))

    def _laid_out(self) -> Layout:
        core = self._live().core
        if self._layout is None:
            block, first, count = self._block, self._first, self._count
            self._layout = laid_out(
                lambda layout: lib.aiorecv_ring_lay_out(core, block, first, count, layout),
                count,
                Metadata.TIMESTAMP in self._metadata,
            )
        return self._layout

    def _details(self, start: int) -> Iterator[Details]:
        for packet in range(start, self._count):
            told = ffi.new("struct aiorecv_details *")
            lib.aiorecv_ring_detail(self._live().core, self._block, self._first + packet, told)
            yield described(told, self._metadata)


def _fitting(lengths: list[int]) -> int:
    """How many of the first packets are cut together: one, or as many as are few bytes."""
    total = 0
    for number, length in enumerate(lengths):
        total += length
        if total > _PORTION_BYTES:
            return max(number, 1)
    return len(lengths)
