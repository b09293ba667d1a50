"""``aiorecv demo``: the same flood of loopback for three receivers, each in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import IO

import attrs
from rich.console import Console

from aiorecv.cli.counter import HOST
from aiorecv.cli.plain import PlainView
from aiorecv.cli.report import Report, Result
from aiorecv.cli.view import LiveView, choose_view, make_table

# -P: what is installed, and not a source tree that happens to be the working directory.
_FLOOD = (sys.executable, "-P", "-m", "aiorecv.bench.flood")
_COUNTER = (sys.executable, "-P", "-m", "aiorecv.cli.counter")

# asyncio reads each packet into a new buffer of 256 KiB, which glibc maps and unmaps each time
# until its threshold happens to have grown: four times slower. This gives it its better value.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "67108864"}

_NOTE = """\
lost: sent, but not received. CPU-s a million: CPU seconds that the receiving
process took for a million packets. buffer: SO_RCVBUF as the kernel reports it;
each has what it gets by default (aiorecv asks for 4 MiB). The flood is as fast
as one core sends single datagrams: more of them where many are thrown away,
since that costs the kernel least."""


class DemoError(Exception):
    """A process of the demo failed; it has said why on stderr."""


@attrs.frozen
class Contestant:
    """A receiver to be shown."""

    title: str
    what: str
    """``aiorecv``, or ``own`` for the loop's datagram protocol."""
    loop: str


def run(seconds: float, size: int, loop: str) -> int:
    """Flood each receiver for some seconds and show what it gets. Returns the exit status.

    Args:
        seconds: For each receiver.
        size: Bytes of a datagram.
        loop: What aiorecv runs on, ``uvloop`` or ``asyncio``.
    """
    contestants = [
        Contestant(f"aiorecv on {loop}", "aiorecv", loop),
        Contestant("asyncio's own", "own", "asyncio"),
    ]
    missing = []
    if find_spec("uvloop"):
        contestants.append(Contestant("uvloop's own", "own", "uvloop"))
    else:
        missing.append("uvloop's own")
    console = Console(highlight=False)
    heading = f"Flooding loopback with datagrams of {size} bytes, {seconds:g} s for each receiver"
    try:
        with choose_view(console, heading) as view:
            results = [_flood(contestant, seconds, size, view) for contestant in contestants]
    except DemoError as error:
        print(f"aiorecv demo: {error}", file=sys.stderr)
        return 1
    console.print(make_table(results, missing))
    if missing:
        console.print("uvloop is not installed: pip install 'aiorecv\\[uvloop]'")
    console.print(_NOTE, soft_wrap=True)
    if not all(result.report.packets for result in results):
        print("aiorecv demo: nothing came", file=sys.stderr)
        return 1
    return 0


def _flood(contestant: Contestant, seconds: float, size: int, view: LiveView | PlainView) -> Result:
    """Run one receiver and its flood, and let the view follow."""
    view.begin(contestant.title)
    with _child(*_COUNTER, contestant.what, contestant.loop) as counter:
        first = counter.output.readline()
        if not first:
            raise DemoError(f"{contestant.title} did not start")
        target = f"{HOST}:{json.loads(first)['port']}"
        options = ("--to", target, "--seconds", str(seconds), "--size", str(size))
        with _child(*_FLOOD, *options) as flood:
            for line in counter.output:
                report = Report.from_json(line)
                if report.packets:  # the flood has begun
                    view.update(report)
                if flood.process.poll() is not None:
                    counter.input.close()  # it goes on until its queue is empty, then ends
            if counter.process.wait() != 0:
                raise DemoError(f"{contestant.title} failed")
            if flood.process.wait() != 0:
                raise DemoError("the flood failed")
            sent = json.loads(flood.output.read())["sent"]
    result = Result(contestant.title, sent, report)
    view.end(result)
    return result


@attrs.frozen
class _Child:
    process: subprocess.Popen[str]
    input: IO[str]
    output: IO[str]


@contextmanager
def _child(*command: str) -> Iterator[_Child]:
    """A process that talks through pipes; when the block ends, so does it.

    It is in a process group of its own: Ctrl-C is for us, who end it.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | _MALLOC,
        process_group=0,
    )
    assert process.stdin is not None  # both are pipes
    assert process.stdout is not None
    try:
        yield _Child(process, process.stdin, process.stdout)
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()
