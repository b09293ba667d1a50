"""An exception in a callback costs its packet only, wherever in a read that packet lies."""

from __future__ import annotations

import asyncio

import pytest

from tests.endpoints import (
    LOOPS,
    NotingBatches,
    endpoint,
    fail,
    fixed,
    handled,
    numbered,
    opened,
    queue,
    queue_train,
)
from tests.receiving import passes


@pytest.mark.parametrize("sizes", ["equal", "mixed"])
@pytest.mark.parametrize("number", [0, 1, 31, 32, 50, 63])
async def test_an_exception_costs_the_packet_at_which_it_was_raised(number, sizes):
    sent = numbered(64)
    if sizes == "mixed":
        sent = [data * (1 + place % 3) for place, data in enumerate(sent)]
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = {number: fail()}
        queue(transport, *sent)

        with handled() as contexts:
            await protocol.got(64)

        assert protocol.packets == sent
        assert transport.statistics().batches == 1
        (context,) = contexts
        assert isinstance(context["exception"], LookupError)
        assert context["transport"] is transport
        assert context["protocol"] is protocol
        assert "datagram_received" in context["message"]


async def test_an_exception_at_every_packet_costs_none_of_the_others():
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = dict.fromkeys(range(40), fail())
        queue(transport, *numbered(41))

        with handled() as contexts:
            await protocol.got(41)

        assert protocol.packets == numbered(41)
        assert len(contexts) == 40


async def test_an_exception_at_a_lone_packet_is_told_and_the_next_one_comes():
    async with endpoint() as (transport, protocol):
        protocol.acts = {0: fail()}

        with handled() as contexts:
            queue(transport, b"bad")
            await protocol.got(1)
            queue(transport, b"good")
            await protocol.got(2)

        assert protocol.packets == [b"bad", b"good"]
        assert [context["transport"] for context in contexts] == [transport]
        assert not transport.is_closing()


async def test_a_cancelled_error_of_a_callback_costs_its_packet_too():
    async with endpoint(**fixed()) as (transport, protocol):
        protocol.acts = {1: fail(asyncio.CancelledError())}
        queue(transport, *numbered(3))

        with handled() as contexts:
            assert await protocol.got(3) == numbered(3)

        assert len(contexts) == 1


async def test_an_exception_in_a_train_costs_one_of_its_segments():
    async with endpoint() as (transport, protocol):
        protocol.acts = {2: fail(), 5: fail()}
        queue_train(transport, *numbered(9))

        with handled() as contexts:
            assert await protocol.got(9) == numbered(9)

        assert len(contexts) == 2


async def test_an_exception_with_a_batch_costs_that_batch_and_gives_its_memory_back():
    async with endpoint(NotingBatches, **fixed(4)) as (transport, protocol):
        protocol.acts = {0: fail()}
        queue(transport, *numbered(6))

        with handled() as contexts:
            await protocol.got(2)

        assert protocol.sizes == [4, 2]
        assert protocol.packets == numbered(2, start=4)
        assert [context["exception"].args for context in contexts] == [("of the protocol",)]
        assert "batch_received" in contexts[0]["message"]
        assert transport.statistics().buffer_bytes == 0


@pytest.mark.parametrize("number", [0, 1, 31, 32, 63])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("new_loop", LOOPS)
def test_an_interrupt_in_a_callback_leaves_the_rest_to_the_next_pass(new_loop, error, number):
    sent = numbered(70)
    with new_loop() as loop:
        transport, protocol = loop.run_until_complete(opened(**fixed()))
        protocol.acts = {number: fail(error())}
        queue(transport, *sent)

        with pytest.raises(error):
            loop.run_until_complete(protocol.got(70))
        before = len(protocol.packets)
        loop.run_until_complete(protocol.got(70))

        if isinstance(loop, asyncio.SelectorEventLoop):  # uvloop has one more pass first
            assert before == number + 1
        assert protocol.packets == sent


@pytest.mark.parametrize("packets", [1, 2, 5])
@pytest.mark.parametrize("new_loop", LOOPS)
def test_an_exception_handler_that_exits_leaves_the_rest_to_the_next_pass(new_loop, packets):
    with new_loop() as loop:
        transport, protocol = loop.run_until_complete(opened(**fixed()))
        protocol.acts = {0: fail()}
        loop.set_exception_handler(lambda *_: fail(SystemExit(3))())
        queue(transport, *numbered(packets))

        with pytest.raises(SystemExit):
            loop.run_until_complete(protocol.got(packets + 1))
        queue(transport, b"more")
        loop.run_until_complete(protocol.got(packets + 1))

        assert protocol.packets == [*numbered(packets), b"more"]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_an_interrupt_with_a_batch_costs_no_later_batch(new_loop):
    with new_loop() as loop:
        transport, protocol = loop.run_until_complete(opened(NotingBatches, **fixed(4)))
        protocol.acts = {0: fail(KeyboardInterrupt())}
        queue(transport, *numbered(6))

        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(protocol.got(2))
        loop.run_until_complete(protocol.got(2))

        assert protocol.packets == numbered(2, start=4)
        assert transport.statistics().buffer_bytes == 0


@pytest.mark.parametrize("act", ["close", "abort", "pause_reading"])
@pytest.mark.parametrize("new_loop", LOOPS)
def test_an_interrupt_after_a_close_or_a_pause_does_not_undo_it(new_loop, act):
    with new_loop() as loop:
        transport, protocol = loop.run_until_complete(opened(**fixed()))

        def act_and_interrupt():
            getattr(transport, act)()
            raise KeyboardInterrupt

        protocol.acts = {1: act_and_interrupt}
        queue(transport, *numbered(5))
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(protocol.got(5))
        loop.run_until_complete(passes(5))

        assert protocol.packets == numbered(2)
        if act == "pause_reading":
            transport.resume_reading()
            assert loop.run_until_complete(protocol.got(5)) == numbered(5)


@pytest.mark.parametrize("packets", [1, 3, 40])
async def test_a_protocol_that_takes_no_datagrams_stops_nothing(packets):
    async with endpoint(**fixed()) as (transport, protocol):
        transport.set_protocol(asyncio.Protocol())
        queue(transport, *numbered(packets))

        with handled() as contexts:
            await passes(6)
        transport.set_protocol(protocol)
        queue(transport, b"heard")
        await protocol.got(1)

        assert protocol.packets == [b"heard"]
        assert {type(context["exception"]) for context in contexts} == {AttributeError}
