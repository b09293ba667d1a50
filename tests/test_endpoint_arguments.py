"""The arguments of create_datagram_endpoint are asyncio's, and bad ones are refused as it does."""

from __future__ import annotations

import asyncio
import inspect
import socket

import attrs
import pytest

import aiorecv
from aiorecv._options import ReceiveOptions
from tests.endpoints import Noting, endpoint, numbered
from tests.helpers import descriptors

ANY = ("127.0.0.1", 0)
create = aiorecv.create_datagram_endpoint


def test_asyncios_parameters_come_first():
    theirs = inspect.signature(asyncio.BaseEventLoop.create_datagram_endpoint).parameters

    ours = inspect.signature(create).parameters

    described = [(p.name, p.kind, p.default) for p in list(theirs.values())[1:]]
    assert [(p.name, p.kind, p.default) for p in ours.values()][: len(described)] == described


def test_the_receive_options_but_on_error_follow_by_keyword():
    options = inspect.signature(ReceiveOptions).parameters
    theirs = inspect.signature(asyncio.BaseEventLoop.create_datagram_endpoint).parameters

    ours = list(inspect.signature(create).parameters.values())[len(theirs) - 1 :]

    wanted = ["receive_buffer_size", *(name for name in options if name != "on_error")]
    assert [p.name for p in ours] == wanted
    assert {p.kind for p in ours} == {inspect.Parameter.KEYWORD_ONLY}
    assert ours[0].default == 4 << 20
    assert [p.default for p in ours[1:]] == [options[p.name].default for p in ours[1:]]


def test_it_is_a_coroutine_function_as_the_loops_method_is():
    assert inspect.iscoroutinefunction(create)


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (ValueError, "unexpected address family", {}),
        (TypeError, "2-tuple is expected", {"local_addr": "127.0.0.1"}),
        (TypeError, "2-tuple is expected", {"local_addr": ("127.0.0.1",)}),
        (TypeError, "2-tuple is expected", {"remote_addr": ["127.0.0.1", 9]}),
        (TypeError, "2-tuple is expected", {"local_addr": ("::1", 9, 0, 0)}),
        (TypeError, "string is expected", {"local_addr": ANY, "family": socket.AF_UNIX}),
        (TypeError, "string is expected", {"remote_addr": b"\0x", "family": socket.AF_UNIX}),
        (ValueError, "reuse_port", {"family": socket.AF_UNIX, "reuse_port": True}),
        (
            ValueError,
            "can not get address information",
            {"local_addr": ANY, "remote_addr": ("::1", 9)},
        ),
        (socket.gaierror, None, {"local_addr": ANY, "family": socket.AF_INET6}),
        (OSError, "192.0.2.1", {"local_addr": ("192.0.2.1", 0)}),
        (OSError, "can't be connected", {"remote_addr": ("255.255.255.255", 9)}),
        (TypeError, "receive_buffer_size", {"local_addr": ANY, "receive_buffer_size": "1"}),
        (ValueError, "receive_buffer_size", {"local_addr": ANY, "receive_buffer_size": 0}),
        (ValueError, "slot_size", {"local_addr": ANY, "slot_size": 0}),
        (ValueError, "train", {"local_addr": ANY, "slot_size": 100, "gro": True}),
        (ValueError, "turn_limit", {"local_addr": ANY, "turn_limit": 0}),
        (TypeError, "window", {"local_addr": ANY, "window": 5}),
        (TypeError, "metadata", {"local_addr": ANY, "metadata": 5}),
        (TypeError, "error_received", {"local_addr": ANY, "on_error": print}),
        (TypeError, "on_error", {"local_addr": ANY, "on_error": 5}),
        (TypeError, "unknown", {"local_addr": ANY, "unknown": 1}),
        (TypeError, "socket.socket", {"sock": 5}),
    ],
    ids=str,
)
async def test_a_bad_argument_is_refused_and_leaves_nothing(error, match, arguments):
    before = descriptors()

    with pytest.raises(error, match=match):
        await create(Noting, **arguments)

    assert descriptors() == before


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"local_addr": "127.0.0.1"},
        {"local_addr": ANY, "family": socket.AF_UNIX},
        {"local_addr": ANY, "remote_addr": ("::1", 9)},
        {"local_addr": ANY, "family": socket.AF_INET6},
        {"local_addr": ("192.0.2.1", 0)},
        {"remote_addr": ("255.255.255.255", 9)},
    ],
    ids=str,
)
async def test_the_loops_own_method_refuses_the_same_in_kind(arguments):
    loop = asyncio.SelectorEventLoop  # uvloop's own has other kinds
    raised = []

    def attempt(method) -> None:
        async def run() -> None:
            await method(asyncio.get_running_loop())

        with asyncio.Runner(loop_factory=loop) as runner:
            try:
                runner.run(run())
            except (OSError, TypeError, ValueError) as error:
                raised.append(type(error))

    await asyncio.to_thread(
        attempt, lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol, **arguments)
    )
    await asyncio.to_thread(attempt, lambda _: create(asyncio.DatagramProtocol, **arguments))

    theirs, ours = raised
    assert ours is theirs


