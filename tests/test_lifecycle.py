"""A receiver's life: cancelled, dropped, closed by others."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import warnings

import pytest

import aiorecv
from tests.helpers import descriptors
from tests.receiving import Clock, passes, queued, until_waiting

LOCAL = ("127.0.0.1", 0)


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


async def by_receive(receiver):
    with await receiver.receive() as batch:
        return list(batch.payloads())


async def by_iteration(receiver):
    async for batch in receiver:
        return list(batch.payloads())


async def by_datagrams(receiver):
    async for data, _ in receiver.datagrams():
        return [data]


@pytest.mark.parametrize("reading", [by_receive, by_iteration, by_datagrams])
@pytest.mark.parametrize("turn_limit", [1e-9, 10.0], ids=["turn over", "turn not over"])
async def test_reading_can_be_cancelled_wherever_it_waits_and_loses_nothing(reading, turn_limit):
    async with aiorecv.open_udp(LOCAL, turn_limit=turn_limit) as receiver:
        before = descriptors()
        sent: list[bytes] = []
        got: list[bytes] = []

        async def read() -> None:
            got.extend(await reading(receiver))

        for number in range(8):
            packets = b"%d" % number, b"%d again" % number
            if number % 2:
                sent += queued(receiver, *packets)
            task = asyncio.ensure_future(read())
            if not number % 2:
                await passes(3)
                sent += queued(receiver, *packets)
            await passes(number // 2)
            task.cancel()
            await asyncio.wait([task])

        while (batch := receiver.receive_nowait()) is not None:
            with batch:
                got += batch.payloads()

        assert got == sent
        # On uvloop, one that watches this socket may have come; none more.
        assert len(set(descriptors()) - set(before)) <= 1


@pytest.mark.parametrize("waited", [False, True])
async def test_receivers_in_cycles_warn_once_each_and_close(waited):
    gc.disable()  # or a cycle might go before anybody listens
    before = descriptors()
    for _ in range(3):
        receiver = await aiorecv.open_udp(LOCAL)
        if waited:
            task = asyncio.ensure_future(receiver.receive())
            await until_waiting(task)
            task.cancel()
            await asyncio.wait([task])
            del task
        queued(receiver, b"kept")
        cycle = [receiver, receiver.socket, receiver.receive_nowait()]
        cycle.append(cycle)
    del receiver, cycle

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    gc.enable()

    assert [warning.category for warning in caught] == [ResourceWarning] * 3
    assert descriptors() == before


@pytest.mark.parametrize("waited", [False, True])
async def test_a_socket_closed_under_its_receiver_is_reported_and_ends_it(receiver, waited):
    if waited:
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        queued(receiver, b"x")
        (await task).release()

    receiver.socket.close()

    with pytest.raises(OSError, match="closed under its receiver") as raised:
        await receiver.receive()
    assert raised.value.errno == errno.EBADF
    with pytest.raises(aiorecv.ReceiverClosedError):
        await receiver.receive()
    receiver.close()
    assert receiver.statistics().errors == 1


@pytest.mark.parametrize("waited", [False, True])
async def test_a_descriptor_closed_under_its_receiver_is_reported_and_ends_it(waited):
    receiver = await aiorecv.open_udp(LOCAL)
    if waited:
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        queued(receiver, b"x")
        (await task).release()
    os.close(receiver.fileno())

    with pytest.raises(OSError, match=os.strerror(errno.EBADF)) as raised:
        receiver.receive_nowait()

    assert raised.value.errno == errno.EBADF
    with pytest.raises(aiorecv.ReceiverClosedError):
        receiver.receive_nowait()
    receiver.close()
    assert receiver.fileno() == -1
    assert receiver.statistics().kernel_drops == 0


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


async def test_a_receiver_dropped_with_its_socket_closed_cleans_up_in_silence(tmp_path):
    path = tmp_path / "socket"
    receiver = await aiorecv.open_unix(path)
    number = receiver.fileno()
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)
    task.cancel()
    await asyncio.wait([task])
    del task
    receiver.socket.close()  # which is what would have warned

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del receiver
        gc.collect()

    assert not caught
    assert not path.exists()
    assert not asyncio.get_running_loop().remove_reader(number)


async def test_a_descriptor_that_can_not_be_watched_is_reported_and_leaks_nothing(monkeypatch):
    Clock(monkeypatch)  # which stands still: whoever has read in vain waits
    async with aiorecv.open_udp(LOCAL) as receiver:
        assert receiver.receive_nowait() is None
        file = os.open(__file__, os.O_RDONLY)
        os.dup2(file, receiver.fileno())  # its number means the file now: see epoll(7)
        os.close(file)
        before = descriptors()

        with pytest.raises(PermissionError) as raised:
            await receiver.receive()

        assert raised.value.errno == errno.EPERM
        assert descriptors() == before
        with pytest.raises(OSError, match=os.strerror(errno.ENOTSOCK)):
            receiver.receive_nowait()
        assert receiver.fileno() == -1
