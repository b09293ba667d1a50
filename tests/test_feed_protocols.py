"""Another protocol takes over at the next packet; batch protocols get whole reads."""

from __future__ import annotations

import asyncio

import pytest

import aiorecv
from tests.endpoints import Noting, NotingBatches, endpoint, fail, fixed, handled, numbered, queue
from tests.receiving import passes


@pytest.mark.parametrize("number", [0, 1, 31, 32, 62, 63])
async def test_another_protocol_gets_the_packets_after_it_was_set(number):
    async with endpoint(**fixed()) as (transport, first):
        second = Noting()
        first.acts = {number: lambda: transport.set_protocol(second)}
        queue(transport, *numbered(70))

        await second.got(70 - number - 1)

        assert first.packets == numbered(number + 1)
        assert second.packets == numbered(70 - number - 1, start=number + 1)
        assert transport.get_protocol() is second


@pytest.mark.parametrize("packets", [1, 2, 33, 64])
@pytest.mark.parametrize("number", [0, 1, 31, 32, 62, 63])
async def test_a_batch_protocol_gets_the_rest_of_a_read_as_a_batch(number, packets):
    number = min(number, packets - 1)
    async with endpoint(**fixed()) as (transport, first):
        second = NotingBatches()
        first.acts = {number: lambda: transport.set_protocol(second)}
        queue(transport, *numbered(packets))

        with handled() as contexts:
            await first.got(number + 1)
            queue(transport, b"next")
            await second.got(packets - number)

        rest = packets - number - 1
        assert first.packets == numbered(number + 1)
        assert second.packets == [*numbered(rest, start=number + 1), b"next"]
        assert second.sizes == ([rest] if rest else []) + [1]
        assert contexts == []


async def test_a_batch_protocol_set_while_a_rest_waits_gets_each_packet_once():
    async with endpoint(turn_limit=1e-9, **fixed()) as (transport, first):
        second = NotingBatches()
        loop = asyncio.get_running_loop()
        first.acts = {31: lambda: loop.call_soon(transport.set_protocol, second)}
        queue(transport, *numbered(64))

        await second.got(32)

        assert first.packets + second.packets == numbered(64)


@pytest.mark.parametrize("number", [3, 5, 35, 40])
async def test_a_batch_protocol_set_after_a_pause_gets_each_packet_once(number):
    async with endpoint(**fixed()) as (transport, first):
        second = NotingBatches()
        first.acts = {
            2: transport.pause_reading,
            number: lambda: transport.set_protocol(second),
        }
        queue(transport, *numbered(64))
        await first.got(3)

        transport.resume_reading()
        await second.got(64 - number - 1)

        assert first.packets == numbered(number + 1)
        assert second.packets == numbered(64 - number - 1, start=number + 1)


async def test_a_datagram_protocol_set_inside_a_batch_gets_the_next_packet():
    async with endpoint(NotingBatches, **fixed(4)) as (transport, first):
        second = Noting()
        first.acts = {0: lambda: transport.set_protocol(second)}
        queue(transport, *numbered(6))

        await second.got(2)

        assert first.packets == numbered(4)
        assert second.packets == numbered(2, start=4)


async def test_another_batch_protocol_set_inside_a_batch_gets_the_next_one():
    async with endpoint(NotingBatches, **fixed(4)) as (transport, first):
        second = NotingBatches()
        first.acts = {0: lambda: transport.set_protocol(second)}
        queue(transport, *numbered(6))

        await second.got(2)

        assert first.packets == numbered(4)
        assert second.packets == numbered(2, start=4)


async def test_protocols_may_take_turns_packet_by_packet():
    async with endpoint(**fixed()) as (transport, first):
        second = Noting()
        first.acts = dict.fromkeys(range(20), lambda: transport.set_protocol(second))
        second.acts = dict.fromkeys(range(20), lambda: transport.set_protocol(first))
        queue(transport, *numbered(40))

        await second.got(20)

        assert first.packets == numbered(40)[::2]
        assert second.packets == numbered(40)[1::2]


async def test_an_exception_after_another_protocol_was_set_costs_that_packet_only():
    async with endpoint(**fixed()) as (transport, first):
        second = Noting()

        def set_and_fail():
            transport.set_protocol(second)
            fail()()

        first.acts = {1: set_and_fail}
        queue(transport, *numbered(5))

        with handled() as contexts:
            await second.got(3)

        assert second.packets == numbered(3, start=2)
        assert len(contexts) == 1


async def test_a_protocol_set_during_a_pause_gets_the_rest():
    async with endpoint(**fixed()) as (transport, first):
        second = Noting()
        first.acts = {1: transport.pause_reading}
        queue(transport, *numbered(5))
        await first.got(2)

        transport.set_protocol(second)
        transport.resume_reading()

        assert await second.got(3) == numbered(3, start=2)


async def test_batches_are_released_once_they_were_received():
    async with endpoint(NotingBatches, **fixed()) as (transport, protocol):
        queue(transport, *numbered(5))

        await protocol.got(5)

        with pytest.raises(aiorecv.BatchReleasedError):
            protocol.batch.payloads()
        assert len(protocol.batch) == 5
        assert transport.statistics().buffer_bytes == 0


async def test_views_of_a_batch_stay_right_for_as_long_as_they_live():
    async with endpoint(NotingBatches, **fixed()) as (transport, protocol):
        views = []
        protocol.acts = {0: lambda: views.extend(protocol.batch.views())}
        queue(transport, *numbered(5))
        await protocol.got(5)

        queue(transport, *[b"other"] * 5)
        await protocol.got(10)
        held = transport.statistics().buffer_bytes

        assert list(map(bytes, views)) == numbered(5)
        assert held > 0
        views.clear()
        assert transport.statistics().buffer_bytes == 0


async def test_a_batch_protocol_gets_a_lone_packet_as_a_batch():
    async with endpoint(NotingBatches) as (transport, protocol):
        name = queue(transport, b"lone")

        await protocol.got(1)

        assert protocol.sizes == [1]
        assert list(zip(protocol.packets, protocol.addresses, strict=True)) == [(b"lone", name)]


async def test_a_batch_that_is_released_by_its_receiver_is_no_trouble():
    class Releasing(Noting, aiorecv.BatchProtocol):
        def batch_received(self, batch):
            with batch:
                self.packets += batch.payloads()
            self._changed.set()

    async with endpoint(Releasing, **fixed(4)) as (transport, protocol):
        queue(transport, *numbered(10))

        assert await protocol.got(10) == numbered(10)


async def test_a_batch_protocol_says_nothing_of_its_own():
    protocol = aiorecv.BatchProtocol()

    async with endpoint(lambda: protocol) as (transport, _):
        queue(transport, b"ignored")
        await passes(4)

        assert transport.statistics().packets == 1
        assert isinstance(protocol, asyncio.DatagramProtocol)
