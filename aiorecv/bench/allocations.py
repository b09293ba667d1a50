"""Allocations: how many a read makes, counted.

``python -m aiorecv.bench.allocations`` counts in its own process, and prints JSON. What C allocates
is counted by functions in the place of ``malloc`` and its kind, which have to be preloaded;
`count_all` starts such processes. Python keeps small objects in pools of its own, apart from
``malloc``; a second process without those pools (``PYTHONMALLOC=malloc``) counts them too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import aiorecv
from aiorecv.bench import _sink
from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.bars import loops
from aiorecv.bench.drains import CountError
from aiorecv.bench.header_reads import ENTRIES, MESSAGES, WAYS, HeaderReads
from aiorecv.bench.processes import module, without_collections
from aiorecv.bench.queues import Filler, Queue

_FILLS = 8
# Slots of the receiver's window, for reads that bring one packet each and that bring as many.
_WINDOWS = (1, 64)
# Packets that any receive buffer holds, whatever the system's limit.
_FILL = 128

_Found: TypeAlias = tuple[str, list[float], int]  # loop and window, of each fill, reads of all


def count_all(loop: str) -> dict[str, Any]:
    """Allocations a read: of each way to build headers, and of receivers on each loop.

    Where they can't be counted, ``reason`` tells why, and nothing else is there.
    """
    try:
        counts = _child("headers", loop, {}) | {"receivers": _child("receivers", loop, {})}
        unpooled = _child("receivers", loop, {"PYTHONMALLOC": "malloc"})
        traced = _child("traced", loop, None)
    except ChildProcessError as error:
        return {"reason": str(error)}
    for name, found in counts["receivers"].items():
        found["with_python"] = unpooled[name]["process"]
        found |= traced[name]
    return counts


def _child(what: str, loop: str, environment: dict[str, str] | None) -> dict[str, Any]:
    """Run this module in a process of its own; preloaded, unless ``environment`` is None."""
    preload = {} if environment is None else {"LD_PRELOAD": _sink.__file__, **environment}
    done = subprocess.run(
        module("allocations", what, "--loop", loop),
        env={**os.environ, **preload},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise ChildProcessError(f"a process with LD_PRELOAD={_sink.__file__} failed: {last}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _count(work: Callable[[], object]) -> int:
    """Allocations while ``work`` is done."""
    before = lib.allocations_counted()
    work()
    return lib.allocations_counted() - before


def _count_own(work: Callable[[], object]) -> int:
    """Those that libraries of aiorecv make themselves; `_watching` has to be entered."""
    before = lib.allocations_below()
    work()
    return lib.allocations_below() - before


def _headers() -> dict[str, Any]:
    """Allocations a read of each way: by messages, entries and way."""
    return {"headers": [row for messages in MESSAGES for row in _ways(messages)]}


def _ways(messages: int) -> Iterator[tuple[int, int, str, float]]:
    for entries in ENTRIES:
        with HeaderReads(messages, entries, system_call=True) as reads:
            rounds = max(reads.room // messages, 1)
            for way in WAYS:
                reads.fill(rounds)
                made = _count_own(partial(reads.read, way, rounds))
                yield messages, entries, way, made / rounds


async def _receiver(window: int, during: Callable[[Callable[[], None]], float]) -> list[float]:
    """What ``during`` says of each fill's reads, whose batches are counted and released."""
    policy = aiorecv.FixedWindow(window)
    async with aiorecv.open_udp(("127.0.0.1", 0), window=policy, gro=False) as receiver:
        with Filler(Queue(_FILL, (64, 64)), receiver.local_addr) as filler:  # type: ignore[arg-type] # IPv4

            def read_all() -> None:
                for _ in range(_FILL // window):
                    batch = receiver.receive_nowait()
                    if batch is None or len(batch) != window or batch.nbytes != 64 * window:
                        raise CountError("a read did not bring what was sent")
                    batch.release()

            found = []
            for _ in range(1 + _FILLS):
                filler.fill()
                found.append(during(read_all))
            return found[1:]  # the first fill only warms up


def _each(loop: str, during: Callable[[Callable[[], None]], float]) -> Iterator[_Found]:
    for name, factory in loops(loop).items():
        for window in _WINDOWS:
            with asyncio.Runner(loop_factory=factory) as runner:
                found = runner.run(_receiver(window, during))
            yield f"{name} {window}", found, _FILLS * (_FILL // window)


def _receivers(loop: str) -> dict[str, Any]:
    """Allocations a read: of aiorecv's own libraries, and of the whole process."""
    own = {name: sum(found) / reads for name, found, reads in _each(loop, _count_own)}
    return {
        name: {"own": own[name], "process": sum(found) / reads}
        for name, found, reads in _each(loop, _count)
    }


def _traced_peak(work: Callable[[], None]) -> float:
    """Bytes of Python's memory that were in use at once during ``work``, on top of those before."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    work()
    return tracemalloc.get_traced_memory()[1] - before


def _traced_growth(work: Callable[[], None]) -> float:
    """Bytes of Python's memory that are in use after ``work`` and were not before."""
    before = tracemalloc.get_traced_memory()[0]
    work()
    return tracemalloc.get_traced_memory()[0] - before


def _traced(loop: str) -> dict[str, Any]:
    """Python's memory by tracemalloc: the most at once, and what a read leaves behind."""
    tracemalloc.start()
    try:
        peaks = {name: max(found) for name, found, _ in _each(loop, _traced_peak)}
        idle = _traced_growth(lambda: None)  # what looking takes by itself
        growth = {
            name: sum(fill - idle for fill in fills) / reads
            for name, fills, reads in _each(loop, _traced_growth)
        }
    finally:
        tracemalloc.stop()
    return {
        name: {"python_peak_bytes": peak, "python_growth_bytes": growth[name]}
        for name, peak in peaks.items()
    }


@contextlib.contextmanager
def _watching() -> Iterator[None]:
    """Count what aiorecv's own libraries allocate by itself."""
    directory = ffi.new("char[]", os.fsencode(Path(aiorecv.__file__).parent))
    lib.allocations_watch(directory)
    try:
        yield
    finally:
        lib.allocations_watch(ffi.NULL)


def main(argv: Sequence[str] | None = None) -> int:
    """Count here, and print JSON; 1 if nothing counts."""
    parser = argparse.ArgumentParser("python -m aiorecv.bench.allocations", description=__doc__)
    parser.add_argument("what", choices=("headers", "receivers", "traced"))
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "both"), default="both")
    arguments = parser.parse_args(argv)
    if arguments.what != "traced" and not lib.allocations_are_counted():
        print("allocations are not counted: preload aiorecv.bench._sink", file=sys.stderr)
        return 1
    with without_collections(), _watching():
        if arguments.what == "headers":
            found = _headers()
        else:
            found = {"receivers": _receivers, "traced": _traced}[arguments.what](arguments.loop)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
