"""``aiorecv bench compare``: what it finds between runs and arms, and what it refuses."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiorecv.bench.report import ReportError, Run, Series, Table, figure
from aiorecv.bench.significance import correct_by_holm, p_value, smallest_p_value
from aiorecv.cli import main

MACHINE = {"cpus": 2, "packages": {}}
SAMPLES = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=6)


def saved(path: Path, *series: Series, bench: str = "bulk", **machine: object) -> str:
    """A run of these series, as a bench writes it."""
    Run(bench, f"aiorecv bench {bench}", MACHINE | machine, {}, series).save(path)
    return str(path)


def near(centre: float, n: int = 10) -> list[float]:
    """Samples that are all different, within 2 % of the centre."""
    dice = random.Random(centre)
    return [centre * dice.uniform(0.98, 1.02) for _ in range(n)]


@pytest.fixture
def old(tmp_path):
    return saved(
        tmp_path / "old.json",
        Series("one flow", "fixed 8", "Gbit/s", near(10.0), "higher"),
        Series("one flow", "adaptive", "Gbit/s", near(40.0), "higher"),
        Series("four flows", "fixed 8", "Gbit/s", near(30.0), "higher"),
        Series("four flows", "adaptive", "Gbit/s", near(30.1), "higher"),
        Series("one flow", "fixed 8", "drops", [0.0] * 10),
        Series("one flow", "adaptive", "drops", [7.0] * 10),
        Series("gone", "fixed 8", "drops", [1.0]),
    )


@pytest.fixture
def new(tmp_path):
    return saved(
        tmp_path / "new.json",
        Series("one flow", "fixed 8", "Gbit/s", near(20.0), "higher"),
        Series("one flow", "adaptive", "Gbit/s", near(40.2), "higher"),
        Series("one flow", "fixed 8", "drops", [0.0] * 10),
        Series("one flow", "adaptive", "drops", [3.0] * 10),
        kernel="another",
    )


def rows(shown: str, unit: str) -> dict[str, list[str]]:
    """The lines of the table of a unit that was printed, by their first cell."""
    table = shown.partition(f"{unit} (")[2].partition("Significant at")[0]
    cells = (line.split("  ") for line in table.splitlines())
    found = ([cell.strip() for cell in line if cell.strip()] for line in cells)
    return {line[0]: line[1:] for line in found if len(line) > 1}


def test_two_runs_are_compared_series_by_series(old, new, capsys):
    assert main(["bench", "compare", old, new]) == 0

    shown = capsys.readouterr().out
    assert "Gbit/s (higher is better)\n" in shown
    doubled = rows(shown, "Gbit/s")["one flow: fixed 8"]
    assert 95 < float(doubled[2].rstrip("%")) < 105
    assert doubled[3:] == ["<0.001", "10"]
    assert "drops (lower is better)\n" in shown
    found = rows(shown, "drops")
    assert found["one flow: fixed 8"] == ["0 ± 0%", "0 ± 0%", "~", "1.000", "10"]
    assert found["one flow: adaptive"] == ["7.000 ± 0%", "3.000 ± 0%", "-57.14%", "<0.001", "10"]
    assert len(found) == 3  # no geometric mean where there was nothing
    assert "Significant at p < 0.05: 1 of 2 comparisons." in shown


def test_what_is_not_common_to_both_runs_is_told(old, new, capsys):
    assert main(["bench", "compare", old, new]) == 0

    shown = capsys.readouterr().out
    assert "Only old has four flows, fixed 8, Gbit/s.\n" in shown
    assert "Only old has gone, fixed 8, drops.\n" in shown
    assert "Not the same kernel: None and another.\n" in shown
    assert "Not the same cpus" not in shown


def test_two_arms_of_a_run_are_compared_condition_by_condition(old, capsys):
    command = ["bench", "compare", old, "--base", "fixed 8", "--arm", "adaptive"]

    assert main([*command, "--holm", "--alpha", "0.01"]) == 0

    shown = capsys.readouterr().out
    found = rows(shown, "Gbit/s")
    assert found["four flows"][2] == "~"
    assert found["geometric mean of all"][2].startswith("+")
    assert "Significant at p (Holm) < 0.01: 1 of 2 comparisons." in shown
    assert rows(shown, "drops")["one flow"] == ["0 ± 0%", "7.000 ± 0%", "from 0", "<0.001", "10"]


@pytest.mark.parametrize(
    ("options", "p", "verdict"),
    [
        ([], "0.029", "Significant at p < 0.05: 3 of 3 comparisons.\n\n"),
        (
            ["--holm"],
            "0.086",
            "Significant at p (Holm) < 0.05: none of 3 comparisons.\n"
            "There are too few samples for any difference to be significant: repeat more often.\n",
        ),
    ],
)
def test_holm_corrects_a_table_for_its_rows(tmp_path, capsys, options, p, verdict):
    low, high = [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]
    series = [
        Series(group, arm, "ns", samples)
        for group in ("f", "g", "h")
        for arm, samples in (("a", low), ("b", high))
    ]
    run = saved(tmp_path / "run.json", *series)

    assert main(["bench", "compare", run, "--base", "a", "--arm", "b", *options]) == 0

    shown = capsys.readouterr().out
    assert verdict in shown
    assert {row[3] for name, row in rows(shown, "ns").items() if name in "fgh"} == {p}


def test_geometric_means_are_of_the_medians_of_a_group(tmp_path, capsys):
    a = saved(tmp_path / "a.json", Series("g", "x", "ns", [1.0]), Series("g", "y", "ns", [4.0]))
    b = saved(tmp_path / "b.json", Series("g", "x", "ns", [2.0]), Series("g", "y", "ns", [32.0]))

    assert main(["bench", "compare", a, b]) == 0

    found = rows(capsys.readouterr().out, "ns")
    assert found["g: geometric mean"] == ["2.000", "8.000", "+300.00%"]


def test_a_group_is_one_whatever_the_order_of_its_series(tmp_path, capsys):
    series = [Series(group, arm, "ns", [4.0]) for arm in "xy" for group in "gh"]
    a = saved(tmp_path / "a.json", *series)

    assert main(["bench", "compare", a, a]) == 0

    assert list(rows(capsys.readouterr().out, "ns"))[1:] == [
        "g: x",
        "g: y",
        "g: geometric mean",
        "h: x",
        "h: y",
        "h: geometric mean",
        "geometric mean of all",
    ]


@pytest.mark.parametrize(("n", "told"), [(3, True), (5, False)])
def test_too_few_samples_for_any_difference_are_told(tmp_path, capsys, n, told):
    a = saved(tmp_path / "a.json", Series("g", "x", "ns", [*range(n)]))
    b = saved(tmp_path / "b.json", Series("g", "x", "ns", [*range(100, 100 + n)]))

    assert main(["bench", "compare", a, b]) == 0

    shown = capsys.readouterr().out
    assert ("too few samples" in shown) is told
    assert (rows(shown, "ns")["g: x"][2] == "~") is told
    assert "± ∞" in shown


def test_runs_of_one_name_are_told_apart_by_their_directories(tmp_path, capsys):
    a = saved(tmp_path / "a" / "run.json", Series("g", "x", "ns", [1.0]))
    b = saved(tmp_path / "b" / "run.json", Series("g", "x", "ns", [1.0]))

    assert main(["bench", "compare", a, b]) == 0

    shown = capsys.readouterr().out
    assert a in shown
    assert b in shown


def test_what_can_not_be_compared_is_refused(old, tmp_path, capsys):
    missing = str(tmp_path / "missing.json")
    text = tmp_path / "text.json"
    text.write_text('{"series": [{"group": 1}]}')
    other = saved(tmp_path / "other.json", Series("g", "x", "ns", [1.0]), bench="sink")
    apart = saved(tmp_path / "apart.json", Series("g", "x", "ns", [1.0]))
    empty = saved(tmp_path / "empty.json", Series("gone", "fixed 8", "drops", []))

    for arguments, complaint in (
        ([old, missing], f"{missing}: No such file or directory"),
        ([old, str(text)], f"{text} is no run that --json of a bench wrote"),
        ([old, other], f"{old} is of bulk, {other} of sink"),
        ([old, apart], "old and apart have nothing in common"),
        ([old, empty], "old and empty have nothing in common"),
        ([old], "give two runs, or one with --base ARM and --arm ARM"),
        ([old, "--base", "adaptive"], "give two runs, or one with --base ARM and --arm ARM"),
        ([old, old, old], "give two runs, or one with --base ARM and --arm ARM"),
        ([old, old, "--base", "adaptive"], "give two runs, or one with --base ARM and --arm ARM"),
        (
            [old, "--base", "fixed", "--arm", "adaptive"],
            "no arm is named 'fixed'; there are 'fixed 8', 'adaptive'",
        ),
    ):
        assert main(["bench", "compare", *arguments]) == 1
        assert capsys.readouterr().err == f"aiorecv bench compare: {complaint}\n"


@pytest.mark.parametrize("alpha", ["0", "1", "nan", "some"])
def test_an_alpha_that_is_no_chance_is_refused(old, capsys, alpha):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "compare", old, old, "--alpha", alpha])

    assert exit_.value.code == 2
    assert "give a number between 0 and 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3], [4, 5, 6], 2 / math.comb(6, 3)),
        ([0, 0, 0, 0], [1, 1, 1, 1], 2 / math.comb(8, 4)),  # ties, dealt out in every way
        ([1], [2], 1.0),
        ([5, 5, 5], [5, 5], 1.0),
        ([1, 3], [2, 2], 1.0),
        (list(range(50)), list(range(100, 150)), 2 / math.comb(100, 50)),
    ],
)
def test_the_p_value_of_small_samples_is_exact(a, b, expected):
    assert p_value(a, b) == pytest.approx(expected)
    assert p_value(b, a) == pytest.approx(expected)


@pytest.mark.parametrize("a", [[*range(60)], [*range(30)] * 2])
def test_the_p_value_of_many_samples_is_approximated(a):
    assert p_value(a, a) > 0.9
    assert p_value(a, [one + 100 for one in a]) < 1e-15


@given(SAMPLES, SAMPLES)
def test_no_p_value_is_below_the_smallest_for_so_many_samples(a, b):
    assert smallest_p_value(len(a), len(b)) - 1e-12 <= p_value(a, b) <= 1


def test_holm_corrects_each_p_value_for_those_above_it():
    # The third would be 0.03 * 2, which is kept for the last, 0.04.
    assert correct_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_by_holm([0.6, 0.7]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_a_corrected_p_value_is_between_itself_and_bonferronis(p_values):
    for p, corrected in zip(p_values, correct_by_holm(p_values), strict=True):
        assert p <= corrected <= min(1.0, p * len(p_values))


@pytest.mark.parametrize(
    ("n", "interval"), [(1, None), (5, None), (6, (0, 5)), (10, (1, 8)), (16, (3, 12))]
)
def test_the_interval_of_a_median_goes_by_rank(n, interval):
    assert Series("g", "x", "ns", [*range(n)]).interval == interval


@pytest.mark.parametrize(
    ("samples", "spread"),
    [([1.0], math.inf), ([100.0] * 6, 0), ([0.0] * 6, 0), ([90.0, *[100.0] * 5], 0.1)],
)
def test_the_spread_is_a_part_of_the_median(samples, spread):
    assert Series("g", "x", "ns", samples).spread == pytest.approx(spread)


def test_around_nothing_there_is_no_relative_spread():
    assert Series("g", "x", "ns", [-1.0, *[0.0] * 5]).spread == math.inf


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2162095, "2,162,095"), (462.51, "462.5"), (99.999, "100.0"), (-0.0123, "-0.01230")],
)
def test_figures_have_four_digits_that_count(value, text):
    assert figure(value) == text


def test_a_run_is_the_same_when_it_is_read_again(tmp_path):
    run = Run("sink", "aiorecv bench sink", MACHINE, {"drops": [0]}, [Series("g", "x", "u", [1])])

    run.save(tmp_path / "new" / "run.json")

    assert Run.load(tmp_path / "new" / "run.json") == run
    assert run.find("g", "x", "u").samples == (1,)
    with pytest.raises(KeyError):
        run.find("g", "x", "v")


def test_a_file_of_bytes_is_no_run(tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xff")

    with pytest.raises(ReportError, match="is no run"):
        Run.load(tmp_path / "run.json")


def test_a_table_in_markdown_keeps_its_columns_and_notes():
    table = Table("t", ["", "a|b"], [["x", "1"]], ["A note.", "Another."])

    assert table.markdown() == ("|  | a\\|b |\n| --- | ---: |\n| x | 1 |\n\nA note.\n\nAnother.\n")
