"""close() sends what waits, abort() does not; connection_lost() comes once, and nothing after."""

from __future__ import annotations

import asyncio
import socket

import pytest

import aiorecv
from tests.endpoints import Noting, endpoint, fail, handled, name_of, numbered, queue, until_closed
from tests.receiving import await_readable, passes
from tests.test_transport_writing import drained, fill


@pytest.fixture(params=[socket.SOCK_DGRAM, socket.SOCK_SEQPACKET], ids=["datagrams", "sequence"])
def pair(request):
    """Two connected AF_UNIX sockets: the second one's queue is soon full."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, request.param)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def test_close_sends_what_waits_and_then_tells(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        sent = fill(transport)
        for data in numbered(200):
            transport.sendto(data)

        transport.close()
        await passes(5)
        while_flushing = list(protocol.events)
        got = await drained(theirs, len(sent) + 200)
        await protocol.lost

        assert ("lost", None) not in while_flushing
        assert got == [*sent, *numbered(200)]
        assert protocol.events[-1] == ("lost", None)
        assert transport.send_statistics().dropped == 0


async def test_nothing_is_received_while_close_sends_what_waits(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        sent = fill(transport)
        theirs.send(b"too late")
        transport.close()
        await passes(5)

        assert not transport.is_reading()
        await drained(theirs, len(sent))
        await protocol.lost
        assert protocol.packets == []


async def test_abort_drops_what_waits_and_counts_it(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        sent = fill(transport)
        transport.sendto(b"one more")

        transport.abort()
        assert await protocol.lost is None

        assert transport.get_write_buffer_size() == 0
        assert transport.send_statistics().dropped == 2
        assert await drained(theirs, len(sent) - 1) == sent[:-1]
        try:
            end = theirs.recv(10)
        except (BlockingIOError, ConnectionResetError):
            end = b""
        assert end == b""


async def test_abort_ends_a_close_that_waits(pair):
    ours, _ = pair
    async with endpoint(sock=ours) as (transport, protocol):
        fill(transport)
        transport.close()
        await passes(3)

        transport.abort()
        await protocol.lost

        assert protocol.events == ["made", ("lost", None)]
        assert transport.send_statistics().dropped == 1


@pytest.mark.parametrize("ends", ["cc", "ca", "ac", "aa", "caca"])
async def test_ends_that_are_repeated_are_told_once(ends):
    async with endpoint() as (transport, protocol):
        for end in ends:
            {"c": transport.close, "a": transport.abort}[end]()
        await protocol.lost
        transport.close()
        transport.abort()
        await passes(3)

        assert protocol.events == ["made", ("lost", None)]


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_what_is_sent_after_the_end_is_dropped_and_counted(end):
    async with endpoint() as (server, _), endpoint() as (transport, protocol):
        getattr(transport, end)()

        transport.sendto(b"x", name_of(server))
        transport.send_batch([(b"y", name_of(server)), (b"z", name_of(server))])
        await protocol.lost
        transport.sendto(b"x", name_of(server))

        assert transport.send_statistics().dropped == 4
        assert transport.send_statistics().packets == 0
        assert protocol.events == ["made", ("lost", None)]


async def test_nothing_brings_a_closed_endpoint_back():
    async with endpoint() as (transport, protocol):
        transport.pause_reading()
        queue(transport, b"unread")
        transport.close()
        transport.resume_reading()
        transport.pause_reading()
        transport.set_protocol(protocol)
        await protocol.lost
        transport.resume_reading()
        await passes(3)

        assert protocol.packets == []
        assert not transport.is_reading()
        assert transport.is_closing()


async def test_connection_lost_comes_after_the_callback_that_closes():
    order = []
    async with endpoint() as (transport, protocol):
        protocol.connection_lost = lambda error: order.append("lost")

        def close():
            transport.close()
            order.append("closed")

        protocol.acts = {0: close}
        queue(transport, b"x")
        await until_closed(transport)

        assert order == ["closed", "lost"]


async def test_the_socket_is_open_in_connection_lost_and_closed_after_it():
    open_then = []

    class Looking(Noting):
        def connection_lost(self, exc):
            open_then.append(self.transport.get_extra_info("socket").fileno() != -1)
            super().connection_lost(exc)

    async with endpoint(Looking) as (transport, protocol):
        transport.close()
        await protocol.lost
        await until_closed(transport)

        assert open_then == [True]
        assert transport.get_extra_info("socket").fileno() == -1


async def test_connection_lost_goes_to_the_protocol_that_is_set_then():
    async with endpoint() as (transport, first):
        second = Noting()
        transport.close()
        transport.set_protocol(second)

        assert await second.lost is None
        assert first.events == ["made"]


async def test_the_port_is_free_after_the_end():
    async with endpoint() as (transport, _):
        name = name_of(transport)
        transport.close()
        await until_closed(transport)

        async with endpoint(local_addr=name) as (again, protocol):
            queue(again, b"heard")
            assert await protocol.got(1) == [b"heard"]


async def test_a_peer_that_goes_away_does_not_stop_what_waits(pair):
    """Its going is an error of the socket, after which a handle of uvloop's would be dead."""
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        fill(transport)
        transport.close()
        theirs.close()

        async with asyncio.timeout(10):
            assert await protocol.lost is None


async def test_a_peer_that_goes_away_while_reading_is_paused_does_not_stop_what_waits(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        transport.pause_reading()
        fill(transport)
        theirs.close()

        async with asyncio.timeout(10):
            while transport.get_write_buffer_size():
                await asyncio.sleep(0)

        assert protocol.events[1:]  # the error was told
        assert not transport.is_closing()


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_an_end_in_error_received_of_what_waits(pair, end):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        protocol.error_received = lambda error: getattr(transport, end)()
        transport.pause_reading()
        fill(transport)
        for data in numbered(100):
            transport.sendto(data)

        with handled() as contexts:
            theirs.close()
            async with asyncio.timeout(10):
                assert await protocol.lost is None
            await until_closed(transport)

        assert contexts == []
        assert transport.get_write_buffer_size() == 0


async def test_an_exception_in_error_received_of_what_waits_costs_no_other_packet(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        protocol.error_received = lambda error: fail()()
        transport.pause_reading()  # or a peer in sequence that hangs up is the end
        fill(transport)
        for data in numbered(200):
            transport.sendto(data)

        with handled() as contexts:
            theirs.close()
            async with asyncio.timeout(10):
                while transport.get_write_buffer_size():
                    await asyncio.sleep(0)

        assert {type(context["exception"]) for context in contexts} == {LookupError}
        assert not transport.is_closing()


async def test_a_closed_endpoint_leaves_no_reader_behind():
    """Else the next socket of its number would wake it."""
    for _ in range(5):
        transport, protocol = await aiorecv.create_datagram_endpoint(
            Noting, local_addr=("127.0.0.1", 0)
        )
        queue(transport, b"x")
        await_readable(transport.get_extra_info("socket")._sock)
        transport.abort()
        await until_closed(transport)

        assert protocol.packets == []