@pytest.mark.parametrize(
    "beside",
    [
        {"local_addr": ANY},
        {"remote_addr": ANY},
        {"family": socket.AF_INET},
        {"proto": 17},
        {"flags": socket.AI_PASSIVE},
        {"reuse_port": True},
        {"allow_broadcast": True},
    ],
    ids=str,
)
async def test_a_socket_comes_without_what_would_make_one(bound, beside):
    (name,) = beside

    with pytest.raises(ValueError, match=f"socket modifier.*{name}=") as info:
        await create(Noting, sock=bound, **beside)

    assert info.value.args[0].count("=") == 1
    assert bound.getsockname()


async def test_what_says_nothing_may_come_beside_a_socket(bound):
    quiet = {"family": 0, "proto": 0, "flags": 0, "reuse_port": False, "allow_broadcast": None}

    async with endpoint(sock=bound, **quiet) as (transport, _):
        assert not transport.is_closing()


async def test_a_stream_is_refused_and_stays_the_callers():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        with pytest.raises(ValueError, match="stream"):
            await create(Noting, sock=stream)

        assert stream.fileno() != -1


async def test_a_closed_socket_is_refused(bound):
    bound.close()

    with pytest.raises(OSError, match="closed"):
        await create(Noting, sock=bound)


@pytest.mark.parametrize("bad", [{"gro": True, "slot_size": 100}, {"on_error": print}], ids=str)
async def test_a_socket_stays_the_callers_if_an_option_is_refused(bound, bad):
    before = bound.getsockopt(socket.IPPROTO_UDP, 104)

    with pytest.raises((TypeError, ValueError)):
        await create(Noting, sock=bound, **bad)

    assert bound.getsockopt(socket.IPPROTO_UDP, 104) == before
    async with endpoint(sock=bound) as (_, protocol):
        bound.sendto(b"to itself", bound.getsockname())
        assert await protocol.got(1) == [b"to itself"]


async def test_a_window_serves_one_endpoint_only():
    window = aiorecv.AdaptiveWindow()
    async with endpoint(window=window):
        before = descriptors()

        with pytest.raises(ValueError, match="serves another"):
            await create(Noting, local_addr=ANY, window=window)

        assert descriptors() == before


async def test_the_receive_buffer_is_raised_as_far_as_the_system_allows():
    async with (
        endpoint(receive_buffer_size=None) as (plain, _),
        endpoint() as (usual, _),
        endpoint(receive_buffer_size=1) as (small, _),
    ):
        default = plain.statistics().receive_buffer_size

        assert usual.statistics().receive_buffer_size > default
        assert small.statistics().receive_buffer_size == default


async def test_the_receive_buffer_of_a_given_socket_is_left_alone(bound):
    before = bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    async with endpoint(sock=bound) as (transport, _):
        assert transport.statistics().receive_buffer_size == before


async def test_all_receive_options_are_taken():
    options = {
        "gro": False,
        "metadata": aiorecv.Metadata.TTL,
        "window": aiorecv.FixedWindow(3),
        "slot_size": 10,
        "turn_limit": 1.0,
    }
    assert options.keys() == {field.name for field in attrs.fields(ReceiveOptions)} - {"on_error"}

    async with endpoint(**options) as (transport, protocol):
        name = transport.get_extra_info("sockname")
        for data in [*numbered(2), b"longer than a slot"]:
            transport.sendto(data, name)
        await protocol.got(3)

        assert protocol.packets == [*numbered(2), b"longer tha"]
        assert transport.statistics().truncated == 1
        assert transport.statistics().window_slots == 3
