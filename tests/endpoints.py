"""What the tests of endpoints share: endpoints that close themselves, protocols that take notes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import uvloop

import aiorecv
from tests.helpers import UDP_SEGMENT

LOOPBACK = ("127.0.0.1", 0)


class Noting(asyncio.DatagramProtocol):
    """Notes what it is told; ``acts`` are called at the packets of their numbers."""

    def __init__(self, acts: dict[int, Callable[[], object]] | None = None) -> None:
        self.acts = acts or {}
        self.transport: aiorecv.DatagramTransport = None
        self.packets: list[bytes] = []
        """Payloads, in order."""
        self.addresses: list[Any] = []
        """Their senders."""
        self.events: list[Any] = []
        """All other calls: ``"made"``, ``"pause"``, ``"resume"``, an error, ``("lost", error)``."""
        self.lost = asyncio.get_running_loop().create_future()
        """Done after ``connection_lost``."""
        self._changed = asyncio.Event()

    def connection_made(self, transport) -> None:
        self.transport = transport
        self._note("made")

    def datagram_received(self, data, addr) -> None:
        number = len(self.packets)
        self.packets.append(data)
        self.addresses.append(addr)
        self._changed.set()
        if number in self.acts:
            self.acts[number]()

    def error_received(self, exc) -> None:
        self._note(exc)

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def connection_lost(self, exc) -> None:
        self._note(("lost", exc))
        if not self.lost.done():
            self.lost.set_result(exc)

    async def until(self, done: Callable[[], object]) -> None:
        """Wait until something is so, which one of the calls makes so."""
        async with asyncio.timeout(20):
            while not done():
                self._changed.clear()
                await self._changed.wait()

    async def got(self, count: int) -> list[bytes]:
        """Wait for so many packets; returns all."""
        await self.until(lambda: len(self.packets) >= count)
        return self.packets

    def _note(self, event: Any) -> None:
        self.events.append(event)
        self._changed.set()


class NotingBatches(Noting, aiorecv.BatchProtocol):
    """The same, of batches; ``acts`` are called at batches, with the batch as ``batch``."""

    def __init__(self, acts: dict[int, Callable[[], object]] | None = None) -> None:
        super().__init__(acts)
        self.sizes: list[int] = []
        """Packets of each batch."""
        self.batch: aiorecv.PacketBatch = None
        """The last one."""

    def batch_received(self, batch) -> None:
        number = len(self.sizes)
        self.sizes.append(len(batch))
        self.batch = batch
        if number in self.acts:
            self.acts[number]()
        self.packets += batch.payloads()
        self.addresses += batch.addresses()
        self._changed.set()

    def datagram_received(self, data, addr) -> None:
        raise AssertionError("a batch protocol is given batches")


@contextlib.asynccontextmanager
async def endpoint(
    make: Callable[[], Any] = Noting, **arguments: Any
) -> AsyncIterator[tuple[aiorecv.DatagramTransport, Any]]:
    """An endpoint, on an IPv4 port of the kernel's choice if nothing else is said.

    It is aborted at the end, and its socket closed.
    """
    if not arguments.keys() & {"local_addr", "remote_addr", "sock", "family"}:
        arguments["local_addr"] = LOOPBACK
    transport, protocol = await aiorecv.create_datagram_endpoint(make, **arguments)
    try:
        yield transport, protocol
    finally:
        transport.abort()
        await until_closed(transport)


async def until_closed(transport) -> None:
    """Let the loop pass until a transport that is closing has closed its socket."""
    async with asyncio.timeout(20):
        while "closed" not in repr(transport).split():
            await asyncio.sleep(0)


def name_of(transport) -> Any:
    """The address that a transport's socket is bound to."""
    return transport.get_extra_info("sockname")


def queue(transport, *packets: bytes) -> Any:
    """Send packets from a socket of their own; they are queued then. Returns its address."""
    name = name_of(transport)
    family = transport.get_extra_info("socket").family
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect(name)
        for data in packets:
            sock.send(data)
        return sock.getsockname()


def queue_train(transport, *segments: bytes) -> Any:
    """The same, as one train: all but the last segment have one size."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(segments[0]))
        sock.connect(name_of(transport))
        sock.send(b"".join(segments))
        return sock.getsockname()


def numbered(count: int, start: int = 0) -> list[bytes]:
    """So many small payloads, none like another, all of one size."""
    return [b"%04d" % number for number in range(start, start + count)]


def fixed(slots: int = 64) -> dict[str, Any]:
    """Options with which one read takes up to ``slots`` packets, each of its own."""
    return {"window": aiorecv.FixedWindow(slots), "gro": False}


@contextlib.contextmanager
def handled() -> Iterator[list[dict[str, Any]]]:
    """What comes to the running loop's exception handler meanwhile."""
    loop = asyncio.get_running_loop()
    contexts: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    try:
        yield contexts
    finally:
        loop.set_exception_handler(before)


def fail(error: BaseException | None = None) -> Callable[[], object]:
    """What raises when it is called."""

    def raising() -> None:
        raise LookupError("of the protocol") if error is None else error

    return raising


@contextlib.contextmanager
def _loop(make: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[asyncio.AbstractEventLoop]:
    loop = make()
    try:
        yield loop
    finally:
        loop.set_exception_handler(None)
        loop.run_until_complete(_abort_all())
        loop.close()


LOOPS = [
    pytest.param(functools.partial(_loop, asyncio.new_event_loop), id="asyncio"),
    pytest.param(functools.partial(_loop, uvloop.new_event_loop), id="uvloop"),
]
"""Makers of loops to run by hand: in an async test an interrupt would end the test's own loop.

Endpoints that ``opened`` has made on one are closed with it.
"""

_OPENED: list[aiorecv.DatagramTransport] = []


async def opened(make: Callable[[], Any] = Noting, **arguments: Any) -> Any:
    """An endpoint on an IPv4 port of the kernel's choice, on one of ``LOOPS``."""
    arguments.setdefault("local_addr", LOOPBACK)
    transport, protocol = await aiorecv.create_datagram_endpoint(make, **arguments)
    _OPENED.append(transport)
    return transport, protocol


async def _abort_all() -> None:
    while _OPENED:
        transport = _OPENED.pop()
        transport.abort()
        await until_closed(transport)
