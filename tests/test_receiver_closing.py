"""Closing: from anywhere, at any time, once."""

from __future__ import annotations

import asyncio
import gc
import os
import socket

import pytest

import aiorecv
from tests.receiving import queued, until_waiting


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def test_a_task_waiting_in_a_loop_ends_its_loop(receiver):
    async def loop():
        async for _ in receiver:
            pass
        return "ended"

    task = asyncio.ensure_future(loop())
    await until_waiting(task)

    receiver.close()

    assert await task == "ended"


async def test_a_task_waiting_for_datagrams_ends_its_loop(receiver):
    async def loop():
        async for _ in receiver.datagrams():
            pass
        return "ended"

    task = asyncio.ensure_future(loop())
    await until_waiting(task)

    await receiver.aclose()

    assert await task == "ended"


async def test_a_task_waiting_in_receive_is_told(receiver):
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)

    receiver.close()

    with pytest.raises(aiorecv.ReceiverClosedError):
        await task


async def test_a_closed_receiver_ends_loops_at_once_and_refuses_the_rest(receiver):
    receiver.close()
    receiver.close()

    assert [batch async for batch in receiver] == []
    assert [pair async for pair in receiver.datagrams()] == []
    with pytest.raises(aiorecv.ReceiverClosedError):
        await receiver.receive()
    with pytest.raises(aiorecv.ReceiverClosedError):
        receiver.receive_nowait()
    with pytest.raises(aiorecv.ReceiverClosedError):
        receiver.detach()
    assert receiver.fileno() == -1
    assert "closed" in repr(receiver)


async def test_closing_inside_the_loop_body_leaves_the_batch_valid_and_ends_the_loop(receiver):
    queued(receiver, *[b"x"] * 20)

    batches = 0
    async for batch in receiver:
        batches += 1
        receiver.close()
        assert batch.payloads() == [b"x", b"x"]

    assert batches == 1


async def test_a_batch_outlives_its_receiver_and_so_does_a_view(receiver):
    queued(receiver, b"first")
    batch = receiver.receive_nowait()
    (view,) = batch.views()

    receiver.close()

    assert batch[0][0] == b"first"
    batch.release()
    assert bytes(view) == b"first"


async def test_a_batch_that_came_before_closing_is_delivered_before_the_end(receiver):
    async def loop():
        return [batch.payloads()[0] async for batch in receiver]

    task = asyncio.ensure_future(loop())
    await until_waiting(task)
    queued(receiver, b"last")
    while receiver.statistics().reads == 0:
        await asyncio.sleep(0)
    receiver.close()

    assert await task == [b"last"]


async def test_closing_under_flood_ends_the_loop(receiver):
    async def loop():
        async for _ in receiver:
            queued(receiver, *[b"x"] * 4)

    queued(receiver, b"x")
    task = asyncio.ensure_future(loop())
    for _ in range(20):
        await asyncio.sleep(0)

    await receiver.aclose()

    await asyncio.wait_for(task, 10)


async def test_the_context_manager_closes_on_the_way_out():
    before = open_descriptors()

    with pytest.raises(LookupError):
        async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
            raise LookupError

    assert receiver.fileno() == -1
    async with await aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        pass
    assert receiver.fileno() == -1
    assert open_descriptors() == before


async def test_the_descriptor_is_off_the_loop_before_its_number_is_used_again(receiver):
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)
    number = receiver.fileno()
    receiver.close()

    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert ours.fileno() == number
        theirs.send(b"x")
        readable = asyncio.Event()
        asyncio.get_running_loop().add_reader(ours, readable.set)
        await asyncio.wait_for(readable.wait(), 10)
        asyncio.get_running_loop().remove_reader(ours)

    with pytest.raises(aiorecv.ReceiverClosedError):
        await task


