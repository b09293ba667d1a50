"""``aiorecv bench``: which benches there are, what they need, how they fail, what is shown."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from aiorecv.bench import startup
from aiorecv.bench.drains import CountError
from aiorecv.bench.report import Table
from aiorecv.cli import main
from aiorecv.cli.bench import BENCHES
from aiorecv.cli.tables import show

# Runs a command line, then prints which of these modules it has imported.
LOADED = """
import sys
from aiorecv.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
names = ["matplotlib", "scipy", "rich", *(f"aiorecv.bench.{name}" for name in %r)]
print("loaded:", *(name for name in names if name in sys.modules))
"""


def loaded(*arguments: str) -> str:
    """What is imported for a command line."""
    names = (*BENCHES, "compare", "pages")
    done = subprocess.run(
        (sys.executable, "-c", LOADED % (names,), *arguments),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.rpartition("loaded:")[2].strip()


def test_help_names_every_bench_in_a_line(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "-h"])

    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    for name in (*BENCHES, "compare"):
        assert re.search(rf"^    {name}\s+\S", shown, re.MULTILINE), name


def test_without_a_bench_there_is_help(capsys):
    assert main(["bench"]) == 2

    assert "startup" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nothing"], ["startup", "more"], ["--json", "x"]])
def test_what_is_unknown_is_refused(capsys, arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", *arguments])

    assert exit_.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_bench_is_imported_when_it_is_asked_for_and_no_other():
    assert loaded("-h") == ""
    assert loaded("bench", "startup", "-h") == "aiorecv.bench.startup"
    assert loaded("bench", "compare", "-h") == "aiorecv.bench.compare"


def test_the_description_of_a_bench_is_its_modules(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "startup", "-h"])

    shown = capsys.readouterr().out
    assert startup.__doc__.strip() in shown
    assert "--json FILE" in shown


@pytest.mark.parametrize(
    ("command", "package"),
    [(["startup"], "rich"), (["compare", "x"], "rich"), (["compare", "x"], "scipy")],
)
def test_what_is_not_installed_is_said(monkeypatch, capsys, command, package):
    monkeypatch.setitem(sys.modules, package, None)

    assert main(["bench", *command]) == 2

    complaint = f"aiorecv bench {command[0]} needs {package}: pip install 'aiorecv[bench]'\n"
    assert capsys.readouterr().err == complaint


def test_a_file_that_can_not_be_written_is_refused_before_anything_is_measured(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(startup, "measure", None)
    (tmp_path / "file").touch()

    for path in (tmp_path, tmp_path / "file" / "run.json"):
        with pytest.raises(SystemExit) as exit_:
            main(["bench", "startup", "--json", str(path)])

        assert exit_.value.code == 2
        assert str(path) in capsys.readouterr().err


def test_a_run_is_kept_with_what_was_typed_and_shown(tmp_path, capsys):
    path = tmp_path / "new directory" / "run.json"

    assert main(["bench", "startup", "--repeat", "1", "--json", str(path)]) == 0

    kept = json.loads(path.read_text())
    assert kept["bench"] == "startup"
    assert shlex.split(kept["command"])[-1] == str(path)
    assert kept["machine"]["cpus"] >= 1
    shown = capsys.readouterr().out
    assert "import: aiorecv" in shown


def test_a_run_that_can_not_be_shown_is_kept_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr(startup, "tables", lambda run: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        main(["bench", "startup", "--repeat", "1", "--json", str(tmp_path / "run.json")])

    assert (tmp_path / "run.json").exists()


def test_sums_that_are_not_consistent_are_an_error_not_a_figure(monkeypatch, capsys, tmp_path):
    def lose(arguments, command):
        raise CountError("3 of 4 packets came")

    monkeypatch.setattr(startup, "measure", lose)

    assert main(["bench", "startup", "--json", str(tmp_path / "run.json")]) == 1

    assert capsys.readouterr().err == "aiorecv bench startup: 3 of 4 packets came\n"
    assert not (tmp_path / "run.json").exists()


def test_tables_are_shown_whole_and_as_they_are(capsys):
    wide = "w" * 300

    show([Table("A [title]", ["", "[red]x"], [["[bold]", wide]], ["A [note] " + wide])])

    shown = capsys.readouterr().out
    for words in ("A [title]", "[red]x", "[bold]", wide, "A [note] " + wide):
        assert any(words in line for line in shown.splitlines())
