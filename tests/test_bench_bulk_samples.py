"""One sample of ``aiorecv bench bulk``: its processes, what they do and how they end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import attrs
import pytest

from aiorecv.bench import bulk_child, bulk_samples
from aiorecv.bench.bulk_child import Account
from aiorecv.bench.bulk_samples import CONDITIONS, SIZE, Setting, check, lost, take
from aiorecv.bench.cgroups import Cgroup
from aiorecv.bench.drains import CountError

CHILD = (sys.executable, "-P", "-m", "aiorecv.bench.bulk_child")
SETTING = Setting(0.1, None, None)

# Sends until nobody listens any more, then says that all is well, but fails.
FAILING_FLOOD = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.connect(("127.0.0.1", int(sys.argv[1])))
    try:
        while True:
            sock.send(bytes(1472))
    except ConnectionRefusedError:
        print('{"sent": 1000000000}')
        sys.exit(1)
"""

ACCOUNT = Account(
    seconds=2.0,
    cpu=1.0,
    packets=440,
    bytes=440 * SIZE,
    batches=20,
    drops=10,
    trains=10,
    window_peak=8,
)


def find(name):
    return next(condition for condition in CONDITIONS if condition.name == name)


def test_trains_come_whole_by_default_and_split_without_gro():
    whole = take(SETTING, find("default/none/1"), "adaptive", "uvloop")
    split = take(SETTING, find("gro-off/none/4"), "adaptive", "uvloop")

    if os.environ.get("AIORECV_GRO") != "0":
        assert 0 < whole.trains <= whole.packets
    assert split.trains == 0


def test_under_a_quota_the_receiver_alone_is_in_a_cgroup_that_goes(monkeypatch):
    reason = bulk_samples.why_no_quota(None)
    if reason is not None:
        pytest.skip(f"needs a cpu cgroup: {reason}")
    seen = []
    add, follow = Cgroup.add, bulk_samples._follow

    def joined(group, pid):
        add(group, pid)
        seen.append((group, pid))

    def followed(lines):
        group, pid = seen[0]
        assert (group.path / "cgroup.procs").read_text().split() == [str(pid)]
        return follow(lines)

    monkeypatch.setattr(Cgroup, "add", joined)
    monkeypatch.setattr(bulk_samples, "_follow", followed)

    account = take(SETTING, find("mtu/0.25/1"), "fixed 8", "asyncio")

    assert account.packets > 0
    ((group, pid),) = seen
    assert pid != os.getpid()
    assert not group.path.exists()


def test_why_a_process_can_not_join_is_told(monkeypatch):
    if bulk_samples.why_no_quota(None) is not None:
        pytest.skip("needs a cpu cgroup")
    monkeypatch.setattr(
        Cgroup, "joining", lambda group, command: ("/bin/sh", "-c", "echo refused >&2; exit 1")
    )

    assert bulk_samples.why_no_quota(None) == "refused"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"packets": 0, "bytes": 0}, "nothing came"),
        ({"bytes": 440 * SIZE - 1}, "packets of 1472 bytes have"),
        ({"packets": 491, "bytes": 491 * SIZE}, "491 packets came, 10 were dropped, 500 were sent"),
    ],
)
def test_sums_that_do_not_agree_are_an_error(changes, words):
    check(ACCOUNT, 450)

    with pytest.raises(CountError, match=words):
        check(attrs.evolve(ACCOUNT, **changes), 500)


def test_what_was_lost_counts_the_packets_of_dropped_trains():
    assert lost(ACCOUNT, 44) == 0.5
    assert lost(attrs.evolve(ACCOUNT, trains=0), 44) == 10 / 450
    assert lost(attrs.evolve(ACCOUNT, drops=0), 44) == 0


def test_a_receiver_that_fails_is_an_error():
    with pytest.raises(ChildProcessError, match="failed"):
        take(SETTING, find("mtu/none/1"), "no such arm", "asyncio")


@pytest.mark.parametrize(("name", "flows"), [("default/none/1", 1), ("mtu/none/4", 4)])
def test_the_flood_has_as_many_flows_as_its_condition_says(name, flows):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        with bulk_samples._flood(find(name), sink.getsockname()[1], SETTING):
            peers = {sink.recvfrom(SIZE)[1] for _ in range(100)}  # 44 or 16 in each turn

    assert len(peers) == flows


def test_a_flood_that_fails_in_the_end_is_an_error(monkeypatch):
    def failing(condition, port, setting):
        return subprocess.Popen(
            (sys.executable, "-c", FAILING_FLOOD, str(port)), stdout=subprocess.PIPE, text=True
        )

    monkeypatch.setattr(bulk_samples, "_flood", failing)

    with pytest.raises(ChildProcessError, match="failed"):
        take(SETTING, find("mtu/none/1"), "adaptive", "asyncio")


def test_a_flood_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(
        bulk_samples, "_flood", lambda *_: bulk_samples._process("flood", "--to", "9", cpu=None)
    )
    monkeypatch.setattr(bulk_samples, "_follow", lambda lines: ACCOUNT)

    with pytest.raises(ChildProcessError, match="failed"):
        take(SETTING, find("mtu/none/1"), "adaptive", "asyncio")


def test_the_receiver_ends_when_nothing_comes(monkeypatch, capfd):
    monkeypatch.setattr(bulk_child, "_PATIENCE", 0.01)

    status = bulk_child.main(["--loop", "uvloop", "--arm", "adaptive", "--seconds", "1"])

    said = capfd.readouterr()
    assert status == 1
    assert "nothing came" in said.err
    assert json.loads(said.out)["port"] > 0


def test_the_receiver_ends_quietly_when_nobody_listens_to_it():
    options = ("--loop", "asyncio", "--arm", "adaptive", "--seconds", "0.01")
    with (
        subprocess.Popen(
            (*CHILD, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        port = json.loads(process.stdout.readline())["port"]
        process.stdout.close()
        sender.sendto(b"x", ("127.0.0.1", port))

        complaints = process.stderr.read()
    assert process.returncode == 1
    assert complaints == ""


def test_intervals_add_up_to_the_time_that_was_asked_for():
    assert bulk_child._pauses(0.2) == [0.2]
    assert bulk_child._pauses(2.0) == [1.0, 1.0]
    assert bulk_child._pauses(2.5) == [1.0, 1.0, 0.5]
