"""Event loops by name, for ``--loop``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from importlib.util import find_spec


def add_loop_argument(parser: argparse.ArgumentParser) -> None:
    """``--loop``: what aiorecv runs on."""
    parser.add_argument(
        "--loop",
        type=_parse,
        default="uvloop" if find_spec("uvloop") else "asyncio",
        metavar="{uvloop,asyncio}",
        help="what aiorecv runs on (default: uvloop if it is installed)",
    )


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes such a loop, for ``asyncio.Runner``."""
    if name == "asyncio":
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _parse(text: str) -> str:
    if text not in ("uvloop", "asyncio"):
        raise argparse.ArgumentTypeError(f"{text!r}: give uvloop or asyncio")
    if text == "uvloop" and not find_spec("uvloop"):
        raise argparse.ArgumentTypeError("not installed: pip install 'aiorecv[uvloop]'")
    return text
