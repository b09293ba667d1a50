"""Write buffers: packets that wait until their socket takes them, with asyncio's limits.

Source: ``_FlowControlMixin`` in CPython's Lib/asyncio/transports.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from aiorecv._batch import Pair

# What asyncio adds to each datagram's length, so that empty ones count too.
_HEADER_SIZE = 8


class WriteBuffer:
    """A queue of packets, which tells a protocol to pause and to resume."""

    __slots__ = ("_call", "_packets", "_paused", "high", "low", "size")

    size: int
    """Bytes in the buffer, with 8 more for each packet."""

    def __init__(self, call: Callable[[str], object]) -> None:
        """``call`` calls the protocol's method of a name."""
        self._call = call
        self._packets: deque[Pair] = deque()
        self._paused = False
        self.size = 0
        self.set_limits(None, None)

    def __len__(self) -> int:
        return len(self._packets)

    def set_limits(self, high: int | None, low: int | None) -> None:
        """Above ``high`` bytes the protocol pauses, at ``low`` it resumes; None: asyncio's own.

        Raises:
            ValueError: Unless ``high >= low >= 0``.
        """
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self.high, self.low = high, low
        self._maybe_pause()

    def add(self, packets: list[Pair]) -> None:
        """Put these behind the others."""
        self._packets.extend(packets)
        self.size += sum(len(data) + _HEADER_SIZE for data, _ in packets)
        self._maybe_pause()

    def first(self, most: int) -> list[Pair]:
        """The packets that have waited longest."""
        return list(islice(self._packets, most))

    def drop(self, count: int) -> None:
        """Take so many of the first ones out."""
        for _ in range(count):
            data, _addr = self._packets.popleft()
            self.size -= len(data) + _HEADER_SIZE

    def clear(self) -> int:
        """Take all of them out, without a word to the protocol; returns how many there were."""
        count = len(self._packets)
        self._packets.clear()
        self.size = 0
        return count

    def _maybe_pause(self) -> None:
        if not self._paused and self.size > self.high:
            self._paused = True
            self._call("pause_writing")

    def maybe_resume(self) -> None:
        """Tell the protocol, if it has paused and the buffer is low again."""
        if self._paused and self.size <= self.low:
            self._paused = False
            self._call("resume_writing")
