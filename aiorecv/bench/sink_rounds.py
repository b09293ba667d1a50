"""Rounds of ``aiorecv bench sink``, in a process of their own, and so under equal terms.

``python -m aiorecv.bench.sink_rounds PLAN`` takes a plan as JSON, and writes what it measured as
JSON. Each sample has a socket, a sender and an event loop of its own; the sinks take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import select
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import attrs

from aiorecv.bench import loop_sinks, sinks
from aiorecv.bench.bars import loops
from aiorecv.bench.counters import Counter, Stopwatch, cycle_counter
from aiorecv.bench.drains import UDP_GRO, CountError, raise_receive_buffer
from aiorecv.bench.feeders import Feeder, Pins, flooders
from aiorecv.bench.processes import without_collections
from aiorecv.bench.queues import Queue, charged
from aiorecv.bench.sinks import Sink, Taken

# Packets of a fill; of trains more, since the event loop's wake-up would be most of so few.
_QUEUE_PACKETS, _TRAIN_PACKETS = 1024, 2048
# What a live sink takes before the clock runs: more small packets than its queue can hold.
_WARM_UP = 12_000
# How long packets may take to come: these seconds, and so much for each.
_PATIENCE, _PATIENCE_EACH = 10.0, 0.001


@attrs.frozen
class Plan:
    """What to measure: the options of the command."""

    count: int
    port: int
    repeat: int
    connect: bool
    batch: int
    size: int
    gro: bool
    flows: int
    pin: Sequence[int] | None
    """The CPUs of the sink and of its sender."""
    live: bool

    @property
    def pins(self) -> Pins | None:
        """The same, to be followed."""
        return Pins(*self.pin) if self.pin else None

    def queue(self, receive_buffer_size: int) -> Queue:
        """What is filled in before each stretch: as much as the kernel's buffer is sure to hold."""
        most = _TRAIN_PACKETS if self.gro else _QUEUE_PACKETS
        packets = max(1, min(self.count, most, receive_buffer_size // charged(self.size)))
        return Queue(packets, (self.size, self.size), self.flows, train=self.gro)


@attrs.frozen
class Arm:
    """One row of the table."""

    name: str
    make: Callable[[socket.socket, Stopwatch, int], Sink]
    splits: bool
    """Whether it can tell the packets of a GRO train apart; else it has them singly."""
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop


def arms(plan: Plan) -> list[Arm]:
    """All rows, in the table's order."""
    recvmmsg = partial(sinks.RecvmmsgSink, slots=plan.batch)
    found = [
        Arm(f"recvMmsg/{plan.batch}", recvmmsg, True),
        Arm("recvmsg", sinks.RecvmsgSink, True),
        Arm("read", sinks.ReadSink, False),
        Arm("recvfrom", sinks.RecvfromSink, False),
    ]
    for name, loop in loops("both").items():
        found += [
            Arm(f"aiorecv batches, {name}", loop_sinks.BatchesSink, True, loop),
            Arm(f"aiorecv pairs, {name}", loop_sinks.PairsSink, True, loop),
            Arm(f"aiorecv receive_nowait, {name}", loop_sinks.NowaitSink, True, loop),
            Arm(f"{name}'s own protocol", loop_sinks.ProtocolSink, False, loop),
        ]
    return found


def sample(arm: Arm, plan: Plan, counter: Counter) -> Taken:
    """Measure one arm once.

    Raises:
        CountError: If what came is not what was sent.
        OSError: What the kernel says.
    """
    with _bound(plan, arm.splits) as sock, asyncio.Runner(loop_factory=arm.loop) as runner:
        sink = arm.make(sock, Stopwatch(counter), plan.size)
        addr = sock.getsockname()
        if plan.live:
            with flooders(addr, size=plan.size, flows=plan.flows, pins=plan.pins):
                if plan.connect:
                    sock.connect(_first_sender(sock))
                return runner.run(_live(sink, plan))
        queue = plan.queue(_buffer(sock))
        with Feeder(queue, addr, plan.pins) as feeder:
            if plan.connect:
                sock.connect(feeder.addr)
            return runner.run(_filled(sink, plan, queue, feeder))


def _bound(plan: Plan, gro: bool) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        raise_receive_buffer(sock)
        if plan.gro and gro:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, True)
        sock.bind(("127.0.0.1", plan.port))
    except BaseException:
        sock.close()
        raise
    return sock


def _buffer(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _first_sender(sock: socket.socket) -> Any:
    if not select.select([sock], [], [], _PATIENCE)[0]:
        raise CountError("no packet came: the sender did not start")
    return sock.recvfrom(1)[1]


async def _filled(sink: Sink, plan: Plan, queue: Queue, feeder: Feeder) -> Taken:
    """Fill the queue while nobody drains, then drain it, over and over."""
    stretches = []
    async with sink:
        packets, content = feeder.fill_patterned()
        async with _patience(packets):
            came = await sink.check(packets)
        if came != content:
            raise CountError(f"bytes differ from what was sent: they add up to {came}, {content}")
        for _ in range(1 + -(-plan.count // queue.packets)):
            feeder.fill()
            async with _patience(queue.packets):
                taken = await sink.take(queue.packets)
            if taken.packets != queue.packets or taken.drops:
                raise CountError(
                    f"{taken.packets} of {queue.packets} packets came, {taken.drops} were dropped"
                )
            _check_bytes(taken, plan)
            stretches.append(taken)
    return _total(stretches[1:])  # the first one warmed it up


async def _live(sink: Sink, plan: Plan) -> Taken:
    """Drain while the sender sends."""
    async with sink:
        for count in (_WARM_UP, plan.count):
            async with _patience(count):
                taken = await sink.take(count)
            _check_bytes(taken, plan)
    return taken


@contextlib.asynccontextmanager
async def _patience(packets: int) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_PATIENCE + _PATIENCE_EACH * packets):
            yield
    except TimeoutError:
        raise CountError("packets were lost: some never came") from None


def _check_bytes(taken: Taken, plan: Plan) -> None:
    sent = taken.packets * plan.size
    if taken.nbytes != sent:
        raise CountError(f"{taken.packets} packets had {taken.nbytes} bytes, not {sent}")


def _total(stretches: Sequence[Taken]) -> Taken:
    fields: dict[str, Any] = {}
    for name in attrs.fields_dict(Taken):
        values = [getattr(one, name) for one in stretches]
        fields[name] = None if None in values else sum(values)
    return Taken(**fields)


def measure(plan: Plan) -> dict[str, Any]:
    """All samples of all arms, taken in turns, and what they were taken with."""
    if plan.pins is not None:
        plan.pins.settle()
    rows = arms(plan)
    samples: dict[str, list[dict[str, Any]]] = {arm.name: [] for arm in rows}
    with _bound(plan, gro=False) as sock:
        receive_buffer_size = _buffer(sock)
    with cycle_counter() as counter, without_collections():
        for number in range(plan.repeat):
            print(f"round {number + 1} of {plan.repeat}", file=sys.stderr, flush=True)
            for arm in rows:
                samples[arm.name].append(attrs.asdict(sample(arm, plan, counter)))
    return {
        "samples": samples,
        "singly": [arm.name for arm in rows if plan.gro and not arm.splits],
        "cycles": {"unit": counter.unit, "reason": counter.reason},
        "receive_buffer_size": receive_buffer_size,
        "queue": None if plan.live else plan.queue(receive_buffer_size).packets,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print it as one JSON object: with ``lost`` or ``errno`` if it failed."""
    (text,) = sys.argv[1:] if argv is None else argv
    logging.getLogger("aiorecv").setLevel(logging.ERROR)  # the table tells the drops
    found: dict[str, Any]
    try:
        found = measure(Plan(**json.loads(text)))
    except CountError as error:
        found = {"lost": str(error)}
    except OSError as error:
        found = {"errno": error.errno, "message": error.strerror}
    print(json.dumps(found))
    return int("samples" not in found)


if __name__ == "__main__":
    # Ctrl-C ends it at once: event loops that are half made would complain. Senders notice.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise SystemExit(main())
