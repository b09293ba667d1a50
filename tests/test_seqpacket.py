"""AF_UNIX packets in sequence (SOCK_SEQPACKET): they come, and a peer that hangs up is the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

import aiorecv
from tests.receiving import until_waiting


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A receiving and a sending end of packets in sequence."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "packets", [[], [b"a"], [b"a", b"b", b"c"], [b"", b"", b"", b"d"]], ids=str
)
async def test_packets_come_and_a_peer_that_hangs_up_is_the_end(pair, slots, packets):
    ours, theirs = pair
    async with aiorecv.from_socket(ours, window=aiorecv.FixedWindow(slots)) as receiver:
        for data in packets:
            theirs.send(data)
        theirs.close()

        found = [data async for batch in receiver for data, _ in batch]

        seen = receiver.statistics()
        assert found == packets
        assert (seen.packets, seen.bytes) == (len(packets), len(b"".join(packets)))
        # The end is neither a read nor an error.
        assert seen.reads == -(-len(packets) // slots)
        assert seen.full_reads == len(packets) // slots
        assert seen.polled_reads + seen.immediate_reads == seen.reads
        assert (seen.errors, seen.buffer_bytes) == (0, 0)
        with pytest.raises(aiorecv.ReceiverClosedError):
            await receiver.receive()


async def test_what_is_left_before_the_end_is_whole(pair):
    ours, theirs = pair
    async with aiorecv.from_socket(ours, window=aiorecv.FixedWindow(4)) as receiver:
        theirs.send(b"last")
        theirs.close()

        with await receiver.receive() as batch:
            assert (len(batch), batch.full, batch.slots, batch.nbytes) == (1, False, 4, 4)
            assert list(batch) == [batch[0]] == [(b"last", None)]
            assert [packet.data for packet in batch.packets()] == [b"last"]
            assert list(batch.copy()) == [(b"last", None)]


async def test_an_empty_packet_of_a_peer_that_stays_is_a_packet(pair):
    ours, theirs = pair
    async with aiorecv.from_socket(ours) as receiver:
        theirs.send(b"")

        with await receiver.receive() as batch:
            assert list(batch) == [(b"", None)]


@pytest.mark.parametrize(
    "end",
    [lambda sock: sock.close(), lambda sock: sock.shutdown(socket.SHUT_WR)],
    ids=["close", "shutdown"],
)
async def test_a_task_that_waits_is_told_of_the_end(pair, end: Callable[[socket.socket], None]):
    ours, theirs = pair
    async with aiorecv.from_socket(ours) as receiver:
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)

        end(theirs)

        with pytest.raises(aiorecv.ReceiverClosedError):
            await task
        assert ours.fileno() == -1
