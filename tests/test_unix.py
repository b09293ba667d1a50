"""AF_UNIX: datagram sockets by path and by abstract name, and sockets of packets in sequence."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
import struct
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import aiorecv
from tests.helpers import descriptors
from tests.receiving import until_waiting


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "socket")


def unix(kind: int = socket.SOCK_DGRAM) -> socket.socket:
    return socket.socket(socket.AF_UNIX, kind)


def send(to: str | bytes | os.PathLike[str], *packets: bytes, name: str | bytes = b"") -> None:
    """Send packets from a socket bound to ``name``, if one is given."""
    with unix() as sock:
        if name:
            sock.bind(name)
        for data in packets:
            sock.sendto(data, os.fspath(to))


def in_use(name: str | bytes) -> bool:
    """Whether a socket is bound to ``name`` exactly."""
    with unix() as sock:
        try:
            sock.connect(name)
        except ConnectionRefusedError:
            return False
        return True


def abstract() -> str:
    """A name that nobody else has."""
    return f"\0aiorecv {uuid.uuid4()}"


# --- names


@pytest.mark.parametrize("kind", [str, Path, os.fsencode], ids=["str", "PathLike", "bytes"])
async def test_packets_come_by_a_path_and_its_file_goes_at_close(path, kind):
    async with aiorecv.open_unix(kind(path)) as receiver:
        send(path, b"one", b"", b"three")

        found = [pair for _ in range(3) for pair in [await anext(receiver.datagrams())]]

        assert found == [(b"one", None), (b"", None), (b"three", None)]
        assert receiver.local_addr == path
        assert receiver.remote_addr is None
    assert not os.path.lexists(path)


@pytest.mark.parametrize("kind", [str, os.fsencode], ids=["str", "bytes"])
async def test_an_abstract_name_is_exactly_as_long_as_it_is_given(kind):
    name = kind(abstract())
    async with aiorecv.open_unix(name) as receiver:
        send(name, b"x")

        with await receiver.receive() as batch:
            assert list(batch) == [(b"x", None)]
        assert receiver.local_addr == os.fsencode(name)
        assert in_use(name)
        assert not in_use(os.fsencode(name) + b"\0")
    assert not in_use(name)


@pytest.mark.parametrize("length", [1, 2, 107])
async def test_a_sender_with_an_abstract_name_has_all_its_bytes(path, length):
    # A name may have any bytes, NULs at its end too, and fill all of sun_path.
    name = b"\0" + os.urandom(length - 1) + b"\0"
    async with aiorecv.open_unix(path) as receiver:
        send(path, b"x", name=name)

        with await receiver.receive() as batch:
            assert list(batch) == [(b"x", name)]


async def test_senders_have_the_addresses_that_recvfrom_gives(tmp_path, path):
    names = [str(tmp_path / "peer"), str(tmp_path / "caf\udce9"), abstract(), b""]
    with unix() as twin:
        twin.bind(path + ".twin")
        expected = []
        for name in names:
            send(path + ".twin", b"x", name=name)
            expected.append(twin.recvfrom(9))
            if name and not name.startswith("\0"):
                os.unlink(name)
    async with aiorecv.open_unix(path) as receiver:
        for name in names:
            send(path, b"x", name=name)

        found = [await anext(receiver.datagrams()) for _ in names]

    assert found == expected
    assert [type(addr) for _, addr in found] == [str, str, bytes, type(None)]


async def test_a_sender_s_path_may_fill_all_of_its_room(tmp_path, path):
    directory = os.open(tmp_path, os.O_PATH)
    # 108 bytes: there is no room for a NUL at the end, which Python would not let out.
    name = f"/proc/self/fd/{directory}/".encode().ljust(108, b"s")
    try:
        async with aiorecv.open_unix(path) as receiver:
            with unix() as sock:
                bind_exactly(sock, name)
                sock.sendto(b"x", path)

            with await receiver.receive() as batch:
                assert batch.addresses() == [os.fsdecode(name)]
    finally:
        os.close(directory)


def bind_exactly(sock: socket.socket, name: bytes) -> None:
    """Bind to a path that Python takes for too long."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = struct.pack("=H", socket.AF_UNIX) + name
    assert libc.bind(sock.fileno(), address, len(address)) == 0, ctypes.get_errno()


