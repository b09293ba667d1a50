"""Payloads: where the packets of a read lie in its slab, and their bytes.

Functions of a slab and of the read's number as the C side returned it; the batch that calls them
holds the lease. Many packets are cut out by one call wherever their sizes allow it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import getitem, itemgetter
from struct import Struct

import attrs

from aiorecv._native._core import ffi, lib
from aiorecv._slabs import Slab

RECEIVED_MASK = lib.AIORECV_RECEIVED_MASK
EQUAL = lib.AIORECV_EQUAL
ONE_PEER = lib.AIORECV_ONE_PEER
TRAINS = lib.AIORECV_TRAINS
SLOTS_SHIFT = lib.AIORECV_SLOTS_SHIFT
BYTES_SHIFT = lib.AIORECV_BYTES_SHIFT

# For fewer packets slicing is as fast as an unpacker, and none has to be built and kept.
_UNPACK_FROM = 4


class _Slices(dict[int, slice]):
    """``slice(0, length)`` by length; long ones are rare and not kept."""

    def __missing__(self, length: int) -> slice:
        made = slice(0, length)
        if length <= 2048:
            self[length] = made
        return made


_SLICES = _Slices()


@lru_cache(maxsize=256)
def _equal_unpacker(count: int, length: int, slot_size: int) -> Struct:
    return Struct(f"{length}s{slot_size - length}x" * (count - 1) + f"{length}s")


@lru_cache(maxsize=256)
def _train_unpacker(segment: int, length: int) -> Struct:
    whole, rest = divmod(length, segment)
    return Struct(f"{segment}s" * whole + (f"{rest}s" if rest else ""))


def payloads(slab: Slab, read: int) -> Sequence[bytes]:
    """All packets' bytes, in order."""
    received = read & RECEIVED_MASK
    if read & TRAINS:
        return list(chain.from_iterable(segments(slab, i) for i in range(received)))
    if received == 1:
        return (slab.buffer[: read >> BYTES_SHIFT],)
    if read & EQUAL and received >= _UNPACK_FROM:
        length = (read >> BYTES_SHIFT) // received
        return _equal_unpacker(received, length, slab.slot_size).unpack_from(slab.buffer)
    slices = itemgetter(*ffi.unpack(slab.core.lengths, received))(_SLICES)
    return list(map(getitem, slab.buffers(), slices))


def segments(slab: Slab, message: int) -> Sequence[bytes]:
    """The bytes of one message's packets, in a read that had trains."""
    start = message * slab.slot_size
    length, segment = slab.core.lengths[message], slab.core.segments[message]
    if segment:
        return _train_unpacker(segment, length).unpack_from(slab.buffer, start)
    return (slab.buffer[start : start + length],)


def packets_in(slab: Slab, message: int) -> int:
    """How many packets one message is, in a read that had trains."""
    segment = slab.core.segments[message]
    return -(-slab.core.lengths[message] // segment) if segment else 1


@attrs.frozen(eq=False)
class Layout:
    """Where the packets of a read lie: read-only arrays, one entry a packet."""

    offsets: memoryview
    lengths: memoryview
    wire_lengths: memoryview
    truncated: memoryview
    timestamps_ns: memoryview | None

    def from_packet(self, start: int) -> Layout:
        """That of the packets from number ``start`` on, packed: each begins where one ends."""
        lengths = self.lengths[start:]
        return Layout(
            memoryview(array("I", accumulate(lengths[:-1], initial=0))).toreadonly(),
            lengths,
            self.wire_lengths[start:],
            self.truncated[start:],
            None if self.timestamps_ns is None else self.timestamps_ns[start:],
        )


def lay_out(slab: Slab, read: int, count: int, timestamps: bool) -> Layout:
    """The layout of a read of ``count`` packets; it does not refer to the slab's memory."""
    kinds = ("uint32_t[]", "uint32_t[]", "uint32_t[]", "uint8_t[]", "uint64_t[]")
    arrays = [ffi.new(kind, count) for kind in kinds[: 5 if timestamps else 4]]
    lib.aiorecv_lay_out(slab.core, read, ffi.new("struct aiorecv_layout *", arrays))
    views = [memoryview(ffi.buffer(numbers)).toreadonly() for numbers in arrays]
    offsets, lengths, wire_lengths = (view.cast("I") for view in views[:3])
    times = views[4].cast("Q") if timestamps else None
    return Layout(offsets, lengths, wire_lengths, views[3], times)
