"""Options: the receive options, declared once, and what they set on a socket.

Sets sockets up and puts them back. Never receives.
"""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import attrs

from aiorecv._native._core import lib
from aiorecv._packet import Metadata
from aiorecv._window import MAX_SLOTS, PeakWindow, WindowPolicy

_Opener = TypeVar("_Opener", bound=Callable[..., Any])


class EndpointKeywords(TypedDict, total=False):
    """The receive options of endpoints: what goes wrong is told to their protocols."""

    gro: bool | None
    metadata: Metadata
    window: WindowPolicy | None
    slot_size: int | None
    turn_limit: float


class ReceiveKeywords(EndpointKeywords, total=False):
    """``ReceiveOptions`` as keyword arguments, for type checkers; a test holds the two equal."""

    on_error: Callable[[OSError], object] | None


def _check_gro(_options: object, _field: object, value: Any) -> None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"gro is True, False or None, not {value!r}")


def _check_metadata(_options: object, _field: object, value: Any) -> None:
    if not isinstance(value, Metadata):
        raise TypeError(f"metadata is a Metadata, such as Metadata.TIMESTAMP, not {value!r}")


def _check_window(_options: object, _field: object, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, WindowPolicy) or not callable(value.record):
        raise TypeError(
            f"window needs slots, maximum and record(received=, polled=); {value!r} lacks some: "
            "pass PeakWindow(), FixedWindow(slots) or a policy of your own"
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
    metadata: Metadata = attrs.field(default=Metadata.NONE, validator=_check_metadata)
    window: WindowPolicy | None = attrs.field(default=None, validator=_check_window)
    slot_size: int | None = attrs.field(default=None, validator=_check_slot_size)
    turn_limit: float = attrs.field(default=0.001, validator=_check_turn_limit)
    on_error: Callable[[OSError], object] | None = attrs.field(
        default=None, validator=_check_on_error
    )

    def make_window(self) -> WindowPolicy:
        """The policy to use."""
        return PeakWindow() if self.window is None else self.window


def window_slots(window: WindowPolicy) -> int:
    """The slots that a policy asks for, or a ValueError if they are out of its bounds."""
    slots, maximum = window.slots, window.maximum
    for value in (slots, maximum):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"window={window!r}: slots and maximum are ints, not {value!r}")
    if not 1 <= slots <= maximum <= MAX_SLOTS:
        raise ValueError(
            f"window={window!r} asks for {slots} slots of at most {maximum}: "
            f"it has to keep 1 <= slots <= maximum <= {MAX_SLOTS}"
        )
    return slots


def check_buffer_size(size: object) -> None:
    """Raise if ``size`` can't be a ``receive_buffer_size``."""
    if size is None:
        return
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"receive_buffer_size is a number of bytes, an int, not {size!r}")
    if not 1 <= size < 2**30:
        raise ValueError(f"receive_buffer_size={size}: give from 1 to {2**30 - 1} bytes, or None")


def takes_receive_options(*, without: str | None = None) -> Callable[[_Opener], _Opener]:
    """Show the receive options in an opener's signature, in the place of ``**options``."""
    options = list(inspect.signature(ReceiveOptions).parameters.values())

    def show(opener: _Opener) -> _Opener:
        signature = inspect.signature(opener)
        named = list(signature.parameters.values())[:-1]
        shown = [option for option in options if option.name != without]
        opener.__signature__ = signature.replace(  # type: ignore[attr-defined]  # a function has it
            parameters=named + shown
        )
        return opener

    return show


def gro_forbidden() -> bool:
    """Whether the environment turns GRO off, for kernels or drivers where it is broken."""
    return os.environ.get("AIORECV_GRO") == "0"


def gso_forbidden() -> bool:
    """Whether the environment turns GSO off, for kernels or drivers where it is broken."""
    return os.environ.get("AIORECV_GSO") == "0"


def portable_wanted() -> bool:
    """Whether the environment asks for ``recvmsg`` and ``sendmsg``, a message each."""
    return os.environ.get("AIORECV_PORTABLE") == "1"
