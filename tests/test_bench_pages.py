"""Pages and pictures show the runs that are recorded, and nothing else."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import attrs
import pytest

from aiorecv.bench import pages, pictures, startup
from aiorecv.bench.report import Picture, Run, Series
from aiorecv.cli.bench import BENCHES

ROOT = Path(__file__).parents[1]
PAGE = "before\n<!-- startup -->\nold\n<!-- end of startup -->\nafter\n"
COMPARED = """
<!-- compare startup.json --base "own endpoint" --arm aiorecv --alpha 0.01 -->
<!-- end of compare -->
"""


@pytest.fixture
def run() -> Run:
    """A run of ``bench startup``, made up."""
    dice = random.Random(1)
    series = [
        Series(group, arm, unit, [dice.uniform(50, 60) for _ in range(7)])
        for group in ("import", "first packet on asyncio")
        for arm in ("own endpoint", "aiorecv")
        for unit in ("ms", "ms without imports")
    ]
    return Run(
        "startup",
        "aiorecv bench startup --json figures/startup.json",
        {
            "cpus": 2,
            "cpu": None,
            "machine": "x86_64",
            "kernel": "6.18",
            "python": "3.11.7",
            "packages": {"aiorecv": "0.1.0", "uvloop": None},
        },
        {"requirements": ["attrs"], "editable": False},
        [*series, Series("installed", "aiorecv", "bytes", [123456])],
    )


@pytest.fixture
def place(tmp_path, monkeypatch, run) -> Path:
    """A directory with a page and a recorded run, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    run.save(tmp_path / "figures" / "startup.json")
    (tmp_path / "page.md").write_text(PAGE)
    return Path(tmp_path)


def write(*options: str) -> int:
    return pages.main(["page.md", "figures", *options])


def test_the_documentation_shows_the_recorded_runs(monkeypatch):
    monkeypatch.chdir(ROOT)

    assert pages.main(["--check", "docs/benchmarks.md", "docs/figures"]) == 0


@pytest.mark.parametrize("bench", BENCHES)
def test_the_documentation_shows_a_run_of_every_bench(bench):
    names = re.findall(r"^<!-- end of ([\w-]+) -->$", _documented(), re.MULTILINE)
    files = [ROOT / "docs" / "figures" / f"{name}.json" for name in names if name != "compare"]

    assert bench in {json.loads(path.read_text())["bench"] for path in files}


