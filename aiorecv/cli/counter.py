"""One receiver of the demo, in a process of its own: ``python -m aiorecv.cli.counter WHAT LOOP``.

It counts packets and their bytes, touching each packet once, whatever receives them. To stdout it
writes its port, then a report every fifth of a second, a line of JSON each. When its stdin ends the
flood is over: it goes on until its queue is empty, writes a last report and exits.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import select
import socket
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress

import attrs

import aiorecv
from aiorecv.cli.loops import loop_factory
from aiorecv.cli.report import Report

HOST = "127.0.0.1"
_PERIOD = 0.2  # seconds: quick enough to look alive, slow enough to cost nothing
_QUIET = 0.05  # seconds without a packet, with an empty queue, that end the drain

# asm-generic/socket.h and linux/sock_diag.h; the socket module has neither.
_SO_MEMINFO = 55
_MEMINFO_SIZE = 36  # bytes; the last word of them counts drops


class Counter:
    """Where packets are counted, and the clocks they are set against."""

    def __init__(self) -> None:
        self.packets = 0
        self.bytes = 0
        self._started = time.monotonic()
        self._cpu = time.process_time()

    def report(self, sock: socket.socket, receiver: aiorecv.Receiver | None) -> Report:
        """What was counted on ``sock`` until now."""
        elapsed = time.monotonic() - self._started
        cpu = time.process_time() - self._cpu
        if receiver is not None:
            report = Report.of(receiver.statistics(), elapsed=elapsed, cpu=cpu)
            return attrs.evolve(report, packets=self.packets, bytes=self.bytes)
        return Report(
            elapsed=elapsed,
            cpu=cpu,
            packets=self.packets,
            bytes=self.bytes,
            drops=_drops(sock),
            receive_buffer_size=sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        )


class CountingProtocol(asyncio.DatagramProtocol):
    """The loop's own way to receive."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._counter.packets += 1
        self._counter.bytes += len(data)


async def count_batches(receiver: aiorecv.Receiver, counter: Counter) -> None:
    """aiorecv's way: every packet of every batch."""
    async for batch in receiver:
        for data, _addr in batch:
            counter.packets += 1
            counter.bytes += len(data)


async def report_until_drained(sock: socket.socket, report: Callable[[], Report]) -> None:
    """Write reports until the flood is over and nothing of it is left."""
    _write(json.dumps({"port": sock.getsockname()[1]}))
    seen = -1
    while True:
        over = bool(select.select([sys.stdin], [], [], 0)[0])
        await asyncio.sleep(_QUIET if over else _PERIOD)
        current = report()
        _write(current.to_json())
        if over and current.packets == seen and _is_empty(sock):
            return
        seen = current.packets


async def receive_with_aiorecv() -> None:
    """Count with ``aiorecv.open_udp``."""
    async with aiorecv.open_udp((HOST, 0)) as receiver:
        counter = Counter()
        task = asyncio.create_task(count_batches(receiver, counter))
        sock = receiver.socket
        await report_until_drained(sock, lambda: counter.report(sock, receiver))
        receiver.close()
        await task


async def receive_with_the_loop() -> None:
    """Count with ``loop.create_datagram_endpoint``."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((HOST, 0))
    counter = Counter()
    transport, _ = await loop.create_datagram_endpoint(lambda: CountingProtocol(counter), sock=sock)
    await report_until_drained(sock, lambda: counter.report(sock, None))
    transport.close()


def main(what: str, loop: str) -> None:
    """Run one receiver (``aiorecv``, or ``own`` for the loop's) on ``asyncio`` or ``uvloop``."""
    logging.getLogger("aiorecv").setLevel(logging.ERROR)  # the demo itself shows what is dropped
    receive = receive_with_aiorecv if what == "aiorecv" else receive_with_the_loop
    with (
        suppress(BrokenPipeError),  # whoever asked is gone
        asyncio.Runner(loop_factory=loop_factory(loop)) as runner,
    ):
        runner.run(receive())


def _write(line: str) -> None:
    os.write(sys.stdout.fileno(), line.encode() + b"\n")


def _is_empty(sock: socket.socket) -> bool:
    size = fcntl.ioctl(sock, termios.FIONREAD, bytes(4))  # of the next datagram, never empty here
    return size == bytes(4)


def _drops(sock: socket.socket) -> int:
    words = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO_SIZE)
    return int.from_bytes(words[-4:], sys.byteorder)


if __name__ == "__main__":
    main(*sys.argv[1:])
