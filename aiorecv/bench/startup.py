"""What a program pays before its first packet: time to import, bytes on the disk, time to open.

Each sample is a fresh process, and the arms take turns, after a round that only warms up: it fills
a cache of compiled modules, whatever the environment says of those, and files come from memory from
then on. An import is timed from the interpreter's first statement on: asyncio by itself, uvloop,
and aiorecv, which imports asyncio too. The first packet is timed from the same point, imports
included, and from the end of the imports: an event loop starts, a UDP socket is opened, one
datagram is sent to it, and its user has it; beside it the same with the loop's own datagram
endpoint. The payload is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import attrs

from aiorecv.bench.bars import loops
from aiorecv.bench.drains import CountError
from aiorecv.bench.installed import installed_size, is_editable, requirements
from aiorecv.bench.options import parse_count
from aiorecv.bench.processes import PYTHON, STEADY_ALLOCATOR
from aiorecv.bench.report import Run, Series, Table, figure, machine

SUMMARY = "time to import, installed bytes, time to the first packet"

_PAYLOAD = "the first packet"

# How a program gets one packet; ``PAYLOAD`` is bytes, ``LOOP`` what Runner makes its loop with.
_AIORECV = """
async def main():
    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(PAYLOAD, receiver.local_addr)
        async for batch in receiver:
            for data, addr in batch:
                return data
"""
_OWN = """
class Protocol(asyncio.DatagramProtocol):
    def __init__(self, received):
        self.received = received
    def datagram_received(self, data, addr):
        self.received.set_result(data)

async def main():
    loop = asyncio.get_running_loop()
    received = loop.create_future()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: Protocol(received), ("127.0.0.1", 0)
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(PAYLOAD, transport.get_extra_info("sockname"))
    data = await received
    transport.close()
    return data
"""
_FIRST_PACKET = """
from time import perf_counter
start = perf_counter()
import asyncio, socket
import {imported}
imported = perf_counter()
PAYLOAD = {payload!r}.encode()
{main}
async def timed():
    data = await main()
    return perf_counter(), data
with asyncio.Runner(loop_factory={factory}) as runner:
    end, data = runner.run(timed())
import json
print(json.dumps([data.decode(), end - start, end - imported]))
"""
_IMPORT = """
from time import perf_counter
start = perf_counter()
import {imported}
print(perf_counter() - start)
"""
_FACTORIES = {"asyncio": "asyncio.SelectorEventLoop", "uvloop": "uvloop.new_event_loop"}


@attrs.frozen
class Arm:
    """A program, and the series that its lines are samples of."""

    program: str
    series: Sequence[Series]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument(
        "--repeat",
        type=parse_count,
        default=15,
        help="fresh processes of each arm (default: 15)",
    )


def measure(arguments: argparse.Namespace, command: str) -> Run:
    """Start every program so often, in turns.

    Raises:
        CountError: If a program failed, or another packet came than was sent.
    """
    names = list(loops("both"))
    arms = [*_imports(names), *_first_packets(names)]
    samples: list[list[list[float]]] = [[] for _ in arms]
    with tempfile.TemporaryDirectory(prefix="aiorecv-") as compiled:
        for number in range(arguments.repeat + 1):
            for arm, kept in zip(arms, samples, strict=True):
                taken = _start(arm.program, compiled)
                if number:
                    kept.append(taken)
            print(f"startup: {number} of {arguments.repeat} rounds", file=sys.stderr)
    series = [
        attrs.evolve(one, samples=column)
        for arm, kept in zip(arms, samples, strict=True)
        for one, column in zip(arm.series, zip(*kept, strict=True), strict=True)
    ]
    facts = {"requirements": requirements("aiorecv"), "editable": is_editable("aiorecv")}
    return Run("startup", command, machine(), facts, [*series, *_sizes()])


def tables(run: Run) -> list[Table]:
    """A table for times and one for bytes."""
    times = [one for one in run.series if one.unit != "bytes"]
    sizes = [one for one in run.series if one.unit == "bytes"]
    keys = {(one.group, one.arm): None for one in times}
    missing = ["uvloop is not installed."] if run.machine["packages"]["uvloop"] is None else []
    return [
        Table(
            "Time to import, and to the first packet",
            ["", "ms", "± %", "without imports, ms", "± %"],
            [_row(run, *key) for key in keys],
            [
                f"Medians of {len(times[0].samples)} fresh processes of each, in turns; ±: how far "
                "the median's 95 % confidence interval reaches.",
                *missing,
            ],
        ),
        Table(
            "Installed bytes",
            ["", "bytes"],
            [[one.arm, f"{one.median:,.0f}"] for one in sizes],
            [_told_sizes(run)],
        ),
    ]


_LATER = "ms without imports"


def _row(run: Run, group: str, arm: str) -> list[str]:
    cells = [f"{group}: {arm}"]
    for unit in ("ms", _LATER):
        found = [one for one in run.series if (one.group, one.arm, one.unit) == (group, arm, unit)]
        cells += [figure(found[0].median), f"{found[0].spread * 100:.0f}"] if found else ["", ""]
    return cells


def _told_sizes(run: Run) -> str:
    names = ", ".join(run.facts["requirements"])
    counted = (
        "the package's directory, as it is installed in editable form"
        if run.facts["editable"]
        else "what the installer has recorded"
    )
    return f"Compiled Python files are left out. Of aiorecv: {counted}. Requirements: {names}."


def _imports(names: Sequence[str]) -> Iterator[Arm]:
    # Those that are there: uvloop may be missing.
    for name in ("asyncio", *(name for name in names if name != "asyncio"), "aiorecv"):
        yield Arm(_IMPORT.format(imported=name), [Series("import", name, "ms", ())])


def _first_packets(names: Sequence[str]) -> Iterator[Arm]:
    for loop in names:
        group = f"first packet on {loop}"
        for arm, main in (("own endpoint", _OWN), ("aiorecv", _AIORECV)):
            modules = {"asyncio", loop} | ({"aiorecv"} if arm == "aiorecv" else set())
            program = _FIRST_PACKET.format(
                imported=", ".join(sorted(modules)),
                payload=_PAYLOAD,
                main=main,
                factory=_FACTORIES[loop],
            )
            yield Arm(program, [Series(group, arm, unit, ()) for unit in ("ms", _LATER)])


def _sizes() -> Iterator[Series]:
    names = ["aiorecv", *requirements("aiorecv")]
    for arm, counted in (("aiorecv", names[:1]), ("aiorecv and its requirements", names)):
        yield Series("installed", arm, "bytes", [sum(map(installed_size, counted))])


def _start(program: str, compiled: str) -> list[float]:
    """Run it, with its compiled modules in a directory; the milliseconds that it prints."""
    # Where writing them is turned off, as in some containers, each import would compile again.
    environment = os.environ | STEADY_ALLOCATOR | {"PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        (*PYTHON, "-c", program),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode != 0:
        raise CountError(f"a fresh process failed: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    if isinstance(said, float):
        return [said * 1e3]
    payload, *seconds = said
    if payload != _PAYLOAD:
        raise CountError(f"{_PAYLOAD!r} was sent, and {payload!r} came")
    return [one * 1e3 for one in seconds]
