"""Descriptors passed by SCM_RIGHTS: taken through ``Packet.raw``, or closed."""

from __future__ import annotations

import array
import gc
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator

import pytest

import aiorecv
from aiorecv import Metadata
from tests.helpers import descriptors

SO_PASSPIDFD, SCM_PIDFD = 76, 4
SCM_CREDENTIALS = 2


@pytest.fixture(autouse=True)
async def nothing_leaks() -> AsyncIterator[None]:
    """As many descriptors at the end as at the beginning, on a loop that runs both times."""
    before = descriptors()
    yield
    gc.collect()
    assert descriptors() == before


@pytest.fixture(params=[socket.SOCK_DGRAM, socket.SOCK_SEQPACKET], ids=["dgram", "seqpacket"])
def ends(request) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A receiving and a sending end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, request.param)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
async def receiver(nothing_leaks, ends) -> AsyncIterator[aiorecv.Receiver]:
    """A receiver of ancillary data, which reads four packets at once."""
    window = aiorecv.FixedWindow(4)
    async with aiorecv.from_socket(ends[0], metadata=Metadata.RAW, window=window) as opened:
        yield opened


@pytest.fixture
def peer(ends: tuple[socket.socket, socket.socket]) -> socket.socket:
    return ends[1]


def send(peer: socket.socket, *counts: int) -> list[int]:
    """Send one packet for each count, with so many descriptors of pipes; returns their ends.

    The kernel holds the writing ends until they are closed where they arrive: a reading end that
    is at its end tells that they were.
    """
    reading = []
    for count in counts:
        pipes = [os.pipe() for _ in range(count)]
        if count:
            socket.send_fds(peer, [b"x"], [write for _, write in pipes])
        else:
            peer.send(b"x")
        for read, write in pipes:
            os.set_blocking(read, False)
            os.close(write)
            reading.append(read)
    return reading


def are_closed(reading: list[int]) -> list[bool]:
    """Whether the writing end of each pipe is closed everywhere."""

    def at_end(read: int) -> bool:
        try:
            return os.read(read, 1) == b""
        except BlockingIOError:
            return False

    return [at_end(read) for read in reading]


def close(*reading: int) -> None:
    for read in reading:
        os.close(read)


def passed(packet: aiorecv.Packet) -> list[int]:
    """The descriptors of one packet, the caller's to close."""
    found = array.array("i")
    for level, kind, data in packet.raw or ():
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data)
    return list(found)


async def test_descriptors_are_taken_by_packet_and_are_the_caller_s(receiver, peer):
    reading = send(peer, 1, 0, 2)

    with await receiver.receive() as batch:
        taken = [passed(packet) for packet in batch.packets()]

    assert [len(fds) for fds in taken] == [1, 0, 2]
    assert are_closed(reading) == [False] * 3
    for fds in taken:
        for fd in fds:
            # Nobody wants them in a child by accident.
            assert not os.get_inheritable(fd)
            os.write(fd, b"works")
            os.close(fd)
    assert [os.read(read, 9) for read in reading] == [b"works"] * 3
    assert are_closed(reading) == [True] * 3
    close(*reading)


@pytest.mark.parametrize("way", ["release", "drop", "close the receiver"])
async def test_descriptors_that_nobody_took_are_closed_with_the_batch(receiver, peer, way):
    reading = send(peer, 1, 2)
    batch = await receiver.receive()
    assert are_closed(reading) == [False] * 3

    if way == "release":
        batch.release()
    elif way == "close the receiver":
        receiver.close()
        assert are_closed(reading) == [False] * 3
    del batch

    assert are_closed(reading) == [True] * 3
    close(*reading)


async def test_only_the_packets_that_were_made_have_their_descriptors_taken(receiver, peer):
    reading = send(peer, 1, 1, 1)

    with await receiver.receive() as batch:
        (mine,) = passed(next(batch.packets()))

    assert are_closed(reading) == [False, True, True]
    close(mine, *reading)


async def test_asking_twice_gives_the_same_descriptors_and_closes_none(receiver, peer):
    reading = send(peer, 1)

    with await receiver.receive() as batch:
        (first,), (again,) = (passed(next(batch.packets())) for _ in range(2))

    assert first == again
    assert are_closed(reading) == [False]
    close(first, *reading)


async def test_releasing_twice_closes_nothing_of_others(receiver, peer):
    reading = send(peer, 1)
    batch = await receiver.receive()
    batch.release()

    innocent = os.pipe()  # has the number that was closed
    batch.release()
    del batch

    os.fstat(innocent[0])
    os.fstat(innocent[1])
    close(*innocent, *reading)


@pytest.mark.parametrize("take", [True, False], ids=["taken", "not taken"])
async def test_a_copy_gets_the_descriptors_and_the_batch_has_them_no_more(receiver, peer, take):
    reading = send(peer, 1, 1)
    with await receiver.receive() as batch:
        copy = batch.copy()
    assert are_closed(reading) == [False, False]

    mine = [fd for packet in copy.packets() for fd in passed(packet)] if take else []
    copy.release()

    assert are_closed(reading) == [not take] * 2
    close(*mine, *reading)


async def test_a_copy_does_not_close_what_was_taken_from_its_batch(receiver, peer):
    reading = send(peer, 1, 1)
    with await receiver.receive() as batch:
        (mine,) = passed(next(batch.packets()))
        batch.copy().release()

    assert are_closed(reading) == [False, True]
    close(mine, *reading)


