"""Options: the receive options, declared once, and the socket options behind them.

Sets sockets up and puts them back. Never receives.
"""

from __future__ import annotations

import inspect
import os
import socket
import weakref
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import attrs

from aiorecv._native._core import lib
from aiorecv._window import MAX_SLOTS, AdaptiveWindow, WindowPolicy

# linux/udp.h; the socket module has it from Python 3.12 on, and then only sometimes.
UDP_GRO = 104
# The largest UDP payload a train is glued to: the kernel merges up to the 16-bit IP length.
TRAIN_SIZE = 65_535
DEFAULT_SLOT_SIZE = 65_536

_Opener = TypeVar("_Opener", bound=Callable[..., Any])


class ReceiveKeywords(TypedDict, total=False):
    """``ReceiveOptions`` as keyword arguments, for type checkers; a test holds the two equal."""

    gro: bool | None
    window: WindowPolicy | None
    slot_size: int | None
    turn_limit: float
    on_error: Callable[[OSError], object] | None


def _check_gro(_options: object, _field: object, value: Any) -> None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"gro is True, False or None, not {value!r}")


def _check_window(_options: object, _field: object, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, WindowPolicy) or not callable(value.record):
        raise TypeError(
            f"window needs slots, maximum and record(received=, polled=); {value!r} lacks some: "
            "pass AdaptiveWindow(), FixedWindow(slots) or a policy of your own"
        )
    try:
        weakref.ref(value)
    except TypeError:
        raise TypeError(
            f"window={value!r}: add '__weakref__' to the __slots__ of its class"
        ) from None
    window_slots(value)


def _check_slot_size(_options: object, _field: object, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"slot_size is a number of bytes, an int, not {value!r}")
    if not 1 <= value <= lib.AIORECV_MAX_SLOT_SIZE:
        raise ValueError(
            f"slot_size={value}: give from 1 to {lib.AIORECV_MAX_SLOT_SIZE} bytes, "
            "or None for slots that hold any packet of this socket"
        )


def _check_turn_limit(_options: object, _field: object, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"turn_limit is a number of seconds, not {value!r}")
    if not 0 < value < float("inf"):
        raise ValueError(f"turn_limit={value}: give a positive number of seconds, such as 0.001")


def _check_on_error(_options: object, _field: object, value: Any) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"on_error is called with each OSError; {value!r} can't be called")


@attrs.frozen(kw_only=True)
class ReceiveOptions:
    """How to receive, the same for every opener; checked when it is made."""

    gro: bool | None = attrs.field(default=None, validator=_check_gro)
    window: WindowPolicy | None = attrs.field(default=None, validator=_check_window)
    slot_size: int | None = attrs.field(default=None, validator=_check_slot_size)
    turn_limit: float = attrs.field(default=0.001, validator=_check_turn_limit)
    on_error: Callable[[OSError], object] | None = attrs.field(
        default=None, validator=_check_on_error
    )

    def make_window(self) -> WindowPolicy:
        """The policy to use: two slots at first, which tell one packet from a full read."""
        return AdaptiveWindow(initial=2) if self.window is None else self.window


def window_slots(window: WindowPolicy) -> int:
    """The slots that a policy asks for, or a ValueError if they are out of its bounds."""
    slots, maximum = window.slots, window.maximum
    for value in (slots, maximum):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{window!r}: slots and maximum are ints, not {value!r}")
    if not 1 <= slots <= maximum <= MAX_SLOTS:
        raise ValueError(
            f"{window!r} asks for {slots} slots of at most {maximum}: "
            f"it has to keep 1 <= slots <= maximum <= {MAX_SLOTS}"
        )
    return slots


def takes_receive_options(opener: _Opener) -> _Opener:
    """Show the receive options in an opener's signature, in the place of ``**options``."""
    signature = inspect.signature(opener)
    named = list(signature.parameters.values())[:-1]
    options = list(inspect.signature(ReceiveOptions).parameters.values())
    opener.__signature__ = signature.replace(  # type: ignore[attr-defined]  # a function has it
        parameters=named + options
    )
    return opener


def gro_forbidden() -> bool:
    """Whether the environment turns GRO off, for kernels or drivers where it is broken."""
    return os.environ.get("AIORECV_GRO") == "0"


class Gro:
    """A socket's UDP_GRO option while a receiver has it, and as it was before."""

    __slots__ = ("_before", "_sock")

    def __init__(self, sock: socket.socket, options: ReceiveOptions, *, ours: bool) -> None:
        """Turn it on or off as ``options`` say; a socket that is not ``ours`` keeps its own."""
        self._sock = sock
        self._before = self._get()
        slot_size = options.slot_size or DEFAULT_SLOT_SIZE
        wanted = self._wanted(options.gro, slot_size >= TRAIN_SIZE, ours)
        if wanted and slot_size < TRAIN_SIZE:
            raise ValueError(
                f"slot_size={slot_size} can't hold a train of datagrams, and what is cut from "
                f"one is lost: give gro=False, or slot_size of at least {TRAIN_SIZE}"
            )
        if wanted != self._before:
            self._set(wanted, must=options.gro is True)

    def restore(self) -> None:
        """Set the option back to what it was."""
        if self._get() != self._before:
            self._set(self._before, must=False)

    def _wanted(self, gro: bool | None, fits: bool, ours: bool) -> bool:
        if gro is None:
            if gro_forbidden():
                return False
            return fits if ours else self._before
        if gro and gro_forbidden():
            raise ValueError(
                "gro=True, but AIORECV_GRO=0 in the environment forbids it: "
                "unset that, or leave gro out"
            )
        return gro

    def _get(self) -> bool:
        try:
            return bool(self._sock.getsockopt(socket.IPPROTO_UDP, UDP_GRO))
        except OSError:  # Linux before 5.0
            return False

    def _set(self, on: bool, *, must: bool) -> None:
        try:
            self._sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, on)
        except OSError as error:
            if must:
                raise OSError(
                    error.errno, f"gro=True: {error.strerror}; Linux 5.0 has it"
                ) from None


def raise_receive_buffer(sock: socket.socket, size: int | None) -> None:
    """Ask for a receive buffer of ``size`` bytes, as far as the system allows; never lower it.

    Source: socket(7), SO_RCVBUF: the kernel doubles the size and caps it at rmem_max in silence.
    """
    if size is None:
        return
    # The cap may lie below the default, and then no call could bring the default back.
    with socket.socket(sock.family, sock.type) as probe:
        before = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        raised = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > before
    if raised:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
