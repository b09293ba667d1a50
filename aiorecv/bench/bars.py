"""The bars: what a packet costs a receiver or an endpoint, as a multiple of something else.

``python -m aiorecv.bench.bars`` measures each row on each event loop: a queue is filled while the
loop stands still, and the clock runs from then until the last packet is in the user's hands. Rounds
of ours and of the reference alternate, so that both meet the same machine; only ratios within one
run mean anything. The reference is the bare system call, or another's datagram endpoint. Payload
bytes are compared with what was sent: the C reference adds them up in every fill, Python in one of
each round that is not timed (``--summed``: in all).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import attrs

from aiorecv.bench.drains import UDP_GRO, CountError, Drain, raise_receive_buffer
from aiorecv.bench.options import parse_count
from aiorecv.bench.processes import restart_steady, without_collections
from aiorecv.bench.queues import Filler
from aiorecv.bench.report import machine
from aiorecv.bench.rows import ROWS, Row

# A round takes milliseconds; what has not come by then was lost.
_ROUND_LIMIT = 30.0
# Small queues are filled more often, until a round has as many packets as one fill of so many: a
# lone packet's time is the wake-up's, whose median takes thousands to stand still.
_PACKETS_A_FILL = 256


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
        """Ours as a multiple of the reference, each round by itself."""
        return [ours / other for ours, other in zip(self.receiver, self.reference, strict=True)]

    def line(self) -> str:
        """One line of the table."""
        ratio = median(self.ratios)
        spread = f"{min(self.ratios):.2f}..{max(self.ratios):.2f}"
        verdict = "ok" if ratio <= self.row.bar else "over"
        return (
            f"{self.row.title:33} {self.loop:8} {self.packets:5} {self.row.against:10} "
            f"{median(self.reference):8.1f} {median(self.receiver):8.1f} {ratio:6.2f} "
            f"{spread:>12} {self.row.bar:6.2f} {verdict}"
        )


HEADING = (
    f"{'what':33} {'loop':8} {'queue':>5} {'against':10} {'its ns':>8} {'ours ns':>8} "
    f"{'ratio':>6} {'spread':>12} {'bar':>6}"
)


async def measure(
    row: Row, loop: str, *, rounds: int, repeats: int, summed: bool = False
) -> Result:
    """Measure one row on the running event loop, of which ``loop`` is the name.

    Raises:
        CountError: If packets were lost or came twice, or bytes differ from what was sent.
    """
    with _bound() as theirs, _bound() as own:
        queue = row.queue.fitted(min(map(_receive_buffer_size, (theirs, own))))
        with (
            Filler(queue, theirs.getsockname()) as to_them,
            Filler(queue, own.getsockname()) as to_us,
        ):
            async with row.ours(own, queue.packets) as ours:
                if row.rival is None:  # C splits trains just as well
                    gro = own.getsockopt(socket.IPPROTO_UDP, UDP_GRO)
                    theirs.setsockopt(socket.IPPROTO_UDP, UDP_GRO, gro)
                async with row.reference(theirs, queue.packets) as reference:
                    arms = ((reference, to_them), (ours, to_us))
                    samples = await _alternate(arms, rounds, repeats, summed)
    return Result(row, loop, queue.packets, *samples)


def _bound() -> socket.socket:
    """A UDP socket on loopback, with the receive buffer that all arms have."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    raise_receive_buffer(sock)
    return sock


def _receive_buffer_size(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


async def _alternate(
    arms: Sequence[tuple[Drain, Filler]], rounds: int, repeats: int, summed: bool
) -> list[list[float]]:
    """Each arm's rounds, taken in turns after one that only warms up: nanoseconds a packet."""
    samples: list[list[float]] = [[] for _ in arms]
    with without_collections():
        for number in range(rounds + 1):
            for (drain, filler), kept in zip(arms, samples, strict=True):
                taken = await _round(drain, filler, repeats, summed)
                if number:
                    kept.append(taken)
    return samples


async def _round(drain: Drain, filler: Filler, repeats: int, summed: bool) -> float:
    """The median of some fills in a row: in turns with the other arm's they would be cold."""
    fills = repeats * max(1, _PACKETS_A_FILL // drain.packets)
    try:
        async with asyncio.timeout(_ROUND_LIMIT):
            drain.checking = True
            await drain.time(filler)
            drain.checking = summed
            times = [await drain.time(filler) for _ in range(fills)]
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
            "against": result.row.against,
            "reference_ns": result.reference,
            "receiver_ns": result.receiver,
            "ratio": median(result.ratios),
        }
        for result in results
    ]
    rivals = {
        result.row.rival.name: result.row.rival.version for result in results if result.row.rival
    }
    return {"machine": machine(), "rivals": rivals, "fills_a_round": repeats, "rows": rows}


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


def _chosen(arguments: argparse.Namespace, loop: str) -> list[Row]:
    """The rows that were asked for and can be measured; names what would have to be installed."""
    rows = []
    for row in ROWS:
        if arguments.only not in (row.name, None) or loop not in row.loops:
            continue
        if row.rival is not None and row.rival.is_missing:
            print(f"{row.against} is not installed: pip install 'aiorecv[bench]'", file=sys.stderr)
            continue
        if arguments.queue is not None:
            row = attrs.evolve(row, queue=attrs.evolve(row.queue, packets=arguments.queue))
        rows.append(row)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the table; 1 if packets or bytes were lost, whatever the ratios."""
    arguments = _arguments(argv)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    results = []
    print(HEADING)
    for name, factory in loops(arguments.loop).items():
        for row in _chosen(arguments, name):
            measuring = measure(
                row,
                name,
                rounds=arguments.rounds,
                repeats=arguments.repeat,
                summed=arguments.summed,
            )
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
    restart_steady("bars")
    raise SystemExit(main())
