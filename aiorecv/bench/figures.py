"""Figures in the README, written from a recorded run, so that none is typed by hand.

``python -m aiorecv.bench.figures RUN.json README.md`` puts the table of a run that
``python -m aiorecv.bench.bars --json RUN.json`` has recorded between the page's two marks;
with ``--check`` it only tells whether it stands there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from aiorecv.bench.marks import bring, filled


def table(run: dict[str, Any]) -> str:
    """The run as a Markdown table, and what it was measured on."""
    machine = run["machine"]
    lines = ["| what | loop | C drain, ns | aiorecv, ns | ratio |", "|---|---|---:|---:|---:|"]
    for row in run["rows"]:
        c, ours = median(row["reference_ns"]), median(row["receiver_ns"])
        cells = (row["title"], row["loop"], f"{c:.0f}", f"{ours:.0f}", f"{row['ratio']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"Nanoseconds a packet, medians of {len(run['rows'][0]['receiver_ns'])} alternated rounds; "
        f"the ratio is the median of theirs. {machine['cpus']} CPUs, Linux {machine['kernel']}, "
        f"Python {machine['python']}.",
    ]
    return "\n".join(lines) + "\n"


def written(page: str, run: dict[str, Any]) -> str:
    """The page with the run's table between its marks.

    Raises:
        ValueError: If the page lacks a mark.
    """
    return filled(page, lambda mark: table(run))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table, or check it: 1 if it is another."""
    parser = argparse.ArgumentParser("python -m aiorecv.bench.figures", description=__doc__)
    parser.add_argument("run", type=Path, help="what bars --json wrote")
    parser.add_argument("page", type=Path, help="the page with the marks")
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    wanted = written(arguments.page.read_text(), json.loads(arguments.run.read_text()))
    return int(not bring(arguments.page, wanted, arguments.check))


if __name__ == "__main__":
    raise SystemExit(main())
