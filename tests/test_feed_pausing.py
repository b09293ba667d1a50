"""Pausing takes effect at the next packet, loses none and holds no packet memory."""

from __future__ import annotations

import asyncio
import socket

import pytest

import aiorecv
from aiorecv._readiness import Readiness
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
    queue_train,
)
from tests.receiving import await_readable, passes


@pytest.mark.parametrize("number", [0, 1, 31, 32, 40, 63])
async def test_a_pause_inside_a_read_leaves_the_rest_for_later(number):
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = {number: transport.pause_reading}
        queue(transport, *numbered(80))

        await protocol.got(number + 1)
        await passes(5)
        while_paused = list(protocol.packets)
        held = transport.statistics().buffer_bytes
        transport.resume_reading()
        await protocol.got(80)

        assert while_paused == numbered(number + 1)
        assert held == 0
        assert protocol.packets == numbered(80)


async def test_a_pause_at_every_packet_gives_them_one_by_one():
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = dict.fromkeys(range(40), transport.pause_reading)
        queue(transport, *numbered(40))

        for number in range(40):
            await protocol.got(number + 1)
            await passes(2)
            assert protocol.packets == numbered(number + 1)
            assert transport.statistics().buffer_bytes == 0
            assert not transport.is_reading()
            transport.resume_reading()


def many_kinds() -> list[bytes]:
    return [b"%d" % number * (1 + 7 * number % 300) for number in range(60)]


@pytest.mark.parametrize("pauses", [{3}, {0, 31, 32, 33}, {59}, {10, 58}], ids=str)
async def test_the_rest_of_a_read_keeps_its_bytes_and_senders(pauses):
    payloads = many_kinds()
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = dict.fromkeys(pauses, transport.pause_reading)
        sent = []
        socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(5)]
        for number, data in enumerate(payloads):
            socks[number % 5].sendto(data, name_of(transport))
            sent.append((data, ("127.0.0.1", socks[number % 5].getsockname()[1])))

        while len(protocol.packets) < len(sent):
            await passes(3)
            if not transport.is_reading():
                assert transport.statistics().buffer_bytes == 0
                transport.resume_reading()
        for sock in socks:
            sock.close()

        assert list(zip(protocol.packets, protocol.addresses, strict=True)) == sent


@pytest.mark.parametrize("number", [0, 4, 30, 127])
async def test_a_pause_inside_a_train_leaves_its_other_segments_for_later(number):
    segments = numbered(128)
    async with endpoint() as (transport, protocol):
        protocol.acts = {number: transport.pause_reading}
        queue_train(transport, *segments[:64])
        queue_train(transport, *segments[64:])

        await protocol.got(number + 1)
        await passes(3)
        while_paused = list(protocol.packets)
        held = transport.statistics().buffer_bytes
        transport.resume_reading()
        await protocol.got(128)

        assert while_paused == segments[: number + 1]
        assert held == 0
        assert protocol.packets == segments


@pytest.mark.parametrize("number", [0, 1, 31, 32, 63])
async def test_pausing_and_resuming_in_one_callback_changes_nothing(number):
    async with endpoint(**fixed()) as (transport, protocol):

        def pause_and_resume():
            transport.pause_reading()
            transport.resume_reading()

        protocol.acts = {number: pause_and_resume, number + 1: pause_and_resume}
        queue(transport, *numbered(70))

        await protocol.got(70)
        await passes(3)

        assert protocol.packets == numbered(70)
        assert transport.is_reading()


async def test_a_pause_then_an_exception_costs_nothing_more():
    async with endpoint(**fixed()) as (transport, protocol):

        def pause_and_fail():
            transport.pause_reading()
            fail()()

        protocol.acts = {1: pause_and_fail}
        queue(transport, *numbered(5))

        with handled() as contexts:
            await protocol.got(2)
            await passes(3)
        transport.resume_reading()
        await protocol.got(5)

        assert len(contexts) == 1
        assert protocol.packets == numbered(5)


@pytest.mark.parametrize("packets", [1, 2, 40])
async def test_an_exception_handler_may_pause(packets):
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = {0: fail()}
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: transport.pause_reading())
        queue(transport, *numbered(packets))

        await protocol.got(1)
        await passes(3)
        while_paused = len(protocol.packets)
        transport.resume_reading()
        await protocol.got(packets)

        assert while_paused == 1
        assert protocol.packets == numbered(packets)


