"""Drains: who empties a queue, and when the last packet was in its user's hands.

Arms of one comparison on one event loop: C called from a reader callback, which pays the loop's
wake-up and nothing else, and a task that iterates over a receiver. Each has a socket of its own,
and stays in place between fills.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Self, TypeAlias

import aiorecv
from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.queues import Filler

# linux/udp.h and asm-generic/socket.h; Python's socket module has neither.
UDP_GRO = 104
"""The option that lets a socket have trains whole."""
_SO_RCVBUFFORCE = 33
RECEIVE_BUFFER_SIZE = 4 << 20
"""What a receiver asks for by default."""
# What the reference offers a read: more slots gain it 1 %.
_SLOTS = 64


class CountError(Exception):
    """What came is not what was sent, so the time means nothing."""


class Drain:
    """One arm, and its account of the fill that it is draining."""

    def __init__(self, packets: int) -> None:
        self.packets = packets
        """Packets of each fill."""
        self.checking = False
        """Whether the user adds up the payloads' bytes."""
        self._done: asyncio.Future[None]
        self._ended = 0.0
        self._left = packets
        self._nbytes: int | None = 0

    async def time(self, filler: Filler) -> float:
        """Fill the queue, and return the seconds from then until it is drained.

        Raises:
            CountError: If more packets came than were sent, or other sizes.
        """
        self._done = asyncio.get_running_loop().create_future()
        filler.fill()
        start = perf_counter()
        await self._done
        if self._left or self._nbytes not in (None, filler.nbytes):
            raise CountError(
                f"{self.packets - self._left} of {self.packets} packets came, "
                f"{self._nbytes} of {filler.nbytes} bytes"
            )
        return self._ended - start

    def finish(self, ended: float, left: int, nbytes: int | None) -> None:
        """The fill is drained, the last packet came at ``ended`` of ``perf_counter()``."""
        self._ended = ended
        self._left = left
        self._nbytes = nbytes
        self._done.set_result(None)


class CDrain(Drain):
    """C, called from a reader callback until the fill is drained; an async context manager."""

    def __init__(self, sock: socket.socket, packets: int) -> None:
        super().__init__(packets)
        self._fd = sock.fileno()
        self._missing = packets
        self._sink = lib.sink_new(self._fd, _SLOTS)
        if self._sink == ffi.NULL:
            raise OSError(ffi.errno, os.strerror(ffi.errno))

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._fd, self._readable)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        lib.sink_free(self._sink)

    def _readable(self) -> None:
        # All in one callback: with one read each the loop would be measured, 16 times a queue.
        while self._missing > 0:
            received = lib.sink_drain(self._sink)
            if received == -errno.EAGAIN:
                return
            if received < 0:
                raise OSError(-received, os.strerror(-received))
            self._missing -= received
        self.finish(perf_counter(), self._missing, self._sink.bytes)
        self._missing = self.packets
        self._sink.bytes = 0


User: TypeAlias = Callable[[aiorecv.Receiver, Drain], Awaitable[None]]
"""Code that iterates over a receiver, and tells the drain when a fill is complete."""


async def count_packets(receiver: aiorecv.Receiver, drain: Drain) -> None:
    """Ask each batch for its length, and for nothing else."""
    left = drain.packets
    async for batch in receiver:
        left -= len(batch)
        if left <= 0:
            drain.finish(perf_counter(), left, None)
            left = drain.packets


async def take_pairs(receiver: aiorecv.Receiver, drain: Drain) -> None:
    """Take every packet as a pair; add up the payloads' bytes only in fills that are not timed.

    Adding up is the user's cost: 45 ns a packet on CPython 3.11, three times the C reference's
    whole work on a train.
    """
    left = drain.packets
    nbytes = 0
    async for batch in receiver:
        if drain.checking:
            for data, addr in batch:  # noqa: B007 - what users write
                nbytes += len(data)
        else:
            for data, addr in batch:  # noqa: B007 - what users write
                pass
            nbytes += batch.nbytes
        left -= len(batch)
        if left <= 0:
            drain.finish(perf_counter(), left, nbytes)
            left = drain.packets
            nbytes = 0


class ReceiverDrain(Drain):
    """A task that iterates over a receiver; an async context manager, which closes it."""

    def __init__(self, receiver: aiorecv.Receiver, packets: int, user: User) -> None:
        super().__init__(packets)
        self._receiver = receiver
        self._user = user

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._user(self._receiver, self))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._receiver.close()
        await self._task


def raise_receive_buffer(sock: socket.socket) -> None:
    """Ask for the buffer of a receiver; where the system caps it, root has it all the same."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_SIZE)
    with contextlib.suppress(PermissionError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_SIZE)


def make_alike(reference: socket.socket, receiver: aiorecv.Receiver) -> int:
    """Give both sockets the same buffer and the same GRO; returns the buffer's bytes."""
    for sock in (reference, receiver.socket):
        raise_receive_buffer(sock)
    gro = receiver.socket.getsockopt(socket.IPPROTO_UDP, UDP_GRO)
    reference.setsockopt(socket.IPPROTO_UDP, UDP_GRO, gro)
    return min(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        for sock in (reference, receiver.socket)
    )
