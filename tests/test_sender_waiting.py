"""Waiting for a socket that is full: in turn, cancellable, and over when the receiver ends."""

from __future__ import annotations

import asyncio
import socket

import pytest

import aiorecv
from tests.helpers import descriptors
from tests.sending import fill, full_pair, passes, queued, waiting


@pytest.fixture
def full(tmp_path):
    """A socket whose peer takes no more, and that peer; a sender fills it."""
    with full_pair(tmp_path) as pair:
        yield pair


async def test_a_send_waits_until_all_is_taken(full):
    sock, peer = full
    sender = aiorecv.Sender(sock)
    packets = [b"%d" % number for number in range(100)]

    task = asyncio.ensure_future(sender.send([(data, None) for data in packets]))
    got: list[bytes] = []
    while not task.done():
        await passes(1)
        got += queued(peer)
    await task

    assert got + queued(peer) == packets
    assert sender.statistics().errors == 0


async def test_what_does_not_wait_takes_what_there_is_room_for(full):
    sock, peer = full
    sender = aiorecv.Sender(sock)

    taken = sender.send_nowait([(b"%d" % number, None) for number in range(1000)])

    assert 0 < taken < 1000
    assert sender.send_nowait([(b"more", None)]) == 0
    assert queued(peer) == [b"%d" % number for number in range(taken)]


async def test_while_one_waits_the_others_come_after_it(full):
    sock, peer = full
    sender = aiorecv.Sender(sock)
    fill(sender)

    tasks = [await waiting(sender, name, name) for name in (b"first", b"second", b"third")]
    queued(peer)
    assert sender.send_nowait([(b"pushy", None)]) == 0
    await asyncio.wait_for(asyncio.gather(*tasks), 10)

    assert queued(peer) == [b"first"] * 2 + [b"second"] * 2 + [b"third"] * 2


async def test_between_two_that_wait_none_slips_in(full):
    sock, peer = full
    sender = aiorecv.Sender(sock)
    fill(sender)
    first, second = await waiting(sender, b"first"), await waiting(sender, b"second")

    queued(peer)
    while not second.done():
        await passes(1)
        if first.done() and not second.done():
            assert sender.send_nowait([(b"pushy", None)]) == 0

    assert queued(peer) == [b"first", b"second"]
    assert sender.send_nowait([(b"later", None)]) == 1


async def test_a_cancelled_send_loses_only_what_it_had_not_sent(full):
    sock, peer = full
    sender = aiorecv.Sender(sock)
    taken = fill(sender)
    first = await waiting(sender, *[b"first"] * 50)
    second = await waiting(sender, b"second")

    queued(peer)
    while sender.statistics().packets == taken:
        await passes(1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    sent = queued(peer)
    await asyncio.wait_for(second, 10)

    assert first.cancelled()
    assert sent == [b"first"] * len(sent)
    assert 0 < len(sent) < 50
    assert queued(peer) == [b"second"]


async def test_one_cancelled_in_the_queue_leaves_no_trace(full):
    sock, peer = full
    sender = aiorecv.Sender(sock)
    fill(sender)
    first, second, third = [await waiting(sender, name) for name in (b"1", b"2", b"3")]

    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    queued(peer)
    await asyncio.wait_for(asyncio.gather(first, third), 10)

    assert queued(peer) == [b"1", b"3"]


async def test_a_wait_leaves_no_descriptor_behind(full):
    sock, peer = full
    sender = aiorecv.Sender(sock)
    fill(sender)
    before = descriptors()

    task = await waiting(sender, b"x")
    assert len(descriptors()) == len(before) + 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert descriptors() == before
    task = await waiting(sender, b"x")
    queued(peer)
    await task

    assert descriptors() == before


async def test_two_senders_wait_for_one_socket(full):
    sock, peer = full
    one, other = aiorecv.Sender(sock), aiorecv.Sender(sock)
    fill(one)

    tasks = [await waiting(one, b"one"), await waiting(other, b"other")]
    queued(peer)
    await asyncio.wait_for(asyncio.gather(*tasks), 10)

    assert sorted(queued(peer)) == [b"one", b"other"]


async def test_a_receiver_is_read_while_its_sender_waits():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs:
        async with aiorecv.from_socket(ours) as receiver:
            sender = aiorecv.Sender(receiver)
            fill(sender)
            task = await waiting(sender, b"x")

            theirs.send(b"hello")
            with await asyncio.wait_for(receiver.receive(), 10) as batch:
                assert list(batch.payloads()) == [b"hello"]
            assert not task.done()
            queued(theirs)
            await asyncio.wait_for(task, 10)

            assert queued(theirs) == [b"x"]


# --- the receiver ends


@pytest.mark.parametrize("end", ["close", "detach"])
async def test_whoever_waits_hears_that_the_receiver_ended(full, end):
    sock, _peer = full
    before = descriptors()
    receiver = aiorecv.from_socket(sock.dup())
    sender = aiorecv.Sender(receiver)
    fill(sender)
    tasks = [await waiting(sender, name) for name in (b"first", b"second")]

    left = getattr(receiver, end)()
    ended = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(error) for error in ended] == [aiorecv.ReceiverClosedError] * 2
    with pytest.raises(aiorecv.ReceiverClosedError):
        sender.send_nowait([(b"x", None)])
    if left is not None:
        left.close()
    assert descriptors() == before


