"""Payloads: where the packets of a read lie in its slab, and their bytes.

Functions of a slab and of the read's number as the C side returned it; the batch that calls them
holds the lease. Many packets are cut out by one call wherever their sizes allow it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, chain, islice
from struct import Struct
from typing import Any

import attrs

from aiorecv._native._core import ffi, lib
from aiorecv._slabs import Slab

RECEIVED_MASK = lib.AIORECV_RECEIVED_MASK
EQUAL = lib.AIORECV_EQUAL
ONE_PEER = lib.AIORECV_ONE_PEER
TRAINS = lib.AIORECV_TRAINS
SLOTS_SHIFT = lib.AIORECV_SLOTS_SHIFT
BYTES_SHIFT = lib.AIORECV_BYTES_SHIFT


def is_full(read: int) -> bool:
    """Whether a read filled every slot it offered."""
    return read & RECEIVED_MASK == read >> SLOTS_SHIFT & RECEIVED_MASK


# Fewer packets are sliced: a cutter for each of their many lengths would only crowd the others out.
_CUT_FROM = 4
_MOST_CUTTERS = 256

# Fewer packets of several sizes are not worth packing.
_PACK_FROM = 8

# Packets of several sizes that become ``bytes`` together: few, so that the next take their memory.
_PORTION = 32

# What is copied at once, at most: a usual window of MTU-sized packets.
AT_ONCE_BYTES = 1 << 18

# Not cleared: every byte is written at once.
_allocate = ffi.new_allocator(should_clear_after_alloc=False)


@lru_cache(maxsize=256)
def _train_cutter(segment: int, length: int) -> Callable[..., tuple[bytes, ...]]:
    whole, rest = divmod(length, segment)
    return Struct(f"{segment}s" * whole + (f"{rest}s" if rest else "")).unpack_from


def payloads(slab: Slab, read: int) -> Sequence[bytes]:
    """All packets' bytes, in order."""
    cut = cutter(slab, read)
    if cut is not None:
        return cut(slab.buffer)
    received = read & RECEIVED_MASK
    if read & TRAINS:
        return list(chain.from_iterable(trains(slab, read)))
    if received == 1:
        return (slab.buffer[: read >> BYTES_SHIFT],)
    return list(mixed(slab, read))


def mixed(slab: Slab, read: int) -> Iterable[bytes]:
    """The bytes of messages of several sizes, none of them a train; the caller has the lease.

    Many are packed at once, which is a copy that needs no lease any more, and become ``bytes``
    one by one: most of them then take the memory of one before.
    """
    if read & RECEIVED_MASK < _PACK_FROM or read >> BYTES_SHIFT > AT_ONCE_BYTES:
        return _cut_each(slab, 0, read & RECEIVED_MASK)
    received = read & RECEIVED_MASK
    room = _allocate("uint8_t[]", read >> BYTES_SHIFT)
    lib.aiorecv_pack(slab.core, received, room)
    # A file's read takes a number; a slice would have to be made for each packet.
    return map(BytesIO(ffi.buffer(room)[:]).read, slab.lengths[:received].tolist())


def cutter(slab: Slab, read: int) -> Callable[[Any], tuple[bytes, ...]] | None:
    """What cuts all packets out of the slab's buffer at once, if they are many of one length."""
    cut = slab.cutters.get(read)
    if cut is None and read & EQUAL and read & RECEIVED_MASK >= _CUT_FROM:
        received, nbytes = read & RECEIVED_MASK, read >> BYTES_SHIFT
        if nbytes <= AT_ONCE_BYTES:
            length = nbytes // received
            skip = f"{length}s{slab.stride - length}x" * (received - 1)
            if len(slab.cutters) >= _MOST_CUTTERS:
                slab.cutters.clear()
            cut = slab.cutters[read] = Struct(f"{skip}{length}s").unpack_from
    return cut


def _cut_each(slab: Slab, start: int, stop: int) -> list[bytes]:
    """The bytes of the messages from ``start`` to before ``stop``, none of them a train."""
    buffer, step = slab.buffer, slab.stride
    places = range(start * step, stop * step, step)
    lengths = slab.lengths[start:stop].tolist()
    return [buffer[at : at + length] for at, length in zip(places, lengths, strict=True)]


def portions(slab: Slab, read: int) -> Iterator[list[bytes]]:
    """The bytes of a read without trains, some messages at a time; the caller has the lease."""
    received, nbytes = read & RECEIVED_MASK, read >> BYTES_SHIFT
    if nbytes <= AT_ONCE_BYTES:
        packed = iter(mixed(slab, read))
        while some := list(islice(packed, _PORTION)):
            yield some
        return
    step = max(received * AT_ONCE_BYTES // nbytes, 1)
    for start in range(0, received, step):
        yield _cut_each(slab, start, min(start + step, received))


def trains(slab: Slab, read: int) -> Iterator[Sequence[bytes]]:
    """The bytes of each message's packets, message by message, in a read that had trains.

    One train at a time, so that its bytes are still in the cache when they are used; whoever asks
    for the next one still has the lease.
    """
    received = read & RECEIVED_MASK
    lengths = slab.lengths[:received].tolist()
    segments = ffi.unpack(slab.core.segments, received)
    start = 0
    for length, segment in zip(lengths, segments, strict=True):
        if segment:
            yield _train_cutter(segment, length)(slab.buffer, start)
        else:
            yield (slab.buffer[start : start + length],)
        start += slab.stride


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
    return laid_out(lambda layout: lib.aiorecv_lay_out(slab.core, read, layout), count, timestamps)


def laid_out(fill: Callable[[Any], object], count: int, timestamps: bool) -> Layout:
    """A layout whose arrays of ``count`` packets ``fill`` has filled in."""
    kinds = ("uint32_t[]", "uint32_t[]", "uint32_t[]", "uint8_t[]", "uint64_t[]")
    arrays = [ffi.new(kind, count) for kind in kinds[: 5 if timestamps else 4]]
    fill(ffi.new("struct aiorecv_layout *", arrays))
    views = [memoryview(ffi.buffer(numbers)).toreadonly() for numbers in arrays]
    offsets, lengths, wire_lengths = (view.cast("I") for view in views[:3])
    times = views[4].cast("Q") if timestamps else None
    return Layout(offsets, lengths, wire_lengths, views[3], times)