async def test_a_pause_from_outside_while_the_end_of_a_turn_has_left_some():
    async with endpoint(turn_limit=1e-9, **fixed()) as (transport, protocol):
        loop = asyncio.get_running_loop()
        protocol.acts = {31: lambda: loop.call_soon(transport.pause_reading)}
        queue(transport, *numbered(64))

        await protocol.got(32)
        await passes(3)
        while_paused = list(protocol.packets)
        held = transport.statistics().buffer_bytes
        transport.resume_reading()
        await protocol.got(64)

        assert while_paused == numbered(32)
        assert held == 0
        assert protocol.packets == numbered(64)


async def test_what_comes_during_a_pause_comes_after_the_rest_of_the_read():
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = {2: transport.pause_reading}
        queue(transport, *numbered(10))
        await protocol.got(3)
        queue(transport, *numbered(10, start=10))

        transport.resume_reading()

        assert await protocol.got(20) == numbered(20)


async def test_a_paused_endpoint_wakes_the_loop_once(monkeypatch):
    fired = 0
    plain = Readiness._fired

    def counting(self):
        nonlocal fired
        fired += 1
        plain(self)

    monkeypatch.setattr(Readiness, "_fired", counting)
    async with endpoint() as (transport, protocol):
        transport.pause_reading()
        sock = transport.get_extra_info("socket")

        for _ in range(50):
            queue(transport, b"unread")
            await_readable(sock)
            await passes(2)
        while_paused = fired

        assert while_paused <= 1
        assert protocol.packets == []
        transport.resume_reading()
        await protocol.got(50)


@pytest.mark.parametrize("packets", [1, 2, 40])
async def test_a_pause_in_error_received_keeps_what_is_queued_behind_the_error(packets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        async with endpoint(remote_addr=peer.getsockname(), **fixed()) as (transport, protocol):
            protocol.error_received = lambda error: transport.pause_reading()
            for data in numbered(packets):
                peer.sendto(data, name_of(transport))
            peer.close()
            transport.get_extra_info("socket")._sock.send(b"refused")

            await passes(5)
            while_paused = list(protocol.packets)
            held = transport.statistics().buffer_bytes
            errors = transport.statistics().errors
            transport.resume_reading()
            await protocol.got(packets)

            assert errors == 1
            assert while_paused == []
            assert held == 0
            assert protocol.packets == numbered(packets)


async def test_pausing_twice_and_resuming_twice_is_pausing_and_resuming_once():
    async with endpoint() as (transport, protocol):
        transport.pause_reading()
        transport.pause_reading()
        transport.resume_reading()
        reading = transport.is_reading()
        transport.resume_reading()
        queue(transport, b"heard")

        assert reading
        assert await protocol.got(1) == [b"heard"]


async def test_a_pause_in_connection_made_holds_from_the_start():
    class Pausing(Noting):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    async with endpoint(Pausing) as (transport, protocol):
        queue(transport, *numbered(3))
        await passes(3)

        assert protocol.packets == []
        transport.resume_reading()
        assert await protocol.got(3) == numbered(3)


async def test_a_pause_inside_a_batch_leaves_that_batch_in_hand():
    async with endpoint(NotingBatches, **fixed(4)) as (transport, protocol):
        protocol.acts = {0: transport.pause_reading}
        queue(transport, *numbered(10))

        await protocol.until(lambda: protocol.packets)
        await passes(3)
        while_paused = list(protocol.packets)
        transport.resume_reading()
        await protocol.got(10)

        assert while_paused == numbered(4)
        assert protocol.packets == numbered(10)
        assert protocol.sizes == [4, 4, 2]


async def test_a_pause_keeps_the_metadata_of_the_rest_for_a_batch_protocol():
    async with endpoint(metadata=aiorecv.Metadata.TTL, **fixed()) as (transport, protocol):
        protocol.acts = {1: transport.pause_reading}
        queue(transport, *numbered(5))
        await protocol.got(2)

        batches = NotingBatches({0: lambda: ttls.extend(p.ttl for p in batches.batch.packets())})
        ttls = []
        transport.set_protocol(batches)
        transport.resume_reading()
        await batches.got(3)

        assert batches.packets == numbered(3, start=2)
        assert ttls == [64] * 3
