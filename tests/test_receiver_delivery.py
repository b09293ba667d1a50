"""Who gets what was read: nothing is lost by cancellation, break or exceptions."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref

import pytest

import aiorecv
from tests.receiving import Clock, passes, queued, until_waiting


async def test_a_batch_whose_waiter_is_cancelled_after_it_came_is_kept(receiver):
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)
    queued(receiver, b"kept")
    while receiver.statistics().reads == 0:
        await asyncio.sleep(0)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    with receiver.receive_nowait() as batch:
        assert batch.payloads() == (b"kept",)
        assert batch.polled


async def test_a_waiter_cancelled_before_anything_came_leaves_the_receiver_usable(receiver):
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)

    task.cancel()
    queued(receiver, b"later")
    # In the same pass, before the cancelled task has run.
    with await receiver.receive() as batch:
        assert batch.payloads() == (b"later",)

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_timeouts_lose_nothing(receiver):
    got = []
    sent = []
    for number in range(200):
        sent += queued(receiver, b"%d" % number)
        try:
            async with asyncio.timeout(0):
                got += (await receiver.receive()).payloads()
        except TimeoutError:
            pass
        try:
            got += (await asyncio.wait_for(receiver.receive(), 0)).payloads()
        except TimeoutError:
            pass
    while (batch := receiver.receive_nowait()) is not None:
        got += batch.payloads()

    assert got == sent


async def test_cancelled_while_the_loop_has_its_turn_the_batch_is_kept(monkeypatch):
    clock = Clock(monkeypatch)
    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        queued(receiver, b"kept")
        clock.now += 1
        task = asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        assert receiver.statistics().reads == 1
        assert not task.done()

        with pytest.raises(aiorecv.ReceiverBusyError):
            receiver.receive_nowait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert receiver.receive_nowait().payloads() == (b"kept",)


async def test_a_second_reader_is_told_that_the_receiver_is_busy(receiver):
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)

    with pytest.raises(aiorecv.ReceiverBusyError, match="another task"):
        await receiver.receive()
    with pytest.raises(aiorecv.ReceiverBusyError):
        receiver.receive_nowait()
    with pytest.raises(aiorecv.ReceiverBusyError):
        await anext(aiter(receiver))
    with pytest.raises(aiorecv.ReceiverBusyError):
        await anext(receiver.datagrams())

    queued(receiver, b"x")
    (await task).release()


async def test_asking_for_the_next_batch_releases_the_last_one(receiver):
    queued(receiver, *[b"x"] * 5)

    last = None
    async for batch in receiver:
        if last is not None:
            with pytest.raises(aiorecv.BatchReleasedError, match=r"copy\(\)"):
                last.payloads()
            break
        last = batch


async def test_loops_inside_loops_release_their_own_batches_only(receiver):
    queued(receiver, *[b"x"] * 6)

    async for outer in receiver:
        async for inner in receiver:
            assert len(inner) == 4
            break
        assert outer.payloads() == [b"x", b"x"]
        break


async def test_a_batch_from_receive_is_the_callers_until_released(receiver):
    queued(receiver, *[b"%d" % number for number in range(6)])

    first = await receiver.receive()
    second = await receiver.receive()

    assert list(first.payloads()) + list(second.payloads()) == [b"%d" % n for n in range(6)]
    assert receiver.statistics().buffer_bytes > 0
    first.release()
    second.release()
    assert receiver.statistics().buffer_bytes == 0


async def test_after_a_break_dropping_the_batch_gives_its_memory_back(receiver):
    queued(receiver, b"x")
    async for batch in receiver:
        break
    alive = weakref.ref(batch)
    assert receiver.statistics().buffer_bytes > 0

    del batch

    assert alive() is None
    assert receiver.statistics().buffer_bytes == 0


async def test_datagrams_come_one_by_one_across_batches(receiver):
    sent = queued(receiver, *[b"%d" % number for number in range(50)])

    got = []
    async for data, addr in receiver.datagrams():
        assert addr[0] == "127.0.0.1"
        got.append(data)
        if len(got) == len(sent):
            break

    assert got == sent
    assert receiver.statistics().buffer_bytes > 0  # the last batch, until somebody asks again
    assert receiver.receive_nowait() is None
    assert receiver.statistics().buffer_bytes == 0


async def test_what_a_break_leaves_of_a_batch_comes_first_to_any_reader(receiver):
    sent = queued(receiver, *[b"%d" % number for number in range(30)])
    got = []

    async def take(count):
        async for data, _ in receiver.datagrams():
            got.append(data)
            count -= 1
            if not count:
                break

    await take(4)  # two of two, two of four
    await take(1)
    got += receiver.receive_nowait().payloads()
    assert len(got) == 6
    await take(1)  # one of eight
    got += (await receiver.receive()).payloads()
    assert len(got) == 14
    await take(3)
    async for batch in receiver:
        got += batch.payloads()
        if len(got) == len(sent):
            break

    assert got == sent


async def test_the_rest_of_a_split_batch_tells_of_its_own_packets(receiver):
    queued(receiver, *[b"a" * number for number in range(1, 7)])
    receiver.receive_nowait().release()
    async for _ in receiver.datagrams():
        break

    with receiver.receive_nowait() as rest:
        assert rest.payloads() == [b"a" * number for number in (4, 5, 6)]
        assert rest.nbytes == 15
        assert (rest.full, rest.slots, rest.polled) == (True, 4, False)
        assert list(rest.lengths) == [4, 5, 6]
        assert [bytes(view) for view in rest.views()] == rest.payloads()
        assert [packet.length for packet in rest.packets()] == [4, 5, 6]


async def test_reading_inside_datagrams_takes_the_rest_and_the_loop_goes_on_behind_it(receiver):
    queued(receiver, b"0", b"1")

    got = []
    async for data, _ in receiver.datagrams():
        got.append(data)
        if data == b"0":
            got += receiver.receive_nowait().payloads()
            queued(receiver, b"2")
        else:
            break

    assert got == [b"0", b"1", b"2"]


async def test_a_receiver_that_only_its_loop_body_knows_stays_open():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        addr = sock.getsockname()

        async def read():
            async for batch in aiorecv.from_socket(sock.dup()):
                return batch.payloads()[0]

        task = asyncio.ensure_future(read())
        await until_waiting(task)
        gc.collect()
        sock.sendto(b"alive", addr)

        with pytest.warns(ResourceWarning, match="unclosed <aiorecv.Receiver"):
            assert await task == b"alive"
            gc.collect()


async def test_a_receiver_of_another_loop_is_refused(receiver):
    queued(receiver, b"x")

    def elsewhere():
        async def read():
            with pytest.raises(RuntimeError, match="belongs to the event loop"):
                receiver.receive_nowait()
            with pytest.raises(RuntimeError, match="belongs to the event loop"):
                await receiver.receive()
            with pytest.raises(RuntimeError, match="call_soon_threadsafe"):
                receiver.close()

        asyncio.run(read())

    await asyncio.get_running_loop().run_in_executor(None, elsewhere)

    assert receiver.receive_nowait().payloads() == (b"x",)


async def test_a_reader_that_waits_since_another_was_cancelled_is_woken(receiver):
    async def send_later():
        await passes(3)
        queued(receiver, b"later")

    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)

    task.cancel()
    sending = asyncio.ensure_future(send_later())
    # This waits in the same pass, before the cancelled task has run.
    async with asyncio.timeout(10):
        with await receiver.receive() as batch:
            assert batch.payloads() == (b"later",)

    await sending
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_loop_may_drop_each_batch_before_it_asks_for_the_next(receiver):
    sent = queued(receiver, *[b"%d" % number for number in range(6)])

    got = []
    async for batch in receiver:
        got += batch.payloads()
        del batch
        assert receiver.statistics().buffer_bytes == 0
        if len(got) == len(sent):
            break

    assert got == sent
