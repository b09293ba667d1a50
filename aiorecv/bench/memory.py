"""How much memory a process holds that receives: an adaptive window, a fixed one, slots for life.

One sample is one fresh process, with 1 receiver or 1,000, and all phases of its life; the designs
take turns. Its sockets are made alike, and its application takes every payload as bytes.

  boot         3 s after the start
  rpc          after 300 requests of 1 KiB, one after the other, each sent back and compared
  bulk         at the end of 512 MiB, as trains of 1,400-byte packets (UDP GSO and GRO)
  bulkrpc      after 300 more requests, at once
  quiet        after 3 s without traffic
  restored     the sockets were handed to a fresh process (SCM_RIGHTS), 3 s after its start
  restoredrpc  after 300 more requests

Where there are more than 300 receivers, each gets a request; bulk is spread over all. All that was
sent has to have come, the packets that were sent while the sockets changed hands included.

RssAnon is the process's own (/proc/PID/status). Where there can be a memory cgroup, each process is
in one of its own, of which anonymous and non-reclaimable memory is looked at: all that is charged
to it, less file pages and reclaimable slab. The kernel charges in portions of up to 256 KiB a CPU.

The designs: "adaptive" is aiorecv with its default window, "fixed 8" with FixedWindow(8), and
"preallocated 8 x 64 KiB" is C, called by a reader callback of the same loop, with slots for each
socket that are zeroed at the start and kept. The first two have a task for each receiver, the last
has none.

To judge the difference: aiorecv bench compare RUN.json --base "preallocated 8 x 64 KiB"
--arm adaptive

After the memory harness of google/gvisor issue 16172.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiorecv.bench.bars import loops
from aiorecv.bench.flood import parse_seconds
from aiorecv.bench.memory_child import ARMS, raise_descriptor_limit
from aiorecv.bench.memory_life import PHASES, Life, Sample, live
from aiorecv.bench.memory_process import RSS, UNITS, Setting, why_no_cgroup
from aiorecv.bench.options import whole_number
from aiorecv.bench.report import Picture, ReportError, Run, Series, Table, machine, measured

SUMMARY = "how much memory receivers hold, by phase of their life"

_BASE, _FIXED, _OURS = ARMS
_TITLES = {
    UNITS[0]: "anonymous memory of the process (RssAnon), KiB",
    UNITS[1]: "anonymous memory of its cgroup, KiB",
    UNITS[2]: "memory of its cgroup that can't be reclaimed, KiB",
}
# A receiver's socket and, on uvloop, its epoll descriptor; the interpreter's and the loop's own.
_DESCRIPTORS_EACH, _DESCRIPTORS_BESIDE = 2, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``aiorecv bench memory``."""
    add = parser.add_argument
    add("--repeat", type=whole_number(1, 1000), default=6, help="samples of each arm (default: 6)")
    add(
        "--receivers",
        type=whole_number(1, 100_000),
        nargs="+",
        default=[1, 1000],
        metavar="N",
        help="in one process (default: 1 1000)",
    )
    add("--loop", choices=("asyncio", "uvloop", "both"), default="both", help="(default: both)")
    add(
        "--bulk",
        type=whole_number(1, 1 << 20),
        default=512,
        metavar="MIB",
        help="to be received in bulk (default: 512)",
    )
    add(
        "--boot",
        type=parse_seconds,
        default=3.0,
        metavar="SECONDS",
        help="until a fresh or quiet process is looked at (default: 3)",
    )
    add(
        "--cgroup",
        type=Path,
        metavar="DIRECTORY",
        help="make the processes' memory cgroups there (default: in this process's own, if that "
        "is nobody else's)",
    )


def measure(arguments: argparse.Namespace, command: str) -> Run:
    """Take all samples, each with processes of its own.

    Raises:
        CountError: If what came is not what was sent.
        ReportError: If this process may not open as many sockets.
        ChildProcessError: If a process failed; it has said why on stderr.
    """
    receivers = list(dict.fromkeys(arguments.receivers))
    _check_descriptors(max(receivers))
    reason = why_no_cgroup(arguments.cgroup)
    if reason is not None:
        if arguments.cgroup is not None:
            raise ReportError(f"--cgroup: {reason}")
        print(f"Without cgroup figures: {reason}", file=sys.stderr)
    setting = Setting(reason is None, arguments.cgroup)
    names = list(loops(arguments.loop))
    series: list[Series] = []
    waited: dict[str, dict[str, list[int]]] = {}
    for loop in names:
        for count in receivers:
            life = Life(count, arguments.boot, arguments.bulk << 20)
            taken = _alternate(setting, life, loop, arguments.repeat)
            group = _group(loop, count)
            waited[group] = {arm: [one.waited for one in kept] for arm, kept in taken.items()}
            series += [one for arm, kept in taken.items() for one in _series(group, arm, kept)]
    facts = {
        "loops": names,
        "receivers": receivers,
        "boot": arguments.boot,
        "bulk_mib": arguments.bulk,
        "no_cgroup": reason,
        "waited": waited,
    }
    return Run("memory", command, machine(), facts, series)