def test_every_picture_in_the_documentation_is_of_a_recorded_run():
    drawn = {path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")}

    assert drawn == {name for name in drawn if f"<!-- {name} -->" in _documented()}


def _documented() -> str:
    return (ROOT / "docs" / "benchmarks.md").read_text()


def test_a_page_is_written_between_its_marks_and_checked(place, run, capsys):
    assert write("--check") == 1
    assert capsys.readouterr().err == (
        "page.md does not show the recorded run\n"
        "figures/startup.svg does not show the recorded run\n"
    )

    assert write() == 0

    assert write("--check") == 0
    text = (place / "page.md").read_text()
    assert text.startswith("before\n<!-- startup -->\n\n```console\naiorecv bench startup --json ")
    assert text.endswith("\n<!-- end of startup -->\nafter\n")
    assert "old" not in text
    for table in startup.tables(run):
        assert table.markdown() in text
    assert "\n![startup](figures/startup.svg)\n" in text
    assert "\n2 CPUs (x86_64), Linux 6.18, Python 3.11.7, aiorecv 0.1.0.\n" in text


def test_a_comparison_is_written_as_its_command_prints_it(place):
    (place / "page.md").write_text(PAGE + COMPARED)

    assert write() == 0

    text = (place / "page.md").read_text()
    command = "compare figures/startup.json --base 'own endpoint' --arm aiorecv --alpha 0.01"
    assert f"```console\naiorecv bench {command}\n```\n" in text
    assert "**ms (lower is better)**" in text
    assert "Significant at p < 0.01: " in text
    assert write("--check") == 0


@pytest.mark.parametrize("change", ["page", "picture", "run"])
def test_what_was_changed_by_hand_is_seen(place, run, change, capsys):
    write()
    svg, page = place / "figures" / "startup.svg", place / "page.md"
    if change == "page":
        page.write_text(page.read_text().replace("123,456", "123,455"))
    elif change == "picture":
        svg.write_text(svg.read_text().replace("own endpoint", "their endpoint"))
    else:
        first = attrs.evolve(run.series[0], samples=[1.0] * 7)
        attrs.evolve(run, series=[first, *run.series[1:]]).save(place / "figures" / "startup.json")
    capsys.readouterr()

    assert write("--check") == 1

    complaints = capsys.readouterr().err
    assert ("page.md does not show" in complaints) is (change != "picture")
    assert ("startup.svg does not show" in complaints) is (change != "page")


@pytest.mark.parametrize("text", ["no SVG", "<svg/>"])
def test_a_picture_that_is_something_else_is_drawn_anew(place, text):
    (place / "figures" / "startup.svg").write_text(text)

    assert write() == 0

    assert "own endpoint" in (place / "figures" / "startup.svg").read_text()


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("nothing", "the page needs the lines <!-- NAME --> and <!-- end of NAME -->"),
        (
            PAGE + "<!-- sink -->\n",
            "the page needs the lines <!-- NAME --> and <!-- end of NAME -->",
        ),
        (
            "<!-- gone -->\n<!-- end of gone -->\n",
            "figures/gone.json: No such file or directory",
        ),
        (
            "<!-- compare startup.json -->\n<!-- end of compare -->\n",
            "give two runs, or one with --base ARM and --arm ARM",
        ),
        (
            "<!-- compare startup.json --alpha 7 -->\n<!-- end of compare -->\n",
            "compare startup.json --alpha 7: argument --alpha: "
            "'7': give a number between 0 and 1, such as 0.01",
        ),
    ],
)
def test_a_page_that_can_not_be_filled_is_refused_and_left_alone(place, capsys, page, complaint):
    (place / "page.md").write_text(page)

    assert write() == 1

    assert capsys.readouterr().err == f"page.md: {complaint}\n"
    assert (place / "page.md").read_text() == page


def test_a_page_that_is_missing_is_an_error(place, capsys):
    assert pages.main(["missing.md", "figures"]) == 1

    assert "No such file" in capsys.readouterr().err


def test_a_picture_is_the_same_each_time_and_tells_no_time(run):
    wanted = pictures.pictures(startup, run)

    svg = pictures.draw(wanted)

    assert svg == pictures.draw(wanted)
    assert "dc:date" not in svg
    assert "font-face" not in svg
    assert " \n" not in svg


def test_a_picture_says_titles_groups_arms_and_figures(run):
    exact = Series("some", "$arm$ <1>", "ns", [100.0] * 6)
    few = Series("other", "b", "ns", [2.0])
    zero = Picture("Nothing", [Series("g", "c", "Gbit/s", [0.0, *[0.0] * 4, 1.0], "higher")])

    svg = pictures.draw([Picture("Something", [exact, few]), zero])

    assert pictures.texts(svg) == [
        "Something, ns (lower is better)",
        "some",
        "$arm$ <1>",
        "100.0 ± 0%",
        "other",
        "b",
        "2.000",
        "Nothing, Gbit/s (higher is better)",
        "g",
        "c",
        "0",
    ]


def test_a_bench_that_does_not_choose_is_drawn_by_its_first_unit(run):
    (picture,) = pictures.pictures(startup, run)

    assert picture.title == "startup"
    assert {one.unit for one in picture.series} == {"ms"}
    assert len(picture.series) == 4


def test_a_bench_can_choose_what_is_drawn(monkeypatch, run):
    chosen = [Picture("Bytes", run.series[-1:])]
    monkeypatch.setattr(startup, "pictured", lambda run: chosen, raising=False)

    assert pictures.pictures(startup, run) == chosen
