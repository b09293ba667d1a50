"""What is shown of running receivers on a terminal, live, and the demo's table at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from aiorecv.cli.pace import Pace
from aiorecv.cli.plain import PlainView
from aiorecv.cli.report import Report, Result

_WIDTH = 60  # columns of the live view


class LiveView:
    """One panel that follows the running receiver, above the results so far."""

    def __init__(self, console: Console, heading: str | None = None) -> None:
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
        if before is None:
            return
        parts: list[RenderableType] = [] if self._heading is None else [self._heading]
        # Text, since the brackets of an address would be rich's markup.
        title = Text(f"{self._title}, {report.elapsed:.1f} s")
        pace = Pace.between(before, report)
        parts.append(Panel(_grid(pace, report), title=title, width=_WIDTH))
        if self._results:
            parts.append(make_table(self._results, []))
        self._live.update(Group(*parts), refresh=True)

    def end(self, result: Result) -> None:
        """It has received what it could."""
        self._results.append(result)


def choose_view(console: Console, heading: str | None = None) -> LiveView | PlainView:
    """A live view on a terminal that can show one, else plain lines."""
    # FORCE_COLOR makes rich see a terminal in a pipe; colours may go there, a live view may not.
    if console.is_interactive and sys.stdout.isatty():
        return LiveView(console, heading)
    return PlainView(heading)


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
    grid.add_row("packets so far", f"{report.packets:,}")
    batch = pace.batch_packets
    grid.add_row("packets a batch", "-" if batch is None else f"{batch:.1f}")
    if pace.window:
        grid.add_row("window", f"{pace.window} slots, at most {pace.window_peak} so far")
        grid.add_row("polled reads/s", f"{pace.polled_reads:,.0f}")
        grid.add_row("immediate reads/s", f"{pace.immediate_reads:,.0f}")
    else:  # a loop's own endpoint has none
        for name in ("window", "polled reads/s", "immediate reads/s"):
            grid.add_row(name, "-")
    grid.add_row("drops/s", f"{pace.drops:,.0f}")
    grid.add_row("drops so far", f"{report.drops:,}")
    grid.add_row("CPU", f"{pace.cpu:.0%} of a core")
    return grid
