"""Two ways to read frames, side by side: recvmmsg, and a ring in shared memory (TPACKET_V3).

One end of a wire between two interfaces is flooded by a process of its own, flat out; at the other
each dispatcher reads in turns, as a plain C loop and by aiorecv: as batches of which it asks but
the length, and as pairs. Losses are expected; what came and what was dropped is what was sent. Then
lone frames are sent, and timed until they are in their user's hands. Lines on stderr tell how it
goes. Needs root: the wire is in a network namespace of its own.

After gVisor's two dispatchers, RecvMMsg and PacketMMap, commit 99b877f, 2019.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median

import attrs

from aiorecv.bench.bars import loops
from aiorecv.bench.dispatcher_rounds import ARMS, Taken, lone, sample, without_warnings
from aiorecv.bench.feeders import Pins
from aiorecv.bench.flood import parse_seconds
from aiorecv.bench.networks import add_veth, new_network
from aiorecv.bench.options import parse_count, parse_pin, whole_number
from aiorecv.bench.processes import without_collections
from aiorecv.bench.report import Picture, ReportError, Run, Series, Table, figure, machine

SUMMARY = "frames by recvmmsg and by a ring: speed, losses, CPU time, latency"

SPEED, BITS, DROPS, COST = "packets/s", "Gbit/s", "dropped %", "CPU-s/million"
LATENCIES = ("lone frame us, median", "lone frame us, p99", "lone frame us, maximum")
_parse_size = whole_number(60, 65_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``aiorecv bench dispatchers``."""
    add = parser.add_argument
    add(
        "--sizes",
        type=_parse_sizes,
        default=[64, 1400, 63_000],
        metavar="BYTES,...",
        help="of frames; above 1514 sent in one piece, by GSO (default: 64,1400,63000)",
    )
    add("--seconds", type=parse_seconds, default=1.0, help="of flood a sample (default: 1)")
    add("--interval", type=parse_seconds, default=1.0, help="seconds a line (default: 1)")
    add("--repeat", type=parse_count, default=7, help="samples of each row (default: 7)")
    add("--lone", type=parse_count, default=200, help="lone frames of each row (default: 200)")
    add("--loop", choices=("asyncio", "uvloop", "both"), default="both", help="(default: both)")
    add(
        "--pin",
        type=parse_pin,
        metavar="READER[,SENDER]",
        help="the CPUs of the reader and of its sender (default: the kernel's choice)",
    )


def _parse_sizes(text: str) -> list[int]:
    return [_parse_size(part) for part in text.split(",")]


def measure(arguments: argparse.Namespace, command: str) -> Run:
    """Measure all rows.

    Raises:
        CountError: If what came and what was dropped is not what was sent.
        ReportError: Without the right to make a network namespace, or without the loop.
    """
    names = loops(arguments.loop)
    if not names:
        raise ReportError(f"no event loop to measure: {arguments.loop} is not installed")
    pins = Pins(*arguments.pin) if arguments.pin else None
    series: list[Series] = []
    try:
        with new_network(), without_collections(), without_warnings():
            add_veth("veth0", "veth1")
            if pins is not None:
                pins.settle()
            for loop, make in names.items():
                for size in arguments.sizes:
                    taken: dict[str, list[Taken]] = {arm: [] for arm in ARMS}
                    for number in range(arguments.repeat):
                        for arm in ARMS:
                            title = f"{loop}, {size} bytes, {arm}, {number + 1}"
                            taken[arm].append(sample(arm, size, make, arguments, pins, title))
                    waits = {arm: lone(arm, size, make, arguments.lone) for arm in ARMS}
                    series += _series(f"{loop}: {size}-byte frames", size, taken, waits)
    except PermissionError:
        raise ReportError("needs root, to make a network namespace with a wire in it") from None
    facts = {
        "loops": list(names),
        "sizes": arguments.sizes,
        "seconds": arguments.seconds,
        "lone": arguments.lone,
        "pin": arguments.pin,
    }
    return Run("dispatchers", command, machine(), facts, series)


def _series(
    group: str, size: int, taken: dict[str, list[Taken]], waits: dict[str, list[float]]
) -> list[Series]:
    found = []
    for arm, samples in taken.items():
        speeds = [one.packets / one.seconds for one in samples]
        bits = [speed * size * 8 / 1e9 for speed in speeds]
        drops = [100 * one.drops / one.sent for one in samples]
        cost = [one.cpu / one.packets * 1e6 for one in samples]
        found += [
            Series(group, arm, SPEED, speeds, "higher"),
            Series(group, arm, BITS, bits, "higher"),
            Series(group, arm, DROPS, drops),
            Series(group, arm, COST, cost),
        ]
        ordered = sorted(waits[arm])
        for unit, at in zip(LATENCIES, (0.5, 0.99, 1.0), strict=True):
            wait = ordered[min(int(at * len(ordered)), len(ordered) - 1)]
            found.append(Series(group, arm, unit, [wait]))
    return found


def tables(run: Run) -> list[Table]:
    """A table for each event loop and size of frames."""
    groups = dict.fromkeys(series.group for series in run.series)
    return [_table(run, group) for group in groups]


def _table(run: Run, group: str) -> Table:
    rows = []
    for arm, reference in ARMS.items():
        found = {
            series.unit: series
            for series in run.series
            if (series.group, series.arm) == (group, arm)
        }
        cost = found[COST].samples
        ratio = median(
            one / other
            for one, other in zip(cost, run.find(group, reference, COST).samples, strict=True)
        )
        rows.append(
            [
                arm,
                f"{found[SPEED].median:,.0f}",
                f"{found[BITS].median:.2f}",
                f"{found[DROPS].median:.1f}",
                figure(found[COST].median),
                f"{ratio:.2f}",
                *(f"{found[unit].median:,.0f}" for unit in LATENCIES),
            ]
        )
    columns = ["dispatcher", SPEED, BITS, DROPS, COST, "x its C", *LATENCIES]
    return Table(group, columns, rows, _notes(run, group))


def _notes(run: Run, group: str) -> list[str]:
    ring = run.find(group, "ring pairs", COST).samples
    calls = run.find(group, "recvmmsg pairs", COST).samples
    share = median(one / other for one, other in zip(ring, calls, strict=True))
    notes = [
        f"Medians of {len(ring)} samples of {run.facts['seconds']:g} s, taken in turns; "
        "CPU-seconds a million frames are the reader's, the kernel's work for it included. "
        f"{run.facts['lone']} lone frames.",
        f"Pairs by the ring take {share:.2f} of the CPU time of pairs by recvmmsg.",
    ]
    if run.facts["pin"]:
        notes.append("Reader on CPU {}, sender on CPU {}.".format(*run.facts["pin"]))
    return notes


def pictured(run: Run) -> list[Picture]:
    """The cost of a frame, a picture for each event loop."""
    return [
        Picture(f"CPU-seconds a million frames, {loop}", _costs(run, loop))
        for loop in run.facts["loops"]
    ]


def _costs(run: Run, loop: str) -> Sequence[Series]:
    return [
        attrs.evolve(series, group=series.group.removeprefix(f"{loop}: "))
        for series in run.series
        if series.unit == COST and series.group.startswith(f"{loop}: ")
    ]
