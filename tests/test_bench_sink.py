"""``aiorecv bench sink``: what it counts, what it checks, what it tells. Never how fast."""

import argparse
import errno
import json
import os
import signal
import subprocess
import sys

import attrs
import pytest

from aiorecv.bench import sink, sink_rounds
from aiorecv.bench.drains import CountError
from aiorecv.bench.feeders import Feeder
from aiorecv.bench.report import Run
from tests.benches import SINK_PLAN as PLAN

LOOPS = ("asyncio", "uvloop")

ROWS = [
    *("recvMmsg/32", "recvmsg", "read", "recvfrom"),
    *(
        row
        for loop in LOOPS
        for row in (
            f"aiorecv batches, {loop}",
            f"aiorecv pairs, {loop}",
            f"aiorecv receive_nowait, {loop}",
            f"{loop}'s own protocol",
        )
    ),
]


def parse(*options):
    parser = argparse.ArgumentParser()
    sink.add_arguments(parser)
    return parser.parse_args(options)


def measure(*options):
    return sink.measure(parse(*options), "aiorecv bench sink")


def column(table, name):
    at = table.columns.index(name)
    return [row[at] for row in table.rows]


@pytest.mark.parametrize(
    ("options", "group"),
    [
        ((), "64-byte packets, 1 flow, unconnected"),
        (("--connect",), "64-byte packets, 1 flow, connected"),
        (("--flows", "3", "--gro"), "64-byte packets, 3 flows, unconnected, GRO"),
    ],
    ids=["plain", "connected", "trains"],
)
def test_every_row_drains_what_was_sent(options, group, capfd):
    run = measure("--count", "150", "--repeat", "2", "--size", "64", *options)
    rows, beside = sink.tables(run)

    assert capfd.readouterr().err.splitlines() == ["round 1 of 2", "round 2 of 2"]
    assert rows.title == group
    assert column(rows, "sink") == ROWS
    assert {len(series.samples) for series in run.series} == {2}
    assert set(column(rows, "drops")) == {"0"}
    assert all(float(ns) > 0 for ns in column(rows, "ns"))
    assert column(rows, "x recvMmsg/32")[0] == "1.00"
    told = ["net.ipv4.ip_early_demux", "net.core.rmem_max", "net.core.wmem_max"]
    assert column(beside, "what")[:3] == told
    batches = dict(zip(column(rows, "sink"), column(rows, "packets a batch"), strict=True))
    assert (float(batches["recvmsg"]) > 1) == ("--gro" in options)
    # A warm-up and a timed fill of 150, and 64 to check, of 12 rows twice, and the trains singly.
    came = run.facts["udp"]["InDatagrams"]
    assert came >= 2 * 12 * (150 * 2 + 64) or "--gro" in options


def test_batches_and_empty_reads_are_counted():
    run = measure("--count", "128", "--repeat", "1", "--size", "64", "--batch", "16")
    rows, _ = sink.tables(run)
    batches = dict(zip(column(rows, "sink"), column(rows, "packets a batch"), strict=True))
    empty = dict(zip(column(rows, "sink"), column(rows, "empty reads"), strict=True))

    assert batches["recvMmsg/16"] == "16.0"
    assert {batches[name] for name in ("recvmsg", "read", "recvfrom")} == {"1.0"}
    assert {batches[f"{loop}'s own protocol"] for loop in LOOPS} == {"1.0"}
    assert all(float(batches[f"aiorecv pairs, {loop}"]) > 1 for loop in LOOPS)
    assert {empty[name] for name in ("recvMmsg/16", "recvmsg", "read", "recvfrom")} == {"0"}
    assert {empty[f"{loop}'s own protocol"] for loop in LOOPS} == {"-"}


@pytest.mark.parametrize("options", [("--flows", "2"), ("--connect",)])
def test_live_sinks_take_what_a_process_sends(options, capfd):
    run = measure("--count", "200", "--repeat", "1", "--size", "64", "--live", *options)
    rows, _ = sink.tables(run)

    assert capfd.readouterr().err == "round 1 of 1\n"  # drops are told by the table alone
    assert rows.title.endswith(", live")
    assert column(rows, "sink") == ROWS
    assert run.facts["queue"] is None
    assert any("the sink's" in note for note in rows.notes)


def test_where_sink_and_sender_run_is_told():
    cpus = sorted(os.sched_getaffinity(0))
    first, last = cpus[0], cpus[-1]

    run = measure("--count", "10", "--repeat", "1", "--pin", f"{first},{last}")
    free = attrs.evolve(run, facts={**run.facts, "options": attrs.asdict(PLAN)})

    assert f"Sink on CPU {first}, sender on CPU {last}." in sink.tables(run)[0].notes
    assert any("not pinned" in note for note in sink.tables(free)[0].notes)
    assert sorted(os.sched_getaffinity(0)) == cpus


