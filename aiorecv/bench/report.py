"""Reports: what a bench has measured, with all its samples, and as tables and pictures to see.

Every bench gives one `Run`. It is shown on a terminal and in the documentation by the same
tables, kept as JSON, and compared with another run of the same bench. Knows nothing of how a
table or a picture is drawn.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

import attrs

Better: TypeAlias = Literal["lower", "higher"]

# How sure the interval of a median is, as in Go's benchstat.
_CONFIDENCE = 0.95


class ReportError(ValueError):
    """A run can't be read, or lacks what was asked for; the words say which and why."""


def _floats(samples: Iterable[float]) -> tuple[float, ...]:
    return tuple(samples)


@attrs.frozen
class Series:
    """One figure of one arm under one condition: a sample a repetition."""

    group: str
    """The condition; series of one group and unit may be compared with each other."""

    arm: str
    """Who or what was measured, such as ``recvMmsg/32`` or ``adaptive``."""

    unit: str
    """What the samples are, such as ``ns/packet`` or ``Gbit/s``."""

    samples: Sequence[float] = attrs.field(converter=_floats)
    """In the order they were taken."""

    better: Better = "lower"
    """Which direction is an improvement."""

    @property
    def median(self) -> float:
        """The middle sample."""
        return median(self.samples)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Samples between which the true median is, at 95 % confidence; None of less than 6.

        By rank, so that it holds for any distribution: the chance that fewer than r of n samples
        are below the median is that of fewer than r heads in n throws of a coin.
        """
        ordered = sorted(self.samples)
        n = len(ordered)
        rank = outside = 0
        while (outside := outside + math.comb(n, rank)) / 2**n <= (1 - _CONFIDENCE) / 2:
            rank += 1
        return (ordered[rank - 1], ordered[n - rank]) if rank else None

    @property
    def spread(self) -> float:
        """How far the interval reaches from the median, as a part of it; infinite without one."""
        if self.interval is None:
            return math.inf
        reach = max(abs(end - self.median) for end in self.interval)
        return reach / abs(self.median) if self.median else math.inf if reach else 0.0


def _series(series: Iterable[Series]) -> tuple[Series, ...]:
    return tuple(series)


@attrs.frozen
class Run:
    """All that one run of one bench has measured."""

    bench: str
    """Its name on the command line."""

    command: str
    """What was typed, so that it can be typed again."""

    machine: Mapping[str, Any]
    """What the figures depend on, from `machine()`."""

    facts: Mapping[str, Any]
    """What the bench found besides, such as sysctls or counters; JSON types only."""

    series: Sequence[Series] = attrs.field(converter=_series)

    def find(self, group: str, arm: str, unit: str) -> Series:
        """The one series with this key.

        Raises:
            KeyError: If there is none.
        """
        for series in self.series:
            if (series.group, series.arm, series.unit) == (group, arm, unit):
                return series
        raise KeyError((group, arm, unit))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(attrs.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Run:
        """Read what ``save`` wrote.

        Raises:
            ReportError: If the file can't be read, or is something else.
        """
        try:
            found = json.loads(path.read_text())
            series = [Series(**one) for one in found.pop("series")]
            return cls(series=series, **found)
        except OSError as error:
            raise ReportError(f"{path}: {error.strerror}") from None
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError):
            raise ReportError(f"{path} is no run that --json of a bench wrote") from None


@attrs.frozen
class Table:
    """Rows to read: text, aligned to the right except for the first column."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """Sentences to stand below it."""

    def markdown(self) -> str:
        """The table without its title, as Markdown."""
        lines = [
            _row(self.columns),
            _row(["---", *["---:"] * (len(self.columns) - 1)]),
            *map(_row, self.rows),
        ]
        lines += [line for note in self.notes for line in ("", note)]
        return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


@attrs.frozen
class Picture:
    """Bars to look at: the median of each series and its interval, one below the other, by group.

    A bench may have a function ``pictured(run) -> list[Picture]``.
    """

    title: str
    series: Sequence[Series]
    """All of one unit."""


def measured(series: Series) -> str:
    """The median, and how far its interval reaches."""
    spread = "∞" if math.isinf(series.spread) else f"{series.spread:.0%}"
    return f"{figure(series.median)} ± {spread}"


def change(base: float, other: float) -> str:
    """By how much the other is more than the base, in per cent."""
    return f"{other / base - 1:+.2%}" if base else "from 0"


def figure(value: float) -> str:
    """A number with four digits that count, and commas between thousands."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.3e}".partition("e")[2])  # after rounding: 99.999 is 100.0
    return f"{value:,.{max(0, 3 - exponent)}f}"


def machine() -> dict[str, Any]:
    """What figures depend on."""
    packages: dict[str, str | None] = {}
    for name in ("aiorecv", "cffi", "uvloop"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "kernel": platform.uname().release,
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "packages": packages,
    }


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)
