"""Sinks: ways to drain one UDP socket, each with its own account of what came.

Here are those in C, one for each call that reads. Knows nothing of who sends.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Self

import attrs

from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.counters import Stopwatch, socket_drops
from aiorecv.bench.drains import CountError

_WAIT_MS = 10_000


@attrs.frozen
class Counts:
    """What a sink has seen since it was opened."""

    packets: int
    nbytes: int
    reads: int
    """Calls that brought something."""
    empty_reads: int | None
    """Calls that found nothing; None where nobody tells."""


@attrs.frozen
class Taken:
    """What a sink took in one stretch, and what that cost."""

    packets: int
    nbytes: int
    reads: int
    empty_reads: int | None
    drops: int
    ns: int
    cpu_ns: int
    cycles: int


class Sink:
    """One way to drain ``sock``; an async context manager, which closes the socket."""

    def __init__(self, sock: socket.socket, stopwatch: Stopwatch, packet_size: int) -> None:
        self._sock = sock
        self._stopwatch = stopwatch
        self._packet_size = packet_size
        self._end: tuple[Counts, int]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sock.close()

    async def take(self, packets: int) -> Taken:
        """Take at least so many packets, and measure from here until the last of them has come.

        Raises:
            CountError: If C waited in vain.
            OSError: What the kernel says.
        """
        before, drops_before = self._counts(), socket_drops(self._sock)
        self._stopwatch.start()
        await self._drain(packets)
        after, drops = self._end
        empty_reads = None
        if after.empty_reads is not None and before.empty_reads is not None:
            empty_reads = after.empty_reads - before.empty_reads
        return Taken(
            packets=after.packets - before.packets,
            nbytes=after.nbytes - before.nbytes,
            reads=after.reads - before.reads,
            empty_reads=empty_reads,
            drops=(drops - drops_before) % 2**32,
            ns=self._stopwatch.ns,
            cpu_ns=self._stopwatch.cpu_ns,
            cycles=self._stopwatch.cycles,
        )

    async def check(self, packets: int) -> int:
        """Take so many packets, and add up the values of all their bytes."""
        raise NotImplementedError

    def _ended(self) -> None:
        """The last packet has come."""
        self._stopwatch.stop()
        self._end = self._counts(), socket_drops(self._sock)

    async def _drain(self, packets: int) -> None:
        raise NotImplementedError

    def _counts(self) -> Counts:
        raise NotImplementedError


class CallSink(Sink):
    """C that makes one kind of call until it has had enough; no event loop takes part."""

    call: Callable[[Any, int], int]

    async def __aenter__(self) -> Self:
        self._buffer = ffi.new("uint8_t[]", lib.SINK_SLOT_SIZE)
        fields = {
            "fd": self._sock.fileno(),
            "wait_ms": _WAIT_MS,
            "packet_size": self._packet_size,
            "buffer": self._buffer,
        }
        self._state = ffi.new("struct calls *", fields)
        return self

    async def check(self, packets: int) -> int:
        content = 0
        end = self._state.packets + packets
        while self._state.packets < end:
            self._read(1)
            content += lib.calls_content(self._state)
        return content

    async def _drain(self, packets: int) -> None:
        self._read(packets)
        self._ended()

    def _read(self, packets: int) -> None:
        result = type(self).call(self._state, packets)
        if result == -errno.ETIMEDOUT:
            raise CountError("packets were lost: some never came")
        if result < 0:
            raise OSError(-result, os.strerror(-result))

    def _counts(self) -> Counts:
        state = self._state
        return Counts(state.packets, state.bytes, state.reads, state.empty_reads)


class RecvmsgSink(CallSink):
    """``recvmsg``, with name and control data."""

    call = lib.calls_recvmsg


class ReadSink(CallSink):
    """``read``, which tells nothing but the payload."""

    call = lib.calls_read


class RecvfromSink(CallSink):
    """``recvfrom``, with the name."""

    call = lib.calls_recvfrom


class RecvmmsgSink(CallSink):
    """``recvmmsg``, with names and control data, up to ``slots`` messages a call."""

    call = lib.calls_recvmmsg

    def __init__(
        self, sock: socket.socket, stopwatch: Stopwatch, packet_size: int, *, slots: int
    ) -> None:
        super().__init__(sock, stopwatch, packet_size)
        self._slot_count = slots

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._slots = lib.sink_new(self._sock.fileno(), self._slot_count)
        if self._slots == ffi.NULL:
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        self._state.sink = self._slots
        return self

    async def __aexit__(self, *_: object) -> None:
        lib.sink_free(self._slots)
        await super().__aexit__()