def test_a_saved_run_gives_the_same_tables(tmp_path):
    run = measure("--count", "20", "--repeat", "1", "--size", "8")
    run.save(tmp_path / "run.json")

    loaded = Run.load(tmp_path / "run.json")

    assert sink.tables(loaded) == sink.tables(run)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--count", "0"), "give a number from 1"),
        (("--batch", "1025"), "give a number from 1 to 1024"),
        (("--port", "-1"), "give a number from 0 to 65535"),
        (("--port", "x"), "give a number from 0 to 65535"),
        (("--size", "65508"), "from 1 to 65507 bytes"),
        (("--pin", "0,x"), "give one or two CPUs"),
        (("--pin", "999999"), "this process may use"),
        (("--connect", "--flows", "2"), "not allowed with"),
        (("--live", "--gro"), "not allowed with"),
    ],
)
def test_bad_arguments_are_refused(options, said, capsys):
    with pytest.raises(SystemExit):
        parse(*options)

    assert said in capsys.readouterr().err


def test_one_cpu_is_for_both():
    cpu = min(os.sched_getaffinity(0))

    assert parse("--pin", str(cpu)).pin == [cpu, cpu]


def test_a_port_that_is_taken_is_an_error(bound):
    with pytest.raises(OSError, match="Address already in use"):
        measure("--port", str(bound.getsockname()[1]))


def test_lost_packets_are_an_error_across_processes(monkeypatch):
    _say(monkeypatch, '{"lost": "1 of 2 packets came"}')

    with pytest.raises(CountError, match="1 of 2"):
        measure()


@pytest.mark.parametrize(
    ("status", "error"), [(2, RuntimeError), (-signal.SIGINT, KeyboardInterrupt)]
)
def test_a_process_that_says_nothing_has_failed(monkeypatch, status, error):
    _say(monkeypatch, "", status)

    with pytest.raises(error):
        measure()


def test_all_rows_have_the_allocator_that_suits_asyncio(monkeypatch):
    asked = []

    def run(command, *, env, **options):
        asked.append(env)
        return subprocess.CompletedProcess(command, 1, '{"lost": ""}')

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(CountError):
        measure()

    assert asked[0]["MALLOC_MMAP_THRESHOLD_"] == "33554432"
    assert asked[0]["PATH"] == os.environ["PATH"]


def _say(monkeypatch, text, status=1):
    done = subprocess.CompletedProcess([], status, text)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)


def test_interrupted_rounds_leave_quietly():
    plan = attrs.evolve(PLAN, repeat=1000, count=5000)
    command = [sys.executable, "-m", "aiorecv.bench.sink_rounds", json.dumps(attrs.asdict(plan))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr.readline() == b"round 1 of 1000\n"
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=30)

    assert (process.returncode, said, complained) == (-signal.SIGINT, b"", b"")


def test_rounds_tell_errors_as_json(monkeypatch, capsys, bound):
    taken = attrs.evolve(PLAN, port=bound.getsockname()[1])

    assert sink_rounds.main([json.dumps(attrs.asdict(taken))]) == 1
    assert json.loads(capsys.readouterr().out)["errno"] == errno.EADDRINUSE

    monkeypatch.setattr(Feeder, "fill_patterned", lambda self: (0, 1))
    assert sink_rounds.main([json.dumps(attrs.asdict(PLAN))]) == 1
    assert "bytes differ" in json.loads(capsys.readouterr().out)["lost"]


def test_without_any_counter_there_is_no_column(monkeypatch):
    run = measure("--count", "10", "--repeat", "1")
    facts = {**run.facts, "cycles": {"unit": None, "reason": "nothing counts"}}

    rows, _ = sink.tables(attrs.evolve(run, facts=facts))

    assert rows.columns[:4] == ["sink", "ns", "pps", "CPU ns"]
    assert "No CPU cycles: nothing counts." in rows.notes


def test_what_is_missing_stands_below_the_table():
    run = measure("--count", "10", "--repeat", "1")
    packages = {**run.machine["packages"], "uvloop": None}
    facts = {
        **run.facts,
        "environment": {"AIORECV_GRO": "0"},
        "udp": {},
        "sysctls": {"net.core.rmem_max": None},
    }
    lacking = attrs.evolve(run, machine={**run.machine, "packages": packages}, facts=facts)

    rows, beside = sink.tables(lacking)

    assert "uvloop is not installed, so its rows are missing." in rows.notes
    assert "In the environment: AIORECV_GRO=0." in rows.notes
    assert ["net.core.rmem_max", "unknown"] in beside.rows
    assert any("unknown" in note for note in beside.notes)
