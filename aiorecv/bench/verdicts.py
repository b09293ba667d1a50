"""Verdicts: whether one window policy is better, equal or worse than another, by pattern."""

from __future__ import annotations

from collections.abc import Sequence

from aiorecv.bench.report import Run, Table

# Below this share a difference of counts is none.
_EQUAL = 0.01
_COUNTS = {"calls": "calls", "memory": "KiB touched", "kept": "KiB kept"}


def verdicts(run: Run, reference: str, candidate: str, parts: Sequence[str]) -> Table:
    """How a policy fares: by the simulated counts, and by the time of each loop's replays."""
    patterns = run.facts["patterns"]
    loops = parts[1:]
    rows = []
    found: dict[str, set[str]] = {name: set() for name in _COUNTS}
    for name, pattern in patterns.items():
        row = [pattern["title"]]
        for word, unit in _COUNTS.items():
            if word == "kept" and not pattern["ends_lone"]:
                row.append("-")
                continue
            verdict = _verdict(*_pair(run, f"{parts[0]} {name}", reference, candidate, unit))
            found[word].add(verdict)
            row.append(verdict)
        rows.append(
            [*row, *(_ratio(run, f"{loop} {name}", reference, candidate) for loop in loops)]
        )
    columns = ("pattern", *_COUNTS, *(f"time, {loop}" for loop in loops))
    return Table(f"{candidate} against {reference}", columns, rows, [_whole(found)])


def _pair(run: Run, group: str, reference: str, candidate: str, unit: str) -> tuple[float, float]:
    return run.find(group, reference, unit).median, run.find(group, candidate, unit).median


def _verdict(reference: float, candidate: float) -> str:
    if abs(candidate - reference) <= _EQUAL * reference:
        return "equal"
    return "better" if candidate < reference else "worse"


def _ratio(run: Run, group: str, reference: str, candidate: str) -> str:
    before, after = _pair(run, group, reference, candidate, "ns/packet")
    return f"{after / before:.2f} x"


def _whole(found: dict[str, set[str]]) -> str:
    words = [
        f"{word} {'worse on some pattern' if 'worse' in verdicts else 'better or equal on all'}"
        for word, verdicts in found.items()
        if verdicts
    ]
    return (
        f"As a whole: {', '.join(words)}. Counts within {_EQUAL:.0%} are equal; memory is what was "
        "touched; times are ratios of medians, below 1 better."
    )
