"""Queues: what lies in a socket's receive queue when a measurement starts.

A `Queue` says which datagrams, a `Filler` sends them over loopback while the event loop stands
still. Knows nothing of who drains.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any, Self

import attrs

from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.flood import longest_train


def charged(size: int) -> int:
    """Bytes of a receive buffer that one datagram, or segment, of ``size`` takes at most.

    Source: SO_MEMINFO on Linux 6.18: 832 for 64, 2,304 for 1,400 and 1,500, 16,640 for 9,000.
    """
    return 2560 if size <= 1500 else 2560 + 2 * size


@attrs.frozen
class Queue:
    """The datagrams of one fill, in order."""

    packets: int
    """How many packets, after trains are split."""

    sizes: tuple[int, int]
    """The smallest and the largest payload in bytes; those between are spread evenly."""

    peers: int = 1
    """Senders, taking turns."""

    train: bool = False
    """Whether they come as the longest UDP GSO trains the kernel takes."""

    def sends(self) -> list[int]:
        """Bytes of each send call's message: a datagram, or a whole train."""
        smallest, largest = self.sizes
        if self.train:
            segments = longest_train(smallest)
            whole, rest = divmod(self.packets, segments)
            return [segments * smallest] * whole + ([rest * smallest] if rest else [])
        # 619 is prime to any span below it times two: sizes jump, neighbours differ.
        span = largest - smallest + 1
        return [smallest + number * 619 % span for number in range(self.packets)]

    def fitted(self, receive_buffer_size: int) -> Queue:
        """The same queue, shortened if need be so that the kernel's buffer holds it all."""
        most = receive_buffer_size // charged(self.sizes[1])
        return attrs.evolve(self, packets=min(self.packets, most))


class Filler:
    """Fills the queue of the socket bound to ``addr``; a context manager."""

    def __init__(self, queue: Queue, addr: tuple[Any, ...]) -> None:
        self._stack = contextlib.ExitStack()
        self._peers = [self._connected(addr) for _ in range(queue.peers)]
        sends = queue.sends()
        self._sizes = ffi.new("uint32_t[]", sends)
        self._count = len(sends)
        self._segment = queue.sizes[0] if queue.train else 0
        self.nbytes = sum(sends)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fill(self) -> None:
        """Send it all; on loopback everything is queued when this returns.

        Raises:
            OSError: What the kernel says to a send.
        """
        if len(self._peers) == 1:
            self._send(self._peers[0], 0, self._count)
            return
        for number in range(self._count):
            self._send(self._peers[number % len(self._peers)], number, 1)

    def _connected(self, addr: tuple[Any, ...]) -> int:
        sock = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sock.connect(addr)
        return sock.fileno()

    def _send(self, fd: int, start: int, count: int) -> None:
        sent = lib.sink_fill(fd, self._sizes + start, count, self._segment)
        if sent < 0:
            raise OSError(-sent, os.strerror(-sent))
