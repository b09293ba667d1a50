"""``aiorecv bench window``: arrivals, their simulation, their replays, and the verdict."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import aiorecv
from aiorecv.bench import replays, window
from aiorecv.bench.arrivals import PATTERNS, Account, Arrival, Pattern, simulate
from aiorecv.bench.drains import CountError
from aiorecv.bench.replays import most_at_once, replay
from aiorecv.bench.report import Run, Series
from aiorecv.bench.verdicts import verdicts
from aiorecv.cli import main

PATTERN = {pattern.name: pattern for pattern in PATTERNS}
QUEUED_64 = PATTERN["backlog"]


def of(*arrivals_: tuple[int, bool]) -> Pattern:
    return Pattern("p", "a pattern", [Arrival(*one) for one in arrivals_])


@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        (aiorecv.AdaptiveWindow(initial=1), 7),  # 1, 2, 4, 8, 16, 32 and 1 of 64
        (aiorecv.FixedWindow(8), 8),
        (aiorecv.FixedWindow(64), 1),
        (aiorecv.PeakWindow(), 2),
    ],
)
def test_a_backlog_takes_as_many_calls_as_its_windows_allow(policy, calls):
    account = simulate(QUEUED_64, policy, 64)

    assert (account.calls, account.packets, account.empty_reads) == (calls, 64, 0)


def test_a_read_that_fills_every_slot_is_followed_by_one_that_finds_nothing():
    lone = of((1, True), (1, True), (1, True))

    assert simulate(lone, aiorecv.FixedWindow(1), 64).empty_reads == 3
    # A new receiver asks once before it waits.
    assert simulate(lone, aiorecv.FixedWindow(2), 64).empty_reads == 1
    assert simulate(of((2, False), (1, False)), aiorecv.FixedWindow(2), 64).empty_reads == 0


def test_touched_memory_is_pages_of_slots_in_slabs_of_each_size():
    account = simulate(of((100, False), (3, True)), aiorecv.AdaptiveWindow(initial=8), 5000)

    # 8, 16, 32 and 44 of 64; the three that come singly find the slab of 64.
    assert account.touched_bytes == (8 + 16 + 32 + 44) * 8192
    assert account.kept_bytes == 44 * 8192
    assert (account.resizes, account.peak) == (3, 64)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_the_peak_window_takes_no_more_calls_nor_memory_on_any_pattern(pattern):
    default = simulate(pattern, aiorecv.AdaptiveWindow(initial=2), 64)
    peak = simulate(pattern, aiorecv.PeakWindow(), 64)

    assert peak.packets == default.packets == pattern.packets
    assert peak.calls <= default.calls
    assert peak.touched_bytes <= default.touched_bytes
    if pattern.name in ("mixed", "ramps"):  # too short for a shrink: each keeps its largest window
        assert peak.kept_bytes * 64 == default.kept_bytes * 112
    elif pattern.ends_lone:
        assert peak.kept_bytes <= default.kept_bytes


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
async def test_a_replay_reads_what_was_simulated(pattern):
    short = pattern.fitted(20, 100)
    for make in window.POLICIES.values():
        simulated = simulate(short, make(), 64)

        account = (await replay(short, make(), 64)).account

        assert (account.reads, account.peak) == (simulated.reads, simulated.peak)
        assert account.touched_bytes == simulated.touched_bytes
        assert account.resizes == simulated.resizes
        assert account.empty_reads >= simulated.empty_reads


async def test_packets_that_come_while_the_user_works_are_read_at_once():
    busy = await replay(of(*[(1, False)] * 50), aiorecv.FixedWindow(8), 64)
    awaited = await replay(of(*[(1, True)] * 50), aiorecv.FixedWindow(8), 64)

    assert (busy.statistics.immediate_reads, busy.statistics.polled_reads) == (50, 0)
    assert (awaited.statistics.immediate_reads, awaited.statistics.polled_reads) == (0, 50)


async def test_a_replay_does_not_take_other_bytes_for_what_was_sent(monkeypatch):
    monkeypatch.setattr(replays, "bytes", lambda size: b"x" * size, raising=False)

    with pytest.raises(CountError, match="4 of 4 packets are not"):
        await replay(of((4, False)), aiorecv.FixedWindow(8), 64)


async def test_a_replay_ends_when_packets_do_not_come(monkeypatch):
    monkeypatch.setattr(replays, "_LIMIT", 0.05)
    monkeypatch.setattr(replays._Sender, "send", lambda self, packets: None)

    with pytest.raises(CountError, match="0 of 0 packets came"):
        await replay(of((4, True)), aiorecv.FixedWindow(8), 64)


async def test_a_replay_that_overflows_the_buffer_tells_of_drops(monkeypatch):
    monkeypatch.setattr(replays, "make_alike", lambda sock, receiver: shrink(receiver))
    monkeypatch.setattr(replays, "_LIMIT", 0.2)

    with pytest.raises(CountError, match="packets came"):
        await replay(of((500, False)), aiorecv.FixedWindow(8), 64)


@pytest.mark.parametrize(
    ("packets", "reads", "drops", "words"),
    [
        (5, 2, 0, "5 packets were sent"),
        (4, 3, 0, "counted"),
        (4, 2, 1, "dropped 1 packets"),
    ],
)
def test_sums_that_do_not_agree_are_told(packets, reads, drops, words):
    account = Account(64)
    account.read(2, 2)
    account.read(2, 2)
    counted = SimpleNamespace(packets=4, reads=reads, kernel_drops=drops)

    with pytest.raises(CountError, match=words):
        replays._check(account, counted, of((packets, True)))


async def test_what_the_kernel_says_to_a_send_is_raised():
    with pytest.raises(OSError, match="Message too long"):
        await replay(of((1, False)), aiorecv.FixedWindow(8), 65_508)


def shrink(receiver: aiorecv.Receiver) -> int:
    receiver.socket.setsockopt(1, 8, 4096)  # SOL_SOCKET, SO_RCVBUF
    return 4096


async def test_queues_are_no_longer_than_a_buffer_holds():
    assert 1 <= await most_at_once(1472) <= await most_at_once(64)

    fitted = PATTERN["bulk"].fitted(3, 100)
    assert [one.packets for one in fitted.arrivals] == [100, 100, 100]


def test_the_command_prints_and_keeps_its_figures(capsys, tmp_path):
    kept = tmp_path / "window.json"
    options = ["--pattern", "few", "--pattern", "flood", "--arrivals", "8", "--repeat", "2"]
    options += ["--size", "100"]

    assert main(["bench", "window", *options, "--json", str(kept)]) == 0

    shown = capsys.readouterr()
    assert "replaying on uvloop: a flood, then lone" in shown.err
    run = Run.load(kept)
    assert run.command.startswith("aiorecv bench window --pattern few")
    tables = window.tables(run)
    for table in tables:
        assert table.title in shown.out
    assert "simulated in 24 of 24 replays" in tables[1].notes[0]
    assert len(run.find("uvloop few", "PeakWindow()", "ns/packet").samples) == 2
    assert [series.unit for series in run.series].count("ns/packet") == 2 * 2 * 6
    json.loads(kept.read_text())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--repeat", "0"], "a number from 1"),
        (["--size", "1473"], "from 1 to 1472"),
        (["--pattern", "rain"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_told(arguments, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "window", *arguments])

    assert words in capsys.readouterr().err


def test_a_verdict_says_what_is_worse():
    facts = {"patterns": {"p": {"title": "a pattern", "packets": 1, "ends_lone": True}}}
    figures = {"calls": (100, 99), "KiB touched": (4, 8), "KiB kept": (8, 4), "ns/packet": (10, 5)}
    series = [
        Series(group, arm, unit, [pair[number]])
        for unit, pair in figures.items()
        for number, arm in enumerate(("old", "new"))
        for group in ("simulated p", "asyncio p")
    ]
    run = Run("window", "", {}, facts, series)

    table = verdicts(run, "old", "new", ["simulated", "asyncio"])

    assert table.rows == [["a pattern", "equal", "worse", "better", "0.50 x"]]
    assert "calls better or equal on all, memory worse on some pattern" in table.notes[0]


def test_patterns_have_names_of_their_own():
    assert len(PATTERN) == len(PATTERNS) == len({pattern.title for pattern in PATTERNS})
