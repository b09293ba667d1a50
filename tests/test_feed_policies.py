"""Window policies that close, pause or raise when they are told of a read."""

from __future__ import annotations

import asyncio

import pytest

from tests.endpoints import (
    LOOPS,
    Noting,
    NotingBatches,
    endpoint,
    fail,
    handled,
    numbered,
    opened,
    queue,
)
from tests.receiving import passes


class Acting:
    """A policy that does something when it is told of a read."""

    slots = maximum = 64

    def __init__(self) -> None:
        self.act = lambda: None

    def record(self, *, received, polled) -> None:
        self.act()


@pytest.mark.parametrize("packets", [1, 2, 40])
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("make", [Noting, NotingBatches])
async def test_a_policy_that_closes_is_told_after_its_read_and_followed_by_no_other(
    make, raises, packets
):
    window = Acting()
    async with endpoint(make, window=window, gro=False, turn_limit=60.0) as (transport, protocol):

        def act():
            transport.close()
            if raises:
                raise LookupError("of the policy")

        window.act = act
        queue(transport, *numbered(packets))

        with handled():
            assert await protocol.lost is None
        await passes(3)

        assert protocol.packets == numbered(packets)
        assert protocol.events == ["made", ("lost", None)]
        assert transport.statistics().buffer_bytes == 0


@pytest.mark.parametrize("packets", [1, 2, 40])
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("make", [Noting, NotingBatches])
async def test_a_policy_that_pauses_is_told_after_its_read_and_followed_by_no_other(
    make, raises, packets
):
    window = Acting()
    async with endpoint(make, window=window, gro=False, turn_limit=60.0) as (transport, protocol):

        def act():
            transport.pause_reading()
            window.act = lambda: None
            if raises:
                raise LookupError("of the policy")

        window.act = act
        queue(transport, *numbered(packets))

        with handled() as contexts:
            await passes(5)
        while_paused = list(protocol.packets)
        held = transport.statistics().buffer_bytes
        transport.resume_reading()
        queue(transport, b"next")
        await protocol.got(packets + 1)

        assert while_paused == numbered(packets)
        assert held == 0
        assert protocol.packets == [*numbered(packets), b"next"]
        assert len(contexts) == raises


@pytest.mark.parametrize("packets", [1, 2, 40])
@pytest.mark.parametrize("make", [Noting, NotingBatches])
async def test_a_policy_that_raises_loses_no_packet(make, packets):
    window = Acting()
    async with endpoint(make, window=window, gro=False, turn_limit=60.0) as (transport, protocol):
        window.act = fail()
        with handled() as contexts:
            queue(transport, *numbered(packets))
            await protocol.got(packets)
            queue(transport, b"next")
            await protocol.got(packets + 1)

        assert protocol.packets == [*numbered(packets), b"next"]
        assert [context["transport"] for context in contexts] == [transport] * 2
        assert transport.statistics().buffer_bytes == 0


@pytest.mark.parametrize("packets", [1, 2, 40])
@pytest.mark.parametrize("make", [Noting, NotingBatches])
async def test_an_exception_handler_may_close_when_a_policy_raises(make, packets):
    window = Acting()
    async with endpoint(make, window=window, gro=False, turn_limit=60.0) as (transport, protocol):
        window.act = fail()
        asyncio.get_running_loop().set_exception_handler(lambda *_: transport.close())
        queue(transport, *numbered(packets))

        assert await protocol.lost is None

        assert protocol.packets == numbered(packets)
        assert protocol.events == ["made", ("lost", None)]


async def test_a_policy_whose_slots_are_out_of_bounds_ends_the_endpoint():
    window = Acting()
    async with endpoint(window=window, gro=False, turn_limit=60.0) as (transport, protocol):
        window.slots = 65
        queue(transport, b"unread")

        with handled() as contexts:
            error = await protocol.lost

        assert isinstance(error, ValueError)
        assert [context["exception"] for context in contexts] == [error]
        assert transport.is_closing()


@pytest.mark.parametrize("packets", [1, 2])
@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_policy_that_is_interrupted_loses_no_packet(new_loop, packets):
    window = Acting()
    with new_loop() as loop:
        transport, protocol = loop.run_until_complete(opened(window=window))

        def interrupt():
            window.act = lambda: None
            raise KeyboardInterrupt

        window.act = interrupt
        queue(transport, *numbered(packets))

        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(protocol.got(packets + 1))
        queue(transport, b"next")
        loop.run_until_complete(protocol.got(packets + 1))

        assert protocol.packets == [*numbered(packets), b"next"]
