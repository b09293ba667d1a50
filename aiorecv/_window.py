"""Windows: how many slots the next read offers. Pure numbers: no sockets, clocks or loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import attrs

from aiorecv._native._core import lib

MAX_SLOTS = lib.AIORECV_MAX_SLOTS


@runtime_checkable
class WindowPolicy(Protocol):
    """How many slots each read offers the kernel; write your own by these three names.

    A policy object serves one receiver, ever; its class needs ``__weakref__`` if it has
    ``__slots__``. It is asked for ``slots`` before each read and told by ``record()`` after each
    read that brought something. If ``record()`` raises, the reader gets the exception, and the
    batch with its next call. A ``record()`` that also takes ``nbytes`` is told the payload bytes
    of the read.
    """

    @property
    def slots(self) -> int:
        """Slots of the next read, from 1 to ``maximum``; checked at each read."""

    @property
    def maximum(self) -> int:
        """The most ``slots`` will ever be, from 1 to 1024."""

    def record(self, *, received: int, polled: bool) -> None:
        """A read filled ``received`` slots; ``polled`` tells whether it had to wait first."""


def _check(value: object, name: str, unit: str, most: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a number of {unit}, an int, not {value!r}")
    if value < 1 or (most is not None and value > most):
        bounds = "at least 1" if most is None else f"from 1 to {most}"
        raise ValueError(f"{name}={value}: give {bounds} {unit}")


def check_slots(_owner: object, field: attrs.Attribute[int], value: object) -> None:
    """An attrs validator: a number of slots that one read can offer."""
    _check(value, field.name, "slots", MAX_SLOTS)


def _number_of(unit: str) -> Callable[[object, attrs.Attribute[int], object], None]:
    def check(_owner: object, field: attrs.Attribute[int], value: object) -> None:
        _check(value, field.name, unit)

    return check


def _check_order(initial: int, maximum: int) -> None:
    if maximum < initial:
        raise ValueError(f"maximum={maximum} is below initial={initial}: raise maximum")


@attrs.define(eq=False, on_setattr=attrs.setters.NO_OP)
class AdaptiveWindow:
    """A window that follows the backlog: small while packets come singly, large in a flood.

    It starts at ``initial`` slots. A read that fills every slot without having had to wait
    doubles it, up to ``maximum``; after ``shrink_after`` reads in a row that did not fill every
    slot it drops back to ``initial``.

    Raises:
        TypeError: If a number is no int.
        ValueError: If a number is out of bounds, or ``maximum`` is below ``initial``.

    Source: google/gvisor issue 16172.
    """

    initial: int = attrs.field(default=1, validator=check_slots)
    """Slots at first, and after a shrink."""

    maximum: int = attrs.field(default=64, validator=check_slots)
    """The most slots that a read offers."""

    shrink_after: int = attrs.field(default=256, validator=_number_of("reads"))
    """Reads in a row, none of which filled every slot, after which it shrinks."""

    slots: int = attrs.field(init=False)
    """Slots of the next read."""

    _short_reads: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        _check_order(self.initial, self.maximum)
        self.slots = self.initial

    def record(self, *, received: int, polled: bool) -> None:
        """Count one read of ``received`` filled slots, and resize."""
        if received < self.slots:
            self._short_reads += 1
            if self._short_reads >= self.shrink_after:
                self._short_reads = 0
                self.slots = self.initial
            return
        self._short_reads = 0
        if not polled and self.slots < self.maximum:
            self.slots = min(2 * self.slots, self.maximum)


@attrs.define(eq=False, on_setattr=attrs.setters.NO_OP)
class PeakWindow:
    """A window with room for the recent peak: what a receiver has if it is given none.

    It starts at ``initial`` slots. A read that fills every slot, whether it had to wait or not,
    makes it ``maximum``: only slots that packets reach touch memory, so a step on the way would
    save none. Once it has grown, it looks back after each ``shrink_after`` reads in a row that did
    not fill every slot: to the next power of two above what the largest of them brought it shrinks,
    if that is a quarter of the window or less.

    Slots that were written lie in the processor's cache only up to some number of bytes, and a slot
    may hold a train of 64 KiB. So the window has no more slots than would have brought
    ``maximum_bytes`` at the last full read, or at one that brought more.

    Raises:
        TypeError: If a number is no int.
        ValueError: If a number is out of bounds, or ``maximum`` is below ``initial``.
    """

    initial: int = attrs.field(default=8, validator=check_slots)
    """Slots at first; a window of no more than these does not shrink."""

    # Each size of window has a slab of its own. These 112 and the 8 before them are no more slots
    # than a window that doubles from 2 to 64 touches on its way, 126.
    maximum: int = attrs.field(default=112, validator=check_slots)
    """The most slots that a read offers."""

    shrink_after: int = attrs.field(default=256, validator=_number_of("reads"))
    """Reads in a row, none of which filled every slot, after which it may shrink."""

    maximum_bytes: int = attrs.field(default=1 << 21, validator=_number_of("bytes"))
    """Payload bytes that a read should bring at most: 2 MiB, 32 of the longest trains."""

    slots: int = attrs.field(init=False)
    """Slots of the next read."""

    _short_reads: int = attrs.field(init=False, default=0)
    _peak: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        _check_order(self.initial, self.maximum)
        self.slots = self.initial

    def record(self, *, received: int, polled: bool, nbytes: int = 0) -> None:
        """Count one read of ``received`` filled slots with ``nbytes`` in them, and resize."""
        if received >= self.slots or nbytes > self.maximum_bytes:
            # The next short read brings the rest of a backlog, and tells no load: not counted.
            self._short_reads = -1
            self._peak = 0
            self.slots = self.maximum
            if nbytes * self.maximum > received * self.maximum_bytes:
                self.slots = max(received * self.maximum_bytes // nbytes, 1)
            return
        self._short_reads += 1
        if received > self._peak and self._short_reads:
            self._peak = received
        if self._short_reads >= self.shrink_after:
            # Above the peak: a read that just fills its slots costs one more, for an EAGAIN.
            wanted = 1 << self._peak.bit_length()
            if self.slots > self.initial and 4 * wanted <= self.slots:
                self.slots = wanted
            self._short_reads = self._peak = 0


@attrs.frozen(eq=False)
class FixedWindow:
    """A window of the same ``slots`` at every read.

    Raises:
        TypeError: If ``slots`` is no int.
        ValueError: If ``slots`` is not from 1 to 1024.
    """

    slots: int = attrs.field(validator=check_slots)
    """Slots of every read."""

    @property
    def maximum(self) -> int:
        """The same as ``slots``."""
        return self.slots

    def record(self, *, received: int, polled: bool) -> None:
        """Nothing to learn."""
