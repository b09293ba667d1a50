"""Errors that heal go to error_received, once each; those that can't end the endpoint."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from tests.endpoints import Noting, endpoint, fail, handled, name_of, numbered, until_closed
from tests.faults import PATHS, Faults, take_path
from tests.receiving import passes


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


def errors_of(protocol) -> list[Exception]:
    return [event for event in protocol.events if isinstance(event, Exception)]


async def test_a_refused_packet_is_told_once_and_the_peer_is_heard_again(peer):
    addr = peer.getsockname()
    async with endpoint(remote_addr=addr) as (transport, protocol):
        peer.close()
        for times in range(1, 4):
            transport.sendto(b"nobody hears this")
            await protocol.until(lambda: len(errors_of(protocol)) == times)  # noqa: B023
            await passes(5)

            with revived(addr) as back:
                back.sendto(b"back", name_of(transport))
                await protocol.got(times)

        assert [error.errno for error in errors_of(protocol)] == [errno.ECONNREFUSED] * 3
        assert protocol.packets == [b"back"] * 3
        assert not transport.is_closing()


async def test_sending_never_raises_what_an_earlier_packet_met(peer):
    async with endpoint(remote_addr=peer.getsockname()) as (transport, protocol):
        peer.close()

        for _ in range(20):
            transport.sendto(b"x")
        await protocol.until(lambda: errors_of(protocol))
        await passes(5)

        assert {error.errno for error in errors_of(protocol)} == {errno.ECONNREFUSED}
        assert not transport.is_closing()


async def test_an_error_that_somebody_else_takes_leaves_the_endpoint_listening(peer):
    addr = peer.getsockname()
    async with endpoint(remote_addr=addr) as (transport, protocol):
        sock = transport.get_extra_info("socket")
        peer.close()
        for _ in range(3):
            sock._sock.send(b"refused")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            await passes(5)

        with revived(addr) as back:
            back.sendto(b"back", name_of(transport))
            assert await protocol.got(1) == [b"back"]
        assert errors_of(protocol) == []


async def test_packets_queued_behind_an_error_come_after_it(peer):
    order = []

    class Ordered(Noting):
        def error_received(self, exc):
            order.append(exc.errno)

        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            order.append(data)

    async with endpoint(Ordered, remote_addr=peer.getsockname()) as (transport, protocol):
        for data in numbered(3):
            peer.sendto(data, name_of(transport))
        peer.close()
        transport.get_extra_info("socket")._sock.send(b"refused")
        await protocol.got(3)

        assert order == [errno.ECONNREFUSED, *numbered(3)]


async def test_an_exception_in_error_received_goes_to_the_loop_and_reading_goes_on(peer):
    addr = peer.getsockname()
    async with endpoint(remote_addr=addr) as (transport, protocol):
        protocol.error_received = lambda error: fail()()
        peer.close()

        with handled() as contexts:
            transport.sendto(b"refused")
            while not contexts:
                await passes(1)
        with revived(addr) as back:
            back.sendto(b"back", name_of(transport))
            await protocol.got(1)

        (context,) = contexts
        assert isinstance(context["exception"], LookupError)
        assert context["transport"] is transport
        assert context["protocol"] is protocol


async def test_a_packet_that_is_too_long_is_told_and_the_next_one_leaves():
    async with endpoint() as (server, heard), endpoint() as (client, protocol):
        client.sendto(bytes(65_508), name_of(server))
        client.sendto(b"fits", name_of(server))
        await heard.got(1)

        assert [error.errno for error in errors_of(protocol)] == [errno.EMSGSIZE]
        assert heard.packets == [b"fits"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("number", [errno.ENOBUFS, errno.ENETDOWN, errno.ENOMEM])
async def test_an_error_that_heals_is_told_and_packets_come_after_it(number, path):
    async with endpoint() as (transport, protocol):
        take_path(transport, path)
        with Faults(transport, path, number):
            transport.sendto(b"behind it", name_of(transport))
            await protocol.got(1)

        assert [error.errno for error in errors_of(protocol)] == [number]
        assert transport.statistics().errors == 1


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOTSOCK, errno.EFAULT])
async def test_an_error_that_cannot_heal_is_told_once_by_connection_lost(number, path):
    async with endpoint() as (transport, protocol):
        take_path(transport, path)
        with Faults(transport, path, then=number), handled() as contexts:
            transport.sendto(b"unread", name_of(transport))
            error = await protocol.lost
            await until_closed(transport)
            await passes(3)

        assert error.errno == number
        assert protocol.events == ["made", ("lost", error)]
        assert contexts == []
        assert transport.get_extra_info("socket").fileno() == -1


@pytest.mark.parametrize("path", PATHS)
async def test_errors_without_end_leave_the_loop_its_turns(path):
    async with endpoint() as (transport, protocol):
        take_path(transport, path)
        with Faults(transport, path, then=errno.ENOBUFS) as faults:
            transport.sendto(b"x", name_of(transport))
            await protocol.until(lambda: errors_of(protocol))
            before = faults.calls
            await passes(2)

            assert faults.calls - before <= 20
            assert not protocol.packets
        await protocol.got(1)


@pytest.mark.parametrize("path", PATHS)
async def test_interrupted_calls_and_spurious_wake_ups_are_nothing(path):
    async with endpoint() as (transport, protocol):
        take_path(transport, path)
        with Faults(transport, path, errno.EINTR, errno.EINTR, errno.EAGAIN):
            transport.sendto(b"x", name_of(transport))
            await protocol.got(1)

        assert errors_of(protocol) == []


async def test_reading_without_recvmmsg_gives_the_same(monkeypatch):
    async with endpoint() as (transport, protocol):
        take_path(transport, "recvmsg")
        for data in numbered(100):
            transport.sendto(data, name_of(transport))

        assert await protocol.got(100) == numbered(100)


async def test_closing_in_error_received_of_a_packet_that_was_refused_at_once(peer):
    async with endpoint() as (transport, protocol):
        protocol.error_received = lambda error: transport.close()

        transport.sendto(bytes(65_508), peer.getsockname())
        transport.sendto(b"dropped", peer.getsockname())

        assert transport.is_closing()
        assert await protocol.lost is None
        assert transport.send_statistics().dropped == 1
        peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            peer.recv(10)


async def test_memory_that_is_short_for_a_read_is_told_by_connection_lost(monkeypatch):
    error = MemoryError("no slab")
    async with endpoint(slot_size=12_345, gro=False) as (transport, protocol):  # none lies ready
        monkeypatch.setattr("aiorecv._slabs.SlabPool.make", lambda *_: fail(error)())
        transport.sendto(b"x", name_of(transport))

        with handled() as contexts:
            async with asyncio.timeout(10):
                assert await protocol.lost is error

        assert [context["exception"] for context in contexts] == [error]
