"""Rows: what the bars measure, each against what, and how much it may cost at most."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeAlias

import attrs

import aiorecv
from aiorecv.bench.drains import (
    UDP_GRO,
    CDrain,
    Drain,
    ReceiverDrain,
    User,
    count_packets,
    take_pairs,
)
from aiorecv.bench.endpoints import EndpointDrain
from aiorecv.bench.peers import AIOFASTNET, ASYNCIO, QH3, UVLOOP, Peer, open_ours
from aiorecv.bench.queues import Queue

Arm: TypeAlias = Callable[[socket.socket, int], AbstractAsyncContextManager[Drain]]
"""Drains a bound socket, which it may own, of fills of so many packets each."""

LOOPS = ("asyncio", "uvloop")


@attrs.frozen
class Row:
    """One thing that is measured."""

    name: str
    title: str
    queue: Queue
    ours: Arm
    bar: float
    """The most a packet may cost, as a multiple of the reference."""
    rival: Peer | None = None
    """Whose endpoint is the reference; None: the C drain."""
    loops: tuple[str, ...] = LOOPS
    """The event loops that it is measured on."""

    @property
    def against(self) -> str:
        """The reference's name."""
        return "C" if self.rival is None else self.rival.name

    @property
    def reference(self) -> Arm:
        """Whom ours is measured against."""
        return CDrain if self.rival is None else partial(EndpointDrain, self.rival.open)


def _receiver(user: User) -> Arm:
    def arm(sock: socket.socket, packets: int) -> ReceiverDrain:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, True)  # as the openers have it
        return ReceiverDrain(aiorecv.from_socket(sock), packets, user)

    return arm


_ENDPOINT: Arm = partial(EndpointDrain, open_ours)
_SMALL = Queue(1024, (64, 64))
_TRAINS = Queue(2048, (64, 64), train=True)
_BIG_TRAINS = Queue(2048, (1400, 1400), train=True)
_MIXED = Queue(1024, (64, 964), 16)


def _versus(rival: Peer, loop: str, packets: int, bar: float) -> Row:
    name, title = rival.name, f"endpoint, {packets} queued"
    if packets == 1:
        name, title = f"{name}-lone", "endpoint, one packet at a time"
    return Row(name, title, Queue(packets, (64, 64)), _ENDPOINT, bar, rival, (loop,))


ROWS = (
    Row("batches", "batches, len() only", _SMALL, _receiver(count_packets), 1.12),
    Row("pairs", "pairs, 64 bytes, one peer", _SMALL, _receiver(take_pairs), 1.22),
    Row("mixed", "pairs, 64 to 964 bytes, 16 peers", _MIXED, _receiver(take_pairs), 1.55),
    Row("trains-64", "pairs, trains of 64", _TRAINS, _receiver(take_pairs), 5.0),
    Row("trains-1400", "pairs, trains of 1400", _BIG_TRAINS, _receiver(take_pairs), 2.6),
    Row("endpoint", "endpoint, 64 bytes, one peer", _SMALL, _ENDPOINT, 1.36),
    Row("endpoint-trains-64", "endpoint, trains of 64", _TRAINS, _ENDPOINT, 10.0),
    _versus(ASYNCIO, "asyncio", 256, 0.18),
    _versus(UVLOOP, "uvloop", 256, 0.5),
    _versus(QH3, "uvloop", 256, 0.66),
    _versus(AIOFASTNET, "uvloop", 256, 0.33),
    _versus(ASYNCIO, "asyncio", 1, 1.15),
    _versus(UVLOOP, "uvloop", 1, 1.20),
)
