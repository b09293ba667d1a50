"""``aiorecv listen``: receive from one target until told to stop, and show what comes.

What is received goes to stdout; where it listens, and what it has seen at the end, to stderr.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from aiorecv import AdaptiveWindow, Metadata, Packet, Receiver, ReceiverStatistics
from aiorecv.cli.formats import FORMATS, count, format_address
from aiorecv.cli.loops import loop_factory
from aiorecv.cli.plain import PlainView
from aiorecv.cli.report import Report
from aiorecv.cli.target import Options, Target

if TYPE_CHECKING:
    from aiorecv.cli.view import LiveView

_PERIOD = 0.2  # seconds between looks: quick enough to seem alive, slow enough to cost nothing


class Quota:
    """So many packets to show; and, where a slot holds one, a window that reads no more than them.

    So without GRO; a ring has no window, and what its last block has too much is not shown.
    """

    def __init__(self, packets: int) -> None:
        self.left = packets
        """Packets still to be shown."""
        self._unread = packets
        self._window = AdaptiveWindow(initial=2)

    def take(self, packets: int) -> int:
        """How many of so many are shown."""
        taken = min(packets, self.left)
        self.left -= taken
        return taken

    @property
    def slots(self) -> int:
        """As many as an adaptive window has, if so many packets are left."""
        return max(1, min(self._window.slots, self._unread))

    @property
    def maximum(self) -> int:
        """That of the adaptive window."""
        return self._window.maximum

    def record(self, *, received: int, polled: bool) -> None:
        """Count what was read."""
        self._unread -= received
        self._window.record(received=received, polled=polled)


def run(target: Target, show: str, packets: int | None, loop: str) -> int:
    """Receive until SIGINT or SIGTERM. Returns the exit status.

    Args:
        target: From what.
        show: ``stats``, or one of ``FORMATS``.
        packets: Stop after so many; None: don't.
        loop: ``uvloop`` or ``asyncio``.

    Raises:
        OSError: If it can't be opened or read, or stdout not be written.
    """
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(_listen(target, show, None if packets is None else Quota(packets)))
    return 0


async def _listen(target: Target, show: str, quota: Quota | None) -> None:
    options: Options = {"gro": None, "metadata": Metadata.NONE, "window": quota}
    if quota is not None:
        options["gro"] = False
    if show != "stats":
        options["metadata"] = Metadata.TIMESTAMP  # and so without GRO
    async with target.open(**options) as receiver:
        began = time.monotonic()
        name = format_address(receiver.local_addr)
        print(f"listening on {name}, Ctrl-C stops it", file=sys.stderr, flush=True)
        try:
            with _stopped_by_signals(receiver):
                if show == "stats":
                    await _watch(receiver, name, quota)
                else:
                    await _print(receiver, FORMATS[show], quota)
        finally:
            receiver.close()  # so that its last warning comes before the sum
            seen = receiver.statistics()
            print(_sum_up(seen, time.monotonic() - began), file=sys.stderr, flush=True)


async def _print(receiver: Receiver, to_text: Callable[[Packet], str], quota: Quota | None) -> None:
    async for batch in receiver:
        packets = batch.packets()
        if quota is not None:
            packets = islice(packets, quota.take(len(batch)))
        # One write a batch; a reader behind a pipe has it at once.
        print("\n".join(map(to_text, packets)), flush=True)
        if quota is not None and not quota.left:
            return


async def _watch(receiver: Receiver, title: str, quota: Quota | None) -> None:
    logging.getLogger("aiorecv").setLevel(logging.ERROR)  # the view itself shows what is dropped
    began, cpu = time.monotonic(), time.process_time()
    reading = asyncio.create_task(_read(receiver, quota))
    with _make_view() as view:
        view.begin(title)
        while not reading.done():
            elapsed, used = time.monotonic() - began, time.process_time() - cpu
            view.update(Report.of(receiver.statistics(), elapsed=elapsed, cpu=used))
            await asyncio.wait([reading], timeout=_PERIOD)
    await reading  # for its error


async def _read(receiver: Receiver, quota: Quota | None) -> None:
    async for batch in receiver:
        if quota is not None and quota.take(len(batch)) and not quota.left:
            return


def _make_view() -> LiveView | PlainView:
    if not sys.stdout.isatty():
        return PlainView()
    from rich.console import Console

    from aiorecv.cli.view import choose_view

    return choose_view(Console(highlight=False))


@contextmanager
def _stopped_by_signals(receiver: Receiver) -> Iterator[None]:
    """SIGINT and SIGTERM close the receiver, so that what it has read is still shown.

    A second one interrupts whatever goes on, such as writing to a pipe that nobody reads.
    """
    loop = asyncio.get_running_loop()
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True
        loop.call_soon_threadsafe(receiver.close)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sum_up(seen: ReceiverStatistics, elapsed: float) -> str:
    words = [
        f"{count(seen.packets, 'packet')}, {count(seen.bytes, 'byte')} in {elapsed:.1f} s",
        f"{seen.kernel_drops:,} dropped by the kernel",
        f"{seen.truncated:,} cut",
        f"receive buffer {count(seen.receive_buffer_size, 'byte')}",
    ]
    return "; ".join(words)
