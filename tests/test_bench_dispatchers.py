"""``aiorecv bench dispatchers``: that all that was sent came or was dropped. Never how fast."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiorecv.bench import dispatcher_rounds, dispatchers, frame_flood
from aiorecv.bench.dispatcher_rounds import ARMS, Taken
from aiorecv.bench.drains import CountError
from aiorecv.bench.report import Run
from aiorecv.cli import main
from tests.namespaces import add_veth, new_network

QUICK = ("--seconds", "0.02", "--repeat", "2", "--lone", "3", "--sizes", "64,20000")


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a network namespace")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, by the command."""
    needs_root()
    path = tmp_path_factory.mktemp("dispatchers") / "run.json"
    assert main(["bench", "dispatchers", *QUICK, "--json", str(path)]) == 0
    return path


def test_every_dispatcher_has_its_samples_on_each_loop_and_size(recorded):
    run = Run.load(recorded)

    groups = {
        f"{loop}: {size}-byte frames" for loop in ("asyncio", "uvloop") for size in (64, 20000)
    }
    assert {series.group for series in run.series} == groups
    for group in groups:
        for arm in ARMS:
            assert len(run.find(group, arm, dispatchers.COST).samples) == 2
            assert min(run.find(group, arm, dispatchers.SPEED).samples) > 0
            assert min(run.find(group, arm, dispatchers.LATENCIES[0]).samples) > 0


def test_tables_and_pictures_have_every_dispatcher(recorded):
    run = Run.load(recorded)

    tables = dispatchers.tables(run)
    assert [table.title for table in tables] == list(dict.fromkeys(one.group for one in run.series))
    assert all([row[0] for row in table.rows] == list(ARMS) for table in tables)
    assert [row[5] for row in tables[0].rows if row[0].startswith("C ")] == ["1.00", "1.00"]
    assert [one.title for one in dispatchers.pictured(run)] == [
        "CPU-seconds a million frames, asyncio",
        "CPU-seconds a million frames, uvloop",
    ]


def test_two_runs_can_be_compared(recorded, capsys):
    assert main(["bench", "compare", str(recorded), "--base", "C ring", "--arm", "ring pairs"]) == 0

    assert "CPU-s/million" in capsys.readouterr().out


def test_it_tells_how_it_goes(capsys):
    needs_root()
    arguments = ["--seconds", "0.05", "--interval", "0.02", "--repeat", "1", "--lone", "1"]
    assert main(["bench", "dispatchers", *arguments, "--sizes", "64", "--loop", "asyncio"]) == 0

    lines = capsys.readouterr().err.splitlines()
    assert sum("in all: " in line for line in lines) == len(ARMS)
    assert len(lines) > len(ARMS)
    assert all(" packets/s, " in line and " Gbit/s, " in line for line in lines)


def test_frames_that_are_missing_are_no_figure():
    class Losing:
        packets, last_ns = 1, 0

        def drops(self) -> int:
            return 1

    with pytest.raises(CountError, match="1 frames came and 1 were dropped of 3"):
        dispatcher_rounds.checked("one", Taken(3, Losing.packets, Losing().drops(), 1.0, 1.0))


def test_the_flood_is_of_the_size_that_was_asked_for():
    needs_root()
    for size in (60, 1514, 1515, 63_000):
        assert len(frame_flood.frame(size)) == size
        with new_network():
            add_veth("veth0", "veth1")
            made = asyncio.run(_one(size))
        assert made == size


async def _one(size: int) -> int:
    import aiorecv

    async with aiorecv.open_packet("veth0", protocol=frame_flood.PROTOCOL) as receiver:
        sock, data = frame_flood.open_sender("veth1", size)
        with sock:
            sock.send(data)
        with await receiver.receive() as batch:
            return batch.nbytes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sizes", "59"], "give a number from 60 to 65000"),
        (["--sizes", "64,"], "give a number from 60 to 65000"),
        (["--seconds", "0"], "--seconds"),
        (["--repeat", "0"], "give a number"),
    ],
)
def test_wrong_options_are_refused(arguments, said, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "dispatchers", *arguments])

    assert exit_.value.code == 2
    assert said in capsys.readouterr().err


def test_without_root_it_is_said_in_a_line():
    needs_root()
    program = (
        "import os, sys, aiorecv.cli, aiorecv.bench.dispatchers, aiorecv.cli.bench, scipy, rich\n"
        "import aiorecv.cli.tables, uvloop\n"
        "os.seteuid(65534)\n"
        "status = aiorecv.cli.main(['bench', 'dispatchers'])\n"
        "os.seteuid(0)\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stderr == (
        "aiorecv bench dispatchers: needs root, to make a network namespace with a wire in it\n"
    )