async def test_room_and_the_end_may_come_at_once(full):
    sock, peer = full
    receiver = aiorecv.from_socket(sock.dup())
    sender = aiorecv.Sender(receiver)
    fill(sender)
    task = await waiting(sender, b"x")
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, said: failures.append(said))

    loop.call_soon(receiver.close)
    queued(peer)

    with pytest.raises(aiorecv.ReceiverClosedError):
        await asyncio.wait_for(task, 10)
    assert queued(peer) == []
    assert failures == []


async def test_a_receiver_knows_nothing_of_sends_that_are_over(full):
    sock, peer = full
    receiver = aiorecv.from_socket(sock.dup())
    sender = aiorecv.Sender(receiver)
    for _ in range(3):
        fill(sender)
        task = await waiting(sender, b"x")
        queued(peer)
        await task
        queued(peer)

    assert not receiver._delivery._leaving
    receiver.close()


@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
def test_a_receiver_is_closed_after_its_loop_with_a_send_waiting(full):
    sock, _peer = full
    loop = asyncio.new_event_loop()

    async def start():
        receiver = aiorecv.from_socket(sock.dup())
        sender = aiorecv.Sender(receiver)
        fill(sender)
        return receiver, await waiting(sender, b"x")

    receiver, task = loop.run_until_complete(start())
    task._log_destroy_pending = False  # its end is not what is tested
    loop.close()

    receiver.close()

    assert receiver.fileno() == -1


# --- a peer that the socket is not connected to, whose room the kernel does not report


async def test_a_full_peer_of_an_unconnected_socket_makes_no_spin(tmp_path, full):
    _sock, peer = full
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sender = aiorecv.Sender(sock)
        addr = peer.getsockname()
        fill(sender, addr)
        before = sender.statistics().calls

        task = asyncio.ensure_future(sender.send([(b"x", addr), (b"y", addr)]))
        await passes(1000)
        calls = sender.statistics().calls - before
        queued(peer)
        await asyncio.wait_for(task, 10)

        assert calls < 100
        assert queued(peer) == [b"x", b"y"]


async def test_a_receiver_may_end_while_its_sender_waits_by_the_clock(full):
    _sock, peer = full
    async with aiorecv.from_socket(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as receiver:
        sender = aiorecv.Sender(receiver)
        addr = peer.getsockname()
        fill(sender, addr)
        task = asyncio.ensure_future(sender.send([(b"x", addr)]))
        await passes(50)

        receiver.close()

        with pytest.raises(aiorecv.ReceiverClosedError):
            await asyncio.wait_for(task, 10)
