"""Loops that are interrupted, or gone: nothing is lost, and a receiver can still be closed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import uvloop

import aiorecv
from tests.helpers import descriptors
from tests.receiving import passes, queued

LOCAL = ("127.0.0.1", 0)
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
INTERRUPTIONS = pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])


async def opened(**options):
    return await aiorecv.open_udp(LOCAL, **options)


class Interrupted:
    """A policy that is interrupted once, as Ctrl-C may do anywhere."""

    slots = maximum = 2

    def __init__(self, interruption: type[BaseException]) -> None:
        self._interruption: type[BaseException] | None = interruption

    def record(self, *, received: int, polled: bool) -> None:
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise interruption


@LOOPS
@INTERRUPTIONS
def test_an_interruption_in_the_loops_callback_loses_nothing(new_loop, interruption):
    got: list[bytes] = []

    async def read(receiver):
        async with asyncio.timeout(10):
            async for batch in receiver:
                got.extend(batch.payloads())
                if len(got) == 4:
                    return

    with contextlib.closing(new_loop()) as loop:
        window = Interrupted(interruption)
        receiver = loop.run_until_complete(opened(window=window))
        reading = loop.create_task(read(receiver))
        loop.run_until_complete(passes(3))
        queued(receiver, b"1", b"2")
        with pytest.raises(interruption):
            loop.run_until_complete(reading)
        queued(receiver, b"3", b"4")
        loop.run_until_complete(reading)
        receiver.close()

    assert got == [b"1", b"2", b"3", b"4"]


@LOOPS
@INTERRUPTIONS
def test_an_interruption_in_the_users_loop_closes_on_the_way_out(new_loop, interruption):
    async def use():
        async with aiorecv.open_udp(LOCAL) as receiver:
            queued(receiver, b"x")
            async for batch in receiver:
                assert len(batch) == 1
                raise interruption

    before = descriptors()
    with contextlib.closing(new_loop()) as loop, pytest.raises(interruption):
        loop.run_until_complete(use())

    assert descriptors() == before


@LOOPS
@INTERRUPTIONS
def test_a_receiver_outside_the_interrupted_loop_goes_on(new_loop, interruption):
    async def use(receiver):
        async for data, _ in receiver.datagrams():
            if data == b"1":
                raise interruption

    with contextlib.closing(new_loop()) as loop:
        receiver = loop.run_until_complete(opened())
        queued(receiver, b"0", b"1", b"2", b"3")
        with pytest.raises(interruption):
            loop.run_until_complete(use(receiver))

        with loop.run_until_complete(receiver.receive()) as batch:
            assert batch.payloads() == [b"2", b"3"]
        receiver.close()


@LOOPS
def test_what_outlives_its_loop_can_be_used_and_dropped_in_any_order(new_loop):
    before = descriptors()
    with contextlib.closing(new_loop()) as loop:
        receiver = loop.run_until_complete(opened())
        queued(receiver, b"one", b"two")
        loop.run_until_complete(passes(1))
        batch = loop.run_until_complete(receiver.receive())
        views = batch.views()
        waiting = loop.create_task(receiver.receive())
        loop.run_until_complete(passes(3))
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(waiting)

    batch.release()
    assert [bytes(view) for view in views] == [b"one", b"two"]
    del views
    receiver.close()
    assert receiver.statistics().buffer_bytes == 0
    del receiver, waiting, batch
    assert descriptors() == before


async def first_step(coroutine):
    return coroutine.send(None)


@LOOPS
def test_a_loop_closed_while_a_task_waits_leaves_a_receiver_that_can_be_closed(new_loop):
    before = descriptors()
    with contextlib.closing(new_loop()) as loop:
        receiver = loop.run_until_complete(opened())
        # No task, which would say that it was destroyed while pending.
        reading = receiver.receive()
        waiter = loop.run_until_complete(first_step(reading))
        waiter.add_done_callback(print)

    receiver.close()

    assert receiver.fileno() == -1
    assert not waiter.done()
    reading.close()
    del receiver, reading, waiter
    assert descriptors() == before


class InterruptedBefore:
    """A policy that is interrupted once it is told to be, before anything is read."""

    maximum = 2

    def __init__(self) -> None:
        self.interruption: type[BaseException] | None = None

    @property
    def slots(self) -> int:
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            raise interruption
        return 2

    def record(self, *, received: int, polled: bool) -> None: ...


@LOOPS
@INTERRUPTIONS
def test_an_interruption_before_the_callback_has_read_leaves_its_reader_waiting(
    new_loop, interruption
):
    async def read(receiver):
        async with asyncio.timeout(10):
            with await receiver.receive() as batch:
                return list(batch.payloads())

    window = InterruptedBefore()
    with contextlib.closing(new_loop()) as loop:
        receiver = loop.run_until_complete(opened(window=window))
        reading = loop.create_task(read(receiver))
        loop.run_until_complete(passes(3))
        window.interruption = interruption
        queued(receiver, b"1", b"2")
        with pytest.raises(interruption):
            loop.run_until_complete(reading)

        assert loop.run_until_complete(reading) == [b"1", b"2"]
        receiver.close()