async def test_a_datagram_of_200_kb_comes_whole(path):
    data = os.urandom(200_000)
    async with aiorecv.open_unix(path) as receiver:
        with unix() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            sock.sendto(data, path)

        with await receiver.receive() as batch:
            (packet,) = batch.packets()

        assert (packet.data, packet.length, packet.truncated) == (data, 200_000, False)


async def test_a_datagram_larger_than_a_slot_is_cut_and_marked(path):
    async with aiorecv.open_unix(path, slot_size=100) as receiver:
        send(path, bytes(101))

        with await receiver.receive() as batch:
            (packet,) = batch.packets()

        assert (len(packet.data), packet.length, packet.truncated) == (100, 101, True)
        assert receiver.statistics().truncated == 1


# --- files


async def test_a_socket_file_that_was_left_is_replaced(path):
    with unix() as sock:
        sock.bind(path)
    assert os.path.exists(path)

    async with aiorecv.open_unix(path) as receiver:
        send(path, b"x")

        with await receiver.receive() as batch:
            assert batch.payloads()[0] == b"x"


async def test_a_file_that_is_no_socket_is_left_alone(path):
    Path(path).write_text("precious")
    before = descriptors()

    with pytest.raises(OSError, match="path='") as raised:
        await aiorecv.open_unix(path)

    assert raised.value.errno == errno.EADDRINUSE
    assert Path(path).read_text() == "precious"
    assert descriptors() == before


@pytest.mark.parametrize("replace", [unix, lambda: None], ids=["socket", "file"])
async def test_a_file_that_somebody_put_in_its_place_is_not_removed(path, replace):
    receiver = await aiorecv.open_unix(path)
    os.unlink(path)
    other = replace()
    if other is None:
        Path(path).touch()
    else:
        with other:
            other.bind(path)

    receiver.close()

    assert os.path.exists(path)


async def test_closing_without_its_file_is_fine(path):
    receiver = await aiorecv.open_unix(path)
    os.unlink(path)

    receiver.close()


async def test_a_detached_socket_keeps_its_file(path):
    receiver = await aiorecv.open_unix(path)

    with receiver.detach() as sock:
        send(path, b"x")

        assert sock.recv(9) == b"x"
    assert os.path.exists(path)


async def test_a_receiver_that_was_dropped_removes_its_file(path):
    receiver = await aiorecv.open_unix(path)

    with pytest.warns(ResourceWarning, match="unclosed"):
        del receiver

    assert not os.path.exists(path)


async def test_an_opening_that_fails_leaves_neither_descriptor_nor_file(path):
    window = aiorecv.AdaptiveWindow()
    async with aiorecv.open_unix(path + ".first", window=window):
        before = descriptors()

        with pytest.raises(ValueError, match="serves another receiver"):
            await aiorecv.open_unix(path, window=window)

        assert descriptors() == before
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("name", "number"), [("nowhere/socket", errno.ENOENT), ("x" * 109, None)], ids=["none", "long"]
)
async def test_a_path_that_can_not_be_bound_is_an_error_that_names_it(tmp_path, name, number):
    before = descriptors()

    with pytest.raises(OSError, match=r"path='?.*can't be bound|too long") as raised:
        await aiorecv.open_unix(str(tmp_path / name))

    assert raised.value.errno == number
    assert descriptors() == before


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"path": 7}, TypeError, "expected str, bytes or os.PathLike"),
        ({"path": ""}, ValueError, "path is empty"),
        ({"path": b""}, ValueError, "path is empty"),
        ({"path": "p", "gro": 1}, TypeError, "gro is"),
        ({"path": "p", "slot_size": 0}, ValueError, "slot_size=0"),
    ],
)
def test_wrong_arguments_are_told_at_once(arguments, error, said):
    with pytest.raises(error, match=said):
        aiorecv.open_unix(**arguments)


async def test_gro_can_not_be_insisted_on(path):
    with pytest.raises(ValueError, match="gro=True: only UDP sockets have it"):
        await aiorecv.open_unix(path, gro=True)

    assert not os.path.exists(path)


# --- packets in sequence


@pytest.fixture
def pair():
    """A receiving and a sending end of packets in sequence."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
@pytest.mark.parametrize("packets", [[], [b"a"], [b"a", b"b", b"c"], [b"", b"", b"", b"d"]], ids=str)
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
