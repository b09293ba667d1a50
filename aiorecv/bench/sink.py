"""What a packet costs by each call that reads it: C, aiorecv, asyncio and uvloop.

The queue of one UDP socket is filled while nobody drains it; then the clock runs until the last
packet has come. All rows drain equal queues, in turns; the sizes of all packets are added up and
compared with what was sent, and the contents of some. With --live the sender, a process of its own,
sends meanwhile: where it is slower than the sink, the clock measures the sender.

After udp_sink of the netdev series "udp: batch recvmmsg", November 2016.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import attrs

from aiorecv.bench._sink import lib
from aiorecv.bench.counters import differences, sysctl, udp_counters
from aiorecv.bench.drains import CountError
from aiorecv.bench.flood import parse_size
from aiorecv.bench.options import parse_pin, whole_number
from aiorecv.bench.processes import STEADY_ALLOCATOR, module
from aiorecv.bench.report import Run, Series, Table, machine
from aiorecv.bench.sink_rounds import Plan

SUMMARY = "what a packet costs by each call that reads it: C, aiorecv, asyncio, uvloop"

SYSCTLS = ("net.ipv4.ip_early_demux", "net.core.rmem_max", "net.core.wmem_max")
"""Settings that the figures may depend on."""

SWITCHES = ("AIORECV_GRO", "AIORECV_PORTABLE")
"""Variables that change how aiorecv receives."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``aiorecv bench sink``."""
    add = parser.add_argument
    number, most = whole_number, 1 << 31
    add("--count", type=number(1, most), default=100_000, help="packets a sample (default: 100000)")
    add("--port", type=number(0, 65_535), default=0, help="to receive on (default: any free one)")
    add("--repeat", type=number(1, most), default=7, help="samples of each row (default: 7)")
    add("--batch", type=number(1, lib.SINK_MAX_SLOTS), default=32, help="recvMmsg's (default: 32)")
    add("--size", type=parse_size, default=1472, help="bytes of each packet (default: 1472)")
    add(
        "--pin",
        type=parse_pin,
        metavar="SINK[,SENDER]",
        help="the CPUs of the sink and of its sender (default: the kernel's choice)",
    )
    senders = parser.add_mutually_exclusive_group()
    senders.add_argument(
        "--connect", action="store_true", help="connect the sink to its one sender"
    )
    senders.add_argument("--flows", type=number(1, 1024), default=1, help="senders (default: 1)")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--gro", action="store_true", help="send trains, which the kernel may leave together"
    )
    ways.add_argument("--live", action="store_true", help="drain while the sender sends")


def measure(arguments: argparse.Namespace, command: str) -> Run:
    """Measure all rows, in a process of its own.

    Raises:
        CountError: If what came is not what was sent.
        OSError: What the kernel says, such as of the port.
    """
    plan = Plan(**{field.name: getattr(arguments, field.name) for field in attrs.fields(Plan)})
    before = udp_counters()
    found = _measured(plan)
    facts = {
        "options": attrs.asdict(plan),
        "sysctls": {name: sysctl(name) for name in SYSCTLS},
        "udp": differences(before, udp_counters()),
        "environment": {name: os.environ[name] for name in SWITCHES if name in os.environ},
        "allowed_cpus": sorted(os.sched_getaffinity(0)),
        **{name: value for name, value in found.items() if name != "samples"},
    }
    series = [
        one
        for arm, samples in found["samples"].items()
        for one in _series(_group(plan), arm, samples, found["cycles"]["unit"])
    ]
    return Run("sink", command, machine(), facts, series)


def _measured(plan: Plan) -> Any:
    child = module("sink_rounds", json.dumps(attrs.asdict(plan)))
    done = subprocess.run(
        child,
        env=os.environ | STEADY_ALLOCATOR,  # for all rows
        stdout=subprocess.PIPE,
        text=True,
    )
    if not done.stdout:
        if done.returncode == -signal.SIGINT:
            raise KeyboardInterrupt
        raise RuntimeError(f"{' '.join(child[:-1])} failed with status {done.returncode}")
    found = json.loads(done.stdout)
    if "lost" in found:
        raise CountError(found["lost"])
    if "errno" in found:
        raise OSError(found["errno"], found["message"])
    return found


def _group(plan: Plan) -> str:
    words = [
        f"{plan.size}-byte packets",
        "1 flow" if plan.flows == 1 else f"{plan.flows} flows",
        "connected" if plan.connect else "unconnected",
        *(["GRO"] if plan.gro else []),
        *(["live"] if plan.live else []),
    ]
    return ", ".join(words)