def _check_descriptors(receivers: int) -> None:
    needed = _DESCRIPTORS_EACH * receivers + _DESCRIPTORS_BESIDE
    allowed = raise_descriptor_limit()
    if needed > allowed:
        raise ReportError(
            f"{receivers:,} receivers need {needed:,} descriptors, and this process may have "
            f"{allowed:,}: raise the hard limit (ulimit -Hn), or give fewer --receivers"
        )


def _alternate(setting: Setting, life: Life, loop: str, repeat: int) -> dict[str, list[Sample]]:
    """All samples of one condition, the arms taking turns."""
    taken: dict[str, list[Sample]] = {arm: [] for arm in ARMS}
    for number in range(1, repeat + 1):
        for arm, kept in taken.items():
            kept.append(live(setting, life, arm, loop))
            told = ", ".join(
                f"{phase} {found[RSS]:,.0f}" for phase, found in kept[-1].memory.items()
            )
            print(
                f"{_group(loop, life.receivers)}: {arm}, sample {number} of {repeat}: {told} KiB",
                file=sys.stderr,
                flush=True,
            )
    return taken


def _group(loop: str, receivers: int) -> str:
    return f"{loop}, {receivers:,} receiver{'s' if receivers > 1 else ''}"


def _series(group: str, arm: str, taken: Sequence[Sample]) -> list[Series]:
    return [
        Series(f"{group}: {phase}", arm, unit, [one.memory[phase][unit] for one in taken])
        for unit in taken[0].memory[PHASES[0]]
        for phase in PHASES
    ]


def tables(run: Run) -> list[Table]:
    """A table for each event loop, number of receivers and unit."""
    return [
        _table(run, loop, receivers, unit)
        for loop in run.facts["loops"]
        for receivers in run.facts["receivers"]
        for unit in _units(run)
    ]


def pictured(run: Run) -> list[Picture]:
    """RssAnon by phase: a picture for each event loop and number of receivers."""
    return [
        Picture(
            f"{_TITLES[RSS]}: {_group(loop, receivers)}",
            [
                Series(phase, arm, RSS, run.find(f"{group}: {phase}", arm, RSS).samples)
                for phase in PHASES
                for arm in ARMS
            ],
        )
        for loop in run.facts["loops"]
        for receivers in run.facts["receivers"]
        for group in [_group(loop, receivers)]
    ]


def _units(run: Run) -> list[str]:
    return [unit for unit in UNITS if any(series.unit == unit for series in run.series)]


def _table(run: Run, loop: str, receivers: int, unit: str) -> Table:
    group = _group(loop, receivers)
    rows = []
    for phase in PHASES:
        arms = [run.find(f"{group}: {phase}", arm, unit) for arm in ARMS]
        base, fixed, ours = arms
        rows.append([phase, *map(measured, arms), _saved(base, ours), _saved(fixed, ours)])
    columns = ["phase", *ARMS, f"preallocated - {_OURS}", f"{_FIXED} - {_OURS}"]
    return Table(f"{group}: {_TITLES[unit]}", columns, rows, _notes(run, group, len(base.samples)))


def _saved(base: Series, ours: Series) -> str:
    """How much less ours is, in KiB and as a part of the base."""
    part = (base.median - ours.median) / base.median
    return f"{base.median - ours.median:,.0f} ({part:.1%})"


def _notes(run: Run, group: str, samples: int) -> list[str]:
    facts: Mapping[str, Any] = run.facts
    waited = sum(sum(kept) for kept in facts["waited"][group].values())
    notes = [
        f"Medians of {samples} fresh processes of each design, in turns, and how far their 95 % "
        f"interval reaches. {facts['bulk_mib']} MiB in bulk; boot, quiet and restored are "
        f"after {facts['boot']:g} s. {waited:,} packets waited in sockets that changed hands, in "
        "all samples together; every one of them arrived."
    ]
    if facts["no_cgroup"] is not None:
        notes.append(f"No cgroup figures: {facts['no_cgroup']}.")
    return notes
