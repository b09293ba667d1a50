"""Arrivals: when packets come, and what a window makes of them, in pure numbers.

A `Pattern` says how many packets come at a time, and whether the receiver waits for them.
`simulate` reads them by a window policy, under the receiver's own rules and without socket or
clock; an `Account` keeps what a real receiver would count, and which pages its reads would touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import attrs

import aiorecv

_PAGE_SIZE = 4096


@attrs.frozen
class Arrival:
    """Packets that are queued at once."""

    packets: int

    awaited: bool
    """Whether the receiver has read all and waits for them; else it still works on the last."""


@attrs.frozen
class Pattern:
    """A history of arrivals."""

    name: str
    title: str
    arrivals: Sequence[Arrival]

    @property
    def packets(self) -> int:
        """Packets of all arrivals."""
        return sum(arrival.packets for arrival in self.arrivals)

    @property
    def ends_lone(self) -> bool:
        """Whether its last packets come singly, so that a window should be small in the end."""
        return self.arrivals[-1] == Arrival(1, True)

    def fitted(self, most_arrivals: int, most_packets: int) -> Pattern:
        """The same, with at most so many arrivals, and packets at a time."""
        return attrs.evolve(
            self,
            arrivals=[
                attrs.evolve(arrival, packets=min(arrival.packets, most_packets))
                for arrival in self.arrivals[:most_arrivals]
            ],
        )


def _awaited(*packets: int) -> list[Arrival]:
    return [Arrival(some, True) for some in packets]


def _busy(*packets: int) -> list[Arrival]:
    return [Arrival(some, False) for some in packets]


def _repeated(times: int, *parts: Sequence[Arrival]) -> list[Arrival]:
    return list(chain.from_iterable(parts * times))


_UP = range(1, 129)

PATTERNS = (
    Pattern("rpc", "request/response", _awaited(*[1] * 600)),
    Pattern("few", "1 to 4 at once", _repeated(75, _awaited(1, 1, 2, 1, 3, 1, 1, 4))),
    Pattern("backlog", "64 queued at the start", _busy(64)),
    Pattern("steady-waits", "a steady 40, awaited", _awaited(*[40] * 600)),
    Pattern("steady-busy", "a steady 40, while it works", _busy(*[40] * 600)),
    Pattern("bursts", "bursts of 200, then silence", _awaited(*[200] * 60)),
    Pattern("mixed", "a burst of 200, 50 lone", _repeated(12, _awaited(200, *[1] * 50))),
    Pattern("rare", "a burst of 200, 300 lone", _repeated(4, _awaited(200, *[1] * 300))),
    Pattern("ramps", "1 to 128 at once and back", _repeated(2, _awaited(*_UP, *reversed(_UP)))),
    Pattern("bulk", "bulk: never empty", _busy(*[1024] * 24)),
    Pattern("flood", "a flood, then lone", _busy(*[1024] * 4) + _awaited(*[1] * 600)),
)


class Account:
    """What reads by one policy have cost."""

    def __init__(self, packet_size: int) -> None:
        self._slot_bytes = -(-packet_size // _PAGE_SIZE) * _PAGE_SIZE
        # The receiver's slabs have the window's slots, rounded up to a power of two; each size has
        # memory of its own. Of each: the most slots that a read has filled.
        self._filled: dict[int, int] = {}
        self._last_slab = 0
        self.reads = 0
        self.empty_reads = 0
        self.packets = 0
        self.resizes = 0
        self.peak = 0

    def read(self, slots: int, received: int) -> None:
        """A read offered ``slots``, and brought ``received`` packets."""
        self.reads += 1
        self.packets += received
        self.peak = max(self.peak, slots)
        slab = self._last_slab = 1 << (slots - 1).bit_length()
        self._filled[slab] = max(received, self._filled.get(slab, 0))

    @property
    def calls(self) -> int:
        """System calls: those that brought something and those that did not."""
        return self.reads + self.empty_reads

    @property
    def touched_bytes(self) -> int:
        """Packet memory that was written at least once: whole pages, in every slab."""
        return sum(self._filled.values()) * self._slot_bytes

    @property
    def kept_bytes(self) -> int:
        """The part of it that the window at the end goes on using; the rest is given back."""
        return self._filled.get(self._last_slab, 0) * self._slot_bytes


def simulate(pattern: Pattern, policy: aiorecv.WindowPolicy, packet_size: int) -> Account:
    """Read all packets of a pattern by a policy.

    A read that fills every slot is followed by another at once, a shorter one by a wait. Not
    simulated is what depends on time: that a receiver also asks at once when it comes back late.
    """
    account = Account(packet_size)
    full = True  # a new receiver asks before it waits
    for arrival in pattern.arrivals:
        if arrival.awaited and full:
            account.empty_reads += 1
        left = arrival.packets
        polled = arrival.awaited
        while left:
            slots = policy.slots
            received = min(slots, left)
            left -= received
            full = received == slots
            account.read(slots, received)
            policy.record(received=received, polled=polled)
            account.resizes += policy.slots != slots
            polled = False
    return account