def _series(
    group: str, arm: str, samples: Sequence[Mapping[str, Any]], cycles: str | None
) -> list[Series]:
    def a_packet(name: str) -> list[float]:
        return [one[name] / one["packets"] for one in samples]

    packets_a_read = [one["packets"] / one["reads"] for one in samples]
    found = [
        Series(group, arm, "ns/packet", a_packet("ns")),
        Series(group, arm, "CPU ns/packet", a_packet("cpu_ns")),
        Series(group, arm, "packets/read", packets_a_read, "higher"),
        Series(group, arm, "drops", [one["drops"] for one in samples]),
    ]
    if cycles is not None:
        found.append(Series(group, arm, f"{cycles}/packet", a_packet("cycles")))
    if samples[0]["empty_reads"] is not None:
        found.append(Series(group, arm, "empty reads", [one["empty_reads"] for one in samples]))
    return found


def tables(run: Run) -> list[Table]:
    """The rows, and what stands beside them."""
    return [_rows(run), _beside(run)]


def _rows(run: Run) -> Table:
    group = run.series[0].group
    arms = list(dict.fromkeys(series.arm for series in run.series))
    unit = run.facts["cycles"]["unit"]
    reference = run.find(group, arms[0], "ns/packet").samples
    rows = []
    for arm in arms:
        found = {series.unit: series for series in run.series if series.arm == arm}
        ns = found["ns/packet"]
        ratios = [one / other for one, other in zip(ns.samples, reference, strict=True)]
        empty = found.get("empty reads")
        rows.append(
            [
                arm,
                f"{ns.median:.2f}",
                f"{1e9 / ns.median:,.0f}",
                *([f"{found[f'{unit}/packet'].median:,.0f}"] if unit else []),
                f"{found['CPU ns/packet'].median:.0f}",
                f"{median(ratios):.2f}",
                f"{found['packets/read'].median:.1f}",
                "-" if empty is None else f"{sum(empty.samples):,.0f}",
                f"{sum(found['drops'].samples):,.0f}",
            ]
        )
    columns = ["sink", "ns", "pps", *([unit] if unit else []), "CPU ns", f"x {arms[0]}"]
    columns += ["packets a batch", "empty reads", "drops"]
    return Table(group, columns, rows, _notes(run, len(reference)))


def _notes(run: Run, rounds: int) -> list[str]:
    options, cycles = run.facts["options"], run.facts["cycles"]
    notes = [
        f"Medians of {rounds} {'sample' if rounds == 1 else 'samples'} of at least "
        f"{options['count']:,} packets, taken in turns; the ratio is the median of the rounds'. "
        "Empty reads and drops are those of all samples together; asyncio and uvloop do not tell "
        "their empty reads.",
    ]
    if options["live"]:
        notes.append(
            "Drained while another process sent: where the sender is slower than the sink, ns and "
            "pps are the sender's, and CPU ns the sink's."
        )
    else:
        notes.append(
            f"Drained after {run.facts['queue']:,} packets had been queued, with the clock on the "
            "draining alone; C begins at once, the rest when its event loop wakes it."
        )
    if options["pin"]:
        notes.append("Sink on CPU {}, sender on CPU {}.".format(*options["pin"]))
    else:
        cpus = ", ".join(map(str, run.facts["allowed_cpus"]))
        notes.append(f"Sink and sender were not pinned: the kernel chose from CPUs {cpus}.")
    if cycles["unit"] != "CPU cycles":
        notes.append(f"No CPU cycles: {cycles['reason']}.")
    if run.facts["singly"]:
        names = ", ".join(run.facts["singly"])
        notes.append(f"GRO is off where packets of a train can't be told apart: {names}.")
    if run.machine["packages"]["uvloop"] is None:
        notes.append("uvloop is not installed, so its rows are missing.")
    if run.facts["environment"]:
        names = ", ".join(f"{name}={value}" for name, value in run.facts["environment"].items())
        notes.append(f"In the environment: {names}.")
    return notes


def _beside(run: Run) -> Table:
    facts = run.facts
    rows = [
        [name, "unknown" if value is None else f"{value:,}"]
        for name, value in facts["sysctls"].items()
    ]
    rows.append(["receive buffer, bytes (SO_RCVBUF)", f"{facts['receive_buffer_size']:,}"])
    rows += [[f"Udp {name}", f"+{value:,}"] for name, value in facts["udp"].items()]
    note = (
        "UDP's counters over the whole run, from /proc/net/snmp: all programs', and IPv4's alone."
    )
    if not facts["udp"]:
        note = "UDP's counters are unknown: /proc/net/snmp can't be read."
    return Table("Beside it", ["what", "value"], rows, [note])
