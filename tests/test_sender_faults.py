"""System calls that fail, stop short or are missing: nothing is lost, and nothing sent twice."""

from __future__ import annotations

import errno
import os

import pytest

import aiorecv
from tests.sending import OK, PATHS, Only, SendFaults, errnos, of, queued, udp


@pytest.fixture
def route():
    """A socket to send on, one to send to, and its address."""
    with udp() as sock, udp() as target:
        yield sock, target, target.getsockname()


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_an_interrupted_call_is_made_again(route, path):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)

    with SendFaults(sender, path, errno.EINTR, errno.EINTR) as faults:
        assert sender.send_nowait(of(addr, b"a", b"bb", b"ccc")) == 3
        assert faults.calls > 2

    assert queued(target) == [b"a", b"bb", b"ccc"]
    assert sender.statistics().errors == 0


async def test_a_partial_send_goes_on_behind_what_was_sent(route):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)
    packets = [b"a", b"bb", b"cc", b"c", b"ddd", b"eeee", b"fffff"]

    with SendFaults(sender, "sendmmsg", Only(1), Only(2), errno.EINTR, Only(1)):
        assert sender.send_nowait(of(addr, *packets)) == 7

    assert queued(target) == packets
    assert sender.statistics().packets == 7


async def test_an_error_behind_packets_is_that_of_the_next(route):
    sock, target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    with SendFaults(sender, "sendmsg", OK, errno.ENOBUFS, errno.ENOBUFS):
        assert sender.send_nowait(of(addr, b"a", b"bb", b"ccc")) == 3

    # The call that sends something keeps its error to itself, as sendmmsg does.
    assert errnos(errors) == [errno.ENOBUFS]
    assert queued(target) == [b"a", b"ccc"]


@pytest.mark.parametrize("refusal", [errno.ENOBUFS, errno.EMSGSIZE, errno.EDESTADDRREQ])
async def test_an_error_of_the_packets_own_leaves_that_packet_out(route, path, refusal):
    sock, target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    with SendFaults(sender, path, refusal):
        assert sender.send_nowait(of(addr, b"a", b"bb")) == 2

    assert errnos(errors) == [refusal]
    assert queued(target) == [b"bb"]


async def test_a_full_socket_takes_what_it_can_and_says_how_many(route, path):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)

    with SendFaults(sender, path, OK, *[errno.EAGAIN] * 2):
        taken = sender.send_nowait(of(addr, b"a", *[b"b" * size for size in range(2, 90)]))

    assert taken == (64 if path == "sendmmsg" else 1)
    assert len(queued(target)) == taken


async def test_a_refusal_before_a_full_socket_tells_what_was_taken(route):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)

    with (
        SendFaults(sender, "sendmmsg", errno.ENOBUFS, errno.EAGAIN),
        pytest.raises(OSError, match="buffer space") as raised,
    ):
        sender.send_nowait(of(addr, b"a", b"bb", b"ccc"))

    assert raised.value.__notes__ == ["1 of 3 packets were taken"]
    assert queued(target) == []


@pytest.mark.parametrize("refusal", [errno.EBADF, errno.ENOTSOCK])
async def test_a_descriptor_that_is_none_ends_the_call(route, path, refusal):
    sock, _target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    with SendFaults(sender, path, refusal) as faults:
        with pytest.raises(OSError, match=os.strerror(refusal)):
            sender.send_nowait(of(addr, b"a", b"bb"))
        assert faults.calls == 1

    assert errors == []


# --- sendmmsg missing, forbidden, or refused by a firewall


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM])
async def test_a_refused_sendmmsg_is_not_called_again(route, refusal):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)
    packets = [b"a", b"bb", b"cc", b"", b"ddd"]

    with SendFaults(sender, "sendmmsg", refusal) as faults:
        assert sender.send_nowait(of(addr, *packets)) == 5
        assert sender.send_nowait(of(addr, *packets)) == 5
        assert faults.calls == 1

    assert queued(target) == packets * 2
    assert sender.statistics().errors == 0


async def test_a_packet_that_a_firewall_refuses_is_its_own_error(route):
    sock, target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    with SendFaults(sender, "sendmmsg", errno.EPERM), SendFaults(sender, "sendmsg", errno.EPERM):
        sender._outlet.core.portable = False
        assert sender.send_nowait(of(addr, b"a", b"bb")) == 2
        assert not sender._outlet.core.portable

    assert errnos(errors) == [errno.EPERM]
    assert queued(target) == [b"bb"]


async def test_the_environment_asks_for_sendmsg(route, monkeypatch):
    monkeypatch.setenv("AIORECV_PORTABLE", "1")
    sock, target, addr = route

    sender = aiorecv.Sender(sock)
    sender.send_nowait(of(addr, b"a", b"bb"))

    assert sender.statistics().calls == 2
    assert queued(target) == [b"a", b"bb"]
