"""Errors are events: reported once each, and the receiver goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

import aiorecv
from aiorecv._readiness import Readiness
from tests.faults import OK, Faults, take_path
from tests.receiving import Clock, passes, until_waiting


@pytest.fixture
def peer():
    """A bound socket to connect to; closing it makes ICMP errors."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


def revived(addr) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(addr)
    return sock


async def refused(receiver, peer) -> None:
    """Make the kernel note ECONNREFUSED on the receiver's socket."""
    peer.close()
    receiver.socket.send(b"nobody hears this")


async def test_a_refused_packet_is_raised_once_and_the_peer_is_heard_again(peer):
    addr = peer.getsockname()
    async with aiorecv.open_udp(remote_addr=addr) as receiver:
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        await refused(receiver, peer)
        with pytest.raises(ConnectionRefusedError):
            await task

        for _ in range(3):
            waiting = asyncio.ensure_future(receiver.receive())
            await until_waiting(waiting)
            with revived(addr) as back:
                back.sendto(b"back", receiver.local_addr)
                with await waiting as batch:
                    assert batch.payloads() == (b"back",)

        statistics = receiver.statistics()
        assert statistics.errors == 1
        assert isinstance(statistics.last_error, ConnectionRefusedError)


async def test_packets_queued_behind_an_error_come_next(peer):
    async with aiorecv.open_udp(remote_addr=peer.getsockname()) as receiver:
        peer.sendto(b"queued", receiver.local_addr)
        await refused(receiver, peer)

        with pytest.raises(ConnectionRefusedError):
            await receiver.receive()
        with await receiver.receive() as batch:
            assert batch.payloads() == (b"queued",)


async def test_on_error_takes_errors_and_reading_goes_on(peer):
    errors = []
    async with aiorecv.open_udp(remote_addr=peer.getsockname(), on_error=errors.append) as receiver:
        peer.sendto(b"queued", receiver.local_addr)
        await refused(receiver, peer)

        with await receiver.receive() as batch:
            assert batch.payloads() == (b"queued",)

    assert [error.errno for error in errors] == [errno.ECONNREFUSED]


async def test_an_error_taken_by_somebody_else_leaves_the_receiver_listening(peer):
    addr = peer.getsockname()
    async with aiorecv.open_udp(remote_addr=addr) as receiver:
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        for _ in range(3):
            await refused(receiver, peer)
            assert receiver.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            for _ in range(5):
                await asyncio.sleep(0)
        assert not task.done()

        with revived(addr) as back:
            back.sendto(b"back", receiver.local_addr)
            with await asyncio.wait_for(task, 10) as batch:
                assert batch.payloads() == (b"back",)


async def test_a_socket_that_is_connected_later_is_looked_at_again(peer):
    addr = peer.getsockname()
    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        peer.sendto(b"before", receiver.local_addr)
        (await task).release()
        receiver.socket.connect(addr)

        for _ in range(3):
            task = asyncio.ensure_future(receiver.receive())
            await until_waiting(task)
            await refused(receiver, peer)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.wait_for(task, 10)


async def test_an_exception_in_on_error_goes_to_the_loop_and_reading_goes_on(peer):
    def fail(error):
        raise LookupError("in on_error")

    told = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with aiorecv.open_udp(remote_addr=peer.getsockname(), on_error=fail) as receiver:
        peer.sendto(b"queued", receiver.local_addr)
        await refused(receiver, peer)

        assert (await receiver.receive()).payloads() == (b"queued",)

    assert [type(context["exception"]) for context in told] == [LookupError]


@pytest.mark.parametrize("wait_first", [False, True])
async def test_closing_in_on_error_ends_the_reader(peer, wait_first):
    def close(error):
        receiver.close()

    async with aiorecv.open_udp(remote_addr=peer.getsockname(), on_error=close) as receiver:
        if wait_first:
            task = asyncio.ensure_future(receiver.receive())
            await until_waiting(task)
        await refused(receiver, peer)

        with pytest.raises(aiorecv.ReceiverClosedError):
            await (task if wait_first else receiver.receive())


@pytest.mark.parametrize("wait_first", [False, True])
async def test_an_error_that_can_not_heal_is_raised_and_ends_the_receiver(receiver, wait_first):
    taken = []
    async with aiorecv.open_udp(("127.0.0.1", 0), on_error=taken.append) as broken:
        if wait_first:
            task = asyncio.ensure_future(broken.receive())
            await until_waiting(task)
        # No socket any more: the number now means /dev/null, which recvmmsg refuses.
        null = os.open("/dev/null", os.O_RDONLY)
        broken._reader.source.core.fd = null
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"wake", broken.local_addr)

        with pytest.raises(OSError, match="Socket operation on non-socket"):
            await (task if wait_first else broken.receive())

        os.close(null)
        assert broken.fileno() == -1
        with pytest.raises(aiorecv.ReceiverClosedError):
            await broken.receive()
        assert not taken


