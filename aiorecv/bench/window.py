"""Windows: what each window policy costs, over patterns of arrivals.

Each pattern is read by each policy twice: simulated, by pure numbers, and replayed with datagrams
on a socket of loopback, by a receiver. Both count system calls, empty ones, and the pages of packet
memory that reads write. To be fair, the policies take turns, each on an event loop of its own with
nothing warm, and are sent the same packets at the same moments; every payload is compared with what
was sent. The time is the receiver's and its loop's, without the sending; it tells a machine, the
counts tell a policy.

Source: google/gvisor issue 16172, whose rule AdaptiveWindow is.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

import aiorecv
from aiorecv.bench.arrivals import PATTERNS, Account, Pattern, simulate
from aiorecv.bench.bars import loops
from aiorecv.bench.options import parse_count, whole_number
from aiorecv.bench.replays import most_at_once, replay
from aiorecv.bench.report import Picture, Run, Series, Table, machine
from aiorecv.bench.verdicts import verdicts

SUMMARY = "calls, memory and growth of each window policy, by pattern of arrivals"

POLICIES: dict[str, Callable[[], aiorecv.WindowPolicy]] = {
    "FixedWindow(8)": lambda: aiorecv.FixedWindow(8),
    "FixedWindow(64)": lambda: aiorecv.FixedWindow(64),
    "AdaptiveWindow(initial=1)": lambda: aiorecv.AdaptiveWindow(initial=1),
    "AdaptiveWindow(initial=2)": lambda: aiorecv.AdaptiveWindow(initial=2),
    "PeakWindow()": aiorecv.PeakWindow,
    "PeakWindow(maximum=256)": lambda: aiorecv.PeakWindow(maximum=256),
}
REFERENCE = "AdaptiveWindow(initial=2)"
CANDIDATES = ("PeakWindow()", "PeakWindow(maximum=256)")

SIMULATED = "simulated"
CALLS, EMPTY, TOUCHED, KEPT = "calls", "empty reads", "KiB touched", "KiB kept"
RESIZES, RATE, TIME = "resizes", "packets/call", "ns/packet"
_COUNTED = (CALLS, EMPTY, RATE, TOUCHED, KEPT, RESIZES)


# A whole Ethernet frame's; larger ones would only make the patterns' queues shorter.
_MOST_SIZE = 1472


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    add = parser.add_argument
    add("--loop", choices=("asyncio", "uvloop", "both"), default="both", help="to replay on")
    add(
        "--repeat",
        type=parse_count,
        default=5,
        help="replays of each policy (default: 5)",
    )
    add("--arrivals", type=parse_count, default=10_000, help="of each pattern, at most")
    add(
        "--size",
        type=whole_number(1, _MOST_SIZE),
        default=64,
        help="bytes of each datagram (default: 64)",
    )
    names = [pattern.name for pattern in PATTERNS]
    add("--pattern", choices=names, action="append", help="one pattern; may be repeated")


def measure(arguments: argparse.Namespace, command: str) -> Run:
    """Simulate, then replay.

    Raises:
        CountError: If packets were lost, or are not what was sent.
    """
    most = asyncio.run(most_at_once(arguments.size))
    wanted = arguments.pattern or [pattern.name for pattern in PATTERNS]
    patterns = [
        pattern.fitted(arguments.arrivals, most) for pattern in PATTERNS if pattern.name in wanted
    ]
    series = list(_simulated(patterns, arguments.size))
    for name, factory in loops(arguments.loop).items():
        for pattern in patterns:
            print(f"replaying on {name}: {pattern.title}", file=sys.stderr, flush=True)
            series += _replayed(pattern, name, factory, arguments)
    facts = {
        "size": arguments.size,
        "most_at_once": most,
        "patterns": {
            pattern.name: {
                "title": pattern.title,
                "packets": pattern.packets,
                "ends_lone": pattern.ends_lone,
            }
            for pattern in patterns
        },
    }
    return Run("window", command, machine(), facts, series)


def _simulated(patterns: Sequence[Pattern], size: int) -> Iterator[Series]:
    for pattern in patterns:
        for arm, make in POLICIES.items():
            figures = _figures(simulate(pattern, make(), size))
            yield from _as_series(f"{SIMULATED} {pattern.name}", arm, [figures])


def _replayed(
    pattern: Pattern, loop: str, factory: Callable[[], Any], arguments: argparse.Namespace
) -> Iterator[Series]:
    samples: dict[str, list[dict[str, float]]] = {arm: [] for arm in POLICIES}
    for _ in range(arguments.repeat):
        for arm, make in POLICIES.items():
            with asyncio.Runner(loop_factory=factory) as runner:
                done = runner.run(replay(pattern, make(), arguments.size))
            nanoseconds = done.seconds * 1e9 / pattern.packets
            samples[arm].append({**_figures(done.account), TIME: nanoseconds})
    for arm, taken in samples.items():
        yield from _as_series(f"{loop} {pattern.name}", arm, taken)


def _figures(account: Account) -> dict[str, float]:
    return {
        CALLS: account.calls,
        EMPTY: account.empty_reads,
        RATE: account.packets / account.calls,
        TOUCHED: account.touched_bytes / 1024,
        KEPT: account.kept_bytes / 1024,
        RESIZES: account.resizes,
    }


def _as_series(group: str, arm: str, taken: Sequence[dict[str, float]]) -> Iterator[Series]:
    for unit in taken[0]:
        samples = [figures[unit] for figures in taken]
        yield Series(group, arm, unit, samples, "higher" if unit == RATE else "lower")


def tables(run: Run) -> list[Table]:
    """The figures of each part, and how the default fares against the rule that it replaced."""
    parts = list(dict.fromkeys(series.group.partition(" ")[0] for series in run.series))
    shown = [_simulation(run)]
    for loop in parts[1:]:
        shown += [_replays(run, loop, CALLS), _replays(run, loop, TIME)]
    return [*shown, *(verdicts(run, REFERENCE, one, parts) for one in CANDIDATES)]


def pictured(run: Run) -> list[Picture]:
    """The simulated calls of each policy, by pattern."""
    titles = {f"{SIMULATED} {name}": one["title"] for name, one in run.facts["patterns"].items()}
    calls = [
        attrs.evolve(one, group=titles[one.group])
        for one in run.series
        if one.unit == CALLS and one.group in titles
    ]
    return [Picture("System calls, simulated", calls)]


def _simulation(run: Run) -> Table:
    rows = []
    for name, pattern in run.facts["patterns"].items():
        for arm in POLICIES:
            found = {unit: run.find(f"{SIMULATED} {name}", arm, unit).median for unit in _COUNTED}
            cells = {unit: _shown(value, unit) for unit, value in found.items()}
            if not pattern["ends_lone"]:
                cells[KEPT] = "-"
            rows.append([pattern["title"], arm, *cells.values()])
    note = (
        f"Datagrams of {run.facts['size']} bytes, at most {run.facts['most_at_once']:,} queued at "
        "once. Calls include the empty reads. Touched is every page of a slot that was written "
        "once, in slabs of each size; kept is what the last window goes on using, where packets "
        "come singly in the end."
    )
    title = "Simulated: system calls and packet memory"
    return Table(title, ("pattern", "window", *_COUNTED), rows, [note])


def _shown(value: float, unit: str) -> str:
    return f"{value:.1f}" if unit == RATE else f"{value:,.0f}"


def _replays(run: Run, loop: str, unit: str) -> Table:
    rows = [
        [
            pattern["title"],
            *(_shown(run.find(f"{loop} {name}", arm, unit).median, unit) for arm in POLICIES),
        ]
        for name, pattern in run.facts["patterns"].items()
    ]
    title = f"Replayed on {loop}: {unit.replace('/', ' a ')}"
    return Table(title, ("pattern", *POLICIES), rows, [_replay_note(run, loop, unit)])


def _replay_note(run: Run, loop: str, unit: str) -> str:
    if unit == TIME:
        return "Until the last packet was in the user's hands, without the sending: medians."
    alike = of = 0
    for name in run.facts["patterns"]:
        for arm in POLICIES:
            (expected,) = _reads(run, f"{SIMULATED} {name}", arm)
            reads = _reads(run, f"{loop} {name}", arm)
            of += len(reads)
            alike += reads.count(expected)
    return (
        f"Reads that brought something were as many as simulated in {alike} of {of} replays. Empty "
        "ones are more: a receiver that comes back late asks before it waits."
    )


def _reads(run: Run, group: str, arm: str) -> list[float]:
    calls, empty = run.find(group, arm, CALLS), run.find(group, arm, EMPTY)
    return [all_ - some for all_, some in zip(calls.samples, empty.samples, strict=True)]
