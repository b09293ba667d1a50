"""``aiorecv bench memory``: it runs, what was sent has come, and what it finds is kept."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiorecv.bench import memory, memory_child, memory_process, memory_traffic
from aiorecv.bench.cgroups import Cgroup
from aiorecv.bench.drains import CountError
from aiorecv.bench.memory_child import ARMS, REQUEST_SIZE, Account
from aiorecv.bench.memory_life import PHASES, Life, live
from aiorecv.bench.memory_process import ANON, NON_RECLAIMABLE, RSS, Setting, started
from aiorecv.bench.memory_traffic import SIZE, TRAIN, Traffic
from aiorecv.bench.report import Run
from aiorecv.cli import main

BARE = Setting(cgroups=False, parent=None)
LOOPS = ("asyncio", "uvloop")


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    memory.add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.fixture(scope="module")
def run() -> Run:
    """A small run, of everything once."""
    options = ("--repeat", "1", "--receivers", "1", "3", "--bulk", "1", "--boot", "0.05")
    return memory.measure(parsed(*options), "aiorecv bench memory")


# --- a run


def test_every_phase_of_every_arm_has_its_samples(run):
    found = {(one.group, one.arm) for one in run.series if one.unit == RSS}

    counts = ("1 receiver", "3 receivers")
    assert found == {
        (f"{loop}, {count}: {phase}", arm)
        for loop in LOOPS
        for count in counts
        for phase in PHASES
        for arm in ARMS
    }
    assert all(len(one.samples) == 1 and one.samples[0] > 0 for one in run.series)


@pytest.mark.parametrize("loop", LOOPS)
def test_slots_for_life_are_in_memory_from_the_start(run, loop):
    group = f"{loop}, 3 receivers: boot"

    held, adaptive = (run.find(group, arm, RSS).median for arm in (next(iter(ARMS)), "adaptive"))

    assert 3 * 512 * 0.6 < held - adaptive < 3 * 512 * 1.4


def test_packets_waited_while_nobody_read(run):
    for loop in LOOPS:
        for count, group in ((1, f"{loop}, 1 receiver"), (3, f"{loop}, 3 receivers")):
            waited = run.facts["waited"][group]
            assert waited.keys() == ARMS.keys()
            # From 2 to 4 each: the first two may have been read before.
            assert all(2 * count <= n <= 4 * count for kept in waited.values() for n in kept)


def test_run_is_kept_and_its_tables_are_the_same(run, tmp_path):
    run.save(tmp_path / "memory.json")

    kept = Run.load(tmp_path / "memory.json")

    assert kept == run
    assert memory.tables(kept) == memory.tables(run)
    assert memory.pictured(kept) == memory.pictured(run)


def test_tables_show_each_phase(run):
    tables = [table for table in memory.tables(run) if "RssAnon" in table.title]

    assert len(tables) == len(LOOPS) * 2
    for table in tables:
        assert [row[0] for row in table.rows] == list(PHASES)
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_cgroup_figures_are_there_or_it_is_said_why_not(run):
    units = {one.unit for one in run.series}
    reason = run.facts["no_cgroup"]

    assert units == ({RSS} if reason else {RSS, ANON, NON_RECLAIMABLE})
    for table in memory.tables(run):
        assert reason is None or reason in table.notes[-1]


def test_command_shows_tables_and_keeps_the_run(capsys, tmp_path):
    kept = tmp_path / "memory.json"
    options = "--repeat 1 --receivers 2 --bulk 1 --boot 0.01 --loop asyncio --json"

    assert main(["bench", "memory", *options.split(), str(kept)]) == 0

    told = capsys.readouterr()
    assert "asyncio, 2 receivers" in told.out
    assert told.err.count("sample 1 of 1") == len(ARMS)
    assert Run.load(kept).bench == "memory"


# --- sums


@pytest.fixture
def sink() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


@pytest.fixture
def traffic(sink, monkeypatch) -> Iterator[Traffic]:
    """To ``sink``, with little patience."""
    monkeypatch.setattr(memory_traffic, "_PATIENCE", 0.2)
    with Traffic() as made:
        made.ports = [sink.getsockname()[1]]
        yield made


def test_account_of_what_was_sent_is_right(traffic):
    traffic.packets(3)

    traffic.check(lambda: Account(3, 3 * SIZE))


@pytest.mark.parametrize(
    "wrong",
    [
        Account(2, 2 * SIZE),
        Account(2, 3 * SIZE),
        Account(3, 3 * SIZE - 1),
        Account(4, 4 * SIZE),
        Account(3, 3 * SIZE, 1),
    ],
)
def test_other_accounts_are_count_errors(traffic, wrong):
    traffic.packets(3)

    with pytest.raises(CountError):
        traffic.check(lambda: wrong)


def test_bulk_that_does_not_arrive_is_a_count_error(traffic):
    with pytest.raises(CountError, match="packets were lost"):
        traffic.trains(10 * TRAIN * SIZE, Account, most_queued=2 * TRAIN * SIZE)


def test_request_without_an_answer_is_a_count_error(traffic):
    with pytest.raises(CountError, match="request 0 of 5 was not answered"):
        traffic.requests(5)


def test_wrong_answer_is_a_count_error(traffic, sink):
    def answer() -> None:
        data, addr = sink.recvfrom(2 * REQUEST_SIZE)
        sink.sendto(data[:-1] + b"?", addr)

    answering = threading.Thread(target=answer)
    answering.start()

    with pytest.raises(CountError, match="request 0 of 1 came back as another"):
        traffic.requests(1)
    answering.join()


def test_bulk_is_spread_over_all_ports_in_whole_trains(traffic, sink):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        other.setblocking(False)
        sink.setblocking(False)
        traffic.ports = [sink.getsockname()[1], other.getsockname()[1]]

        traffic.trains(2 * TRAIN * SIZE + 1, lambda: traffic.sent, most_queued=1)

        assert traffic.sent == Account(3 * TRAIN, 3 * TRAIN * SIZE)
        assert len(sink.recv(SIZE + 1)) == len(other.recv(SIZE + 1)) == SIZE


@pytest.mark.parametrize("arm", ARMS)
def test_packets_lost_while_sockets_change_hands_are_a_count_error(monkeypatch, arm):
    """The one who holds the sockets meanwhile reads some: it must not go unseen."""
    take = memory_process.Process.take

    def lossy(process, descriptors):
        with socket.socket(fileno=os.dup(descriptors[0])) as sock:
            sock.recv(SIZE)
        take(process, descriptors)

    monkeypatch.setattr(memory_process.Process, "take", lossy)
    monkeypatch.setattr(memory_traffic, "_PATIENCE", 0.5)

    with pytest.raises(CountError, match="packets were lost"):
        live(BARE, Life(receivers=2, boot=0.01, bulk=1), arm, "asyncio")


# --- the processes


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("loop", LOOPS)
def test_more_sockets_than_one_message_carries_change_hands(arm, loop):
    receivers = memory_child.DESCRIPTORS_AT_ONCE + 3

    sample = live(BARE, Life(receivers=receivers, boot=0.01, bulk=1), arm, loop)

    assert sample.memory.keys() == set(PHASES)
    assert sample.waited >= 2 * receivers


def test_process_ends_with_whoever_started_it():
    with started(BARE, "adaptive", "asyncio") as process:
        process.open(1)
        pid = process._pid

    assert not Path(f"/proc/{pid}").exists()


def test_process_that_dies_is_told():
    with started(BARE, "adaptive", "asyncio") as process:
        process.open(1)
        os.kill(process._pid, signal.SIGKILL)

        with pytest.raises(ChildProcessError, match="has ended"):
            process.account()
        with pytest.raises(ChildProcessError, match="has ended"):  # it is a zombie by now
            process.memory()


def test_cgroup_is_read_beside_the_process(tmp_path):
    (tmp_path / "memory.stat").write_text("anon 2048\nfile 0\nslab_reclaimable 0\n")
    (tmp_path / "memory.current").write_text("4096\n")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        process = memory_process.Process(os.getpid(), ours, Cgroup(tmp_path, 2))

        found = process.memory()

    assert found.pop(RSS) > 0
    assert found == {ANON: 2.0, NON_RECLAIMABLE: 4.0}


# --- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--repeat", "0"], "give a number from 1"),
        (["--receivers", "none"], "give a number from 1"),
        (["--bulk", "-1"], "give a number from 1"),
        (["--boot", "0"], "give a positive number of seconds"),
        (["--loop", "trio"], "invalid choice"),
    ],
)
def test_wrong_argument_is_refused_with_a_remedy(capsys, arguments, remedy):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "memory", *arguments])

    assert exit_.value.code == 2
    assert remedy in capsys.readouterr().err


def test_more_receivers_than_descriptors_are_refused(capsys, monkeypatch):
    monkeypatch.setattr(memory, "raise_descriptor_limit", lambda: 1024)

    assert main(["bench", "memory", "--receivers", "1000"]) == 1

    told = capsys.readouterr().err
    assert "1,000 receivers need 2,064 descriptors, and this process may have 1,024" in told


def test_cgroup_that_is_none_is_refused(capsys, tmp_path):
    assert main(["bench", "memory", "--cgroup", str(tmp_path)]) == 1

    assert "is no cgroup with the memory controller" in capsys.readouterr().err
