"""An endpoint that is cancelled, fails or is dropped while it is created, or with its loop."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import warnings

import pytest
import uvloop

import aiorecv
from tests.endpoints import LOOPBACK, Noting, endpoint, fail, handled, name_of, until_closed
from tests.helpers import descriptors
from tests.receiving import passes

create = aiorecv.create_datagram_endpoint


async def test_a_creation_that_is_cancelled_before_it_runs_makes_nothing():
    before = descriptors()
    made = []

    task = asyncio.ensure_future(create(lambda: made.append(1), local_addr=LOOPBACK))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert made == []
    assert descriptors() == before


@pytest.mark.parametrize("when", ["protocol_factory", "connection_made", "after connection_made"])
async def test_a_creation_that_is_cancelled_later_closes_what_it_made(when):
    before = descriptors()

    class Cancelling(Noting):
        def __init__(self):
            super().__init__()
            if when == "protocol_factory":
                task.cancel()

        def connection_made(self, transport):
            super().connection_made(transport)
            if when == "connection_made":
                task.cancel()
            elif when == "after connection_made":
                # Behind what wakes the creation up, and before it runs.
                asyncio.get_running_loop().call_soon(task.cancel)

    protocols = []

    def make():
        protocols.append(Cancelling())
        return protocols[0]

    task = asyncio.ensure_future(create(make, local_addr=LOOPBACK))
    with pytest.raises(asyncio.CancelledError):
        await task
    (protocol,) = protocols
    assert await protocol.lost is None
    await until_closed(protocol.transport)

    assert protocol.events == ["made", ("lost", None)]
    assert descriptors() == before


async def test_a_creation_that_is_cancelled_while_a_name_is_looked_up_makes_nothing(monkeypatch):
    before = descriptors()
    asked = asyncio.Event()

    async def getaddrinfo(*_, **__):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", getaddrinfo)
    task = asyncio.ensure_future(create(Noting, local_addr=("name.test", 0)))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert descriptors() == before


async def test_a_factory_that_raises_leaves_nothing():
    before = descriptors()

    with pytest.raises(LookupError):
        await create(fail(), local_addr=LOOPBACK)

    assert descriptors() == before


async def test_a_factory_that_raises_leaves_the_socket_to_its_caller(bound):
    with pytest.raises(LookupError):
        await create(fail(), sock=bound)

    async with endpoint(sock=bound) as (_, protocol):
        bound.sendto(b"to itself", bound.getsockname())
        assert await protocol.got(1) == [b"to itself"]


@pytest.mark.parametrize("protocol", [None, object()])
async def test_what_is_no_protocol_is_refused_and_leaves_nothing(protocol):
    before = descriptors()

    with pytest.raises(TypeError, match="no protocol"):
        await create(lambda: protocol, local_addr=LOOPBACK)
    gc.collect()

    assert descriptors() == before


async def test_what_is_no_protocol_leaves_the_socket_to_its_caller(bound):
    window = aiorecv.FixedWindow(2)
    with pytest.raises(TypeError, match="no protocol"):
        await create(lambda: None, sock=bound, window=window, gro=True)
    gc.collect()

    assert bound.fileno() != -1
    async with endpoint(sock=bound) as (_, protocol):
        bound.sendto(b"to itself", bound.getsockname())
        assert await protocol.got(1) == [b"to itself"]


async def test_an_exception_in_connection_made_goes_to_the_loop_and_reading_begins():
    class Failing(Noting):
        def connection_made(self, transport):
            super().connection_made(transport)
            fail()()

    with handled() as contexts:
        async with endpoint(Failing) as (transport, protocol):
            transport.sendto(b"heard", name_of(transport))
            assert await protocol.got(1) == [b"heard"]

    assert [type(context["exception"]) for context in contexts] == [LookupError]


async def test_an_exception_in_connection_lost_goes_to_the_loop_and_the_socket_is_closed():
    before = descriptors()
    transport, protocol = await create(Noting, local_addr=LOOPBACK)
    protocol.connection_lost = lambda error: fail()()

    with handled() as contexts:
        transport.close()
        await until_closed(transport)

    assert [type(context["exception"]) for context in contexts] == [LookupError]
    assert descriptors() == before


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_endpoint_that_cannot_be_watched_is_an_error_of_its_creation(new_loop):
    """On uvloop a connected socket needs a descriptor more, which may not be to be had."""
    loop = new_loop()
    if not isinstance(loop, uvloop.Loop):
        loop.add_reader = lambda *_: fail(OSError("no room"))()

    async def run():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(LOOPBACK)
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.connect(peer.getsockname())
            task = asyncio.ensure_future(create(Noting, sock=sock))
            resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, hard))
            try:
                with pytest.raises(OSError, match=r"no room|open files"):
                    await asyncio.wait_for(task, 10)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await passes(3)
            assert sock.fileno() == -1

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def unclosed(new_loop, use) -> list[warnings.WarningMessage]:
    """What is warned of when an endpoint is dropped without being closed."""
    gc.collect()
    loop = new_loop()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        transport, _ = loop.run_until_complete(
            create(asyncio.DatagramProtocol, local_addr=LOOPBACK)
        )
        use(loop, transport)
        del transport, _
        gc.collect()
    if not loop.is_closed():
        loop.close()
    return [warning for warning in caught if warning.category is ResourceWarning]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_endpoint_dropped_with_its_closed_loop_is_warned_of_once(new_loop):
    before = descriptors()

    caught = unclosed(new_loop, lambda loop, transport: loop.close())

    assert len(caught) == 1
    assert "unclosed" in str(caught[0].message)
    assert descriptors() == before


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_paused_endpoint_that_is_dropped_is_warned_of_once(new_loop):
    before = descriptors()

    caught = unclosed(new_loop, lambda loop, transport: transport.pause_reading())

    assert len(caught) == 1
    assert descriptors() == before


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_endpoint_that_was_closed_is_dropped_in_silence(new_loop):
    def use(loop, transport):
        transport.close()
        loop.run_until_complete(passes(2))

    assert unclosed(new_loop, use) == []


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_that_was_closed_early_leaves_closing_without_harm(new_loop):
    def use(loop, transport):
        loop.close()
        with pytest.raises(RuntimeError, match="closed"):
            transport.close()
        assert transport.is_closing()

    assert len(unclosed(new_loop, use)) == 1
