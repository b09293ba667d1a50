"""When an endpoint reads, and how long it keeps the loop."""

from __future__ import annotations

import asyncio

import pytest

import aiorecv
from tests.endpoints import Noting, NotingBatches, endpoint, fixed, numbered, queue
from tests.receiving import passes
from tests.test_receiver_reading import Recorder


class Clock:
    """A clock in the place of the feeds', which a protocol moves at each packet."""

    def __init__(self, monkeypatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("aiorecv._feed.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


class Slow(Noting):
    """Takes its time for each packet, and notes the passes of the loop before it."""

    clock: Clock
    seconds = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0
        self.passes: list[int] = []

    def datagram_received(self, data, addr):
        super().datagram_received(data, addr)
        self.clock.now += self.seconds
        self.passes.append(self.passed)

    def slow_down(self, clock: Clock, seconds: float) -> asyncio.Task[None]:
        self.clock, self.seconds = clock, seconds

        async def count() -> None:
            while True:
                self.passed += 1
                await asyncio.sleep(0)

        return asyncio.ensure_future(count())


async def test_the_clock_is_looked_at_after_each_32_packets_of_a_read(clock):
    async with endpoint(Slow, **fixed(128)) as (transport, protocol):
        task = protocol.slow_down(clock, 0.1)
        queue(transport, *numbered(100))

        await protocol.got(100)
        task.cancel()

        start = protocol.passes[0]
        assert [passed - start for passed in protocol.passes] == (
            [0] * 32 + [1] * 32 + [2] * 32 + [3] * 4
        )
        assert protocol.packets == numbered(100)


async def test_a_quick_protocol_is_given_a_read_in_one_pass(clock):
    async with endpoint(Slow, **fixed(128)) as (transport, protocol):
        task = protocol.slow_down(clock, 0.0)
        queue(transport, *numbered(100))

        await protocol.got(100)
        task.cancel()

        assert len(set(protocol.passes)) == 1


async def test_the_turn_ends_between_reads_too(clock):
    async with endpoint(Slow, turn_limit=0.01, **fixed(4)) as (transport, protocol):
        task = protocol.slow_down(clock, 0.0026)
        queue(transport, *numbered(12))

        await protocol.got(12)
        task.cancel()

        first, second, third = protocol.passes[::4]
        assert first < second < third


@pytest.mark.parametrize("slots", [1, 4, 64])
async def test_the_loop_passes_while_a_slow_protocol_is_flooded(clock, slots):
    async with endpoint(Slow, **fixed(slots)) as (transport, protocol):
        task = protocol.slow_down(clock, 1.0)
        queue(transport, *numbered(192))

        await protocol.got(192)
        task.cancel()

        assert len(set(protocol.passes)) >= 192 // max(slots, 32)


async def test_two_flooded_endpoints_share_the_loop(clock):
    async with (
        endpoint(Slow, **fixed(16)) as (one, first),
        endpoint(Slow, **fixed(16)) as (two, second),
    ):
        tasks = [first.slow_down(clock, 1.0), second.slow_down(clock, 1.0)]
        queue(one, *numbered(200))
        queue(two, *numbered(200))

        await first.until(lambda: len(first.packets) == 200 or len(second.packets) == 200)
        for task in tasks:
            task.cancel()

        assert min(len(first.packets), len(second.packets)) >= 150


async def test_a_slow_batch_protocol_lets_the_loop_pass_between_batches(clock):
    async with endpoint(NotingBatches, **fixed(4)) as (transport, protocol):
        ran = []
        counts = []
        loop = asyncio.get_running_loop()

        def act():
            counts.append(len(ran))
            clock.now += 1.0
            loop.call_soon(ran.append, None)

        protocol.acts = dict.fromkeys(range(3), act)
        queue(transport, *numbered(12))
        await protocol.got(12)

        assert counts == [0, 1, 2]


async def test_the_first_read_of_a_callback_is_polled_and_those_after_it_immediate(clock):
    async with endpoint(window=Recorder(), gro=False) as (transport, protocol):
        queue(transport, *numbered(9))
        await protocol.got(9)
        queue(transport, b"later")
        await protocol.got(10)

        statistics = transport.statistics()
        assert (statistics.polled_reads, statistics.immediate_reads) == (2, 2)
        assert statistics.reads == 4
        assert statistics.empty_reads == 0


async def test_the_policy_hears_of_each_read_in_the_same_words(clock):
    window = Recorder()
    async with endpoint(window=window, gro=False) as (transport, protocol):
        queue(transport, *numbered(9))
        await protocol.got(9)

        await passes(2)

        assert window.told == [(4, True), (4, False), (1, False)]


async def test_a_full_read_that_drained_the_socket_costs_one_empty_call(clock):
    window = Recorder()
    async with endpoint(window=window, gro=False) as (transport, protocol):
        queue(transport, *numbered(4))
        await protocol.got(4)
        await passes(2)
        queue(transport, b"later")
        await protocol.got(5)
        await passes(2)

        assert window.told == [(4, True), (1, True)]
        assert transport.statistics().empty_reads == 1


async def test_a_lone_packet_costs_one_read_and_no_empty_call():
    async with endpoint() as (transport, protocol):
        queue(transport, b"lone")
        await protocol.got(1)
        await passes(3)

        statistics = transport.statistics()
        assert (statistics.reads, statistics.polled_reads, statistics.empty_reads) == (1, 1, 0)


async def test_the_read_after_the_end_of_a_turn_is_immediate(clock):
    window = Recorder()
    async with endpoint(Slow, window=window, gro=False) as (transport, protocol):
        task = protocol.slow_down(clock, 1.0)
        queue(transport, *numbered(6))

        await protocol.got(6)
        task.cancel()
        await passes(2)

        assert window.told == [(4, True), (2, False)]


async def test_the_read_after_a_long_read_that_was_put_off_is_immediate(clock):
    async with endpoint(Slow, **fixed(64)) as (transport, protocol):
        task = protocol.slow_down(clock, 1.0)
        queue(transport, *numbered(40))
        await protocol.got(40)
        task.cancel()
        await passes(3)

        queue(transport, b"next")
        await protocol.got(41)

        assert transport.statistics().immediate_reads == 1


async def test_a_spurious_wake_up_is_no_read():
    async with endpoint(window=Recorder(), gro=False) as (transport, protocol):
        thief = transport.get_extra_info("socket").dup()
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: (queue(transport, b"x"), thief.recv(10)))
        await passes(4)
        thief.close()

        queue(transport, b"mine")
        await protocol.got(1)

        assert transport.statistics().reads == 1
        assert transport._reader.window.told == [(1, True)]


async def test_a_thousand_packets_queued_before_the_first_pass_all_come():
    async with endpoint() as (transport, protocol):
        queue(transport, *numbered(1000))

        await protocol.got(1000)

        assert protocol.packets == numbered(1000)
        assert transport.statistics().kernel_drops == 0
        assert transport.statistics().packets == 1000


async def test_the_window_follows_the_queue():
    async with endpoint(window=aiorecv.AdaptiveWindow(initial=2), gro=False) as (
        transport,
        protocol,
    ):
        queue(transport, *numbered(150))

        await protocol.got(150)

        statistics = transport.statistics()
        assert statistics.window_peak == 64
        assert protocol.packets == numbered(150)
