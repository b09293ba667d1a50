"""``aiorecv bench bulk``: what it counts and what it tells. Never how fast."""

from __future__ import annotations

import argparse
import os
import sys

import attrs
import pytest

from aiorecv.bench import bulk
from aiorecv.bench.bulk_child import Account
from aiorecv.bench.bulk_samples import CONDITIONS, SIZE, TRAIN
from aiorecv.bench.report import ReportError, Run
from tests.test_bench_bulk_samples import ACCOUNT

TITLE = "default, no CPU quota, 1 flow"


def parse(*options):
    parser = argparse.ArgumentParser()
    bulk.add_arguments(parser)
    return parser.parse_args(options)


def measure(*options):
    few = ("--seconds", "0.1", "--repeat", "1", *options)
    return bulk.measure(parse(*few), "aiorecv bench bulk")


def made(**arms):
    """A run as it is measured, of accounts that are made up, one loop and one condition."""
    names = {"fixed_8": "fixed 8", "adaptive": "adaptive"}
    group = f"uvloop: {TITLE}"
    accounts = {group: {names[arm]: taken for arm, taken in arms.items()}}
    facts = {
        "loops": ["uvloop"],
        "conditions": [TITLE],
        "why": None,
        "seconds": 2.0,
        "size": SIZE,
        "train": TRAIN,
        "pin": None,
        "cpus": [0, 1],
        "AIORECV_GRO": None,
        "accounts": bulk._plain(accounts),
    }
    series = [
        one for arm, taken in accounts[group].items() for one in bulk._series(group, arm, taken)
    ]
    return Run("bulk", "aiorecv bench bulk", {}, facts, series)


def test_both_arms_are_measured_on_both_loops_and_the_sums_agree(tmp_path, capsys):
    run = measure("--conditions", "default/none/4", "mtu/none/1")

    groups = [
        f"{loop}: {title}"
        for loop in ("asyncio", "uvloop")
        for title in ("default, no CPU quota, 4 flows", "mtu, no CPU quota, 1 flow")
    ]
    assert [(one.group, one.arm, one.unit) for one in run.series] == [
        (group, arm, unit)
        for group in groups
        for arm in ("fixed 8", "adaptive")
        for unit in ("Gbit/s", "CPU-s/GiB")
    ]
    for group in groups:
        for arm in ("fixed 8", "adaptive"):
            (account,) = (Account(**one) for one in run.facts["accounts"][group][arm])
            assert account.bytes == account.packets * SIZE
            assert 0 < account.batches <= account.packets
            speed = run.find(group, arm, "Gbit/s").median
            cost = run.find(group, arm, "CPU-s/GiB").median
            assert speed * account.seconds == pytest.approx(account.bytes * 8 / 1e9)
            assert cost * account.bytes == pytest.approx(account.cpu * 2**30)
            assert account.window_peak <= (8 if arm == "fixed 8" else 1024)

    followed = capsys.readouterr()
    assert followed.out == ""
    assert followed.err.count("packets a batch") == 8
    assert "uvloop: mtu, no CPU quota, 1 flow: adaptive, sample 1 of 1" in followed.err
    run.save(tmp_path / "run.json")
    assert bulk.tables(Run.load(tmp_path / "run.json")) == bulk.tables(run)


def test_without_a_cgroup_the_conditions_that_need_it_are_left_out_and_named(
    tmp_path, monkeypatch, capsys
):
    absent = ("--cgroup", str(tmp_path), "--loop", "asyncio")

    run = measure("--conditions", "mtu/*/1", *absent)

    assert run.facts["conditions"] == ["mtu, no CPU quota, 1 flow"]
    assert run.facts["left out"] == ["mtu, 1 CPU, 1 flow", "mtu, 0.25 CPU, 1 flow"]
    assert str(tmp_path) in run.facts["why"]
    assert run.facts["why"] in capsys.readouterr().err
    assert all(run.facts["why"] in " ".join(table.notes) for table in bulk.tables(run))
    with pytest.raises(ReportError, match="no CPU quota can be set here"):
        measure("--conditions", "mtu/1/1", *absent)


def test_a_missing_loop_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    with pytest.raises(ReportError, match="uvloop is not installed"):
        measure("--loop", "uvloop")


def test_processes_are_kept_on_the_cpus_that_were_asked_for(monkeypatch):
    cpu = min(os.sched_getaffinity(0))
    pinned = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: pinned.append((pid, cpus)))

    run = measure("--conditions", "mtu/none/1", "--loop", "asyncio", "--pin", str(cpu))

    assert [cpus for _, cpus in pinned] == [{cpu}] * 4  # a receiver and a flood for each arm
    assert len({pid for pid, _ in pinned} - {0, os.getpid()}) == 4
    assert f"Receiver on CPU {cpu}, sender on CPU {cpu}." in bulk.tables(run)[0].notes


def test_tables_tell_medians_changes_and_what_is_beside_them():
    fast = attrs.evolve(ACCOUNT, packets=880, bytes=880 * SIZE, drops=0, batches=10)

    run = made(fixed_8=[ACCOUNT] * 3, adaptive=[fast] * 3)

    speed, cost = bulk.tables(run)
    assert speed.title == "Gbit/s received, uvloop (higher is better)"
    assert speed.rows == [
        [
            "default, no CPU quota, 1 flow",
            "0.002591 ± ∞",  # 440 packets of 1472 bytes in 2 s
            "0.005181 ± ∞",
            "+100.00%",
            "22.0 / 88.0",
            "10 / 0",
            "50% / 0%",
        ],
        ["geometric mean", "0.002591", "0.005181", "+100.00%", "", "", ""],
    ]
    assert cost.title == "CPU-seconds a GiB, uvloop (lower is better)"
    assert [row[3] for row in cost.rows] == ["-50.00%", "-50.00%"]
    assert [picture.title for picture in bulk.pictured(run)] == [
        "Gbit/s received, uvloop",
        "CPU-seconds a GiB, uvloop",
    ]
    assert {one.group for one in bulk.pictured(run)[0].series} == {"default, no CPU quota, 1 flow"}


def test_a_run_without_gro_says_so():
    run = made(fixed_8=[ACCOUNT], adaptive=[ACCOUNT])

    off = attrs.evolve(run, facts={**run.facts, "AIORECV_GRO": "0"})

    assert "AIORECV_GRO=0 turned GRO off: default is as gro-off." in bulk.tables(off)[0].notes


def test_all_conditions_are_chosen_by_name_each_once():
    assert bulk._chosen(parse().conditions) == list(CONDITIONS)
    assert len({condition.name for condition in CONDITIONS}) == 18
    chosen = bulk._chosen(parse("--conditions", "mtu/1/*", "*/1/4").conditions)
    assert [condition.name for condition in chosen] == [
        "default/1/4",
        "gro-off/1/4",
        "mtu/1/1",
        "mtu/1/4",
    ]


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--conditions", "jumbo/*", "give some of default/none/1, "),
        ("--repeat", "0", "give a number from 1 to 1000"),
        ("--seconds", "0", "give a positive number of seconds"),
        ("--pin", "100000", "give one or two CPUs"),
        ("--pin", "0,0,0", "give one or two CPUs"),
        ("--loop", "trio", "invalid choice"),
    ],
)
def test_a_wrong_argument_is_refused_with_a_remedy(capsys, option, value, remedy):
    with pytest.raises(SystemExit) as exit_:
        parse(option, value)

    assert exit_.value.code == 2
    assert remedy in capsys.readouterr().err
