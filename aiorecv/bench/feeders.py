"""Feeders: who sends to a sink, and on which CPU: before it drains, or while it does.

Knows nothing of who drains.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import attrs

from aiorecv.bench.flood import UDP_SEGMENT, longest_train
from aiorecv.bench.processes import module
from aiorecv.bench.queues import Filler, Queue

_PATTERNS = 64


@attrs.frozen
class Pins:
    """The CPUs that the sink and its sender are kept on."""

    sink: int
    sender: int

    def settle(self) -> None:
        """Keep the calling thread on the sink's CPU."""
        os.sched_setaffinity(0, {self.sink})

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Be on the sender's CPU for a while."""
        os.sched_setaffinity(0, {self.sender})
        try:
            yield
        finally:
            self.settle()


class Feeder(Filler):
    """Fills a queue before it is drained, on the sender's CPU; a context manager."""

    def __init__(self, queue: Queue, addr: tuple[Any, ...], pins: Pins | None) -> None:
        super().__init__(queue, addr)
        self._queue = queue
        self._pins = pins

    @property
    def addr(self) -> Any:
        """The address of the first sender."""
        with self._first() as sock:
            return sock.getsockname()

    def fill(self) -> None:
        """Send it all; on loopback everything is queued when this returns."""
        with self._pins.sending() if self._pins else contextlib.nullcontext():
            super().fill()

    def fill_patterned(self) -> tuple[int, int]:
        """Send a few packets whose bytes differ; how many, and the sum of all bytes' values.

        They have the queue's size, and come as trains if it does.
        """
        size = self._queue.sizes[0]
        packets = min(self._queue.packets, _PATTERNS)
        payloads = [bytes((number + at) % 251 for at in range(size)) for number in range(packets)]
        step = longest_train(size) if self._queue.train else 1
        with self._first() as sock:
            if self._queue.train:
                sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
            for at in range(0, packets, step):
                sock.send(b"".join(payloads[at : at + step]))
        return packets, sum(map(sum, payloads))

    def _first(self) -> socket.socket:
        return socket.socket(fileno=os.dup(self._peers[0]))


@contextlib.contextmanager
def flooders(
    addr: tuple[str, int], *, size: int, flows: int, pins: Pins | None
) -> Iterator[list[int]]:
    """Processes that send to ``addr`` as fast as they can, a flow each, until this ends: ids."""
    options = ("--to", f"{addr[0]}:{addr[1]}", "--size", str(size), "--seconds", "86400")
    ids = []
    with contextlib.ExitStack() as stack:
        for _ in range(flows):
            process = subprocess.Popen(module("flood", *options), stdout=subprocess.DEVNULL)
            stack.enter_context(process)
            stack.callback(process.kill)
            ids.append(process.pid)
            if pins is not None:
                os.sched_setaffinity(process.pid, {pins.sender})
        yield ids
