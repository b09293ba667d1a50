"""Significance: whether two sets of samples differ by more than chance. Needs scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

# Most ways to deal samples to two arms that are tried one by one, which takes 20 ms; 8 and 8 have
# 12,870.
_MOST_WAYS = 20_000
# Up to here the exact test is as quick as its approximation, as in Go's benchstat.
_MOST_EXACT = 50


def p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """How likely chance alone makes two arms differ so much: Mann-Whitney U, two-sided.

    Exact for small samples (up to 50, or 8 where some are equal); else by the normal
    approximation, corrected for ties.
    """
    from scipy.stats import mannwhitneyu

    distinct = len({*a, *b})
    if distinct == 1:
        return 1.0
    if distinct < len(a) + len(b) and math.comb(len(a) + len(b), len(a)) <= _MOST_WAYS:
        return _dealt(a, b)  # scipy's "exact" takes no ties
    exact = distinct == len(a) + len(b) and max(len(a), len(b)) <= _MOST_EXACT
    method = "exact" if exact else "asymptotic"
    return float(mannwhitneyu(a, b, alternative="two-sided", method=method).pvalue)


def _dealt(a: Sequence[float], b: Sequence[float]) -> float:
    """The same test, by dealing all samples to the two arms in every way there is."""
    from scipy.stats import rankdata

    ranks = rankdata([*a, *b]).tolist()
    came = sum(ranks[: len(a)])
    sums = [sum(dealt) for dealt in combinations(ranks, len(a))]
    fewer: int = min(sum(one <= came for one in sums), sum(one >= came for one in sums))
    return min(1.0, 2 * fewer / len(sums))


def smallest_p_value(n: int, m: int) -> float:
    """What `p_value` is at least for so many samples, however far apart they are."""
    return min(1.0, 2 / math.comb(n + m, n))


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several comparisons, corrected for their number, in the same order.

    A result below alpha is then as unlikely by chance anywhere among all of them.
    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    for position, index in enumerate(ascending):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - position)))
        corrected[index] = highest
    return corrected
