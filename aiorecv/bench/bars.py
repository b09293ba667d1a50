"""The bars: what a receiver costs a packet, as a multiple of the bare system call.

``python -m aiorecv.bench.bars`` measures each row on each event loop: a queue is filled while the
loop stands still, and the clock runs from then until the last packet is in the user's hands. Rounds
of the C reference and of the receiver alternate, so that both meet the same machine; only ratios
within one run mean anything. Payload bytes are compared with what was sent: the reference adds them
up in every fill, the receiver's user in one of each round that is not timed (``--summed``: in all).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import attrs

import aiorecv
from aiorecv.bench.drains import (
    CDrain,
    CountError,
    Drain,
    ReceiverDrain,
    User,
    count_packets,
    make_alike,
    sum_payloads,
    take_pairs,
)
from aiorecv.bench.options import parse_count
from aiorecv.bench.processes import without_collections
from aiorecv.bench.queues import Filler, Queue
from aiorecv.bench.report import machine

# A round takes milliseconds; what has not come by then was lost.
_ROUND_LIMIT = 30.0


@attrs.frozen
class Row:
    """One thing that is measured."""

    name: str
    title: str
    queue: Queue
    user: User
    bar: float
    """The most a packet may cost, as a multiple of the reference."""


ROWS = (
    Row("batches", "batches, len() only", Queue(1024, (64, 64)), count_packets, 1.12),
    Row("pairs", "pairs, 64 bytes, one peer", Queue(1024, (64, 64)), take_pairs, 1.22),
    Row("mixed", "pairs, 64 to 964 bytes, 16 peers", Queue(1024, (64, 964), 16), take_pairs, 1.55),
    Row("trains-64", "pairs, trains of 64", Queue(2048, (64, 64), train=True), take_pairs, 5.0),
    Row(
        "trains-1400",
        "pairs, trains of 1400",
        Queue(2048, (1400,) * 2, train=True),
        take_pairs,
        2.6,
    ),
)


@attrs.frozen
class Result:
    """What one row cost on one event loop: nanoseconds a packet, one entry a round."""

    row: Row
    loop: str
    packets: int
    reference: Sequence[float]
    receiver: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """The receiver as a multiple of the reference, each round by itself."""
        return [ours / c for ours, c in zip(self.receiver, self.reference, strict=True)]

    def line(self) -> str:
        """One line of the table."""
        ratio = median(self.ratios)
        spread = f"{min(self.ratios):.2f}..{max(self.ratios):.2f}"
        verdict = "ok" if ratio <= self.row.bar else "over"
        return (
            f"{self.row.title:33} {self.loop:8} {self.packets:5} {median(self.reference):8.1f} "
            f"{median(self.receiver):8.1f} {ratio:6.2f} {spread:>12} {self.row.bar:6.2f} {verdict}"
        )


HEADING = (
    f"{'what':33} {'loop':8} {'queue':>5} {'C ns':>8} {'ours ns':>8} {'ratio':>6} "
    f"{'spread':>12} {'bar':>6}"
)


async def measure(row: Row, loop: str, *, rounds: int, repeats: int) -> Result:
    """Measure one row on the running event loop, of which ``loop`` is the name.

    Raises:
        CountError: If packets were lost, or bytes differ from what was sent.
    """
    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            queue = row.queue.fitted(make_alike(sock, receiver))
            with (
                Filler(queue, sock.getsockname()) as c,
                Filler(queue, receiver.socket.getsockname()) as own,
            ):
                async with (
                    CDrain(sock, queue.packets) as reference,
                    ReceiverDrain(receiver, queue.packets, row.user) as ours,
                ):
                    arms = ((reference, c), (ours, own))
                    samples = await _alternate(arms, rounds, repeats)
    return Result(row, loop, queue.packets, *samples)


async def _alternate(
    arms: Sequence[tuple[Drain, Filler]], rounds: int, repeats: int
) -> list[list[float]]:
    """Each arm's rounds, taken in turns after one that only warms up: nanoseconds a packet."""
    samples: list[list[float]] = [[] for _ in arms]
    with without_collections():
        for number in range(rounds + 1):
            for (drain, filler), kept in zip(arms, samples, strict=True):
                taken = await _round(drain, filler, repeats)
                if number:
                    kept.append(taken)
    return samples


async def _round(drain: Drain, filler: Filler, repeats: int) -> float:
    """The median of some fills in a row: in turns with the other arm's they would be cold."""
    try:
        async with asyncio.timeout(_ROUND_LIMIT):
            drain.checking = True
            await drain.time(filler)
            drain.checking = False
            times = [await drain.time(filler) for _ in range(repeats)]
    except TimeoutError:
        raise CountError("packets were lost: some never came") from None
    return median(times) * 1e9 / drain.packets


def loops(wanted: str) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Makers of the wanted event loops by name: ``asyncio``, ``uvloop`` or ``both``."""
    found: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {}
    if wanted != "uvloop":
        found["asyncio"] = asyncio.SelectorEventLoop
    if wanted != "asyncio":
        try:
            found["uvloop"] = importlib.import_module("uvloop").new_event_loop
        except ImportError:
            print("uvloop is not installed: pip install 'aiorecv[uvloop]'", file=sys.stderr)
    return found


def _report(results: Sequence[Result], repeats: int) -> dict[str, object]:
    rows = [
        {
            "name": result.row.name,
            "title": result.row.title,
            "loop": result.loop,
            "packets": result.packets,
            "bar": result.row.bar,
            "reference_ns": result.reference,
            "receiver_ns": result.receiver,
            "ratio": median(result.ratios),
        }
        for result in results
    ]
    return {"machine": machine(), "fills_a_round": repeats, "rows": rows}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m aiorecv.bench.bars", description=__doc__)
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "both"), default="both")
    parser.add_argument("--rounds", type=parse_count, default=7, help="of each arm, alternated")
    parser.add_argument("--repeat", type=parse_count, default=20, help="fills a round")
    parser.add_argument(
        "--queue", type=parse_count, help="packets a fill, instead of the row's own"
    )
    parser.add_argument(
        "--summed", action="store_true", help="let the user add up payload bytes in timed fills too"
    )
    parser.add_argument("--only", choices=[row.name for row in ROWS], help="one row")
    parser.add_argument("--json", type=Path, help="write all samples and the machine there")
    return parser.parse_args(argv)


def _chosen(arguments: argparse.Namespace) -> Iterator[Row]:
    """The rows that were asked for, as they were."""
    for row in ROWS:
        if arguments.only in (row.name, None):
            if arguments.summed and row.user is take_pairs:
                row = attrs.evolve(row, user=sum_payloads)
            if arguments.queue is not None:
                row = attrs.evolve(row, queue=attrs.evolve(row.queue, packets=arguments.queue))
            yield row


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the table; 1 if packets or bytes were lost, whatever the ratios."""
    arguments = _arguments(argv)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    results = []
    print(HEADING)
    for name, factory in loops(arguments.loop).items():
        for row in _chosen(arguments):
            measuring = measure(row, name, rounds=arguments.rounds, repeats=arguments.repeat)
            try:
                with asyncio.Runner(loop_factory=factory) as runner:
                    results.append(runner.run(measuring))
            except CountError as error:
                print(f"{row.title} on {name}: {error}", file=sys.stderr)
                return 1
            print(results[-1].line(), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(_report(results, arguments.repeat), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
