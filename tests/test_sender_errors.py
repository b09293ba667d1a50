"""Refused packets: reported one by one, and all others are sent, in order."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

import aiorecv
from tests.sending import PATHS, Only, SendFaults, errnos, of, queued, udp

TOO_LARGE = b"x" * 70_000


@pytest.fixture
def route():
    """A socket to send on, one to send to, and its address."""
    with udp() as sock, udp() as target:
        yield sock, target, target.getsockname()


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("way", ["send", "send_nowait"])
async def test_a_packet_that_is_too_large_is_raised_after_the_others_were_sent(route, way):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)

    with pytest.raises(OSError, match="too long") as raised:
        result = getattr(sender, way)(of(addr, b"a", b"b", TOO_LARGE, b"c", b"d"))
        await result

    assert raised.value.errno == errno.EMSGSIZE
    assert not hasattr(raised.value, "__notes__")
    assert queued(target) == [b"a", b"b", b"c", b"d"]
    statistics = sender.statistics()
    assert (statistics.packets, statistics.errors) == (4, 1)


@pytest.mark.parametrize("position", [0, 1, 62, 63, 64, 65, 129])
async def test_wherever_the_bad_packet_is_only_it_is_missing(route, position):
    sock, target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)
    packets = [b"%d" % number for number in range(130)]

    taken = sender.send_nowait(of(addr, *packets[:position], TOO_LARGE, *packets[position + 1 :]))

    assert taken == 130
    assert errnos(errors) == [errno.EMSGSIZE]
    assert queued(target) == packets[:position] + packets[position + 1 :]


async def test_of_several_refusals_the_first_is_raised_and_tells_of_the_others(route):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)

    with pytest.raises(OSError, match="Permission denied") as raised:
        await sender.send(
            [(b"a", ("<broadcast>", 9)), (b"b", addr), (TOO_LARGE, addr), (TOO_LARGE, addr)]
        )

    assert raised.value.__notes__ == ["2 more packets were refused"]
    assert queued(target) == [b"b"]


# --- on_error


async def test_on_error_hears_of_each_and_nothing_is_raised(route):
    sock, target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    await sender.send(of(addr, TOO_LARGE, b"a", TOO_LARGE, b"b"))

    assert errnos(errors) == [errno.EMSGSIZE, errno.EMSGSIZE]
    assert queued(target) == [b"a", b"b"]


async def test_an_exception_in_on_error_goes_to_the_loop_and_stops_nothing(route):
    sock, target, addr = route
    loop_errors: list[dict[str, Any]] = []

    def fail(error: OSError) -> None:
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(lambda _, said: loop_errors.append(said))
    sender = aiorecv.Sender(sock, on_error=fail)

    assert sender.send_nowait(of(addr, TOO_LARGE, b"a")) == 2

    assert [type(said["exception"]) for said in loop_errors] == [ZeroDivisionError]
    assert loop_errors[0]["message"] == "Exception in on_error"
    assert queued(target) == [b"a"]


async def test_what_on_error_sends_changes_nothing_of_what_is_being_sent(route):
    sock, target, addr = route
    with udp() as other:
        # The same headers serve all senders of the loop: this uses them for something else.
        elsewhere = of(other.getsockname(), *[b"elsewhere"] * 64)
        sender = aiorecv.Sender(sock, on_error=lambda _: sender.send_nowait(elsewhere))
        packets = [b"%d" % number for number in range(60)]

        await sender.send(of(addr, *packets[:30], TOO_LARGE, *packets[30:]))
        assert queued(other) == []  # a send under way comes first
        assert sender.send_nowait(of(addr, *packets[:30], TOO_LARGE, *packets[30:])) == 61

        assert queued(target) == packets * 2
        assert queued(other) == [b"elsewhere"] * 64


async def test_a_socket_that_on_error_closes_is_not_sent_to_again(route):
    sock, target, addr = route
    sender = aiorecv.Sender(sock, on_error=lambda _: sock.close())

    with pytest.raises(OSError, match="was closed while") as raised:
        sender.send_nowait(of(addr, b"a", TOO_LARGE, b"b"))

    assert raised.value.errno == errno.EBADF
    assert queued(target) == [b"a"]


@pytest.mark.parametrize("end", ["close", "detach"])
async def test_a_receiver_that_on_error_ends_sends_no_more(receiver, end):
    left = []
    sender = aiorecv.Sender(receiver, on_error=lambda _: left.append(getattr(receiver, end)()))
    with udp() as target:
        with pytest.raises(aiorecv.ReceiverClosedError):
            await sender.send(of(target.getsockname(), b"a", TOO_LARGE, b"b"))

        assert queued(target) == [b"a"]
    for sock in left:
        if sock is not None:
            sock.close()


# --- errors of earlier packets


@pytest.fixture
def revived():
    """A socket with the refusal of an earlier packet pending, and its peer, which is back."""
    with udp() as sock:
        with udp() as gone:
            addr = gone.getsockname()
        sock.connect(addr)
        sock.send(b"to nobody")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(addr)
            yield sock, peer


async def test_the_packet_behind_an_earlier_ones_refusal_is_not_lost(revived, path):
    sock, peer = revived
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    with SendFaults(sender, path):
        assert sender.send_nowait(of(None, b"a", b"b", b"cc")) == 3

    assert errnos(errors) == [errno.ECONNREFUSED]
    assert queued(peer) == [b"a", b"b", b"cc"]


async def test_to_a_closed_port_every_packet_is_sent():
    with udp() as sock:
        with udp() as gone:
            sock.connect(gone.getsockname())
        sender = aiorecv.Sender(sock, on_error=lambda _: None)

        assert sender.send_nowait(of(None, *[b"x" * size for size in range(1, 100)])) == 99

        assert sender.statistics().packets == 99


async def test_refused_twice_a_packet_is_left_out_and_reported_once(route, path):
    sock, target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    with SendFaults(sender, path, *[errno.EHOSTUNREACH] * 2):
        assert sender.send_nowait(of(addr, b"a", b"bb")) == 2

    assert errnos(errors) == [errno.EHOSTUNREACH]
    assert queued(target) == [b"bb"]
    assert sender.statistics().errors == 1


async def test_a_later_packet_may_be_met_by_the_same_error_again(route):
    sock, target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    with SendFaults(sender, "sendmmsg", errno.ECONNREFUSED, Only(1), errno.ECONNREFUSED):
        assert sender.send_nowait(of(addr, b"a", b"bb", b"ccc")) == 3

    assert errnos(errors) == [errno.ECONNREFUSED] * 2
    assert queued(target) == [b"a", b"bb", b"ccc"]


async def test_an_error_of_its_own_behind_an_earlier_ones_is_reported_too(route, path):
    sock, target, addr = route
    errors: list[OSError] = []
    sender = aiorecv.Sender(sock, on_error=errors.append)

    with SendFaults(sender, path, errno.ECONNREFUSED, errno.ENOBUFS):
        assert sender.send_nowait(of(addr, b"a", b"bb")) == 2

    assert errnos(errors) == [errno.ECONNREFUSED, errno.ENOBUFS]
    assert queued(target) == [b"bb"]


async def test_a_unix_socket_that_nobody_has_open_is_refused_once(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(tmp_path / "gone"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        errors: list[OSError] = []
        sender = aiorecv.Sender(sock, on_error=errors.append)

        sender.send_nowait(of(str(tmp_path / "gone"), b"a") + of(str(tmp_path / "never"), b"b"))

        assert errnos(errors) == [errno.ECONNREFUSED, errno.ENOENT]
