"""The page of the suites that pass, written from a run of them.

``python -m tests.interop.table`` runs the suites and writes what came of them into the page;
``pytest tests/interop`` checks that the page shows what its own run gave.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path

from aiorecv.bench.marks import bring, filled
from aiorecv.bench.report import Table
from tests.interop.child import SUITES
from tests.interop.comparing import ROOT, Comparison, compare
from tests.interop.loops import BASES
from tests.interop.sources import fetch, pins

PAGE = ROOT / "docs" / "reference" / "compatibility.md"

Comparisons = Mapping[tuple[str, str], Comparison]
"""By suite and base."""


def page(comparisons: Comparisons) -> str:
    """The page as it is now, but with the tables of these runs."""
    texts = {"suites": _suites(comparisons), "excused": _excused(comparisons)}
    return filled(PAGE.read_text(), lambda mark: texts[mark])


def _suites(comparisons: Comparisons) -> str:
    columns = [
        *["suite", "loop", "tests", "passed, its own transport", "passed, ours"],
        *["failed, its own transport", "failed, ours", "of which excused"],
    ]
    rows = []
    for (suite, base), one in comparisons.items():
        counts = [one.stock.passed, one.ours.passed, one.stock.failed, one.ours.failed, one.excused]
        tests = len(one.stock.passed | one.stock.failed)
        rows.append([_name(suite), base, *map(str, [tests, *map(len, counts)])])
    return Table("", columns, rows).markdown()


def _excused(comparisons: Comparisons) -> str:
    reasons: dict[str, set[str]] = {}
    for one in comparisons.values():
        for test, reason in one.excused.items():
            reasons.setdefault(reason, set()).add(test)
    lines = []
    for reason, tests in reasons.items():
        lines.append(f"- Excused, since {reason}:")
        lines += [f"  - `{test}`" for test in sorted(tests)]
    return "\n".join([*lines, ""])


def _name(suite: str) -> str:
    if suite == "cpython":
        return f"CPython {'.'.join(platform.python_version_tuple()[:2])}, `test.test_asyncio`"
    module = {"aioquic": "test_asyncio", "uvloop": "test_udp"}[suite]
    return f"{suite} {pins()[suite]}, `tests/{module}.py`"


def main() -> None:
    """Run all suites, and write the page."""
    with tempfile.TemporaryDirectory() as directory:
        sources = fetch(Path(directory))
        comparisons = {
            (suite, base): compare(suite, base, sources) for suite in SUITES for base in BASES
        }
    bring(PAGE, page(comparisons), check=False)


if __name__ == "__main__":
    main()
