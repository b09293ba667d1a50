"""``aiorecv bench startup``: that it counts what is there, and checks what came. Never how fast."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import aiorecv
from aiorecv.bench import installed, startup
from aiorecv.bench.report import Run
from aiorecv.cli import main


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one round, by the command."""
    path = tmp_path_factory.mktemp("startup") / "run.json"
    assert main(["bench", "startup", "--repeat", "2", "--json", str(path)]) == 0
    return path


def test_every_arm_has_a_sample_a_round(recorded):
    run = Run.load(recorded)

    times = [one for one in run.series if one.unit != "bytes"]
    assert {(one.group, one.arm) for one in times} == {
        ("import", "asyncio"),
        ("import", "uvloop"),
        ("import", "aiorecv"),
        ("first packet on asyncio", "own endpoint"),
        ("first packet on asyncio", "aiorecv"),
        ("first packet on uvloop", "own endpoint"),
        ("first packet on uvloop", "aiorecv"),
    }
    assert all(len(one.samples) == 2 and min(one.samples) > 0 for one in times)
    assert run.command == f"aiorecv bench startup --repeat 2 --json {recorded}"


def test_modules_are_compiled_once_whatever_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    program = "import time, aiorecv; print(time.perf_counter())"

    startup._start(program, str(tmp_path))

    compiled = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")}
    assert {"_receiver", "selectors", "_funcs"} <= compiled  # aiorecv's, asyncio's, attrs'


def test_what_comes_after_the_imports_is_a_part_of_the_whole(recorded):
    run = Run.load(recorded)

    for loop in ("asyncio", "uvloop"):
        for arm in ("own endpoint", "aiorecv"):
            key = (f"first packet on {loop}", arm)
            whole, later = run.find(*key, "ms"), run.find(*key, "ms without imports")
            assert all(b < a for a, b in zip(whole.samples, later.samples, strict=True))


def test_installed_bytes_are_of_the_package_and_of_all_that_it_requires(recorded):
    run = Run.load(recorded)

    own = run.find("installed", "aiorecv", "bytes").samples
    whole = run.find("installed", "aiorecv and its requirements", "bytes").samples
    assert own == (installed.installed_size("aiorecv"),)
    assert {"attrs", "cffi"} <= set(run.facts["requirements"])
    others = sum(map(installed.installed_size, run.facts["requirements"]))
    assert whole == (own[0] + others,)
    assert others > 100_000


def test_an_editable_package_is_counted_where_it_is(monkeypatch, tmp_path):
    for name, size in (("__init__.py", 5), ("_native/core.so", 30), ("__pycache__/x.pyc", 700)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    monkeypatch.setattr(aiorecv, "__file__", str(tmp_path / "__init__.py"))

    assert installed.is_editable("aiorecv")
    assert installed.installed_size("aiorecv") == 35


def test_an_installed_package_is_counted_by_its_record():
    assert not installed.is_editable("cffi")

    size = installed.installed_size("cffi")

    backend = importlib.metadata.distribution("cffi").locate_file("_cffi_backend.abi3.so")
    (backend,) = Path(str(backend)).parent.glob("_cffi_backend.*.so")
    assert size > backend.stat().st_size


def test_requirements_that_are_needed_twice_count_once(monkeypatch):
    needs = {"a": ["b>=1", 'x; extra == "y"', "c"], "b": ["c[some]~=2", "a"], "c": ["b"]}
    monkeypatch.setattr(
        installed, "distribution", lambda name: SimpleNamespace(requires=needs[name])
    )

    assert installed.requirements("a") == ["b", "c"]


def test_requirements_that_are_not_installed_are_left_out(monkeypatch):
    real = importlib.metadata.distribution

    def without_pycparser(name):
        if name == "pycparser":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(installed, "distribution", without_pycparser)

    assert sorted(installed.requirements("aiorecv")) == ["attrs", "cffi"]


def test_tables_have_a_row_an_arm(recorded):
    times, sizes = startup.tables(Run.load(recorded))

    assert len(times.rows) == 7
    assert all(len(row) == len(times.columns) for row in times.rows)
    assert times.rows[0][3:] == ["", ""]
    assert "" not in times.rows[-1]
    assert [row[0] for row in sizes.rows] == ["aiorecv", "aiorecv and its requirements"]
    assert "editable form" in sizes.notes[0]
    assert len(times.notes) == 1


def test_without_uvloop_its_arms_are_left_out_and_that_is_told(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    real = importlib.metadata.version

    def without_uvloop(name):
        if name == "uvloop":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", without_uvloop)

    assert main(["bench", "startup", "--repeat", "1", "--json", str(tmp_path / "run.json")]) == 0

    assert "uvloop is not installed." in capsys.readouterr().out
    groups = {one.group for one in Run.load(tmp_path / "run.json").series}
    assert groups == {"import", "first packet on asyncio", "installed"}


@pytest.mark.parametrize(
    ("name", "program", "complaint"),
    [
        ("_IMPORT", "raise SystemExit('it broke')", "a fresh process failed: it broke"),
        (
            "_FIRST_PACKET",
            "print('[\"another\", 1.0, 1.0]')",
            "'the first packet' was sent, and 'another' came",
        ),
    ],
)
def test_a_program_that_fails_or_gets_another_packet_is_no_sample(
    monkeypatch, capsys, name, program, complaint
):
    monkeypatch.setattr(startup, name, program)

    assert main(["bench", "startup", "--repeat", "1"]) == 1

    assert capsys.readouterr().err.endswith(f"aiorecv bench startup: {complaint}\n")


@pytest.mark.parametrize("repeat", ["0", "-1", "some"])
def test_less_than_one_round_is_refused(capsys, repeat):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "startup", "--repeat", repeat])

    assert exit_.value.code == 2
    assert "give a number from 1" in capsys.readouterr().err
