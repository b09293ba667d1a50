"""Figures in the README, written from a recorded run, so that none is typed by hand.

``python -m aiorecv.bench.figures RUN.json README.md`` puts the tables of a run that
``python -m aiorecv.bench.bars --json RUN.json`` has recorded between the page's two marks;
with ``--check`` it only tells whether they stand there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from aiorecv.bench.marks import bring, filled


def tables(run: dict[str, Any]) -> str:
    """The run as Markdown: a table against C, one against rivals if there are any, and on what."""
    # What was recorded before there were rivals names none.
    against_c = [row for row in run["rows"] if row.get("against", "C") == "C"]
    against_rivals = [row for row in run["rows"] if row not in against_c]
    lines = []
    if against_c:
        lines += ["| what | loop | C drain, ns | aiorecv, ns | ratio |", "|---|---|---:|---:|---:|"]
        lines += [_line(row, row["title"], row["loop"]) for row in against_c]
        lines.append("")
    if against_rivals:
        lines += [
            "The same for the datagram endpoints of others:",
            "",
            "| what | loop | whose | theirs, ns | aiorecv, ns | ratio |",
            "|---|---|---|---:|---:|---:|",
        ]
        lines += [_line(row, row["title"], row["loop"], row["against"]) for row in against_rivals]
        lines.append("")
    return "\n".join([*lines, _measured(run)]) + "\n"


def _line(row: dict[str, Any], *words: str) -> str:
    reference, ours = median(row["reference_ns"]), median(row["receiver_ns"])
    return f"| {' | '.join(words)} | {reference:.0f} | {ours:.0f} | {row['ratio']:.2f} |"


def _measured(run: dict[str, Any]) -> str:
    machine = run["machine"]
    versions = [f"Python {machine['python']}"]
    versions += [f"{name} {version}" for name, version in run.get("rivals", {}).items() if version]
    return (
        f"Nanoseconds a packet, medians of {len(run['rows'][0]['receiver_ns'])} alternated rounds; "
        f"the ratio is the median of theirs. {machine['cpus']} CPUs, Linux {machine['kernel']}, "
        f"{', '.join(versions)}."
    )


def written(page: str, run: dict[str, Any]) -> str:
    """The page with the run's tables between its marks.

    Raises:
        ValueError: If the page lacks a mark.
    """
    return filled(page, lambda mark: tables(run))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables, or check them: 1 if they are others."""
    parser = argparse.ArgumentParser("python -m aiorecv.bench.figures", description=__doc__)
    parser.add_argument("run", type=Path, help="what bars --json wrote")
    parser.add_argument("page", type=Path, help="the page with the marks")
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    wanted = written(arguments.page.read_text(), json.loads(arguments.run.read_text()))
    return int(not bring(arguments.page, wanted, arguments.check))


if __name__ == "__main__":
    raise SystemExit(main())
