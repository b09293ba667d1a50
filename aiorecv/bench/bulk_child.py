"""The receiver of ``bench bulk``, in a process of its own: ``python -m aiorecv.bench.bulk_child``.

It receives as an application does, adding up the bytes of every packet. To stdout it writes lines
of JSON: its port; then, each second and at the end, an account of the time since the first batch.
A flood is to outlast it. It ends by itself, also when nothing comes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence

import attrs

import aiorecv
from aiorecv.bench.bars import loops
from aiorecv.bench.flood import parse_seconds

HOST = "127.0.0.1"

ARMS: dict[str, Callable[[], aiorecv.WindowPolicy | None]] = {
    "fixed 8": lambda: aiorecv.FixedWindow(8),
    "adaptive": lambda: None,
}
"""The window of each arm, the base first; None is the default."""

# A flood is there within a second, on a loaded machine in a few.
_PATIENCE = 10.0
_INTERVAL = 1.0


@attrs.frozen
class Account:
    """What one receiver did since its first batch; the first batch itself is left out."""

    seconds: float
    cpu: float
    """CPU seconds of the process, user and system."""
    packets: int
    bytes: int
    """Payload bytes of these packets, as the application added them up."""
    batches: int
    drops: int
    """Queue entries that the kernel threw away; an entry may be a train."""
    trains: int
    window_peak: int


class Application:
    """Who consumes the packets, and the clocks it is set against."""

    def __init__(self, receiver: aiorecv.Receiver) -> None:
        self._receiver = receiver
        self._packets = self._bytes = self._batches = 0
        self._before = receiver.statistics()
        self._started = time.monotonic()
        self._cpu = time.process_time()

    async def consume(self) -> None:
        """Take all packets until the receiver is closed."""
        async for batch in self._receiver:
            nbytes = 0
            for data, _addr in batch:
                nbytes += len(data)
            self._bytes += nbytes
            self._packets += len(batch)
            self._batches += 1

    def account(self) -> Account:
        """What was done until now."""
        seconds = time.monotonic() - self._started
        cpu = time.process_time() - self._cpu
        now = self._receiver.statistics()
        return Account(
            seconds=seconds,
            cpu=cpu,
            packets=self._packets,
            bytes=self._bytes,
            batches=self._batches,
            drops=now.kernel_drops - self._before.kernel_drops,
            trains=now.trains - self._before.trains,
            window_peak=now.window_peak,
        )


async def receive(arm: str, gro: bool | None, seconds: float) -> None:
    """Wait for a flood, and receive it for so many seconds.

    Raises:
        TimeoutError: If nothing comes.
    """
    async with aiorecv.open_udp((HOST, 0), window=ARMS[arm](), gro=gro) as receiver:
        _write({"port": receiver.socket.getsockname()[1]})
        async with asyncio.timeout(_PATIENCE):
            (await receiver.receive()).release()
        application = Application(receiver)
        consuming = asyncio.create_task(application.consume())
        for pause in _pauses(seconds):
            await asyncio.sleep(pause)
            _write(attrs.asdict(application.account()))
        receiver.close()
        await consuming


def _pauses(seconds: float) -> list[float]:
    """As many whole intervals as there are, then the rest."""
    whole, rest = divmod(seconds, _INTERVAL)
    return [_INTERVAL] * int(whole) + ([rest] if rest else [])


def main(argv: Sequence[str] | None = None) -> int:
    """Receive one flood; returns the exit status."""
    parser = argparse.ArgumentParser("python -m aiorecv.bench.bulk_child", description=__doc__)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), required=True)
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--seconds", type=parse_seconds, required=True)
    parser.add_argument("--no-gro", dest="gro", action="store_false", default=None)
    arguments = parser.parse_args(argv)
    logging.getLogger("aiorecv").setLevel(logging.ERROR)  # drops are wanted, and counted
    try:
        with asyncio.Runner(loop_factory=loops(arguments.loop)[arguments.loop]) as runner:
            runner.run(receive(arguments.arm, arguments.gro, arguments.seconds))
    except TimeoutError:
        print(f"{parser.prog}: nothing came", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1  # whoever asked is gone
    return 0


def _write(line: object) -> None:
    os.write(sys.stdout.fileno(), json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    raise SystemExit(main())
