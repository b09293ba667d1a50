"""Tables on a terminal: what a bench has measured, and how two runs differ."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from aiorecv.bench.report import Table

# A figure that is cut is worse than a line that wraps: tables are as wide as they are.
_WIDTH = 10_000


def show(tables: Iterable[Table]) -> None:
    """Print tables with their titles and notes."""
    console = Console(file=sys.stdout, width=_WIDTH)
    for table in tables:
        console.print(Text(table.title, style="bold"), soft_wrap=True)
        console.print(_make(table))
        for note in table.notes:
            console.print(Text(note), soft_wrap=True)
        if table.notes:
            console.print()


def _make(table: Table) -> RichTable:
    made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(table.columns):
        made.add_column(Text(column), justify="right" if number else "left", no_wrap=True)
    for row in table.rows:
        # Text, since brackets would be rich's markup.
        made.add_row(*(Text(cell) for cell in row))
    return made
