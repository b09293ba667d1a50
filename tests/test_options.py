"""The receive options: checked at the call, and told by name."""

from __future__ import annotations

import inspect
import socket
import typing
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import aiorecv
from aiorecv._options import ReceiveKeywords, ReceiveOptions
from tests.helpers import descriptors

LOCAL = ("127.0.0.1", 0)


class Slotted:
    """A policy that can't be referred to weakly."""

    __slots__ = ("maximum", "slots")

    def __init__(self) -> None:
        self.slots, self.maximum = 1, 1

    def record(self, *, received: int, polled: bool) -> None: ...


class Own:
    """A policy of the user's own, with any numbers."""

    def __init__(self, slots: Any, maximum: Any) -> None:
        self.slots, self.maximum = slots, maximum

    def record(self, *, received: int, polled: bool) -> None: ...


class NoRecord:
    slots = maximum = 1
    record = None


WRONG: list[tuple[str, Any, type[Exception]]] = [
    ("gro", 1, TypeError),
    ("gro", "on", TypeError),
    ("window", 4, TypeError),
    ("window", aiorecv.AdaptiveWindow, TypeError),
    ("window", NoRecord(), TypeError),
    ("window", Slotted(), TypeError),
    ("window", Own(0, 4), ValueError),
    ("window", Own(5, 4), ValueError),
    ("window", Own(1, 1025), ValueError),
    ("window", Own(1.0, 4), TypeError),
    ("window", Own(1, "4"), TypeError),
    ("window", Own(True, 4), TypeError),
    ("slot_size", 0, ValueError),
    ("slot_size", -1, ValueError),
    ("slot_size", (1 << 20) + 1, ValueError),
    ("slot_size", 2048.0, TypeError),
    ("slot_size", "2048", TypeError),
    ("slot_size", True, TypeError),
    ("turn_limit", 0, ValueError),
    ("turn_limit", -0.001, ValueError),
    ("turn_limit", float("nan"), ValueError),
    ("turn_limit", float("inf"), ValueError),
    ("turn_limit", "1", TypeError),
    ("turn_limit", None, TypeError),
    ("turn_limit", True, TypeError),
    ("on_error", "print", TypeError),
]


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(LOCAL)
        yield made


# --- what the signatures say


def test_keywords_for_type_checkers_are_the_options():
    hints = typing.get_type_hints(ReceiveKeywords)
    options = typing.get_type_hints(ReceiveOptions)

    assert hints == {field.name: options[field.name] for field in attrs.fields(ReceiveOptions)}
    assert list(hints) == [field.name for field in attrs.fields(ReceiveOptions)]
    assert not ReceiveKeywords.__required_keys__


@pytest.mark.parametrize(
    ("opener", "own"),
    [
        (
            aiorecv.open_udp,
            {
                "local_addr": None,
                "remote_addr": None,
                "family": 0,
                "reuse_port": False,
                "allow_broadcast": False,
                "receive_buffer_size": 4 << 20,
                "filter": None,
            },
        ),
        (aiorecv.from_socket, {"sock": inspect.Parameter.empty, "filter": None}),
    ],
)
def test_signature_shows_every_option_with_its_default(opener, own):
    parameters = inspect.signature(opener).parameters
    receive = {
        "gro": None,
        "metadata": aiorecv.Metadata.NONE,
        "window": None,
        "slot_size": None,
        "turn_limit": 0.001,
        "on_error": None,
    }

    shown = {name: parameter.default for name, parameter in parameters.items()}

    assert list(shown.items()) == list((own | receive).items())
    kinds = [parameter.kind for parameter in parameters.values()]
    assert kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD] + [inspect.Parameter.KEYWORD_ONLY] * (
        len(kinds) - 1
    )


def test_unknown_option_is_a_type_error(sock):
    for call in (
        lambda: aiorecv.open_udp(LOCAL, colour="red"),  # type: ignore[call-arg]
        lambda: aiorecv.from_socket(sock, colour="red"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="colour"):
            call()


# --- what is refused


@pytest.mark.parametrize(("name", "value", "error"), WRONG)
def test_wrong_option_is_refused_at_the_call_by_name(sock, name, value, error):
    openers: list[Callable[..., object]] = [
        lambda **option: aiorecv.open_udp(LOCAL, **option),
        lambda **option: aiorecv.from_socket(sock, **option),
    ]
    before = descriptors()

    for opener in openers:
        with pytest.raises(error, match=name):
            opener(**{name: value})

    assert descriptors() == before
    assert sock.fileno() != -1


async def test_one_policy_serves_one_receiver_ever(sock):
    for window in (aiorecv.AdaptiveWindow(), aiorecv.FixedWindow(4), Own(1, 1)):
        (await aiorecv.open_udp(LOCAL, window=window)).close()
        before = descriptors()

        with pytest.raises(ValueError, match=r"window=.*make one for each"):
            await aiorecv.open_udp(LOCAL, window=window)
        with pytest.raises(ValueError, match=r"window=.*make one for each"):
            aiorecv.from_socket(sock, window=window)

        assert descriptors() == before


async def test_policy_of_a_receiver_that_did_not_come_to_be_is_free(sock):
    window = aiorecv.AdaptiveWindow()
    with pytest.raises(ValueError, match="gro"):
        aiorecv.from_socket(sock, window=window, gro=True, slot_size=1)

    aiorecv.from_socket(sock, window=window).close()


# --- the receive buffer


def buffer_of(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def fresh_buffer(asked: int | None = None) -> int:
    """The size that a new socket has, or that the kernel makes of what is asked."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as fresh:
        if asked is not None:
            fresh.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, asked)
        return buffer_of(fresh)


@pytest.mark.parametrize("asked", [1, 4096, 1 << 17, 1 << 19, 4 << 20, 2**30 - 1])
async def test_receive_buffer_is_raised_as_far_as_the_system_allows_and_never_lowered(asked):
    async with aiorecv.open_udp(LOCAL, receive_buffer_size=asked) as receiver:
        expected = max(fresh_buffer(), fresh_buffer(asked))

        assert buffer_of(receiver.socket) == expected
        assert receiver.statistics().receive_buffer_size == expected


async def test_receive_buffer_is_four_mebibytes_unless_told():
    async with aiorecv.open_udp(LOCAL) as receiver:
        assert buffer_of(receiver.socket) == max(fresh_buffer(), fresh_buffer(4 << 20))


async def test_receive_buffer_of_none_leaves_the_systems_default():
    async with aiorecv.open_udp(LOCAL, receive_buffer_size=None) as receiver:
        assert buffer_of(receiver.socket) == fresh_buffer()


async def test_given_socket_keeps_its_receive_buffer(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)

    async with aiorecv.from_socket(sock):
        assert buffer_of(sock) == 20_000
