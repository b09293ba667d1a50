"""How fast bulk traffic is received, and for how much CPU: the adaptive window against a fixed one.

A sender floods one receiver over loopback, flat out, from one flow or several; losses are expected,
and counted. The receiver takes every packet as an application does and adds up its bytes. Traffic:

  default  trains of 1,472-byte packets (UDP GSO), which the receiver gets whole (GRO)
  gro-off  the same trains, split by the kernel before the receiver gets them
  mtu      1,472-byte packets, each sent by itself

Each is met without a CPU quota and with the receiver's process held to 1 CPU and to 0.25, by a cpu
cgroup. Samples of the arms alternate, each in a fresh process; the clock runs from the first batch
for --seconds, while the sender goes on. CPU time is that of the receiver's process. On loopback the
sender's CPU does the kernel's part up to the socket's queue.

To judge the difference: aiorecv bench compare RUN.json --base "fixed 8" --arm adaptive --holm

After the iperf3 table of google/gvisor issue 16172.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import attrs

from aiorecv.bench.bars import loops
from aiorecv.bench.bulk_child import ARMS, Account
from aiorecv.bench.bulk_samples import (
    CONDITIONS,
    SIZE,
    TRAIN,
    Condition,
    Setting,
    gigabits,
    lost,
    take,
    why_no_quota,
)
from aiorecv.bench.counters import sysctl
from aiorecv.bench.flood import parse_seconds
from aiorecv.bench.options import parse_pin, whole_number
from aiorecv.bench.report import (
    Picture,
    ReportError,
    Run,
    Series,
    Table,
    change,
    figure,
    machine,
    measured,
)

SUMMARY = "how fast bulk traffic is received, and for how much CPU"

SPEED, COST = "Gbit/s", "CPU-s/GiB"

_TITLES = {SPEED: "Gbit/s received", COST: "CPU-seconds a GiB"}
_BASE, _OTHER = ARMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``aiorecv bench bulk``."""
    add = parser.add_argument
    add("--seconds", type=parse_seconds, default=2.0, help="of each sample (default: 2)")
    add("--repeat", type=whole_number(1, 1000), default=6, help="samples of each arm (default: 6)")
    add("--loop", choices=("asyncio", "uvloop", "both"), default="both", help="(default: both)")
    add(
        "--conditions",
        type=_parse_conditions,
        nargs="+",
        metavar="TRAFFIC/QUOTA/FLOWS",
        help="some of them, such as mtu/0.25/4 or 'default/*' (default: all)",
    )
    add(
        "--pin",
        type=parse_pin,
        metavar="RECEIVER[,SENDER]",
        help="the CPUs of the receiver and of its sender (default: the kernel's choice)",
    )
    add(
        "--cgroup",
        type=Path,
        metavar="DIRECTORY",
        help="the cpu cgroup below which quotas are set (default: this process's own)",
    )


def _parse_conditions(text: str) -> list[Condition]:
    chosen = [condition for condition in CONDITIONS if fnmatchcase(condition.name, text)]
    if not chosen:
        names = ", ".join(condition.name for condition in CONDITIONS)
        raise argparse.ArgumentTypeError(f"{text!r}: give some of {names}")
    return chosen


def measure(arguments: argparse.Namespace, command: str) -> Run:
    """Take all samples.

    Raises:
        CountError: If what came is not what was sent.
        ReportError: If this system lacks what all of the conditions need.
        ChildProcessError: If a receiver or a flood failed.
    """
    setting = Setting(arguments.seconds, arguments.pin, arguments.cgroup)
    conditions, left_out, reason = _possible(_chosen(arguments.conditions), setting)
    names = list(loops(arguments.loop))
    if not names:
        raise ReportError(f"no event loop to measure: {arguments.loop} is not installed")
    accounts: dict[str, dict[str, list[Account]]] = {}
    for loop in names:
        for condition in conditions:
            group = f"{loop}: {condition.title}"
            accounts[group] = _alternate(setting, arguments.repeat, loop, condition)
    facts = {
        "loops": names,
        "conditions": [condition.title for condition in conditions],
        "left out": [condition.title for condition in left_out],
        "why": reason,
        "seconds": arguments.seconds,
        "size": SIZE,
        "train": TRAIN,
        "pin": arguments.pin,
        "cpus": sorted(os.sched_getaffinity(0)),
        "net.core.rmem_max": sysctl("net.core.rmem_max"),
        "AIORECV_GRO": os.environ.get("AIORECV_GRO"),
        "accounts": _plain(accounts),
    }
    series = [
        one
        for group, arms in accounts.items()
        for arm, taken in arms.items()
        for one in _series(group, arm, taken)
    ]
    return Run("bulk", command, machine(), facts, series)


def _chosen(patterns: Sequence[Sequence[Condition]] | None) -> list[Condition]:
    """All that any pattern matches, once each."""
    if patterns is None:
        return list(CONDITIONS)
    wanted = [condition for chosen in patterns for condition in chosen]
    return [condition for condition in CONDITIONS if condition in wanted]


