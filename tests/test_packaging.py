"""From the sources to a wheel to a packet: what is shipped is enough, and works."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GENERATED = {"aiorecv/_native/_core.c", "aiorecv/bench/_sink_module.c"}
SUFFIXES = (".py", ".pyi", ".typed", ".c", ".h")
OUTSIDE = {"setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"}

PROGRAM = """
import asyncio, sys, aiorecv, aiorecv.bench._sink
async def main():
    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        receiver.socket.sendto(b"shipped", receiver.local_addr)
        with await receiver.receive() as batch:
            print(aiorecv.__file__, *batch.payloads())
asyncio.run(main())
"""


def run(*command: str, cwd: Path, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def sources(*suffixes: str) -> set[str]:
    """The package's files with these suffixes that somebody wrote, by their names in the tree."""
    found = (path for path in (ROOT / "aiorecv").rglob("*") if path.suffix in suffixes)
    return {str(path.relative_to(ROOT)) for path in found} - GENERATED


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build writes into its tree, and this one may be in use."""
    directory = tmp_path_factory.mktemp("sdist")
    tree = directory / "tree"
    for name in sources(*SUFFIXES) | OUTSIDE:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((ROOT / name).read_bytes())
    run("-m", "build", "--sdist", "--no-isolation", "-o", str(directory), cwd=tree)
    (made,) = directory.glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    options = ("--no-build-isolation", "--no-deps", "--no-cache-dir", "--no-index")
    run("-m", "pip", "wheel", *options, "-w", str(directory), str(sdist), cwd=directory)
    (made,) = directory.glob("*.whl")
    return made


def test_sdist_holds_every_source_and_nothing_built(sdist):
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}

    assert (sources(*SUFFIXES) | OUTSIDE) - held == set()
    assert {name for name in held if name.endswith((".so", ".o", ".pyc"))} == set()
    assert not held & GENERATED


def test_wheel_holds_the_modules_their_types_and_no_tests(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())

    assert sources(".py", ".pyi", ".typed") - held == set()
    for module in ("aiorecv/_native/_core.", "aiorecv/bench/_sink."):
        assert [name for name in held if name.startswith(module) and name.endswith(".so")]
    tops = {name.partition("/")[0] for name in held}
    assert tops == {"aiorecv", next(top for top in tops if top.endswith(".dist-info"))}


def test_wheel_receives_a_packet_in_an_empty_directory(wheel, tmp_path):
    place = tmp_path / "site"
    options = ("--no-deps", "--no-index", "--no-compile")
    run("-m", "pip", "install", "-q", *options, "--target", str(place), str(wheel), cwd=tmp_path)

    said = run("-W", "error", "-c", PROGRAM, cwd=tmp_path, PYTHONPATH=str(place))

    assert said == f"{place}/aiorecv/__init__.py b'shipped'\n"


def test_wheel_asks_for_what_it_needs_at_run_time_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()

    needs = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    assert sorted(need.split(">")[0] for need in needs if "extra ==" not in need) == [
        "attrs",
        "cffi",
    ]
    assert "Requires-Python: >=3.11" in lines
