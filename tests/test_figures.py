"""The README shows the run that is recorded, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aiorecv.bench import figures

ROOT = Path(__file__).parents[1]
RUN = ROOT / "docs" / "figures" / "bars.json"


def test_the_readme_shows_the_recorded_run():
    assert figures.main(["--check", str(RUN), str(ROOT / "README.md")]) == 0


def test_a_page_is_written_between_its_marks_and_checked(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n")

    assert figures.main(["--check", str(RUN), str(page)]) == 1
    assert "does not show" in capsys.readouterr().err
    assert figures.main([str(RUN), str(page)]) == 0
    assert figures.main(["--check", str(RUN), str(page)]) == 0

    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    headings = text.count("\n|---|")
    assert headings == 2
    assert text.count("\n| ") == len(json.loads(RUN.read_text())["rows"]) + headings


def test_rivals_have_a_table_of_their_own_and_their_versions_below():
    measured = {"loop": "uvloop", "reference_ns": [30.2], "receiver_ns": [15.1], "ratio": 0.5}
    run = json.loads(RUN.read_text()) | {
        "rows": [
            {"title": "pairs", "against": "C", **measured},
            {"title": "endpoint", "against": "qh3", **measured},
            {"title": "endpoint", "against": "asyncio", **measured},
        ],
        "rivals": {"qh3": "2.1.0", "asyncio": None},
    }

    lines = figures.tables(run).splitlines()

    assert lines.index("| pairs | uvloop | 30 | 15 | 0.50 |") < lines.index("")
    assert lines.index("| endpoint | uvloop | qh3 | 30 | 15 | 0.50 |") > lines.index("")
    assert "| endpoint | uvloop | asyncio | 30 | 15 | 0.50 |" in lines
    assert lines[-1].endswith(", qh3 2.1.0.")


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="needs the lines"):
        figures.written("nothing", json.loads(RUN.read_text()))


def test_the_command_checks_and_writes_as_its_exit_status_tells(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- figures -->\nold\n<!-- end of figures -->\n")

    def run(*arguments: object) -> int:
        command = (sys.executable, "-m", "aiorecv.bench.figures", *map(str, arguments))
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert run("--check", RUN, page) == 1
    assert run(RUN, page) == 0
    assert run("--check", RUN, page) == 0
