"""Outlets, on which senders and endpoints stand: one packet at a time, without waiting."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from aiorecv._memory import memory_of
from aiorecv._outlet import Outlet
from tests.sending import OK, SendFaults, errnos, queued, udp


class Owner:
    """Whoever has an outlet."""

    def __init__(self, sock: socket.socket) -> None:
        self._outlet = Outlet(sock, memory_of(asyncio.get_running_loop()))
        self.errors: list[OSError] = []

    def one(self, data: object, addr: object) -> bool:
        return self._outlet.one(data, addr, self.errors.append)

    def check(self, data: object, addr: object) -> bytes:
        return self._outlet.check(data, addr)

    def faults(self, *script: int) -> SendFaults:
        return SendFaults(self, "sendmsg", *script)

    def statistics(self):
        return self._outlet.statistics(dropped=3)


@pytest.fixture
def route():
    """A socket to send on, one to send to, and its address."""
    with udp() as sock, udp() as target:
        yield sock, target, target.getsockname()


@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"x"), memoryview(b"yx")[1:]])
async def test_a_packet_is_sent_and_counted(route, data):
    sock, target, addr = route
    owner = Owner(sock)

    assert owner.one(data, addr)

    assert queued(target) == [bytes(data)]
    statistics = owner.statistics()
    assert (statistics.packets, statistics.bytes, statistics.calls) == (1, len(data), 1)
    assert (statistics.gso_sends, statistics.errors, statistics.dropped) == (0, 0, 3)


async def test_a_connected_socket_needs_no_address(route):
    sock, target, addr = route
    sock.connect(addr)
    owner = Owner(sock)

    assert owner.one(b"a", None)
    assert owner.one(b"b", addr)

    assert owner.check(b"c", addr) == b"c"
    with pytest.raises(ValueError, match="is connected to"):
        owner.one(b"d", ("127.0.0.1", 9))
    assert queued(target) == [b"a", b"b"]


async def test_a_full_socket_is_false_and_no_error(route):
    sock, _target, addr = route
    owner = Owner(sock)

    with owner.faults(errno.EAGAIN):
        assert not owner.one(b"x", addr)

    assert owner.errors == []
    assert owner.statistics().packets == 0


async def test_an_interrupted_call_is_made_again(route):
    sock, target, addr = route
    owner = Owner(sock)

    with owner.faults(errno.EINTR, errno.EINTR):
        assert owner.one(b"x", addr)

    assert queued(target) == [b"x"]
    assert owner.statistics().calls == 3


async def test_a_packet_that_is_refused_is_reported_and_done(route):
    sock, _target, addr = route
    owner = Owner(sock)

    assert owner.one(b"x" * 70_000, addr)

    assert errnos(owner.errors) == [errno.EMSGSIZE]


@pytest.mark.parametrize(
    ("script", "reported", "arrives"),
    [
        ([errno.ECONNREFUSED, OK], [errno.ECONNREFUSED], True),
        ([errno.ECONNREFUSED] * 2, [errno.ECONNREFUSED], False),
        ([errno.ECONNREFUSED, errno.EHOSTUNREACH], [errno.ECONNREFUSED, errno.EHOSTUNREACH], False),
        ([errno.ECONNREFUSED, errno.ENOBUFS], [errno.ECONNREFUSED, errno.ENOBUFS], False),
    ],
)
async def test_what_icmp_told_of_an_earlier_packet_costs_not_this_one(
    route, script, reported, arrives
):
    sock, target, addr = route
    owner = Owner(sock)

    with owner.faults(*script) as faults:
        assert owner.one(b"x", addr)
        assert faults.calls == 2

    assert errnos(owner.errors) == reported
    assert queued(target) == [b"x"] * arrives


@pytest.mark.parametrize("call", ["one", "check"])
@pytest.mark.parametrize(
    ("data", "addr", "error", "said"),
    [
        ("text", ("127.0.0.1", 9), TypeError, "not 'str'"),
        (memoryview(b"abcd")[::2], ("127.0.0.1", 9), TypeError, "contiguous"),
        (b"x", ["127.0.0.1", 9], TypeError, "tuple"),
        (b"x", None, ValueError, "say to whom"),
        (b"x", ("localhost", 9), ValueError, "looks a host name up"),
    ],
)
async def test_what_can_not_be_sent_is_told_now_and_later(route, call, data, addr, error, said):
    owner = Owner(route[0])

    with pytest.raises(error, match=said):
        getattr(owner, call)(data, addr)


async def test_what_is_kept_for_later_can_not_change(route):
    sock, _target, addr = route
    owner = Owner(sock)
    data = bytearray(b"as it was")

    kept = owner.check(data, addr)
    data[:] = b"different"

    assert kept == b"as it was"
    assert type(kept) is bytes
    assert owner.check(kept, addr) is kept
    assert owner.check(memoryview(b"abcd").cast("H"), addr) == b"abcd"


async def test_a_socket_closed_by_whoever_hears_of_an_error_is_not_used_again(route):
    sock, _target, addr = route
    owner = Owner(sock)
    with SendFaults(owner, "sendmsg", errno.ECONNREFUSED) as faults:
        with pytest.raises(OSError, match="was closed while"):
            owner._outlet.one(b"x", addr, lambda _: sock.close())
        assert faults.calls == 1
