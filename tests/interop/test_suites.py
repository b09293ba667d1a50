"""Other projects' own tests of datagram endpoints: ours fails nowhere that the loop's passes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.child import SUITES
from tests.interop.comparing import Comparison, Outcomes, compare
from tests.interop.loops import BASES
from tests.interop.sources import fetch
from tests.interop.table import PAGE, page

Compared = Callable[[str, str], Comparison]


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Compared:
    """Runs a suite on loops of one base, both ways; each once."""
    sources: Path = fetch(tmp_path_factory.mktemp("sources"))
    return functools.cache(lambda suite, base: compare(suite, base, sources))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("suite", SUITES)
def test_what_passes_with_the_loops_own_transport_passes_with_ours(compared, suite, base):
    comparison = compared(suite, base)

    assert not comparison.problems(), "\n".join(comparison.problems())
    assert comparison.ours.passed


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("suite", SUITES)
def test_each_run_used_the_transport_that_it_is_about(compared, suite, base):
    comparison = compared(suite, base)

    assert comparison.ours.transports["made"] > 0
    assert comparison.ours.transports["ours"] == comparison.ours.transports["made"]
    assert comparison.stock.transports["made"] > 0
    assert comparison.stock.transports["ours"] == 0


@pytest.mark.parametrize("base", BASES)
def test_aioquic_got_through_loss_that_was_made_on_our_send_path(compared, base):
    run = compared("aioquic", base).ours

    [test] = [name for name in run.tests if name.endswith("_with_packet_loss")]
    assert run.tests[test] == "passed"
    assert run.loss["lost"] > 0
    assert run.loss["sent"] > run.loss["lost"]


def test_the_documentation_shows_what_this_run_gave(compared):
    comparisons = {(suite, base): compared(suite, base) for suite in SUITES for base in BASES}

    wanted = page(comparisons)

    shown = PAGE.read_text()
    assert _of_ours(shown) == _of_ours(wanted), "python -m tests.interop.table writes the page"


def _of_ours(text: str) -> list[list[str]]:
    """What the table says of our transport; how the loop's own fares is not ours to hold."""
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
    return [[row[0], row[1], row[2], row[4], row[6], row[7]] for row in rows if len(row) == 8]


def outcomes(**tests: str) -> Outcomes:
    return Outcomes(tests, {"made": 1, "ours": 1}, {"sent": 0, "lost": 0})


def test_a_failure_of_ours_alone_is_a_problem_unless_excused():
    stock = outcomes(a="passed", b="passed", c="Traceback", d="skipped")
    ours = outcomes(a="passed", b="Traceback", c="Traceback", d="skipped")

    [problem] = Comparison(stock, ours, {}).problems()

    assert problem.startswith("b passes")
    assert not Comparison(stock, ours, {"b": "it reads private attributes"}).problems()


@pytest.mark.parametrize("test", ["passes", "fails_with_both", "is_not_there"])
def test_an_excuse_for_a_test_that_does_not_fail_with_ours_alone_is_a_problem(test):
    both = outcomes(passes="passed", fails_with_both="Traceback")

    [problem] = Comparison(both, both, {test: "no reason"}).problems()

    assert problem.startswith(f"{test} is excused")


def test_a_test_that_ours_skips_or_leaves_out_counts_as_failed():
    stock = outcomes(a="passed", b="passed")

    assert len(Comparison(stock, outcomes(a="skipped"), {}).problems()) == 2
