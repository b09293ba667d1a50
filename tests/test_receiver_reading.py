"""When a receiver asks the kernel: at once or after readiness, and how often."""

from __future__ import annotations

import asyncio

import pytest

import aiorecv
from aiorecv._readiness import Readiness
from tests.receiving import Clock, await_readable, passes, queued, until_waiting


class Recorder:
    """A policy that notes what it is told."""

    maximum = 4

    def __init__(self) -> None:
        self.slots = 4
        self.told: list[tuple[int, bool]] = []

    def record(self, *, received: int, polled: bool) -> None:
        self.told.append((received, polled))


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
async def watched(clock):
    """A receiver with a recording policy of four slots, its clock stopped."""
    async with aiorecv.open_udp(("127.0.0.1", 0), window=Recorder()) as opened:
        yield opened


async def test_a_new_receiver_tries_first(watched, clock):
    queued(watched, b"early")

    with await watched.receive() as batch:
        assert not batch.polled

    assert watched.statistics().immediate_reads == 1
    assert watched.statistics().empty_reads == 0


async def test_finding_nothing_is_no_read_and_the_policy_does_not_hear_of_it(watched, clock):
    waiting = asyncio.ensure_future(watched.receive())
    await until_waiting(waiting)
    before = watched.statistics()

    queued(watched, b"late")
    with await waiting as batch:
        assert batch.polled

    assert (before.empty_reads, before.reads) == (1, 0)
    assert watched.window.told == [(1, True)]
    assert watched.statistics().polled_reads == 1


async def test_after_a_short_read_a_consumer_that_returns_soon_waits_without_asking(watched, clock):
    queued(watched, b"first")
    (await watched.receive()).release()
    clock.now += 19e-6

    waiting = asyncio.ensure_future(watched.receive())
    await until_waiting(waiting)

    assert watched.statistics().empty_reads == 0
    queued(watched, b"second")
    with await waiting as batch:
        assert batch.polled


async def test_after_a_short_read_a_consumer_that_returns_late_asks_at_once(watched, clock):
    queued(watched, b"first")
    (await watched.receive()).release()
    clock.now += 21e-6
    queued(watched, b"second")

    with await watched.receive() as batch:
        assert not batch.polled
        assert batch.payloads() == (b"second",)


async def test_after_a_full_read_the_next_is_immediate(watched, clock):
    queued(watched, *[b"x"] * 6)

    sizes = []
    async for batch in watched:
        sizes.append((len(batch), batch.full, batch.polled))
        if len(sizes) == 2:
            break

    assert sizes == [(4, True, False), (2, False, False)]
    assert watched.statistics().empty_reads == 0


async def test_readiness_reported_while_nobody_waited_makes_the_next_read_immediate(watched, clock):
    waiting = asyncio.ensure_future(watched.receive())
    await until_waiting(waiting)
    queued(watched, b"first")
    (await waiting).release()
    queued(watched, b"second")
    await_readable(watched.socket)
    await passes(3)

    with await watched.receive() as batch:
        assert not batch.polled


async def test_a_full_read_in_the_callback_is_polled_and_those_after_it_immediate(watched, clock):
    waiting = asyncio.ensure_future(watched.receive())
    await until_waiting(waiting)
    queued(watched, *[b"x"] * 9)

    (await waiting).release()
    for _ in range(2):
        (await watched.receive()).release()

    assert watched.window.told == [(4, True), (4, False), (1, False)]
    statistics = watched.statistics()
    assert statistics.reads == statistics.polled_reads + statistics.immediate_reads == 3
    assert statistics.full_reads == 2


async def test_a_spurious_wake_up_goes_on_waiting(watched, clock):
    waiting = asyncio.ensure_future(watched.receive())
    await until_waiting(waiting)

    thief = watched.socket.dup()
    asyncio.get_running_loop().call_soon(lambda: (queued(watched, b"x"), thief.recv(10)))
    await passes(3)
    thief.close()

    assert not waiting.done()
    queued(watched, b"mine")
    with await waiting as batch:
        assert batch.payloads() == (b"mine",)


async def test_receive_nowait_asks_the_kernel_each_time(watched, clock):
    assert watched.receive_nowait() is None
    queued(watched, b"x")

    with watched.receive_nowait() as batch:
        assert not batch.polled

    assert watched.receive_nowait() is None
    assert watched.statistics().empty_reads == 2


