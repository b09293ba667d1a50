"""Openers: sockets set up as asked, and bad arguments told at once, at no cost."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import aiorecv
from aiorecv._memory import memory_of
from tests.helpers import descriptors, send

LOCAL = ("127.0.0.1", 0)


@pytest.fixture
async def nothing_leaks() -> AsyncIterator[None]:
    """As many descriptors at the end as at the beginning, on a loop that runs both times."""
    before = descriptors()
    yield
    assert descriptors() == before


def slabs() -> int:
    return len(memory_of(asyncio.get_running_loop()).pool.slabs)


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP) as made:
        made.bind(LOCAL)
        yield made


# --- ways to open


async def test_opening_can_be_awaited_or_entered():
    receiver = await aiorecv.open_udp(LOCAL)
    assert isinstance(receiver, aiorecv.Receiver)
    receiver.close()

    async with aiorecv.open_udp(LOCAL) as receiver:
        assert receiver.fileno() >= 0
    assert receiver.fileno() == -1


async def test_port_zero_is_chosen_by_the_kernel_and_told():
    async with aiorecv.open_udp(LOCAL) as receiver:
        assert receiver.local_addr == receiver.socket.getsockname()
        assert receiver.local_addr is not None
        assert receiver.local_addr[1] != 0
        assert receiver.remote_addr is None


async def test_remote_address_lets_its_packets_through_alone(udp):
    async with aiorecv.open_udp(remote_addr=udp.getsockname()) as receiver:
        assert receiver.remote_addr == udp.getsockname()
        send(receiver, b"stranger")
        udp.sendto(b"friend", receiver.socket.getsockname())

        with await receiver.receive() as batch:
            assert list(batch) == [(b"friend", udp.getsockname())]


async def test_local_and_remote_address_bind_and_connect(udp):
    opening = aiorecv.open_udp(("127.0.0.9", 0), remote_addr=udp.getsockname())
    async with opening as receiver:
        assert isinstance(receiver.local_addr, tuple)
        assert receiver.local_addr[0] == "127.0.0.9"
        assert receiver.remote_addr == udp.getsockname()

        receiver.socket.send(b"request")
        assert udp.recvfrom(10) == (b"request", receiver.local_addr)


async def test_double_colon_takes_both_families():
    async with aiorecv.open_udp(("::", 0)) as receiver:
        assert isinstance(receiver.local_addr, tuple)
        port = receiver.local_addr[1]
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.sendto(host.encode(), (host, port))

        got: dict[bytes, str] = {}
        while len(got) < 2:
            with await receiver.receive() as batch:
                got |= {data: addr[0] for data, addr in batch if isinstance(addr, tuple)}

        assert got == {b"127.0.0.1": "::ffff:127.0.0.1", b"::1": "::1"}


@pytest.mark.parametrize(
    ("addr", "family", "expected"),
    [
        (("127.0.0.1", 0), socket.AF_INET, "127.0.0.1"),
        (("::1", 0), socket.AF_INET6, "::1"),
        (("::1", 0, 0, 0), 0, "::1"),
        (("", 0), socket.AF_INET, "0.0.0.0"),
        ((None, 0), socket.AF_INET, "0.0.0.0"),
        (("127.0.0.1", 0), socket.AF_INET6, "::ffff:127.0.0.1"),
        (("localhost", 0), socket.AF_INET, "127.0.0.1"),
    ],
)
async def test_hosts_are_those_of_getaddrinfo(addr, family, expected):
    async with aiorecv.open_udp(addr, family=family) as receiver:
        assert isinstance(receiver.local_addr, tuple)
        assert receiver.local_addr[0] == expected


async def test_mapped_remote_address_works(udp):
    remote = ("::ffff:127.0.0.1", udp.getsockname()[1])
    async with aiorecv.open_udp(remote_addr=remote) as receiver:
        receiver.socket.send(b"request")
        _, addr = udp.recvfrom(10)
        udp.sendto(b"answer", addr)

        with await receiver.receive() as batch:
            assert list(batch) == [(b"answer", (*remote, 0, 0))]


async def test_broadcast_needs_its_option_and_has_a_name(nothing_leaks):
    async with aiorecv.open_udp(LOCAL, allow_broadcast=True) as receiver:
        assert receiver.socket.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
    async with aiorecv.open_udp(LOCAL) as receiver:
        assert not receiver.socket.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)

    async with aiorecv.open_udp(
        ("0.0.0.0", 0), remote_addr=("<broadcast>", 9), allow_broadcast=True
    ) as receiver:
        assert receiver.remote_addr == ("255.255.255.255", 9)
    with pytest.raises(PermissionError, match=r"remote_addr=.*allow_broadcast=True"):
        await aiorecv.open_udp(("0.0.0.0", 0), remote_addr=("<broadcast>", 9))


async def test_port_in_use_is_refused_unless_all_share_it(nothing_leaks):
    async with aiorecv.open_udp(LOCAL) as receiver:
        taken: Any = receiver.local_addr
        for reuse_port in (False, True):
            with pytest.raises(OSError, match=r"local_addr=.*reuse_port=True") as raised:
                await aiorecv.open_udp(taken, reuse_port=reuse_port)
            assert raised.value.errno == errno.EADDRINUSE

    async with aiorecv.open_udp(LOCAL, reuse_port=True) as one:
        shared: Any = one.local_addr
        async with aiorecv.open_udp(shared, reuse_port=True) as other:
            assert other.local_addr == shared
            with pytest.raises(OSError, match="local_addr"):
                await aiorecv.open_udp(shared)


# --- bad arguments


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({}, ValueError, "local_addr.*remote_addr"),
        ({"local_addr": "127.0.0.1"}, TypeError, "local_addr"),
        ({"local_addr": ["127.0.0.1", 0]}, TypeError, "local_addr"),
        ({"local_addr": ("127.0.0.1",)}, TypeError, "local_addr"),
        ({"local_addr": ("127.0.0.1", 0, 0)}, TypeError, "local_addr"),
        ({"local_addr": (1, 0)}, TypeError, "local_addr"),
        ({"local_addr": ("127.0.0.1", "9")}, TypeError, "local_addr"),
        ({"local_addr": ("127.0.0.1", -1)}, ValueError, "local_addr"),
        ({"local_addr": ("127.0.0.1", 65_536)}, ValueError, "local_addr"),
        ({"local_addr": ("::1", 0, "0", 0)}, TypeError, "local_addr"),
        ({"remote_addr": 9}, TypeError, "remote_addr"),
        ({"remote_addr": ("127.0.0.1", None)}, TypeError, "remote_addr"),
        ({"remote_addr": ("127.0.0.1", 65_536)}, ValueError, "remote_addr"),
        ({"family": socket.AF_UNIX}, ValueError, "family"),
        ({"family": "inet"}, (TypeError, ValueError), "family"),
        ({"reuse_port": "yes"}, TypeError, "reuse_port"),
        ({"allow_broadcast": 1}, TypeError, "allow_broadcast"),
        ({"receive_buffer_size": 0}, ValueError, "receive_buffer_size"),
        ({"receive_buffer_size": 2**30}, ValueError, "receive_buffer_size"),
        ({"receive_buffer_size": 1e6}, TypeError, "receive_buffer_size"),
        ({"receive_buffer_size": True}, TypeError, "receive_buffer_size"),
    ],
)
def test_wrong_argument_is_refused_at_the_call_by_name(arguments, error, match):
    if arguments and "remote_addr" not in arguments:
        arguments = {"local_addr": LOCAL} | arguments
    before = descriptors()

    with pytest.raises(error, match=match):
        aiorecv.open_udp(**arguments)

    assert descriptors() == before


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"local_addr": ("no-such-host.invalid", 0)}, r"local_addr=\('no-such-host.*resolve"),
        ({"remote_addr": ("no-such-host.invalid", 9)}, r"remote_addr=\('no-such-host.*resolve"),
        ({"local_addr": ("::1", 0), "family": socket.AF_INET}, r"local_addr=\('::1'"),
        ({"local_addr": LOCAL, "remote_addr": ("::1", 9)}, r"remote_addr=\('::1'"),
        ({"local_addr": ("192.0.2.1", 0)}, r"local_addr=.*address of this host"),
        ({"local_addr": ("x" * 64 + ".invalid", 0)}, "local_addr"),
        ({"local_addr": ("nul\0byte", 0)}, "local_addr"),
        ({"local_addr": ("127.0.0.1", 0, 0, 0)}, "local_addr"),
    ],
    ids=["local", "remote", "family", "mixed", "foreign", "long label", "NUL", "4 of IPv4"],
)
async def test_address_that_can_not_be_had_is_told_by_name_and_leaks_nothing(
    nothing_leaks, arguments, match
):
    with pytest.raises((OSError, ValueError, TypeError), match=match):
        await aiorecv.open_udp(**arguments)

    assert slabs() == 0


async def test_error_of_an_address_is_the_kernels_own(nothing_leaks):
    with pytest.raises(socket.gaierror) as unresolved:
        await aiorecv.open_udp(("no-such-host.invalid", 0))
    assert unresolved.value.errno in {socket.EAI_NONAME, socket.EAI_AGAIN}

    with pytest.raises(OSError, match="local_addr") as foreign:
        await aiorecv.open_udp(("192.0.2.1", 0))
    assert foreign.value.errno == errno.EADDRNOTAVAIL


async def test_cancelled_opening_leaks_nothing():
    before = descriptors()
    opening = asyncio.ensure_future(_await(aiorecv.open_udp(("no-such-host.invalid", 0))))
    await asyncio.sleep(0)
    opening.cancel()

    with pytest.raises(asyncio.CancelledError):
        await opening

    # The resolver's thread goes on by itself, and ends with its own descriptors closed.
    while descriptors() != before:
        await asyncio.sleep(0.01)


async def _await(opening: Any) -> aiorecv.Receiver:
    receiver: aiorecv.Receiver = await opening
    return receiver


async def test_each_receiver_has_a_peak_window_of_its_own_unless_it_is_given_another():
    async with aiorecv.open_udp(("127.0.0.1", 0)) as one, aiorecv.open_udp(("127.0.0.1", 0)) as two:
        assert isinstance(one.window, aiorecv.PeakWindow)
        assert (one.window.slots, one.window.maximum) == (8, 112)
        assert one.window is not two.window


async def test_an_iteration_is_its_own_iterator(receiver, sender):
    sender.send(b"x")

    batches = aiter(receiver)

    assert aiter(batches) is batches
    assert len(await anext(batches)) == 1


async def test_an_opening_that_fails_by_no_error_of_the_kernel_leaks_nothing(nothing_leaks):
    # Python refuses a flow label of more than 20 bits, once the socket is there.
    with pytest.raises(OverflowError, match="flowinfo"):
        await aiorecv.open_udp(("::1", 0, 1 << 20, 0))
