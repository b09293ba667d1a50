"""What the socket does not take at once waits in a buffer, with asyncio's limits."""

from __future__ import annotations

import asyncio
import socket

import pytest

import aiorecv
from tests.endpoints import Noting, endpoint, name_of, numbered, until_closed
from tests.receiving import passes


@pytest.fixture
def pair():
    """Two connected AF_UNIX datagram sockets: the second one's queue is soon full."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def fill(transport, most: int = 10_000) -> list[bytes]:
    """Send until one packet waits; returns all that was sent."""
    sent = []
    while not transport.get_write_buffer_size() and not transport.is_closing():
        assert len(sent) < most
        sent.append(b"%05d" % len(sent))
        transport.sendto(sent[-1])
    return sent


async def drained(theirs: socket.socket, count: int) -> list[bytes]:
    """Receive so many packets at the other end."""
    got = []
    async with asyncio.timeout(20):
        while len(got) < count:
            try:
                got.append(theirs.recv(1 << 20))
            except BlockingIOError:
                await asyncio.sleep(0)
    return got


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


async def test_the_protocol_pauses_above_the_high_limit_and_resumes_at_the_low_one(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        transport.set_write_buffer_limits(high=1000, low=100)
        sent = fill(transport)
        sizes = []
        while "pause" not in protocol.events:
            sizes.append(transport.get_write_buffer_size())
            transport.sendto(bytes(92))  # 100 with what asyncio adds to each
        above = transport.get_write_buffer_size()
        transport.sendto(bytes(92))
        count = len(sent) + len(sizes) + 1

        await drained(theirs, count)

        assert max(sizes) <= 1000 < above
        assert protocol.events == ["made", "pause", "resume"]


async def test_a_protocol_that_pauses_and_resumes_again_and_again(pair):
    ours, theirs = pair
    async with endpoint(sock=ours) as (transport, protocol):
        transport.set_write_buffer_limits(0)
        for times in range(1, 4):
            sent = fill(transport)
            assert protocol.events[1:] == ["pause", "resume"] * (times - 1) + ["pause"]

            await drained(theirs, len(sent))
            await passes(3)

            assert protocol.events[1:] == ["pause", "resume"] * times


@pytest.mark.parametrize(
    "limits",
    [{}, {"high": 0}, {"low": 1}, {"high": 10}, {"high": 8, "low": 8}, {"high": 100, "low": 1}],
    ids=str,
)
async def test_limits_become_what_they_become_in_asyncio(limits):
    async with endpoint() as (transport, _):
        loop = asyncio.new_event_loop()
        theirs, _ = await asyncio.to_thread(
            loop.run_until_complete,
            loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)),
        )

        assert transport.get_write_buffer_limits() == theirs.get_write_buffer_limits()
        transport.set_write_buffer_limits(**limits)
        theirs.set_write_buffer_limits(**limits)

        assert transport.get_write_buffer_limits() == theirs.get_write_buffer_limits()
        theirs.abort()
        await asyncio.to_thread(loop.run_until_complete, passes(2))
        loop.close()


@pytest.mark.parametrize("limits", [(1, 2), (-1, None), (None, -1), (5, -1)], ids=str)
async def test_limits_that_contradict_each_other_are_refused(limits):
    async with endpoint() as (transport, _):
        before = transport.get_write_buffer_limits()

        with pytest.raises(ValueError, match="must be >= low"):
            transport.set_write_buffer_limits(*limits)

        assert transport.get_write_buffer_limits() == before


async def test_a_limit_that_falls_below_what_waits_pauses_at_once(pair):
    ours, _ = pair
    async with endpoint(sock=ours) as (transport, protocol):
        fill(transport)

        transport.set_write_buffer_limits(high=0)

        assert protocol.events == ["made", "pause"]


class Flow(asyncio.DatagramProtocol):
    """Notes the flow of writing, and how many packets had been sent before."""

    def __init__(self):
        self.events = []
        self.sent = 0

    def pause_writing(self):
        self.events.append(("pause", self.sent))

    def resume_writing(self):
        self.events.append(("resume", self.sent))

    def connection_lost(self, exc):
        self.events.append(("lost", exc))


async def flow(create, path: str) -> list:
    """One sequence of sending and draining, on the transport that ``create`` makes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(path)  # asyncio does not send to a nameless peer
        theirs.setblocking(False)
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.connect(path)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        transport, protocol = await create(Flow, sock=ours)
        transport.set_write_buffer_limits(high=4000, low=1000)
        for _ in range(60):
            transport.sendto(bytes(1000))
            protocol.sent += 1
        await drained(theirs, 60)
        transport.sendto(b"last")
        transport.close()
        await drained(theirs, 1)
        await passes(3)
        return protocol.events


async def test_the_flow_is_that_of_asyncios_transport(tmp_path):
    def run():
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(flow(stock, str(tmp_path / "theirs")))

    ours = await flow(aiorecv.create_datagram_endpoint, str(tmp_path / "ours"))
    theirs = await asyncio.to_thread(run)

    names = ["pause", "resume", "lost"]
    assert [name for name, _ in ours] == [name for name, _ in theirs] == names
    # Some versions of asyncio count 8 bytes more for each packet, as we do, and others do not.
    assert abs(ours[0][1] - theirs[0][1]) <= 1


async def stock(make, **arguments):
    return await asyncio.get_running_loop().create_datagram_endpoint(make, **arguments)


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
