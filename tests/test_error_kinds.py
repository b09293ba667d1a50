"""Each kind of error there is: which heal, which end a receiver, and that none makes a spin."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket

import pytest

import aiorecv
from aiorecv._readiness import FRUITLESS_WAKE_UPS, Readiness
from tests.faults import PATHS, Faults, take_path
from tests.receiving import passes, queued, until_waiting

# linux/in.h, linux/in6.h; the socket module lacks both.
RECVERR = {
    "127.0.0.1": (socket.IPPROTO_IP, 11),
    "::1": (socket.IPPROTO_IPV6, 25),
}
HEALING = [errno.ENETDOWN, errno.ENOBUFS, errno.ENOMEM, errno.EHOSTUNREACH, errno.ENETUNREACH]
FATAL = [errno.EBADF, errno.ENOTSOCK, errno.ENODEV, errno.EIO, 9999]
# Nobody fires more often while nothing comes: some at once, then by a clock that doubles.
FEW = FRUITLESS_WAKE_UPS + 4


@pytest.fixture
def fired(monkeypatch) -> list[Readiness]:
    """One entry for each time that a loop reported a descriptor."""
    entries: list[Readiness] = []
    plain = Readiness._fired

    def counting(self):
        entries.append(self)
        plain(self)

    monkeypatch.setattr(Readiness, "_fired", counting)
    return entries


@pytest.fixture(params=["127.0.0.1", "::1"])
def host(request):
    return request.param


def bound(addr) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in addr[0] else socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(addr)
    return sock


def dead_addr(host):
    """An address that nobody listens at."""
    with bound((host, 0)) as sock:
        return sock.getsockname()


def ask_for_errors(receiver, host) -> None:
    receiver.socket.setsockopt(*RECVERR[host], True)


def has_errors(receiver) -> bool:
    """Whether an error waits, or an error queue does; looking takes neither."""
    poll = select.poll()
    poll.register(receiver.socket, 0)
    return bool(poll.poll(0))


async def heard(task, receiver) -> None:
    """What is sent now reaches ``task``."""
    queued(receiver, b"still heard")
    with await asyncio.wait_for(task, 10) as batch:
        assert batch.payloads() == (b"still heard",)


@pytest.mark.parametrize("asked", [False, True], ids=["plain", "recverr"])
async def test_a_refused_packet_is_raised_once_and_the_peer_is_heard_again(host, asked, fired):
    addr = dead_addr(host)
    async with aiorecv.open_udp(remote_addr=addr) as receiver:
        if asked:
            ask_for_errors(receiver, host)
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        receiver.socket.send(b"nobody hears this")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.wait_for(task, 10)

        task = asyncio.ensure_future(receiver.receive())
        await passes(200)
        assert len(fired) <= FEW
        with bound(addr) as back:
            back.sendto(b"back", receiver.local_addr)
            with await asyncio.wait_for(task, 10) as batch:
                assert batch.payloads() == (b"back",)
        assert receiver.statistics().errors == 1


async def test_an_unconnected_socket_reports_what_it_asked_for_and_goes_on(host, fired):
    errors = []
    async with aiorecv.open_udp((host, 0), on_error=errors.append) as receiver:
        ask_for_errors(receiver, host)
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        receiver.socket.sendto(b"nobody hears this", dead_addr(host))
        while not errors:
            await asyncio.sleep(0)

        await passes(200)

        assert [error.errno for error in errors] == [errno.ECONNREFUSED]
        assert not has_errors(receiver)
        assert len(fired) <= FEW
        await heard(task, receiver)


@pytest.mark.parametrize("count", [1, 600])
async def test_queued_errors_whose_report_somebody_else_took_make_no_spin(host, count, fired):
    """What stays in the error queue would keep the descriptor readable for ever."""
    errors = []
    async with aiorecv.open_udp((host, 0), on_error=errors.append) as receiver:
        ask_for_errors(receiver, host)
        receiver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        addr = dead_addr(host)
        for _ in range(count):
            try:
                receiver.socket.sendto(b"nobody hears this", addr)
            except ConnectionRefusedError:
                pass
        receiver.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

        while has_errors(receiver):
            await asyncio.sleep(0)
        fired.clear()
        await passes(200)

        assert len(fired) <= FEW
        await heard(task, receiver)
        # Of a long queue the kernel may report again what its next entry is.
        assert len(errors) < FEW if count > 1 else not errors


async def test_a_unix_socket_that_was_shut_down_makes_no_spin(fired):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs:
        async with aiorecv.from_socket(ours) as receiver:
            task = asyncio.ensure_future(receiver.receive())
            await until_waiting(task)
            receiver.socket.shutdown(socket.SHUT_RD)

            while not fired:
                await asyncio.sleep(0)
            await passes(200)

            assert len(fired) <= FEW
            receiver.close()
            with pytest.raises(aiorecv.ReceiverClosedError):
                await task


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("error", HEALING)
async def test_an_error_that_heals_is_raised_once_and_packets_come_next(receiver, path, error):
    take_path(receiver, path)
    queued(receiver, b"behind it")

    with Faults(receiver, path, error):
        with pytest.raises(OSError, match=os.strerror(error)) as raised:
            await receiver.receive()
        with await receiver.receive() as batch:
            assert batch.payloads() == (b"behind it",)

    statistics = receiver.statistics()
    assert raised.value.errno == error
    assert (statistics.errors, str(statistics.last_error)) == (1, str(raised.value))


async def by_receive_nowait(receiver):
    return receiver.receive_nowait()[0][0]


async def by_iteration(receiver):
    async for batch in receiver:
        return batch[0][0]


async def by_datagrams(receiver):
    async for data, _ in receiver.datagrams():
        return data


@pytest.mark.parametrize("reading", [by_receive_nowait, by_iteration, by_datagrams])
@pytest.mark.parametrize("path", PATHS)
async def test_every_way_to_read_raises_an_error_and_can_be_tried_again(receiver, path, reading):
    take_path(receiver, path)
    queued(receiver, b"behind it")

    with Faults(receiver, path, errno.ENETDOWN):
        with pytest.raises(OSError, match=os.strerror(errno.ENETDOWN)):
            await reading(receiver)
        assert await reading(receiver) == b"behind it"


@pytest.mark.parametrize("wait_first", [False, True])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("error", FATAL)
async def test_an_error_that_can_not_heal_is_raised_and_ends_the_receiver(path, error, wait_first):
    taken = []
    async with aiorecv.open_udp(("127.0.0.1", 0), on_error=taken.append) as receiver:
        take_path(receiver, path)
        if wait_first:
            task = asyncio.ensure_future(receiver.receive())
            await until_waiting(task)

        with Faults(receiver, path, error):
            queued(receiver, b"never read")
            with pytest.raises(OSError, match=os.strerror(error)) as raised:
                await (task if wait_first else receiver.receive())

        assert raised.value.errno == error
        assert receiver.fileno() == -1
        with pytest.raises(aiorecv.ReceiverClosedError):
            await receiver.receive()
        assert not taken
        assert receiver.statistics().errors == 1


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_there_is_no_error(receiver, path):
    take_path(receiver, path)
    queued(receiver, b"x")
    before = receiver.statistics()

    with Faults(receiver, path, errno.EAGAIN):
        assert receiver.receive_nowait() is None
        empty = receiver.statistics()
        assert receiver.receive_nowait().payloads() == (b"x",)

    assert empty.empty_reads == before.empty_reads + 1
    assert (empty.errors, empty.reads, empty.window_slots) == (0, 0, before.window_slots)


@pytest.mark.parametrize("path", PATHS)
async def test_a_call_that_is_refused_for_ever_makes_no_spin(path, fired):
    """As a sandbox may do, with a packet queued that keeps the descriptor readable."""
    errors = []
    async with aiorecv.open_udp(("127.0.0.1", 0), on_error=errors.append) as receiver:
        take_path(receiver, path)
        with Faults(receiver, path, then=errno.EACCES):
            task = asyncio.ensure_future(receiver.receive())
            await until_waiting(task)
            queued(receiver, b"kept")
            while len(fired) < FRUITLESS_WAKE_UPS:
                await asyncio.sleep(0)
            fired.clear()
            errors.clear()
            await passes(200)

            assert len(fired) <= FEW
            assert len(errors) <= 4 * FEW
            assert not task.done()

        with await asyncio.wait_for(task, 10) as batch:
            assert batch.payloads() == (b"kept",)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
async def test_an_error_costs_no_packets(family):
    """Whatever is done about an error queue, packets are not taken for errors."""
    ours, theirs = (
        socket.socketpair(family, socket.SOCK_DGRAM)
        if family == socket.AF_UNIX
        else (bound(("127.0.0.1", 0)), bound(("127.0.0.1", 0)))
    )
    with theirs:
        if family == socket.AF_INET:
            theirs.connect(ours.getsockname())
        async with aiorecv.from_socket(ours, on_error=lambda error: None) as receiver:
            take_path(receiver, "recvmmsg")
            sent = [b"%d" % number for number in range(5)]
            for data in sent:
                theirs.send(data)

            got = []
            with Faults(receiver, "recvmmsg", *[errno.ENOBUFS] * 3):
                while len(got) < len(sent):
                    with await asyncio.wait_for(receiver.receive(), 10) as batch:
                        got += batch.payloads()

    assert got == sent


async def test_an_overrun_netlink_socket_reports_that_and_keeps_its_messages():
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)  # NETLINK_USERSOCK
    sock.bind((0, 0))
    other = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)
    with other:
        async with aiorecv.from_socket(sock) as receiver:
            take_path(receiver, "recvmmsg")
            for number in range(3):
                other.sendto(bytes([number]) * 16, receiver.local_addr)

            with (
                Faults(receiver, "recvmmsg", errno.ENOBUFS),
                pytest.raises(OSError, match="No buffer space"),
            ):
                receiver.receive_nowait()

            got = []
            while (batch := receiver.receive_nowait()) is not None:
                with batch:
                    got += batch.payloads()

    assert got == [bytes([number]) * 16 for number in range(3)]
