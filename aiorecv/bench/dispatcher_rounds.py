"""Rounds of ``aiorecv bench dispatchers``: who reads, in a flood and when a lone frame comes.

Each sample has a socket and an event loop of its own, in the network namespace of its caller.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import logging
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol, Self

import attrs

import aiorecv
from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.drains import CountError, raise_receive_buffer
from aiorecv.bench.feeders import Pins
from aiorecv.bench.frame_flood import PROTOCOL, open_sender
from aiorecv.bench.processes import module

# What all rings are made of: aiorecv's default.
_BLOCK_SIZE, _BLOCKS, _TIMEOUT_MS = 1 << 18, 32, 1
# What a C loop takes before the event loop has its turn: as much as ours does in a turn.
_READS_A_CALLBACK, _SLOTS = 16, 64
_PATIENCE = 10.0
_LONE_EVERY = 0.003

_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23


@attrs.frozen
class Taken:
    """One sample."""

    sent: int
    packets: int
    drops: int
    seconds: float
    """From the start to the last frame."""
    cpu: float
    """CPU-seconds of this process."""


class Reader(Protocol):
    """Who reads."""

    packets: int
    """Frames so far."""

    last_ns: int
    """When the last ones were in its user's hands, by ``time.perf_counter_ns()``."""

    def drops(self) -> int:
        """What the kernel has dropped."""


class _CReader:
    """A C loop, called from a reader callback."""

    def __init__(self, ring: bool) -> None:
        self.packets = self.last_ns = self._drops = 0
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self.sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, True)
        self._ring = ffi.new("struct frames_ring *", [_BLOCK_SIZE, _BLOCKS]) if ring else None
        if self._ring is not None:
            _check(lib.frames_ring_open(self._ring, self.sock.fileno(), _TIMEOUT_MS))
        else:
            raise_receive_buffer(self.sock)
        self.sock.bind(("veth0", PROTOCOL))
        self._sink = ffi.NULL if ring else lib.sink_new(self.sock.fileno(), _SLOTS)

    def __enter__(self) -> Self:
        readable = self._by_call if self._ring is None else self._by_ring
        asyncio.get_running_loop().add_reader(self.sock.fileno(), readable)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self.sock.fileno())
        if self._ring is None:
            lib.sink_free(self._sink)
        else:
            lib.frames_ring_close(self._ring)
        self.sock.close()

    def _by_call(self) -> None:
        for _ in range(_READS_A_CALLBACK):
            received = lib.sink_drain(self._sink)
            if received == -errno.EAGAIN:
                return
            self.packets += _check(received)
            self.last_ns = time.perf_counter_ns()
            if received < _SLOTS:
                return

    def _by_ring(self) -> None:
        assert self._ring is not None  # or it would be read by calls
        received = lib.frames_ring_drain(self._ring)
        if received:
            self.packets += received
            self.last_ns = time.perf_counter_ns()

    def drops(self) -> int:
        told = self.sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        self._drops += struct.unpack("=II", told)[1]  # reading clears it
        return self._drops


class _OurReader:
    """A task that iterates over a receiver."""

    def __init__(self, receiver: aiorecv.Receiver, pairs: bool) -> None:
        self.packets = self.last_ns = 0
        self._receiver = receiver
        self._pairs = pairs

    async def read(self) -> None:
        async for batch in self._receiver:
            if self._pairs:
                for data, addr in batch:  # noqa: B007 - what users write
                    pass
            self.packets += len(batch)
            self.last_ns = time.perf_counter_ns()

    def drops(self) -> int:
        return self._receiver.statistics().kernel_drops


