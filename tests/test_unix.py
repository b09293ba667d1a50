"""AF_UNIX datagram sockets, by path and by abstract name."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import uuid
from pathlib import Path

import pytest

import aiorecv
from tests.helpers import descriptors


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "socket")


def unix() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def exists(path: str) -> bool:
    return os.path.lexists(path)


def put_socket(path: str) -> None:
    """A socket file that nobody has open."""
    with unix() as sock:
        sock.bind(path)


def put_text(path: str) -> None:
    Path(path).write_text("precious")


def text(path: str) -> str:
    return Path(path).read_text()


def send(to: str | bytes, *packets: bytes, name: str | bytes = b"") -> None:
    """Send packets from a socket bound to ``name``, if one is given."""
    with unix() as sock:
        if name:
            sock.bind(name)
        for data in packets:
            sock.sendto(data, to)


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
    assert not exists(path)


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
    names = [str(tmp_path / "peer"), str(tmp_path / "caf\udce9"), abstract(), ""]
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
    put_socket(path)
    assert exists(path)

    async with aiorecv.open_unix(path) as receiver:
        send(path, b"x")

        with await receiver.receive() as batch:
            assert batch.payloads()[0] == b"x"


async def test_a_file_that_is_no_socket_is_left_alone(path):
    put_text(path)
    before = descriptors()

    with pytest.raises(OSError, match="path='") as raised:
        await aiorecv.open_unix(path)

    assert raised.value.errno == errno.EADDRINUSE
    assert text(path) == "precious"
    assert descriptors() == before


@pytest.mark.parametrize("put", [put_socket, put_text], ids=["socket", "file"])
async def test_a_file_that_somebody_put_in_its_place_is_not_removed(path, put):
    receiver = await aiorecv.open_unix(path)
    os.unlink(path)
    put(path)

    receiver.close()

    assert exists(path)


async def test_closing_without_its_file_is_fine(path):
    receiver = await aiorecv.open_unix(path)
    os.unlink(path)

    receiver.close()


async def test_a_detached_socket_keeps_its_file(path):
    receiver = await aiorecv.open_unix(path)

    with receiver.detach() as sock:
        send(path, b"x")

        assert sock.recv(9) == b"x"
    assert exists(path)


async def test_a_receiver_that_was_dropped_removes_its_file(path):
    receiver = await aiorecv.open_unix(path)

    with pytest.warns(ResourceWarning, match="unclosed"):
        del receiver

    assert not exists(path)


async def test_an_opening_that_fails_leaves_neither_descriptor_nor_file(path):
    window = aiorecv.AdaptiveWindow()
    async with aiorecv.open_unix(path + ".first", window=window):
        before = descriptors()

        with pytest.raises(ValueError, match="serves another receiver"):
            await aiorecv.open_unix(path, window=window)

        assert descriptors() == before
    assert not exists(path)


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

    assert not exists(path)


async def test_a_path_that_no_encoding_has_leaks_nothing(tmp_path):
    before = descriptors()

    with pytest.raises(UnicodeEncodeError):
        await aiorecv.open_unix(f"{tmp_path}/\ud800")

    assert descriptors() == before


async def test_an_abstract_name_that_no_encoding_has_leaks_nothing():
    before = descriptors()

    with pytest.raises(UnicodeEncodeError) as raised:
        await aiorecv.open_unix(abstract() + "\ud800")

    assert raised.value.object.endswith("\ud800")
    assert descriptors() == before


async def test_an_opening_by_an_abstract_name_that_fails_leaves_the_name_free():
    name = abstract()

    with pytest.raises(ValueError, match="gro=True"):
        await aiorecv.open_unix(name, gro=True)

    assert not in_use(name)
