"""GRO on and off: by option, by environment, and undone by ``detach()``."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import aiorecv
from tests.helpers import UDP_GRO, OldKernelSocket, descriptors, send

LOCAL = ("127.0.0.1", 0)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(LOCAL)
        yield made


@pytest.fixture
def gro_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIORECV_GRO", raising=False)


def gro_of(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_UDP, UDP_GRO)


@pytest.mark.parametrize("slot_size", [1, 2048, 65_534])
async def test_gro_with_slots_too_small_for_a_train_is_refused(sock, gro_allowed, slot_size):
    before = descriptors(), gro_of(sock)

    with pytest.raises(ValueError, match=r"slot_size=\d+ .*gro=False"):
        aiorecv.from_socket(sock, gro=True, slot_size=slot_size)
    with pytest.raises(ValueError, match=r"slot_size=\d+ .*gro=False"):
        await aiorecv.open_udp(LOCAL, gro=True, slot_size=slot_size)

    assert (descriptors(), gro_of(sock)) == before


async def test_socket_that_has_gro_on_refuses_slots_too_small(sock, gro_allowed):
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, True)

    with pytest.raises(ValueError, match="slot_size"):
        aiorecv.from_socket(sock, slot_size=2048)

    assert gro_of(sock)
    aiorecv.from_socket(sock, slot_size=2048, gro=False).close()


@pytest.mark.parametrize(
    ("options", "on"),
    [
        ({}, True),
        ({"gro": None, "slot_size": 65_535}, True),
        ({"slot_size": 65_534}, False),
        ({"gro": False}, False),
        ({"gro": True}, True),
    ],
)
async def test_own_socket_has_gro_where_a_slot_can_hold_a_train(gro_allowed, options, on):
    async with aiorecv.open_udp(LOCAL, **options) as receiver:
        assert gro_of(receiver.socket) == on


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("gro", [None, True, False])
async def test_given_socket_keeps_its_gro_unless_told_and_gets_it_back(
    sock, gro_allowed, before, gro
):
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, before)

    receiver = aiorecv.from_socket(sock, gro=gro)
    assert gro_of(sock) == (before if gro is None else gro)

    assert receiver.detach() is sock
    assert gro_of(sock) == before


@pytest.mark.parametrize("gro", [None, False])
async def test_environment_turns_gro_off(sock, monkeypatch, gro):
    monkeypatch.setenv("AIORECV_GRO", "0")
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, True)

    async with aiorecv.open_udp(LOCAL, gro=gro) as receiver:
        assert not gro_of(receiver.socket)
    receiver = aiorecv.from_socket(sock, gro=gro)
    assert not gro_of(sock)
    receiver.detach()

    assert gro_of(sock)


async def test_environment_forbids_insisting_on_gro(sock, monkeypatch):
    monkeypatch.setenv("AIORECV_GRO", "0")
    before = descriptors()

    with pytest.raises(ValueError, match=r"gro=True.*AIORECV_GRO=0"):
        await aiorecv.open_udp(LOCAL, gro=True)
    with pytest.raises(ValueError, match=r"gro=True.*AIORECV_GRO=0"):
        aiorecv.from_socket(sock, gro=True)

    assert descriptors() == before
    assert not gro_of(sock)


@pytest.mark.parametrize("value", ["", "1", "off"])
async def test_environment_says_0_to_turn_gro_off_and_nothing_else(monkeypatch, value):
    monkeypatch.setenv("AIORECV_GRO", value)

    async with aiorecv.open_udp(LOCAL) as receiver:
        assert gro_of(receiver.socket)


@pytest.mark.parametrize("gro", [None, False])
async def test_kernel_without_gro_or_drop_counters_still_receives(gro_allowed, gro):
    with OldKernelSocket(socket.AF_INET, socket.SOCK_DGRAM) as old:
        old.bind(LOCAL)

        receiver = aiorecv.from_socket(old, gro=gro)
        send(receiver, b"data")
        with await receiver.receive() as batch:
            assert list(batch.payloads()) == [b"data"]

        assert receiver.statistics().kernel_drops == 0
        assert receiver.detach() is old


async def test_insisting_on_gro_tells_of_a_kernel_that_lacks_it(gro_allowed):
    with OldKernelSocket(socket.AF_INET, socket.SOCK_DGRAM) as old:
        with pytest.raises(OSError, match=r"gro=True: .*Linux 5\.0"):
            aiorecv.from_socket(old, gro=True)

        assert old.fileno() != -1


async def test_own_socket_on_a_kernel_without_gro_still_receives(gro_allowed, monkeypatch):
    monkeypatch.setattr(socket, "socket", OldKernelSocket)

    async with aiorecv.open_udp(LOCAL) as receiver:
        assert type(receiver.socket) is OldKernelSocket
        send(receiver, b"data")
        with await receiver.receive() as batch:
            assert list(batch.payloads()) == [b"data"]
