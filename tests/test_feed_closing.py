"""Closing inside a callback takes effect at the next packet; nothing is called after the end."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.endpoints import (
    Noting,
    NotingBatches,
    endpoint,
    fail,
    fixed,
    handled,
    name_of,
    numbered,
    queue,
    until_closed,
)
from tests.receiving import passes


@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.parametrize("number", [0, 1, 18, 19])
async def test_of_twenty_queued_those_after_a_close_are_dropped(number, end):
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = {number: getattr(transport, end)}
        queue(transport, *numbered(20))

        assert await protocol.lost is None
        await passes(3)

        assert protocol.packets == numbered(number + 1)
        assert protocol.events == ["made", ("lost", None)]
        assert transport.statistics().buffer_bytes == 0


async def test_a_close_at_a_lone_packet_leaves_what_the_kernel_has():
    async with endpoint(**fixed(1)) as (transport, protocol):
        protocol.acts = {0: transport.close}
        queue(transport, *numbered(5))

        await protocol.lost

        assert protocol.packets == numbered(1)


async def test_a_close_from_outside_drops_what_the_end_of_a_turn_has_left():
    async with endpoint(turn_limit=1e-9, **fixed()) as (transport, protocol):
        protocol.acts = {31: lambda: asyncio.get_running_loop().call_soon(transport.close)}
        queue(transport, *numbered(64))

        await protocol.lost
        await passes(3)

        assert protocol.packets == numbered(32)
        assert transport.statistics().buffer_bytes == 0


async def test_a_close_during_a_pause_drops_the_rest():
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = {3: transport.pause_reading}
        queue(transport, *numbered(20))
        await protocol.got(4)

        transport.close()
        transport.resume_reading()
        await protocol.lost
        await passes(3)

        assert protocol.packets == numbered(4)


@pytest.mark.parametrize("packets", [1, 2, 40])
async def test_a_close_then_an_exception_is_a_close(packets):
    async with endpoint(**fixed()) as (transport, protocol):

        def close_and_fail():
            transport.close()
            fail()()

        protocol.acts = {0: close_and_fail}
        queue(transport, *numbered(packets))

        with handled() as contexts:
            assert await protocol.lost is None

        assert protocol.packets == numbered(1)
        assert len(contexts) == 1


@pytest.mark.parametrize("packets", [1, 2, 40])
async def test_an_exception_handler_may_close(packets):
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = {0: fail()}
        asyncio.get_running_loop().set_exception_handler(lambda *_: transport.close())
        queue(transport, *numbered(packets))

        assert await protocol.lost is None

        assert protocol.packets == numbered(1)


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_close_inside_a_batch_leaves_that_batch_in_hand(end):
    async with endpoint(NotingBatches, **fixed(4)) as (transport, protocol):
        protocol.acts = {0: getattr(transport, end)}
        queue(transport, *numbered(10))

        await protocol.lost

        assert protocol.packets == numbered(4)
        assert protocol.sizes == [4]
        assert transport.statistics().buffer_bytes == 0


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_close_in_connection_made_is_told_once(end):
    class Closing(Noting):
        def connection_made(self, transport):
            super().connection_made(transport)
            getattr(transport, end)()

    async with endpoint(Closing) as (transport, protocol):
        queue(transport, b"too late") if "closed" not in repr(transport) else None
        await until_closed(transport)
        await passes(3)

        assert protocol.events == ["made", ("lost", None)]
        assert protocol.packets == []
        assert transport.is_closing()


@pytest.mark.parametrize("packets", [1, 2, 40])
async def test_a_close_in_error_received_drops_what_is_queued_behind_the_error(packets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        async with endpoint(remote_addr=peer.getsockname(), **fixed()) as (transport, protocol):
            protocol.error_received = lambda error: transport.close()
            for data in numbered(packets):
                peer.sendto(data, name_of(transport))
            peer.close()
            transport.get_extra_info("socket")._sock.send(b"refused")

            assert await protocol.lost is None

            assert protocol.packets == []