async def test_of_two_copies_the_first_has_the_descriptors(receiver, peer):
    reading = send(peer, 1)
    with await receiver.receive() as batch:
        first, second = batch.copy(), batch.copy()

    second.release()
    assert are_closed(reading) == [False]

    first.copy().release()
    assert are_closed(reading) == [True]
    close(*reading)


async def test_a_copy_of_a_copy_can_be_taken_from(receiver, peer):
    reading = send(peer, 0, 1)
    with await receiver.receive() as batch, batch.copy() as copy, copy.copy() as second:
        (mine,) = [fd for packet in second.packets() for fd in passed(packet)]

    assert are_closed(reading) == [False]
    close(mine, *reading)


async def test_datagrams_close_what_they_gave_out_and_keep_the_rest(receiver, peer):
    reading = send(peer, 1, 1, 1)
    async for _ in receiver.datagrams():
        break

    with await receiver.receive() as rest:
        assert are_closed(reading) == [True, False, False]
        (second, third) = [fd for packet in rest.packets() for fd in passed(packet)]

    assert are_closed(reading) == [True, False, False]
    close(second, third, *reading)


async def test_what_a_break_left_is_closed_if_nobody_comes_for_it(receiver, peer):
    reading = send(peer, 1, 1, 1)
    async for _ in receiver.datagrams():
        break

    with receiver.receive_nowait():
        pass

    assert are_closed(reading) == [True] * 3
    close(*reading)


async def test_a_loop_closes_what_its_body_did_not_take(receiver, peer):
    reading = send(peer, 1, 1, 1, 1, 1)

    seen = 0
    async for batch in receiver:
        seen += len(batch)
        if seen == 5:
            assert are_closed(reading) == [True] * 4 + [False]
            break
    del batch

    assert are_closed(reading) == [True] * 5
    close(*reading)


@pytest.mark.parametrize("slots", [1, 4])
async def test_without_raw_all_are_closed_at_once(ends, slots):
    ours, peer = ends
    reading = send(peer, 1, 0, 3)
    async with aiorecv.from_socket(ours, window=aiorecv.FixedWindow(slots)) as receiver:
        found = [await anext(receiver.datagrams()) for _ in range(3)]

        assert found == [(b"x", None)] * 3
        assert are_closed(reading) == [True] * 4
        assert receiver.statistics().ancillary_truncated == 0
    close(*reading)


async def test_an_empty_packet_with_a_descriptor_is_a_packet_though_its_sender_is_gone(
    receiver, peer
):
    read, write = os.pipe()
    socket.send_fds(peer, [b""], [write])
    os.close(write)
    if peer.type == socket.SOCK_SEQPACKET:
        peer.close()

    with await receiver.receive() as batch:
        (packet,) = batch.packets()

    (mine,) = passed(packet)
    assert packet.data == b""
    close(mine, read)


@pytest.mark.parametrize("metadata", [Metadata.RAW, Metadata.NONE], ids=str)
async def test_more_descriptors_than_there_is_room_for_are_cut_and_counted(ends, metadata):
    ours, peer = ends
    reading = send(peer, 100, 1)
    async with aiorecv.from_socket(ours, metadata=metadata) as receiver:
        taken = []
        while receiver.statistics().packets < 2:
            with await receiver.receive() as batch:
                taken += [len(fds) for fds in map(passed, batch.packets()) if fds]
                close(*(fd for packet in batch.packets() for fd in passed(packet)))

        # 256 bytes: a header of 16, and 60 numbers of 4. The kernel closes those left over.
        assert taken == ([60, 1] if metadata else [])
        assert receiver.statistics().ancillary_truncated == 1
        assert are_closed(reading) == [True] * 101
    close(*reading)


@pytest.mark.parametrize("metadata", [Metadata.RAW, Metadata.NONE], ids=str)
async def test_the_descriptor_of_a_sender_s_process_is_one_too(ends, metadata):
    ours, peer = ends
    try:
        ours.setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, True)
    except OSError:
        pytest.skip("needs Linux 6.5, for SO_PASSPIDFD")
    async with aiorecv.from_socket(ours, metadata=metadata) as receiver:
        peer.send(b"taken, if asked for")
        with await receiver.receive() as batch:
            (packet,) = batch.packets()
        found = [(level, kind) for level, kind, _ in packet.raw or ()]
        close(*(int.from_bytes(data, "little") for _, _, data in packet.raw or ()))

        peer.send(b"not taken")
        (await receiver.receive()).release()

    assert found == ([(socket.SOL_SOCKET, SCM_PIDFD)] if metadata else [])


@pytest.mark.parametrize("take", [True, False], ids=["taken", "not taken"])
async def test_what_else_comes_with_descriptors_is_none(ends, take):
    ours, peer = ends
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, True)
    reading = send(peer, 0, 1)
    credentials = struct.pack("=3i", os.getpid(), os.getuid(), os.getgid())
    async with aiorecv.from_socket(ours, metadata=Metadata.RAW) as receiver:
        raw, mine = [], []
        while receiver.statistics().packets < 2:
            with await receiver.receive() as batch:
                for packet in batch.packets() if take else ():
                    raw.append({(level, kind): data for level, kind, data in packet.raw})
                    mine += passed(packet)

    sent_by = (socket.SOL_SOCKET, SCM_CREDENTIALS)
    assert [found.get(sent_by) for found in raw] == ([credentials] * 2 if take else [])
    assert are_closed(reading) == [not take]
    close(*mine, *reading)
