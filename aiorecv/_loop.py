"""Loops whose datagram endpoints are ours, everything else being as it was."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from aiorecv._endpoint import create_datagram_endpoint


def loop_factory(
    base: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Callable[[], asyncio.AbstractEventLoop]:
    """A maker of event loops whose ``create_datagram_endpoint`` is aiorecv's.

    For ``asyncio.Runner(loop_factory=...)`` and pytest-asyncio: every endpoint of the program,
    its libraries' too, is received in batches. All else of the loop is left as its base has it.
    Where the base's method knows ``reuse_address``, so does ours: True is a ValueError, False a
    DeprecationWarning.

    Args:
        base: What makes a loop: ``asyncio.new_event_loop``, which is the default,
            ``uvloop.new_event_loop`` or a loop's class.

    Raises:
        TypeError: If ``base`` can't be called; later, if what it makes is no event loop whose
            method can be replaced.
    """
    make = asyncio.new_event_loop if base is None else base
    if not callable(make):
        raise TypeError(f"base makes an event loop when called; {base!r} can't be called")

    def new_event_loop() -> asyncio.AbstractEventLoop:
        loop = make()
        if not isinstance(loop, asyncio.AbstractEventLoop):
            raise TypeError(f"base={base!r} made {loop!r}, which is no event loop")
        theirs = inspect.signature(loop.create_datagram_endpoint).parameters
        ours = _with_reuse_address if "reuse_address" in theirs else create_datagram_endpoint
        try:
            loop.create_datagram_endpoint = ours  # type: ignore[assignment, method-assign]  # on purpose
        except AttributeError:
            loop.close()
            raise TypeError(
                f"base={base!r} made {loop!r}, which takes no attributes: derive a class from it"
            ) from None
        return loop

    return new_event_loop


async def _with_reuse_address(
    *arguments: Any, reuse_address: bool | None = None, **keywords: Any
) -> Any:
    """The same, on loops that still know this parameter: uvloop's rules for it."""
    if reuse_address:
        raise ValueError(
            "Passing `reuse_address=True` is no longer supported, as the usage of SO_REUSEPORT "
            "in UDP poses a significant security concern."
        )
    if reuse_address is not None:
        warnings.warn(
            "The *reuse_address* parameter has been deprecated as of 0.15.",
            DeprecationWarning,
            stacklevel=2,
        )
    return await create_datagram_endpoint(*arguments, **keywords)
