"""``from_fd``: packets of descriptors that are no sockets, their end, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiorecv
from tests.faults import Faults
from tests.receiving import until_waiting


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def pipe():
    """A packet pipe: the end to read, which a receiver will own, and the one to write."""
    ours, theirs = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
    theirs_file = os.fdopen(theirs, "wb", buffering=0)
    yield ours, theirs_file
    theirs_file.close()
    try:
        os.close(ours)
    except OSError:
        pass


async def everything(receiver) -> list[bytes]:
    found = []
    async for batch in receiver:
        assert set(batch.addresses()) == {None}
        found += batch.payloads()
    return found


@given(packets=st.lists(st.binary(min_size=1, max_size=300), max_size=16), slots=st.integers(1, 9))
def test_packets_come_whole_in_order_and_then_the_end(packets, slots):
    async def main():
        ours, theirs = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
        async with aiorecv.from_fd(ours, window=aiorecv.FixedWindow(slots)) as receiver:
            for data in packets:
                os.write(theirs, data)
            os.close(theirs)

            assert await everything(receiver) == packets

            seen = receiver.statistics()
            assert (seen.packets, seen.bytes) == (len(packets), len(b"".join(packets)))
            assert seen.reads == -(-len(packets) // slots)
            assert (seen.errors, seen.buffer_bytes, seen.kernel_drops) == (0, 0, 0)

    asyncio.run(main())


async def test_a_task_that_waits_hears_packets_and_the_end(pipe):
    ours, theirs = pipe
    async with aiorecv.from_fd(ours) as receiver:
        waiting = asyncio.ensure_future(everything(receiver))
        await until_waiting(waiting)
        theirs.write(b"one")
        await asyncio.sleep(0)
        theirs.write(b"two")
        theirs.close()

        assert await waiting == [b"one", b"two"]
        with pytest.raises(aiorecv.ReceiverClosedError):
            await receiver.receive()


@pytest.mark.parametrize("slot_size", [1, 7, 64, 4096])
async def test_a_packet_longer_than_a_slot_is_cut_and_marked(pipe, slot_size):
    ours, theirs = pipe
    sent = [bytes([n]) * length for n, length in enumerate([slot_size, slot_size + 1, 1])]
    window = aiorecv.FixedWindow(4)
    async with aiorecv.from_fd(ours, slot_size=slot_size, window=window) as receiver:
        for data in sent * 2:
            theirs.write(data[:4096])

        found = []
        while len(found) < 6:
            with await receiver.receive() as batch:
                found += batch.packets()

    lengths = [min(len(data), 4096) for data in sent * 2]
    assert [p.data for p in found] == [data[:slot_size] for data in sent * 2]
    assert [p.truncated for p in found] == [length > slot_size for length in lengths]
    assert [p.length for p in found] == lengths


async def test_an_error_behind_packets_comes_after_them(pipe):
    ours, theirs = pipe
    theirs.write(b"first")
    async with aiorecv.from_fd(ours, window=aiorecv.FixedWindow(4)) as receiver:
        with Faults(receiver, "recvmsg", 0, errno.EINTR, errno.EIO):
            with await receiver.receive() as batch:
                assert list(batch.payloads()) == [b"first"]
            with pytest.raises(OSError, match=r".") as raised:
                await receiver.receive()

    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("what", ["file", "directory", "write end", "stream"])
async def test_what_gives_no_packets_is_refused_and_left_alone(what, tmp_path):
    made = socket.socket()
    ends = os.pipe()
    (tmp_path / "file").touch()
    directory = os.open(tmp_path, os.O_RDONLY)
    file = os.open(tmp_path / "file", os.O_RDONLY)
    fds = {"file": file, "directory": directory, "write end": ends[1], "stream": made.fileno()}
    before = open_descriptors()

    with pytest.raises(ValueError, match=r"fd=|stream"):
        aiorecv.from_fd(fds[what])

    assert open_descriptors() == before
    os.fstat(fds[what])
    made.close()
    for fd in (*ends, directory, file):
        os.close(fd)


async def test_a_closed_descriptor_is_refused():
    ours, theirs = os.pipe()
    os.close(ours)
    os.close(theirs)

    for fd in (ours, -1):
        with pytest.raises(OSError, match="fd=") as raised:
            aiorecv.from_fd(fd)
        assert raised.value.errno == errno.EBADF


@pytest.mark.parametrize("wrong", [None, "3", 3.0, True])
async def test_what_is_no_number_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="fd is"):
        aiorecv.from_fd(wrong)


@pytest.mark.parametrize("options", [{"gro": True}, {"metadata": aiorecv.Metadata.TIMESTAMP}])
async def test_what_only_sockets_have_is_refused(pipe, options):
    with pytest.raises(ValueError, match=r"gro|metadata"):
        aiorecv.from_fd(pipe[0], **options)

    assert os.get_blocking(pipe[0])


async def test_a_sockets_descriptor_is_received_from_as_a_socket():
    with socket.socket(type=socket.SOCK_DGRAM) as sock, socket.socket(type=2) as sender:
        sock.bind(("127.0.0.1", 0))
        sender.sendto(b"hello", sock.getsockname())
        sender_name = ("127.0.0.1", sender.getsockname()[1])
        async with aiorecv.from_fd(sock.detach()) as receiver:
            assert receiver.socket.family == socket.AF_INET
            with await receiver.receive() as batch:
                assert list(batch) == [(b"hello", sender_name)]


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_detached_descriptor_is_as_it_was(pipe, blocking):
    ours, theirs = pipe
    os.set_blocking(ours, blocking)
    receiver = aiorecv.from_fd(ours)
    assert not os.get_blocking(ours)

    assert receiver.detach() == ours

    theirs.write(b"still")
    assert os.get_blocking(ours) == blocking
    assert os.read(ours, 10) == b"still"
    assert receiver.fileno() == -1


async def test_a_receiver_of_a_descriptor_has_neither_socket_nor_groups(pipe):
    async with aiorecv.from_fd(pipe[0]) as receiver:
        assert (receiver.local_addr, receiver.remote_addr) == (None, None)
        with pytest.raises(AttributeError, match="fileno"):
            _ = receiver.socket
        with pytest.raises(ValueError, match="multicast"):
            receiver.join_multicast("239.0.0.1")
        with pytest.raises(ValueError, match="multicast"):
            receiver.leave_multicast("239.0.0.1")
    with pytest.raises(OSError, match=r"."):
        os.fstat(pipe[0])


async def test_closing_wakes_who_waits(pipe):
    receiver = aiorecv.from_fd(pipe[0])
    waiting = asyncio.ensure_future(everything(receiver))
    await until_waiting(waiting)

    receiver.close()

    assert await waiting == []