async def test_errors_without_end_let_the_loop_pass(peer):
    """Each report causes the next error; the loop's other tasks go on."""
    errors = []

    def again(error):
        errors.append(error)
        receiver.socket.send(b"nobody")

    async with aiorecv.open_udp(remote_addr=peer.getsockname(), on_error=again) as receiver:
        task = asyncio.ensure_future(receiver.receive())
        await refused(receiver, peer)
        while len(errors) < 20:
            await asyncio.sleep(0)

        assert not task.done()
        receiver.close()
        with pytest.raises(aiorecv.ReceiverClosedError):
            await task


async def test_a_descriptor_that_is_readable_for_ever_makes_no_spin(peer, monkeypatch):
    """After shutdown(SHUT_RD) a socket is always readable, and never gives anything."""
    fired = 0
    plain = Readiness._fired

    def counting(self):
        nonlocal fired
        fired += 1
        plain(self)

    monkeypatch.setattr(Readiness, "_fired", counting)
    async with aiorecv.open_udp(remote_addr=peer.getsockname()) as receiver:
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        receiver.socket.shutdown(socket.SHUT_RD)
        while fired < 10:  # eight at once, then two by the clock
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert fired <= 12

        peer.sendto(b"still heard", receiver.local_addr)
        with await asyncio.wait_for(task, 10) as batch:
            assert batch.payloads() == (b"still heard",)


async def test_a_wait_that_ends_while_its_descriptor_is_left_alone_can_begin_again(peer):
    async with aiorecv.open_udp(remote_addr=peer.getsockname()) as receiver:
        readiness = receiver._delivery._readiness
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        receiver.socket.shutdown(socket.SHUT_RD)
        while readiness._timer is None:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

        while readiness._timer is not None:
            await asyncio.sleep(0)
        again = asyncio.ensure_future(receiver.receive())
        await until_waiting(again)
        peer.sendto(b"heard", receiver.local_addr)

        with await asyncio.wait_for(again, 10) as batch:
            assert batch.payloads() == (b"heard",)


async def backing_off(receiver, monkeypatch) -> Readiness:
    """Shut a receiver down, and let it wait until it leaves its descriptor alone, for an hour."""
    monkeypatch.setattr("aiorecv._readiness._BACK_OFF", (3600.0, 3600.0))
    readiness: Readiness = receiver._delivery._readiness
    task = asyncio.ensure_future(receiver.receive())
    await until_waiting(task)
    receiver.socket.shutdown(socket.SHUT_RD)
    while readiness._timer is None:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return readiness


async def test_a_wait_while_the_descriptor_is_left_alone_does_not_look_at_it(peer, monkeypatch):
    async with aiorecv.open_udp(remote_addr=peer.getsockname()) as receiver:
        readiness = await backing_off(receiver, monkeypatch)
        fired = []
        monkeypatch.setattr(Readiness, "_fired", lambda self: fired.append(self))

        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        await passes(20)

        assert readiness._timer is not None
        assert not fired
        receiver.close()
        assert readiness._timer is None
        with pytest.raises(aiorecv.ReceiverClosedError):
            await task


async def test_an_error_owed_while_the_descriptor_is_left_alone_makes_no_second_clock(
    peer, monkeypatch
):
    errors = []
    async with aiorecv.open_udp(remote_addr=peer.getsockname(), on_error=errors.append) as receiver:
        take_path(receiver, "recvmsg")
        readiness = await backing_off(receiver, monkeypatch)
        timer = readiness._timer
        Clock(monkeypatch)  # which stands still: whoever has drained the socket waits
        peer.sendto(b"before it", receiver.local_addr)
        with (
            Faults(receiver, "recvmsg", OK, errno.ENETDOWN),
            receiver.receive_nowait() as batch,
        ):
            assert batch.payloads() == (b"before it",)

        task = asyncio.ensure_future(receiver.receive())
        while not errors:
            await asyncio.sleep(0)
        await passes(3)

        same = readiness._timer is timer
        receiver.close()
        with pytest.raises(aiorecv.ReceiverClosedError):
            await task
        assert [error.errno for error in errors] == [errno.ENETDOWN]
        assert same
