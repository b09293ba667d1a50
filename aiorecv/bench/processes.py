"""Processes: how benches start fresh interpreters, and keep a measuring one quiet."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

# -P: what is installed, and not a source tree that happens to be the working directory.
PYTHON = (sys.executable, "-P")
"""An interpreter like this one."""

# asyncio's receive buffer of 256 KiB is mapped and unmapped for each packet until glibc's threshold
# has grown past it, which it does by chance.
STEADY_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "67108864",
}
"""Variables with which asyncio's own endpoint always has the better of its two figures."""


def module(name: str, *options: str) -> tuple[str, ...]:
    """The command that runs a module of the benches in a process of its own."""
    return (*PYTHON, "-m", f"aiorecv.bench.{name}", *options)


def restart_steady(name: str) -> None:
    """Run this program, a module of the benches, from its start with a steady allocator.

    Returns if it has one already: the allocator reads its variables when a process starts.
    """
    if not os.environ.items() >= STEADY_ALLOCATOR.items():
        os.execve(PYTHON[0], module(name, *sys.argv[1:]), os.environ | STEADY_ALLOCATOR)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Collect garbage now, and not while the block lasts."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
