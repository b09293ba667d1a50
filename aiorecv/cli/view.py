"""What the demo shows: live on a terminal, as plain lines elsewhere, and a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import attrs
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from aiorecv.cli.report import Report, Result

_WIDTH = 60  # columns of the live view
_PERIOD = 0.9  # seconds between plain lines: one a second, whatever the reports' jitter


@attrs.frozen
class Pace:
    """What one receiver did between two reports, by the second."""

    packets: float
    bits: float
    polled_reads: float
    immediate_reads: float
    batch_packets: float | None
    """Packets a batch; None if there was none."""
    cpu: float
    """Share of one core."""
    drops: float
    window: int
    window_peak: int

    @classmethod
    def between(cls, before: Report, after: Report) -> Pace:
        """The pace from one report to the next."""
        seconds = after.elapsed - before.elapsed
        packets = after.packets - before.packets
        batches = after.batches - before.batches
        return cls(
            packets=packets / seconds,
            bits=(after.bytes - before.bytes) * 8 / seconds,
            polled_reads=(after.polled_reads - before.polled_reads) / seconds,
            immediate_reads=(after.immediate_reads - before.immediate_reads) / seconds,
            batch_packets=packets / batches if batches else None,
            cpu=(after.cpu - before.cpu) / seconds,
            drops=(after.drops - before.drops) / seconds,
            window=after.window_slots,
            window_peak=after.window_peak,
        )


class PlainView:
    """One line a second for each receiver."""

    def __init__(self, console: Console, heading: str) -> None:
        self._console = console
        console.print(heading)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, title: str) -> None:
        """A receiver starts."""
        self._title = title
        self._before: Report | None = None

    def update(self, report: Report) -> None:
        """It has reported."""
        before = self._before
        if before is None or not report.packets:
            self._before = report
        elif report.elapsed - before.elapsed >= _PERIOD:
            self._before = report
            self._console.print(
                f"{self._title}: {_line(Pace.between(before, report))}", soft_wrap=True
            )

    def end(self, result: Result) -> None:
        """It has received what it could."""


class LiveView:
    """One panel that follows the running receiver, above the results so far."""

    def __init__(self, console: Console, heading: str) -> None:
        self._heading = heading
        self._results: list[Result] = []
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def begin(self, title: str) -> None:
        """A receiver starts."""
        self._title = title
        self._before: Report | None = None

    def update(self, report: Report) -> None:
        """It has reported."""
        before, self._before = self._before, report
        if before is None or not report.packets:
            return
        body = Panel(
            _grid(Pace.between(before, report), report),
            title=f"{self._title}, {report.elapsed:.1f} s",
            width=_WIDTH,
        )
        parts: list[RenderableType] = [self._heading, body]
        if self._results:
            parts.append(make_table(self._results, []))
        self._live.update(Group(*parts), refresh=True)

    def end(self, result: Result) -> None:
        """It has received what it could."""
        self._results.append(result)


def choose_view(console: Console, heading: str) -> LiveView | PlainView:
    """A live view on a terminal that can show one, else plain lines."""
    # FORCE_COLOR makes rich see a terminal in a pipe; colours may go there, a live view may not.
    if console.is_interactive and sys.stdout.isatty():
        return LiveView(console, heading)
    return PlainView(console, heading)


def make_table(results: Sequence[Result], missing: Sequence[str]) -> Table:
    """Who received how much, a row each; ``missing`` are the titles of those not installed."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("receiver", no_wrap=True)
    for heading in ("sent", "received", "lost", "lost %", "CPU-s a\nmillion", "buffer\nKiB"):
        table.add_column(heading, justify="right")
    for result in results:
        cpu = result.cpu_per_million
        table.add_row(
            result.title,
            f"{result.sent:,}",
            f"{result.report.packets:,}",
            f"{result.lost:,}",
            f"{result.lost / result.sent:.1%}" if result.sent else "-",
            "-" if cpu is None else f"{cpu:.2f}",
            f"{result.report.receive_buffer_size // 1024:,}",
        )
    for title in missing:
        table.add_row(title, "not installed")
    return table


def _grid(pace: Pace, report: Report) -> Table:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", ratio=1)
    grid.add_row("packets/s", f"{pace.packets:,.0f}")
    grid.add_row("bits/s", f"{pace.bits / 1e6:,.1f} M")
    if pace.batch_packets is None:
        grid.add_row("packets a batch", "-")
        grid.add_row("window", "-")
        grid.add_row("polled reads/s", "-")
        grid.add_row("immediate reads/s", "-")
    else:
        grid.add_row("packets a batch", f"{pace.batch_packets:.1f}")
        grid.add_row("window", f"{pace.window} slots, at most {pace.window_peak} so far")
        grid.add_row("polled reads/s", f"{pace.polled_reads:,.0f}")
        grid.add_row("immediate reads/s", f"{pace.immediate_reads:,.0f}")
    grid.add_row("drops/s", f"{pace.drops:,.0f}")
    grid.add_row("drops so far", f"{report.drops:,}")
    grid.add_row("CPU", f"{pace.cpu:.0%} of a core")
    return grid


def _line(pace: Pace) -> str:
    words = [f"{pace.packets:,.0f} packets/s", f"{pace.bits / 1e6:,.1f} Mbit/s"]
    if pace.batch_packets is not None:
        words += [
            f"{pace.batch_packets:.1f} packets a batch",
            f"window {pace.window}",
            f"{pace.polled_reads:,.0f} polled and {pace.immediate_reads:,.0f} immediate reads/s",
        ]
    words += [f"{pace.drops:,.0f} drops/s", f"CPU {pace.cpu:.0%}"]
    return ", ".join(words)
