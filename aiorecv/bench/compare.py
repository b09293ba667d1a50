"""What differs between two runs of a bench, or between two arms of one run.

    aiorecv bench compare OLD.json NEW.json
    aiorecv bench compare RUN.json --base ARM --arm ARM

Reads what --json of a bench wrote, and reports like Go's benchstat: the median and how far its
95 % confidence interval reaches (from 6 samples on), the change against the base, and p, by the
Mann-Whitney U test: how likely chance alone makes such a difference. "~" stands where p is not
below --alpha. A geometric mean is of the medians.

To be fair, compare what ran alternately: arms of one run, or runs of one quiet machine. Two runs
an hour apart differ by more than chance without fault of the code.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean

import attrs

from aiorecv.bench.report import ReportError, Run, Series, Table, change, figure, measured
from aiorecv.bench.significance import correct_by_holm, p_value, smallest_p_value

SUMMARY = "tell what differs between two runs, or two arms of one"


@attrs.frozen
class Pair:
    """Two series that are compared."""

    group: str
    name: str
    """What tells it from the group's other pairs; empty if there are none."""
    base: Series
    other: Series


@attrs.frozen
class Comparison:
    """All that is compared."""

    names: tuple[str, str]
    """The base's and the other's."""
    pairs: Sequence[Pair]
    notes: Sequence[str]
    """What makes it less than whole: what only one of them has, and unlike machines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN.json", help="one run, or two")
    add("--base", metavar="ARM", help="the arm of one run that is compared with")
    add("--arm", metavar="ARM", help="the arm of the same run that is compared")
    add(
        "--alpha",
        type=_parse_alpha,
        default=0.05,
        help="differences are significant where p is below (default: 0.05)",
    )
    add(
        "--holm",
        action="store_true",
        help="correct the p-values of each table for the number of its rows",
    )


def compare(arguments: argparse.Namespace) -> list[Table]:
    """Read the runs, and give a table for each unit.

    Raises:
        ReportError: If a run can't be read, or there is nothing to compare.
    """
    runs = [Run.load(path) for path in arguments.runs]
    wanted = (arguments.base, arguments.arm)
    if len(runs) == 2 and wanted == (None, None):
        found = pair_runs(arguments.runs, runs)
    elif len(runs) == 1 and None not in wanted:
        found = pair_arms(runs[0], *wanted)
    else:
        raise ReportError("give two runs, or one with --base ARM and --arm ARM")
    units = {pair.base.unit: None for pair in found.pairs}
    return [_table(found, unit, arguments.alpha, arguments.holm) for unit in units]


def pair_runs(paths: Sequence[Path], runs: Sequence[Run]) -> Comparison:
    """What two runs of one bench have in common, the first as the base."""
    old, new = runs
    if old.bench != new.bench:
        raise ReportError(f"{paths[0]} is of {old.bench}, {paths[1]} of {new.bench}")
    stems = (paths[0].stem, paths[1].stem)
    names = stems if stems[0] != stems[1] else (str(paths[0]), str(paths[1]))
    found = _pair(
        names,
        {(one.group, one.arm, one.unit): one for one in old.series},
        {(one.group, one.arm, one.unit): one for one in new.series},
    )
    return attrs.evolve(found, notes=[*_unlike(old, new), *found.notes])


def pair_arms(run: Run, base: str, arm: str) -> Comparison:
    """Two arms of one run, wherever both were measured under the same condition."""
    arms = {one.arm: None for one in run.series}
    for wanted in (base, arm):
        if wanted not in arms:
            known = ", ".join(map(repr, arms))
            raise ReportError(f"no arm is named {wanted!r}; there are {known}")
    return _pair(
        (base, arm),
        {(one.group, "", one.unit): one for one in run.series if one.arm == base},
        {(one.group, "", one.unit): one for one in run.series if one.arm == arm},
    )


def _unlike(old: Run, new: Run) -> Iterator[str]:
    for name in {**old.machine, **new.machine}:
        pair = old.machine.get(name), new.machine.get(name)
        if pair[0] != pair[1]:
            yield f"Not the same {name}: {pair[0]} and {pair[1]}."


_Keyed = dict[tuple[str, str, str], Series]


def _pair(names: tuple[str, str], old: _Keyed, new: _Keyed) -> Comparison:
    pairs = [
        Pair(key[0], key[1], series, new[key])
        for key, series in old.items()
        if key in new and series.samples and new[key].samples
    ]
    if not pairs:
        raise ReportError(f"{names[0]} and {names[1]} have nothing in common")
    shared = {(pair.group, pair.name, pair.base.unit) for pair in pairs}
    alone = [
        f"Only {name} has {', '.join(filter(None, key))}."
        for name, keyed in zip(names, (old, new), strict=True)
        for key in keyed
        if key not in shared
    ]
    return Comparison(names, pairs, alone)


def _table(found: Comparison, unit: str, alpha: float, holm: bool) -> Table:
    pairs = [pair for pair in found.pairs if pair.base.unit == unit]
    p_values = [p_value(pair.base.samples, pair.other.samples) for pair in pairs]
    if holm:
        p_values = correct_by_holm(p_values)
    groups: dict[str, list[tuple[Pair, float]]] = {}
    for pair, p in zip(pairs, p_values, strict=True):
        groups.setdefault(pair.group, []).append((pair, p))
    rows = [row for judged in groups.values() for row in _rows(judged, alpha)]
    if len(groups) > 1:
        rows += _means("geometric mean of all", pairs)
    better = pairs[0].base.better
    kind = "p (Holm)" if holm else "p"
    return Table(
        f"{unit} ({better} is better)",
        ["", *found.names, "change", kind, "n"],
        rows,
        [*_verdict(pairs, p_values, alpha, kind), *found.notes],
    )


def _rows(judged: Sequence[tuple[Pair, float]], alpha: float) -> Iterator[list[str]]:
    """One group: a row a pair, and their geometric mean if there are several."""
    for pair, p in judged:
        n, m = len(pair.base.samples), len(pair.other.samples)
        yield [
            _title(pair),
            measured(pair.base),
            measured(pair.other),
            change(pair.base.median, pair.other.median) if p < alpha else "~",
            f"{p:.3f}" if p >= 0.001 else "<0.001",
            str(n) if n == m else f"{n}+{m}",
        ]
    if len(judged) > 1:
        group = judged[0][0].group
        yield from _means(f"{group}: geometric mean", [pair for pair, _ in judged])


def _title(pair: Pair) -> str:
    return ": ".join(filter(None, (pair.group, pair.name)))


def _means(title: str, pairs: Sequence[Pair]) -> Iterator[list[str]]:
    """A row of geometric means; none if a median is not positive, which has none."""
    medians = [(pair.base.median, pair.other.median) for pair in pairs]
    if min(map(min, medians)) > 0:
        base, other = (geometric_mean(column) for column in zip(*medians, strict=True))
        yield [title, figure(base), figure(other), change(base, other), "", ""]


def _verdict(
    pairs: Sequence[Pair], p_values: Iterable[float], alpha: float, kind: str
) -> Iterator[str]:
    """How many pairs differ; and, if none could, that they could not."""
    significant = sum(p < alpha for p in p_values)
    of = f"of {len(pairs)} comparisons" if len(pairs) > 1 else "of 1 comparison"
    yield f"Significant at {kind} < {alpha:g}: {significant or 'none'} {of}."
    times = len(pairs) if kind != "p" else 1
    least = [
        smallest_p_value(len(pair.base.samples), len(pair.other.samples)) * times for pair in pairs
    ]
    if min(least) >= alpha:
        yield "There are too few samples for any difference to be significant: repeat more often."


def _parse_alpha(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number between 0 and 1, such as 0.01")
    return value
