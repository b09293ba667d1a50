"""The limits of what waits to be sent, and when the protocol pauses and resumes, are asyncio's."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

import aiorecv
from tests.endpoints import drained, endpoint, fill
from tests.receiving import passes


@pytest.fixture
def pair():
    """Two connected AF_UNIX datagram sockets: the second one's queue is soon full."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


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
        theirs: Any
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


async def flow(create, path: str) -> list[tuple[str, Any]]:
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
        events: list[tuple[str, Any]] = protocol.events
        return events


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
