"""Plain lines: what is shown of a running receiver where there is no terminal. Needs no rich."""

from __future__ import annotations

from typing import Self

from aiorecv.cli.pace import Pace
from aiorecv.cli.report import Report, Result

_PERIOD = 0.9  # seconds between lines: one a second, whatever the reports' jitter


class PlainView:
    """One line a second for each receiver."""

    def __init__(self, heading: str | None = None) -> None:
        if heading is not None:
            print(heading, flush=True)

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
        if before is None:
            self._before = report
        elif report.elapsed - before.elapsed >= _PERIOD:
            self._before = report
            print(f"{self._title}: {Pace.between(before, report).to_line()}", flush=True)

    def end(self, result: Result) -> None:
        """It has received what it could."""