def _possible(
    wanted: Sequence[Condition], setting: Setting
) -> tuple[list[Condition], list[Condition], str | None]:
    """Which conditions this system can make, which not, and why."""
    limited = [condition for condition in wanted if condition.quota != "none"]
    reason = why_no_quota(setting.parent) if limited else None
    if reason is None:
        return list(wanted), [], None
    possible = [condition for condition in wanted if condition not in limited]
    if not possible:
        raise ReportError(f"no CPU quota can be set here: {reason}")
    print(f"Without the conditions that need a CPU quota: {reason}", file=sys.stderr)
    return possible, limited, reason


def _alternate(
    setting: Setting, repeat: int, loop: str, condition: Condition
) -> dict[str, list[Account]]:
    """All samples of one condition, the arms taking turns."""
    taken: dict[str, list[Account]] = {arm: [] for arm in ARMS}
    for number in range(1, repeat + 1):
        for arm, kept in taken.items():
            sample = f"sample {number} of {repeat}"
            print(f"{loop}: {condition.title}: {arm}, {sample}", file=sys.stderr, flush=True)
            kept.append(take(setting, condition, arm, loop))
    return taken


def _plain(accounts: Mapping[str, Mapping[str, Sequence[Account]]]) -> dict[str, Any]:
    return {
        group: {arm: [attrs.asdict(account) for account in taken] for arm, taken in arms.items()}
        for group, arms in accounts.items()
    }


def _series(group: str, arm: str, taken: Sequence[Account]) -> list[Series]:
    speeds = [gigabits(account.bytes, account.seconds) for account in taken]
    costs = [account.cpu / (account.bytes / 2**30) for account in taken]
    return [
        Series(group, arm, SPEED, speeds, "higher"),
        Series(group, arm, COST, costs, "lower"),
    ]


def tables(run: Run) -> list[Table]:
    """Speed and cost, each a table, for each event loop."""
    return [_table(run, loop, unit) for loop in run.facts["loops"] for unit in (SPEED, COST)]


def pictured(run: Run) -> list[Picture]:
    """Speed and cost, each a picture, for each event loop."""
    return [
        Picture(f"{_TITLES[unit]}, {loop}", _of(run, loop, unit))
        for loop in run.facts["loops"]
        for unit in (SPEED, COST)
    ]


def _of(run: Run, loop: str, unit: str) -> list[Series]:
    return [
        attrs.evolve(one, group=one.group.removeprefix(f"{loop}: "))
        for one in run.series
        if one.unit == unit and one.group.startswith(f"{loop}: ")
    ]


def _table(run: Run, loop: str, unit: str) -> Table:
    medians: list[tuple[float, float]] = []
    rows = []
    for title in run.facts["conditions"]:
        group = f"{loop}: {title}"
        base, other = (run.find(group, arm, unit) for arm in (_BASE, _OTHER))
        medians.append((base.median, other.median))
        beside = [_beside(run, group, arm) for arm in (_BASE, _OTHER)]
        rows.append(
            [title, measured(base), measured(other), change(*medians[-1])]
            + [" / ".join(pair) for pair in zip(*beside, strict=True)]
        )
    means = [geometric_mean(column) for column in zip(*medians, strict=True)]
    rows.append(["geometric mean", *map(figure, means), change(*means), "", "", ""])
    direction = base.better
    return Table(
        f"{_TITLES[unit]}, {loop} ({direction} is better)",
        ["condition", _BASE, _OTHER, "change", "packets a batch", "drops", "lost"],
        rows,
        _notes(run, len(base.samples)),
    )


def _beside(run: Run, group: str, arm: str) -> list[str]:
    """Packets a batch, drops and loss: medians of one arm's samples."""
    taken = [Account(**account) for account in run.facts["accounts"][group][arm]]
    return [
        f"{median(account.packets / account.batches for account in taken):.1f}",
        f"{median(account.drops for account in taken):,.0f}",
        f"{median(lost(account, run.facts['train']) for account in taken):.0%}",
    ]


def _notes(run: Run, samples: int) -> list[str]:
    facts = run.facts
    notes = [
        f"n = {samples}, {facts['seconds']:g} s a sample, the arms alternated; the median, and ± "
        f"how far its 95 % confidence interval reaches. Packets of {facts['size']} bytes; trains "
        f"of {facts['train']}.",
        f"Packets a batch, drops and lost: {_BASE} / {_OTHER}. Drops are entries of the receive "
        "queue, a train where trains come whole; lost is the part of all packets.",
    ]
    if facts["pin"]:
        notes.append("Receiver on CPU {}, sender on CPU {}.".format(*facts["pin"]))
    else:
        cpus = ", ".join(map(str, facts["cpus"]))
        notes.append(f"Nothing was pinned: the kernel chose from CPUs {cpus}.")
    if facts["why"]:
        notes.append(f"Left out, as no CPU quota could be set: {facts['why']}")
    if facts["AIORECV_GRO"] == "0":
        notes.append("AIORECV_GRO=0 turned GRO off: default is as gro-off.")
    return notes
