"""Sockets of the user's own: taken as they are, given back as they were."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import aiorecv
from aiorecv._memory import memory_of
from tests.helpers import UDP_GRO, descriptors, send

LOCAL = ("127.0.0.1", 0)


@pytest.fixture
async def nothing_leaks() -> AsyncIterator[None]:
    """As many descriptors at the end as at the beginning, on a loop that runs both times."""
    before = descriptors()
    yield
    assert descriptors() == before


def slabs() -> int:
    return len(memory_of(asyncio.get_running_loop()).pool.slabs)


def state(sock: socket.socket) -> tuple[Any, ...]:
    """What a failing call has to leave alone."""
    gro = sock.getsockopt(socket.IPPROTO_UDP, UDP_GRO) if sock.proto else None
    return sock.fileno(), os.get_blocking(sock.fileno()), sock.gettimeout(), gro


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP) as made:
        made.bind(LOCAL)
        yield made


MAKERS: list[Callable[[], socket.socket]] = [
    lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
    lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
]


@pytest.mark.parametrize("make", MAKERS)
async def test_stream_is_refused_and_left_alone(nothing_leaks, make):
    with make() as sock:
        before = state(sock)

        with pytest.raises(ValueError, match="sock"):
            aiorecv.from_socket(sock)

        assert state(sock) == before
    assert slabs() == 0


async def test_closed_socket_is_refused(nothing_leaks, udp):
    udp.close()

    with pytest.raises(OSError, match="sock is closed") as raised:
        aiorecv.from_socket(udp)

    assert raised.value.errno == errno.EBADF


async def test_socket_whose_descriptor_was_closed_behind_it_is_refused(udp):
    os.close(udp.fileno())

    with pytest.raises(OSError, match=r".") as raised:
        aiorecv.from_socket(udp)
    udp.detach()

    assert raised.value.errno == errno.EBADF


@pytest.mark.parametrize("wrong", [None, 3, "socket", object()])
async def test_what_is_no_socket_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="sock"):
        aiorecv.from_socket(wrong)


def test_given_socket_needs_a_running_loop(udp):
    before = state(udp)

    with pytest.raises(RuntimeError, match="no running event loop"):
        aiorecv.from_socket(udp)

    assert state(udp) == before


class Fickle:
    """A policy that asks for too many slots after some good answers."""

    maximum = 4

    def __init__(self, good_answers: int) -> None:
        self.good_answers = good_answers

    @property
    def slots(self) -> int:
        self.good_answers -= 1
        return 4 if self.good_answers >= 0 else 5

    def record(self, *, received: int, polled: bool) -> None: ...


async def test_whenever_a_policy_fails_the_socket_is_left_unchanged(udp, monkeypatch):
    monkeypatch.delenv("AIORECV_GRO", raising=False)
    before = state(udp), descriptors()
    failures = 0

    for good_answers in range(100):
        try:
            receiver = aiorecv.from_socket(udp, window=Fickle(good_answers), gro=True)
        except ValueError:
            failures += 1
            assert (state(udp), descriptors()) == before
        else:
            receiver.close()
            break

    assert failures == good_answers > 0


async def test_socket_that_a_transport_has_is_refused_and_goes_on_working(udp):
    heard = asyncio.get_running_loop().create_future()

    class Protocol(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            heard.set_result(data)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Protocol, sock=udp)
    address = udp.getsockname()

    with pytest.raises(RuntimeError, match="transport"):
        aiorecv.from_socket(udp)
    udp.sendto(b"still", address)

    assert await heard == b"still"
    transport.close()
    await asyncio.sleep(0)


async def test_receiver_closes_the_socket_it_was_given(udp):
    async with aiorecv.from_socket(udp) as receiver:
        assert receiver.socket is udp
        assert receiver.local_addr == udp.getsockname()

    assert udp.fileno() == -1


# --- loops


class NoReaders(asyncio.SelectorEventLoop):
    """A loop as Windows' proactor loop is, which can't watch descriptors."""

    def add_reader(self, *_: Any) -> None:  # type: ignore[override]  # it takes anything
        raise NotImplementedError

    def remove_reader(self, *_: Any) -> bool:
        raise NotImplementedError


def test_loop_that_can_not_watch_descriptors_is_refused(udp):
    before = state(udp), descriptors()

    async def main() -> None:
        with pytest.raises(TypeError, match="NoReaders has no add_reader"):
            await aiorecv.open_udp(LOCAL)
        with pytest.raises(TypeError, match="NoReaders has no add_reader"):
            aiorecv.from_socket(udp)

    with asyncio.Runner(loop_factory=NoReaders) as runner:
        runner.run(main())

    assert (state(udp), descriptors()) == before


# --- detach


@pytest.mark.parametrize("blocking", [True, False])
async def test_detached_socket_is_as_it_was(udp, blocking):
    udp.setblocking(blocking)
    timeout = udp.gettimeout()
    receiver = aiorecv.from_socket(udp)
    # A wait, since it is by watching it that a loop may change a descriptor.
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)
    send(receiver, b"one")
    with await waiting as batch:
        assert list(batch.payloads()) == [b"one"]

    assert receiver.detach() is udp

    assert os.get_blocking(udp.fileno()) == blocking
    assert udp.gettimeout() == timeout
    send(receiver, b"two")
    assert udp.recv(10) == b"two"
    with pytest.raises(aiorecv.ReceiverClosedError):
        await receiver.receive()
    with pytest.raises(aiorecv.ReceiverClosedError):
        receiver.detach()


async def test_detached_socket_can_be_received_from_again(udp):
    aiorecv.from_socket(udp).detach()

    async with aiorecv.from_socket(udp) as receiver:
        send(receiver, b"again")
        with await receiver.receive() as batch:
            assert list(batch.payloads()) == [b"again"]

    assert udp.fileno() == -1
