"""What the socket does not take at once waits in a buffer, with asyncio's limits."""

from __future__ import annotations

import asyncio
import socket

import pytest

import aiorecv
from tests.endpoints import Noting, drained, endpoint, fail, fill, name_of, numbered, until_closed
from tests.receiving import passes


@pytest.fixture
def pair():
    """Two connected AF_UNIX datagram sockets: the second one's queue is soon full."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def test_what_waits_is_sent_in_order_when_there_is_room(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, _):
        sent = fill(transport)
        for data in numbered(200):
            transport.sendto(data)

        got = await drained(theirs, len(sent) + 200)

        assert got == [*sent, *numbered(200)]
        assert transport.get_write_buffer_size() == 0
        assert transport.send_statistics().packets == len(got)


async def test_a_batch_that_partly_waits_is_sent_in_order(pair):
    ours, theirs = pair
    packets = numbered(1000)
    async with endpoint(sock=ours) as (transport, _):
        transport.send_batch([(data, None) for data in packets[:600]])
        waiting = transport.get_write_buffer_size()
        transport.send_batch([(data, None) for data in packets[600:]])
        transport.sendto(b"last")

        got = await drained(theirs, 1001)

        assert waiting > 0
        assert got == [*packets, b"last"]


async def test_what_waits_cannot_be_changed_any_more(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, _):
        sent = fill(transport)
        mine = bytearray(b"before")
        transport.sendto(mine)
        transport.send_batch([(memoryview(mine), None)])
        mine[:] = b"after!"

        got = await drained(theirs, len(sent) + 2)

        assert got[-2:] == [b"before"] * 2


async def test_empty_datagrams_wait_too(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, _):
        sent = fill(transport)
        before = transport.get_write_buffer_size()
        transport.sendto(b"")

        assert transport.get_write_buffer_size() > before
        assert (await drained(theirs, len(sent) + 1))[-1] == b""


async def test_a_protocol_that_sends_when_it_resumes_goes_on_sending(pair):
    ours, theirs = pair

    class Sending(Noting):
        left = 500

        def resume_writing(self):
            super().resume_writing()
            while self.left and self.events[-1] == "resume":
                self.left -= 1
                self.transport.sendto(b"more")

    async with endpoint(Sending, sock=ours) as (transport, _):
        transport.set_write_buffer_limits(0)
        sent = fill(transport)

        got = await drained(theirs, len(sent) + 500)
        await passes(3)

        assert got == sent + [b"more"] * 500
        assert transport.get_write_buffer_size() == 0


async def test_a_protocol_that_sends_when_it_pauses_keeps_the_order(pair):
    ours, theirs = pair

    class Sending(Noting):
        def pause_writing(self):
            super().pause_writing()
            self.transport.sendto(b"paused")

    async with endpoint(Sending, sock=ours) as (transport, _):
        transport.set_write_buffer_limits(0)
        sent = fill(transport)
        transport.sendto(b"after")

        assert await drained(theirs, len(sent) + 2) == [*sent, b"paused", b"after"]


async def test_an_exception_in_the_flow_goes_to_the_loop(pair):
    ours, theirs = pair
    contexts = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

    class Failing(Noting):
        def pause_writing(self):
            raise LookupError("pause")

        def resume_writing(self):
            raise LookupError("resume")

    async with endpoint(Failing, sock=ours) as (transport, protocol):
        transport.set_write_buffer_limits(0)
        sent = fill(transport)
        await drained(theirs, len(sent))
        await passes(3)

        assert [str(context["exception"]) for context in contexts] == ["pause", "resume"]
        assert {context["protocol"] for context in contexts} == {protocol}


@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.parametrize("when", ["pause_writing", "resume_writing"])
async def test_an_end_in_the_flow_of_writing_is_told_once(pair, when, end):
    ours, theirs = pair

    class Ending(Noting):
        def pause_writing(self):
            super().pause_writing()
            if when == "pause_writing":
                getattr(self.transport, end)()

        def resume_writing(self):
            super().resume_writing()
            if when == "resume_writing":
                getattr(self.transport, end)()

    async with endpoint(Ending, sock=ours) as (transport, protocol):
        fd = ours.fileno()
        transport.set_write_buffer_limits(0)
        sent = fill(transport)

        flushed = when == "resume_writing" or end == "close"
        got = await drained(theirs, len(sent) - (not flushed))
        assert await protocol.lost is None
        await until_closed(transport)

        assert got == (sent if flushed else sent[:-1])
        assert protocol.events.count(("lost", None)) == 1
        assert transport.send_statistics().dropped == (not flushed)
        # Nothing of it is left with the loop: the next socket of this number can be written.
        assert not asyncio.get_running_loop().remove_writer(fd)


async def test_a_socket_of_the_same_number_can_be_written_after_an_end_in_resume_writing():
    for _ in range(3):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        theirs.setblocking(False)
        with theirs:
            transport, protocol = await aiorecv.create_datagram_endpoint(Noting, sock=ours)
            protocol.resume_writing = transport.close
            transport.set_write_buffer_limits(0)
            sent = fill(transport)

            assert await drained(theirs, len(sent)) == sent
            assert await protocol.lost is None
            await until_closed(transport)


async def test_udp_that_finds_room_never_waits():
    async with endpoint() as (server, heard), endpoint() as (client, _):
        for data in numbered(100):
            client.sendto(data, name_of(server))

        assert client.get_write_buffer_size() == 0
        assert await heard.got(100) == numbered(100)


async def test_a_full_peer_that_is_not_connected_to_is_tried_again_now_and_then(tmp_path):
    """The kernel says of such a socket that it can be written, though it can't."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(path)
        theirs.setblocking(False)
        async with endpoint(family=socket.AF_UNIX) as (transport, _):
            packets = numbered(300)
            transport.send_batch([(data, path) for data in packets[:150]])
            for data in packets[150:]:
                transport.sendto(data, path)
            before = transport.send_statistics().calls
            await passes(200)
            in_vain = transport.send_statistics().calls - before

            assert transport.get_write_buffer_size() > 0
            assert in_vain < 100
            assert await drained(theirs, 300) == packets


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_an_end_while_a_full_peer_is_left_alone(tmp_path, end):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(path)
        theirs.setblocking(False)
        async with endpoint(family=socket.AF_UNIX) as (transport, protocol):
            packets = numbered(300)
            transport.send_batch([(data, path) for data in packets])
            await passes(20)

            getattr(transport, end)()
            sent = 300 - transport.send_statistics().dropped
            got = await drained(theirs, sent)
            assert await protocol.lost is None

            assert got == packets[:sent]
            assert (sent == 300) == (end == "close")


async def test_what_a_refusal_ends_in_the_middle_of_a_batch_is_counted(pair):
    ours, _ = pair
    async with endpoint(sock=ours) as (transport, protocol):
        protocol.error_received = lambda error: transport.close()

        transport.send_batch([(bytes(10 << 20), None), *[(b"x", None)] * 1000])
        assert await protocol.lost is None

        seen = transport.send_statistics()
        assert seen.errors == 1
        assert seen.dropped > 0
        assert seen.packets + seen.dropped == 1000


async def test_an_interrupt_in_error_received_reaches_whoever_sends():
    async with endpoint() as (transport, protocol):
        protocol.error_received = lambda error: fail(KeyboardInterrupt())()

        with pytest.raises(KeyboardInterrupt):
            transport.sendto(bytes(65_508), name_of(transport))

        transport.sendto(b"heard", name_of(transport))
        assert await protocol.got(1) == [b"heard"]