async def test_a_receiver_dropped_without_closing_warns_once_and_closes():
    before = open_descriptors()
    receiver = await aiorecv.open_udp(("127.0.0.1", 0))
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)
    task.cancel()
    await asyncio.wait([task])
    del task

    with pytest.warns(ResourceWarning, match="unclosed <aiorecv.Receiver") as warned:
        del receiver
        gc.collect()

    assert len(warned) == 1
    assert open_descriptors() == before


async def test_statistics_stay_after_closing(receiver):
    queued(receiver, b"four")
    receiver.receive_nowait().release()
    opened = receiver.statistics()

    receiver.close()

    assert receiver.statistics() == opened
    assert (opened.packets, opened.bytes) == (1, 4)


def test_closing_and_releasing_after_the_loop_is_gone_is_quiet():
    async def leave():
        receiver = await aiorecv.open_udp(("127.0.0.1", 0))
        queued(receiver, b"x")
        kept = receiver.receive_nowait()
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        return receiver, kept

    receiver, kept = asyncio.run(leave())

    receiver.close()
    assert kept.payloads() == (b"x",)
    kept.release()
    assert receiver.statistics().buffer_bytes == 0


def test_a_receiver_dropped_after_its_loop_warns_once_and_closes():
    before = open_descriptors()

    async def leave():
        return await aiorecv.open_udp(("127.0.0.1", 0))

    receiver = asyncio.run(leave())
    with pytest.warns(ResourceWarning) as warned:
        del receiver
        gc.collect()

    assert len(warned) == 1
    assert open_descriptors() == before


async def test_a_receiver_that_dies_in_another_thread_is_closed_on_its_loop():
    receiver = await aiorecv.open_udp(("127.0.0.1", 0))
    sock = receiver.socket
    box = [receiver]
    del receiver

    with pytest.warns(ResourceWarning):
        await asyncio.get_running_loop().run_in_executor(None, box.clear)
        while sock.fileno() != -1:
            await asyncio.sleep(0)


async def test_detach_gives_back_the_socket_and_what_was_read(receiver):
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)
    queued(receiver, b"read", b"unread")
    while receiver.statistics().reads == 0:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    addr = receiver.local_addr

    with receiver.detach() as sock:
        queued(receiver, b"later", to=addr)
        assert receiver.receive_nowait().payloads()[0] == b"read"
        with pytest.raises(aiorecv.ReceiverClosedError):
            receiver.receive_nowait()
        assert sock.recv(10) == b"later"


async def test_detach_wakes_who_waits(receiver):
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)

    receiver.detach().close()

    with pytest.raises(aiorecv.ReceiverClosedError):
        await task


@pytest.mark.parametrize("wait_first", [False, True])
async def test_a_policy_that_closes_its_receiver_ends_the_read(wait_first):
    class Closing:
        maximum = 4
        armed = False

        @property
        def slots(self):
            if self.armed:
                receiver.close()
            return 4

        def record(self, *, received, polled):
            raise AssertionError("nothing was read")

    window = Closing()
    async with aiorecv.open_udp(("127.0.0.1", 0), window=window) as receiver:
        task = asyncio.ensure_future(receiver.receive())
        if wait_first:
            await until_waiting(task)
        window.armed = True
        queued(receiver, b"x")

        with pytest.raises(OSError, match="closed under its receiver"):
            await task
        with pytest.raises(aiorecv.ReceiverClosedError):
            await receiver.receive()


@pytest.mark.parametrize("wait_first", [False, True])
async def test_a_policy_that_closes_its_receiver_and_raises_loses_no_batch(wait_first):
    class Closing:
        slots = maximum = 4

        def record(self, *, received, polled):
            receiver.close()
            raise LookupError("mine")

    async with aiorecv.open_udp(("127.0.0.1", 0), window=Closing()) as receiver:
        task = asyncio.ensure_future(receiver.receive())
        if wait_first:
            await until_waiting(task)
        queued(receiver, b"x")

        with pytest.raises(LookupError, match="mine"):
            await task
        with await receiver.receive() as batch:
            assert batch.payloads() == (b"x",)
        with pytest.raises(aiorecv.ReceiverClosedError):
            await receiver.receive()