def _check(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


@contextlib.asynccontextmanager
async def _ours(ring: bool, pairs: bool) -> AsyncIterator[Reader]:
    config = aiorecv.RingConfig(_BLOCK_SIZE, _BLOCKS, _TIMEOUT_MS / 1000) if ring else None
    async with aiorecv.open_packet("veth0", protocol=PROTOCOL, ring=config) as receiver:
        if not ring:
            raise_receive_buffer(receiver.socket)
        reader = _OurReader(receiver, pairs)
        task = asyncio.ensure_future(reader.read())
        yield reader
        receiver.close()
        await task


@contextlib.asynccontextmanager
async def _in_c(ring: bool) -> AsyncIterator[Reader]:
    with _CReader(ring) as reader:
        yield reader


ARMS = {
    "C recvmmsg": "C recvmmsg",
    "recvmmsg batches": "C recvmmsg",
    "recvmmsg pairs": "C recvmmsg",
    "C ring": "C ring",
    "ring batches": "C ring",
    "ring pairs": "C ring",
}
"""The rows, and the C loop that each is compared with."""


def _open(arm: str) -> contextlib.AbstractAsyncContextManager[Reader]:
    ring = "ring" in arm
    return _in_c(ring) if arm.startswith("C ") else _ours(ring, arm.endswith("pairs"))


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """The table tells the drops."""
    log = logging.getLogger("aiorecv")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def sample(
    arm: str,
    size: int,
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    arguments: argparse.Namespace,
    pins: Pins | None,
    title: str,
) -> Taken:
    """Read while a flood comes.

    Raises:
        CountError: If what came and what was dropped is not what was sent.
    """
    command = module("frame_flood", "veth1", str(size), str(arguments.seconds))
    with (
        asyncio.Runner(loop_factory=make_loop) as runner,
        _started(command, pins) as process,
    ):
        return runner.run(_flooded(arm, size, process, arguments.interval, title))


@contextlib.contextmanager
def _started(command: tuple[str, ...], pins: Pins | None) -> Iterator[subprocess.Popen[str]]:
    with contextlib.nullcontext() if pins is None else pins.sending():
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    with process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise CountError("the sender did not start")
            yield process
        finally:
            process.kill()


async def _flooded(
    arm: str, size: int, process: subprocess.Popen[str], interval: float, title: str
) -> Taken:
    async with _open(arm) as reader:
        start, cpu = time.perf_counter_ns(), time.process_time()
        flood = asyncio.ensure_future(asyncio.to_thread(process.communicate, "go\n"))
        before = 0
        while not (await asyncio.wait([flood], timeout=interval))[0]:
            before = _tell(reader, size, interval, before, title)
        sent = int((await flood)[0])
        await _until(lambda: reader.packets + reader.drops() >= sent)
        used = time.process_time() - cpu
        taken = Taken(sent, reader.packets, reader.drops(), (reader.last_ns - start) / 1e9, used)
    checked(arm, taken)
    _tell(reader, size, taken.seconds, 0, f"{title}, in all", taken.drops)
    return taken


def checked(arm: str, taken: Taken) -> None:
    """Raise CountError if what came and what was dropped is not what was sent."""
    if taken.packets + taken.drops != taken.sent or not taken.packets:
        raise CountError(
            f"{arm}: {taken.packets} frames came and {taken.drops} were dropped of {taken.sent}"
        )


def _tell(
    reader: Reader, size: int, seconds: float, before: int, title: str, drops: int | None = None
) -> int:
    """A line about what came since; returns how many have come in all."""
    came = reader.packets - before
    bits = came * size * 8 / seconds / 1e9
    dropped = reader.drops() if drops is None else drops
    line = f"{title}: {came / seconds:,.0f} packets/s, {bits:.2f} Gbit/s, {dropped:,} dropped"
    print(line, file=sys.stderr, flush=True)
    return reader.packets


def lone(
    arm: str, size: int, make_loop: Callable[[], asyncio.AbstractEventLoop], count: int
) -> list[float]:
    """Microseconds from the sending of lone frames until they were in their user's hands."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(_lone(arm, size, count))


async def _lone(arm: str, size: int, count: int) -> list[float]:
    waits = []
    sock, data = open_sender("veth1", size)
    with sock:
        async with _open(arm) as reader:
            for number in range(count):
                await asyncio.sleep(_LONE_EVERY)  # idle, as it is between lone frames
                sent = time.perf_counter_ns()
                sock.send(data)
                await _until(lambda wanted=number + 1: reader.packets >= wanted)
                if reader.packets <= number:
                    raise CountError(f"{arm}: a lone frame never came")
                waits.append((reader.last_ns - sent) / 1000)
    return waits


async def _until(condition: Any) -> None:
    """Wait for this, but not for ever; looking costs little."""
    end = time.monotonic() + _PATIENCE
    while not condition() and time.monotonic() < end:  # noqa: ASYNC110 - what is read has no event
        await asyncio.sleep(_LONE_EVERY)
