"""A receiver's life: cancelled, dropped, closed by others, interrupted, left by its loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
import warnings

import pytest
import uvloop

import aiorecv
from tests.helpers import descriptors
from tests.receiving import passes, queued, until_waiting

LOCAL = ("127.0.0.1", 0)
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
INTERRUPTIONS = pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])


async def cancelled_at(coroutine, suspension: int) -> bool:
    """Run ``coroutine`` and cancel it where it suspends for this time; whether it got so far."""
    try:
        for _ in range(suspension):
            future = coroutine.send(None)
            if future is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wait([future])
        coroutine.send(None)
    except StopIteration as done:
        if isinstance(done.value, aiorecv.Receiver):
            done.value.close()
        return False
    with pytest.raises(asyncio.CancelledError):
        coroutine.throw(asyncio.CancelledError)
    return True


async def opened(**options):
    return await aiorecv.open_udp(**options)


async def entered(**options):
    async with aiorecv.open_udp(**options) as receiver:
        return receiver


@pytest.mark.parametrize("opening", [opened, entered])
async def test_opening_can_be_cancelled_wherever_it_waits(opening):
    names = {"local_addr": ("localhost", 0), "remote_addr": ("localhost", 9)}
    await asyncio.get_running_loop().getaddrinfo("localhost", 0)  # what that leaves open stays
    before = descriptors()

    suspension = 0
    while await cancelled_at(opening(**names), suspension):
        assert descriptors() == before
        suspension += 1

    assert suspension >= 2  # both names were asked for
    assert descriptors() == before


async def by_receive(receiver) -> list[bytes]:
    with await receiver.receive() as batch:
        return list(batch.payloads())


async def by_iteration(receiver) -> list[bytes]:
    async for batch in receiver:
        return list(batch.payloads())


async def by_datagrams(receiver) -> list[bytes]:
    async for data, _ in receiver.datagrams():
        return [data]


@pytest.mark.parametrize("reading", [by_receive, by_iteration, by_datagrams])
@pytest.mark.parametrize("turn_limit", [1e-9, 10.0], ids=["turn over", "turn not over"])
async def test_reading_can_be_cancelled_wherever_it_waits_and_loses_nothing(reading, turn_limit):
    async with aiorecv.open_udp(LOCAL, turn_limit=turn_limit) as receiver:
        before = descriptors()
        sent = []
        got: list[bytes] = []
        for number in range(5):
            waiting = asyncio.ensure_future(reading(receiver))
            await passes(3)
            if waiting.done():
                got += waiting.result()
            sent += queued(receiver, b"%d" % number, b"%d again" % number)
            await passes(number)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                got += waiting.result()

        while (batch := receiver.receive_nowait()) is not None:
            with batch:
                got += batch.payloads()

        assert got == sent
        # On uvloop, one that watches this socket may have come; none more.
        assert len(set(descriptors()) - set(before)) <= 1


@pytest.mark.parametrize("waited", [False, True])
async def test_receivers_in_cycles_warn_once_each_and_close(waited):
    before = descriptors()
    for _ in range(3):
        receiver = await aiorecv.open_udp(LOCAL)
        queued(receiver, b"kept")
        if waited:
            (await receiver.receive()).release()
            task = asyncio.ensure_future(receiver.receive())
            await until_waiting(task)
            task.cancel()
            await asyncio.wait([task])
            del task
        cycle = [receiver, receiver.socket, receiver.receive_nowait()]
        cycle.append(cycle)
    del receiver, cycle

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()

    assert [warning.category for warning in caught] == [ResourceWarning] * 3
    assert descriptors() == before


@pytest.mark.parametrize("waited", [False, True])
async def test_a_socket_closed_under_its_receiver_is_reported_and_ends_it(receiver, waited):
    queued(receiver, b"x")
    if waited:
        task = asyncio.ensure_future(receiver.receive())
        await asyncio.wait([task])
        task.result().release()

    receiver.socket.close()

    with pytest.raises(OSError, match="closed under its receiver") as raised:
        await receiver.receive()
    assert raised.value.errno == errno.EBADF
    with pytest.raises(aiorecv.ReceiverClosedError):
        await receiver.receive()
    receiver.close()
    assert receiver.statistics().errors == 1


async def test_a_descriptor_closed_under_its_receiver_is_reported_and_ends_it():
    receiver = await aiorecv.open_udp(LOCAL)
    os.close(receiver.fileno())

    with pytest.raises(OSError, match=os.strerror(errno.EBADF)) as raised:
        receiver.receive_nowait()

    assert raised.value.errno == errno.EBADF
    with pytest.raises(aiorecv.ReceiverClosedError):
        receiver.receive_nowait()
    receiver.close()
    assert receiver.fileno() == -1


async def test_a_task_waiting_on_a_socket_closed_under_it_wakes_when_the_receiver_closes(receiver):
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)

    receiver.socket.close()
    receiver.close()

    with pytest.raises(aiorecv.ReceiverClosedError):
        await task


async def test_whoever_gets_the_number_of_a_closed_socket_is_left_alone(receiver):
    number = receiver.fileno()
    receiver.socket.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        assert other.fileno() == number
        other.setblocking(False)
        other.bind(("127.0.0.1", 0))
        readable = asyncio.Event()
        asyncio.get_running_loop().add_reader(other, readable.set)
        queued(receiver, b"theirs", to=other.getsockname())

        with pytest.raises(OSError, match="closed under its receiver"):
            receiver.receive_nowait()
        receiver.close()

        assert receiver.statistics().packets == 0
        assert other.fileno() == number
        assert other.recv(10) == b"theirs"
        readable.clear()
        asyncio.get_running_loop().remove_reader(other)


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
        receiver = loop.run_until_complete(opened(local_addr=LOCAL, window=window))
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
        receiver = loop.run_until_complete(opened(local_addr=LOCAL))
        queued(receiver, b"0", b"1", b"2", b"3")
        with pytest.raises(interruption):
            loop.run_until_complete(use(receiver))

        assert loop.run_until_complete(by_receive(receiver)) == [b"2", b"3"]
        receiver.close()


@LOOPS
def test_what_outlives_its_loop_can_be_used_and_dropped_in_any_order(new_loop):
    before = descriptors()
    with contextlib.closing(new_loop()) as loop:
        receiver = loop.run_until_complete(opened(local_addr=LOCAL))
        queued(receiver, b"one", b"two", b"three")
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
