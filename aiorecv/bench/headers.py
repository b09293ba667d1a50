"""Headers: what it costs to have the headers of a read ready, and how often that allocates.

Reads messages that are split into several pieces of memory, in four ways. ``once``: headers are
built once, and what the kernel has overwritten is armed again in place, as aiorecv does.
``refilled``: arrays are kept, and filled in for every call. ``heap``: a list a message for every
call, which grows from 4 entries by malloc. ``small``: the same, with its first 4 entries on the
stack. Each is timed by itself, without a system call, and with a recvmmsg on a queue that was
filled before. To be fair, the ways take turns, read the same datagrams, and what came is checked.

Allocations are counted: in C by functions in the place of malloc, of aiorecv's own reads as well;
of Python's memory by tracemalloc.

Source: cloud-hypervisor PR 6636.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from aiorecv.bench.allocations import count_all
from aiorecv.bench.header_reads import ENTRIES, MESSAGES, SIZE, WAYS, HeaderReads
from aiorecv.bench.options import parse_count
from aiorecv.bench.report import Picture, Run, Series, Table, machine

SUMMARY = "headers built once, for every call on the heap, or in a small array; and allocations"

UNIT = "ns/call"
_COUNT_UNIT = "allocations/call"
_CALLS = {False: "building alone", True: "with recvmmsg"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    add = parser.add_argument
    add(
        "--repeat",
        type=parse_count,
        default=41,
        help="samples of each way (default: 41)",
    )
    add(
        "--packets",
        type=parse_count,
        default=1024,
        help="packets a sample (default: 1024)",
    )
    add("--loop", choices=("asyncio", "uvloop", "both"), default="both", help="of receivers")


def measure(arguments: argparse.Namespace, command: str) -> Run:
    """Time the ways, and count allocations.

    Raises:
        CountError: If packets were lost, or are not what was sent.
    """
    series: list[Series] = []
    for system_call in _CALLS:
        for messages in MESSAGES:
            for entries in ENTRIES:
                group = _group(messages, entries, system_call)
                print(f"timing {group}", file=sys.stderr, flush=True)
                with HeaderReads(messages, entries, system_call=system_call) as reads:
                    series += _timed(reads, messages, group, arguments)
    print("counting allocations", file=sys.stderr, flush=True)
    counts = count_all(arguments.loop)
    series += [
        Series(_read(messages, entries), way, _COUNT_UNIT, [made])
        for messages, entries, way, made in counts.pop("headers", [])
    ]
    facts = {"size": SIZE, "packets": arguments.packets, **counts}
    return Run("headers", command, machine(), facts, series)


def _words(messages: int) -> str:
    return "1 message" if messages == 1 else f"{messages} messages"


def _read(messages: int, entries: int) -> str:
    return f"{_words(messages)}, {entries} {'entry' if entries == 1 else 'entries'}"


def _group(messages: int, entries: int, system_call: bool) -> str:
    return f"{_read(messages, entries)}, {_CALLS[system_call]}"


def _timed(
    reads: HeaderReads, messages: int, group: str, arguments: argparse.Namespace
) -> Iterator[Series]:
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(arguments.repeat + 1):
        for way, taken in samples.items():
            sample = _sample(reads, messages, way, arguments.packets)
            if number:  # the first round only warms up
                taken.append(sample)
    for way, taken in samples.items():
        yield Series(group, way, UNIT, taken)


def pictured(run: Run) -> list[Picture]:
    """The building of one message's headers, and reads of a whole window with them."""
    shown = ((min(MESSAGES), False), (max(MESSAGES), True))
    pictures = []
    for messages, system_call in shown:
        groups = [_group(messages, entries, system_call) for entries in ENTRIES]
        chosen = [one for one in run.series if one.unit == UNIT and one.group in groups]
        pictures.append(Picture(f"{messages} a read, {_CALLS[system_call]}", chosen))
    return pictures


def _sample(reads: HeaderReads, messages: int, way: str, packets: int) -> float:
    """Nanoseconds a read, over as many fills of the queue as it takes."""
    left = total = max(packets // messages, 1)
    spent = 0
    while left:
        some = min(left, max(reads.room // messages, 1))
        reads.fill(some)
        spent += reads.read(way, some)
        left -= some
    return spent / total


def tables(run: Run) -> list[Table]:
    """Times by entries, and allocations."""
    return [
        *(_times(run, messages, call) for call in _CALLS for messages in MESSAGES),
        *_allocations(run),
    ]


def _times(run: Run, messages: int, system_call: bool) -> Table:
    rows = []
    for entries in ENTRIES:
        group = _group(messages, entries, system_call)
        medians = {way: run.find(group, way, UNIT).median for way in WAYS}
        of_small = [f"{medians[way] / medians['small']:.2f} x" for way in ("once", "refilled")]
        rows.append([str(entries), *(f"{one:,.1f}" for one in medians.values()), *of_small])
    columns = ["entries a message", *(f"{way}, ns" for way in WAYS)]
    columns += ["once / small", "refilled / small"]
    note = (
        f"Nanoseconds a read of {_words(messages)}, medians; {run.facts['packets']:,} packets a "
        "sample."
    )
    if system_call:
        note += f" Datagrams of {run.facts['size']:,} bytes, spread over the entries."
    title = f"{_words(messages)} a read, {_CALLS[system_call]}"
    return Table(title, columns, rows, [note])


def _allocations(run: Run) -> Iterator[Table]:
    reason = run.facts.get("reason")
    if reason:
        yield Table("Allocations a read", ("", "not counted"), [["all ways", "-"]], [str(reason)])
        return
    rows = [
        [_read(messages, entries), *_counts(run, messages, entries)]
        for messages in MESSAGES
        for entries in ENTRIES
    ]
    note = "Calls of malloc and its kind while reading, counted in C, divided by the reads."
    yield Table("Allocations a read, in C", ("read", *WAYS), rows, [note])
    yield _receivers(run.facts["receivers"])


def _counts(run: Run, messages: int, entries: int) -> Iterator[str]:
    group = _read(messages, entries)
    return (f"{run.find(group, way, _COUNT_UNIT).median:g}" for way in WAYS)


def _receivers(found: dict[str, Any]) -> Table:
    rows = []
    for name, one in found.items():
        loop, _, window = name.partition(" ")
        rows.append(
            [
                f"{loop}, {_words(int(window))}",
                f"{one['own']:g}",
                f"{one['process']:g}",
                f"{one['with_python']:.1f}",
                f"{one['python_peak_bytes']:,.0f}",
                f"{one['python_growth_bytes']:,.1f}",
            ]
        )
    columns = ("read", "aiorecv's C", "process", "with objects", "bytes at once", "bytes kept")
    notes = [
        "A read by receive_nowait(), its batch's length and release; memory is warm. aiorecv's C: "
        "calls of malloc and its kind that aiorecv's own libraries make. Process: all such calls; "
        "with objects: the same where Python takes each object from malloc, not from its pools. "
        "Bytes of Python's memory, by tracemalloc: in use at once during a read, and left by it."
    ]
    return Table("Allocations a read, by a receiver", columns, rows, notes)
