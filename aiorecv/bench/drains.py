"""Drains: who empties a queue, and when the last packet was in its user's hands.

Two arms of one comparison on one event loop: C called from a reader callback, and a task that
iterates over a receiver. Each has a socket of its own, drains it completely, and takes the time
itself. Both stay in place between fills.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any, Protocol

import aiorecv
from aiorecv.bench._sink import ffi, lib

# linux/udp.h, asm-generic/socket.h; Python's socket module has neither.
_UDP_GRO = 104
_SO_RCVBUFFORCE = 33
_SLOTS = 64
_RECEIVE_BUFFER_SIZE = 4 << 20


class Drain:
    """One arm's account of the fill that it is draining."""

    def __init__(self, loop: asyncio.AbstractEventLoop, packets: int) -> None:
        self._loop = loop
        self.packets = packets
        """Packets of one fill."""
        self.done: asyncio.Future[None] = loop.create_future()
        self.ended = 0.0
        """When the last packet came, by ``perf_counter()``."""
        self.nbytes: int | None = 0
        """Payload bytes of the fill; None if the arm does not look at payloads."""

    def finish(self, ended: float, nbytes: int | None) -> None:
        """The fill is drained."""
        self.ended = ended
        self.nbytes = nbytes
        self.done.set_result(None)

    def expect(self) -> None:
        """Another fill is coming."""
        self.done = self._loop.create_future()


class Arm(Protocol):
    """How one arm's drain is set up: a socket's owner, told how many packets a fill has."""

    def __call__(self, drain: Drain) -> contextlib.AbstractAsyncContextManager[socket.socket]: ...