async def test_each_read_offers_just_the_slots_of_the_window(receiver):
    queued(receiver, *[b"x"] * 100)

    offered = []
    while (batch := receiver.receive_nowait()) is not None:
        with batch:
            offered.append(batch.slots)

    assert offered == [2, 4, 8, 16, 32, 64]
    statistics = receiver.statistics()
    assert statistics.window_slots == statistics.window_peak == 64
    assert (statistics.window_grows, statistics.window_shrinks) == (5, 0)


async def test_a_window_shrinks_after_reads_that_did_not_fill_it():
    window = aiorecv.AdaptiveWindow(initial=1, maximum=8, shrink_after=3)
    async with aiorecv.open_udp(("127.0.0.1", 0), window=window) as receiver:
        queued(receiver, *[b"x"] * 7)
        for _ in range(3):
            receiver.receive_nowait().release()

        offered = []
        for _ in range(4):
            queued(receiver, b"x")
            with receiver.receive_nowait() as batch:
                offered.append(batch.slots)

        assert offered == [8, 8, 8, 1]
        assert receiver.statistics().window_shrinks == 1


async def test_packets_that_nobody_reads_wake_the_loop_once(receiver, monkeypatch):
    fired = 0
    plain = Readiness._fired

    def counting(self):
        nonlocal fired
        fired += 1
        plain(self)

    monkeypatch.setattr(Readiness, "_fired", counting)
    waiting = asyncio.ensure_future(receiver.receive())
    await until_waiting(waiting)
    queued(receiver, b"read")
    (await waiting).release()
    fired = 0

    for _ in range(50):
        queued(receiver, b"unread")
        await_readable(receiver.socket)
        await passes(2)

    assert fired == 1
    assert len(await receiver.receive()) > 1


async def test_a_turn_that_lasts_long_lets_the_loop_pass_between_batches(watched, clock):
    queued(watched, *[b"x"] * 12)
    ran = []

    async def other():
        for number in range(10):
            ran.append(number)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    seen = []
    async for batch in watched:
        seen.append((len(batch), len(ran)))
        clock.now += 0.002
        if len(seen) == 3:
            break
    await task

    assert [ran_before for _, ran_before in seen] == [0, 1, 2]


async def test_a_short_turn_takes_no_pass_between_batches(watched, clock):
    queued(watched, *[b"x"] * 12)
    ran = []
    asyncio.get_running_loop().call_soon(ran.append, "the loop passed")

    for _ in range(3):
        (await watched.receive()).release()

    assert not ran


async def test_two_busy_receivers_share_the_loop():
    got = {"one": 0, "two": 0}
    when_one_ended = []

    async def drain(name, receiver):
        async for batch in receiver:
            got[name] += len(batch)
            if got[name] == 200:
                when_one_ended.append(dict(got))
                break

    async with (
        aiorecv.open_udp(("127.0.0.1", 0), turn_limit=1e-9) as one,
        aiorecv.open_udp(("127.0.0.1", 0), turn_limit=1e-9) as two,
    ):
        queued(one, *[b"x"] * 200)
        queued(two, *[b"x"] * 200)
        await asyncio.gather(drain("one", one), drain("two", two))

    assert min(when_one_ended[0].values()) >= 60


async def test_a_policy_out_of_bounds_is_reported_before_the_read():
    class Mad:
        slots = 1
        maximum = 4

        def record(self, *, received, polled):
            self.slots = 5

    async with aiorecv.open_udp(("127.0.0.1", 0), window=Mad()) as receiver:
        queued(receiver, b"one", b"two")
        receiver.receive_nowait().release()

        with pytest.raises(ValueError, match="asks for 5 slots of at most 4"):
            receiver.receive_nowait()
        assert receiver.statistics().window_slots == 1

        receiver.window.slots = 4
        assert receiver.receive_nowait().payloads() == (b"two",)


@pytest.mark.parametrize("wait_first", [False, True])
async def test_a_policy_that_raises_loses_no_batch(wait_first):
    class Failing:
        slots = maximum = 4

        def record(self, *, received, polled):
            raise LookupError("mine")

    async with aiorecv.open_udp(("127.0.0.1", 0), window=Failing()) as receiver:
        if wait_first:
            task = asyncio.ensure_future(receiver.receive())
            await until_waiting(task)
            queued(receiver, b"kept")
        else:
            queued(receiver, b"kept")
            task = receiver.receive()

        with pytest.raises(LookupError, match="mine"):
            await task

        with await receiver.receive() as batch:
            assert batch.payloads() == (b"kept",)
