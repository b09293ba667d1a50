"""The harness of the bars: what it sends, what it checks, what it writes. Never how fast."""

import asyncio
import importlib.metadata
import json
import os
import socket
import subprocess
import sys

import attrs
import pytest

import aiorecv
from aiorecv.bench import bars, drains, report
from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.drains import CDrain, CountError, Drain, ReceiverDrain, take_pairs
from aiorecv.bench.processes import STEADY_ALLOCATOR, restart_steady
from aiorecv.bench.queues import Filler, Queue
from aiorecv.bench.rows import ROWS

SMALL = attrs.evolve(ROWS[1], queue=Queue(64, (64, 64)))


@pytest.fixture
def bound():
    """A UDP socket of the test's own, on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)
        yield sock


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_each_row_counts_what_was_sent(row):
    row = attrs.evolve(row, queue=attrs.evolve(row.queue, packets=150))

    result = await bars.measure(row, "this loop", rounds=2, repeats=1)

    assert result.packets == 150
    assert len(result.reference) == len(result.receiver) == len(result.ratios) == 2
    assert min(*result.reference, *result.receiver) > 0
    assert row.title in result.line()
    assert f" {row.against} " in result.line()


def test_a_queue_spreads_its_sizes_over_its_whole_range():
    sends = Queue(1024, (64, 964), 16).sends()

    assert len(sends) == 1024
    assert (min(sends), max(sends)) == (64, 964)
    assert len(set(sends)) == 901


@pytest.mark.parametrize(("segment", "most"), [(64, 128), (1400, 46)])
def test_a_queue_of_trains_has_no_packet_too_many(segment, most):
    sends = Queue(2048, (segment, segment), train=True).sends()

    assert sum(sends) == 2048 * segment
    assert max(sends) == most * segment


def test_a_queue_is_shortened_to_what_the_buffer_holds():
    queue = Queue(1024, (64, 64), train=True)

    assert queue.fitted(8 << 20) == queue
    assert queue.fitted(425_984) == attrs.evolve(queue, packets=166)


def test_peers_take_turns_and_sizes_come_in_order(bound):
    queue = Queue(40, (0, 30), 3)

    with Filler(queue, bound.getsockname()) as filler:
        filler.fill()
    came = [bound.recvfrom(100) for _ in range(40)]

    assert [len(data) for data, _ in came] == queue.sends()
    assert len({addr for _, addr in came}) == 3
    assert all(came[i][1] == came[i - 3][1] != came[i - 1][1] for i in range(3, 40))


def test_a_refused_send_is_an_error():
    sizes = ffi.new("uint32_t[]", [lib.SINK_MAX_PAYLOAD + 1])

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        assert lib.sink_fill(sock.fileno(), sizes, 1, 0) < 0
        with Filler(Queue(1, (64, 64)), ("127.0.0.1", 9)) as filler:
            filler._peers[0] = sock.fileno()
            with pytest.raises(OSError, match="Destination address required"):
                filler.fill()


@pytest.mark.parametrize("slots", [0, lib.SINK_MAX_SLOTS + 1])
def test_a_sink_has_slots_within_bounds(slots):
    assert lib.sink_new(0, slots) == ffi.NULL


@pytest.mark.parametrize("gro", [False, True])
def test_the_sink_counts_segments_bytes_and_empty_datagrams(bound, gro):
    bound.setsockopt(socket.IPPROTO_UDP, 104, gro)  # UDP_GRO, linux/udp.h
    sink = lib.sink_new(bound.fileno(), 16)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(bound.getsockname())
        for sizes, segment in (((100, 0, 7), 0), ((250,), 100), ((100,), 100)):
            lib.sink_fill(sock.fileno(), ffi.new("uint32_t[]", sizes), len(sizes), segment)
    packets = lib.sink_drain(sink)

    assert (packets, sink.bytes) == (3 + 3 + 1, 107 + 250 + 100)
    assert lib.sink_drain(sink) < 0
    lib.sink_free(sink)


async def test_the_reference_and_a_receiver_drain_the_same_queue(bound):
    queue = Queue(60, (10, 900), 4)  # the default buffer holds 92 of them

    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        for sock, drain in (
            (bound, CDrain(bound, queue.packets)),
            (receiver.socket, ReceiverDrain(receiver, queue.packets, take_pairs)),
        ):
            drain.checking = True
            async with drain:
                with Filler(queue, sock.getsockname()) as filler:
                    assert await drain.time(filler) > 0
                    assert await drain.time(filler) > 0


async def test_the_reference_reports_what_the_kernel_says(bound, monkeypatch):
    async with CDrain(bound, 1) as drain:
        drain._readable()  # nothing is there, which is no error

        bound.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            drain._readable()

    monkeypatch.setattr(drains, "_SLOTS", 0)
    with pytest.raises(OSError, match="Invalid argument"):
        CDrain(bound, 1)


async def test_bytes_that_differ_from_what_was_sent_are_an_error(bound):
    drain = Drain(1)
    asyncio.get_running_loop().call_soon(lambda: drain.finish(0.0, 0, 1))

    with (
        Filler(Queue(1, (64, 64)), bound.getsockname()) as filler,
        pytest.raises(CountError, match="1 of 64 bytes"),
    ):
        await drain.time(filler)


async def test_lost_packets_are_an_error_not_a_figure(monkeypatch):
    monkeypatch.setattr(bars, "_ROUND_LIMIT", 0.05)
    monkeypatch.setattr(Filler, "fill", lambda self: None)

    with pytest.raises(CountError, match="never came"):
        await bars.measure(SMALL, "this loop", rounds=1, repeats=1)


def test_the_command_prints_its_table_and_writes_its_samples(tmp_path, capsys):
    samples = tmp_path / "samples.json"
    few = ["--queue", "64", "--rounds", "1", "--repeat", "1"]

    assert bars.main([*few, "--summed", "--json", str(samples)]) == 0

    lines = capsys.readouterr().out.splitlines()
    written = json.loads(samples.read_text())
    measured = [
        (row.name, loop) for loop in ("asyncio", "uvloop") for row in ROWS if loop in row.loops
    ]
    assert lines[0] == bars.HEADING
    assert len(lines) == 1 + len(measured)
    assert [(row["name"], row["loop"]) for row in written["rows"]] == measured
    assert all(len(row["receiver_ns"]) == 1 for row in written["rows"])
    assert written["machine"]["packages"]["aiorecv"] == aiorecv.__version__
    assert written["rivals"] == {
        "asyncio": None,
        "uvloop": importlib.metadata.version("uvloop"),
        "qh3": importlib.metadata.version("qh3"),
        "aiofastnet": importlib.metadata.version("aiofastnet"),
    }


def test_the_program_starts_again_with_the_allocator_that_asyncio_is_best_with(monkeypatch):
    started = []
    monkeypatch.setattr(os, "execve", lambda *program: started.append(program))
    monkeypatch.setattr(sys, "argv", ["bars.py", "--rounds", "3"])
    for name in STEADY_ALLOCATOR:
        monkeypatch.delenv(name, raising=False)

    restart_steady("bars")
    ((path, command, environment),) = started
    for name in STEADY_ALLOCATOR:
        monkeypatch.setenv(name, environment[name])
    restart_steady("bars")

    assert path == command[0] == sys.executable
    assert command[-4:] == ("-m", "aiorecv.bench.bars", "--rounds", "3")
    assert environment == dict(os.environ)
    assert len(started) == 1


async def test_small_queues_are_filled_more_often(monkeypatch):
    fills = []
    fill = Filler.fill

    def noting(filler):
        fills.append(filler)
        fill(filler)

    monkeypatch.setattr(Filler, "fill", noting)
    row = attrs.evolve(SMALL, queue=Queue(64, (64, 64)))

    await bars.measure(row, "this loop", rounds=1, repeats=2)

    assert len(fills) == 2 * 2 * (1 + 2 * 256 // 64)  # arms, rounds with the one that warms up


def test_the_command_measures_one_row_on_one_loop(capsys):
    few = ["--queue", "64", "--rounds", "1", "--repeat", "1"]

    assert bars.main([*few, "--only", "trains-64", "--loop", "uvloop"]) == 0

    assert [line[:19] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "pairs, trains of 64"
    ]


def test_the_command_fails_when_packets_are_lost(monkeypatch, capsys):
    monkeypatch.setattr(bars, "_ROUND_LIMIT", 0.05)
    monkeypatch.setattr(Filler, "fill", lambda self: None)

    assert bars.main(["--only", "pairs", "--loop", "asyncio"]) == 1

    assert "never came" in capsys.readouterr().err


def test_a_loop_that_is_not_installed_is_named_and_left_out(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.setattr(importlib.metadata, "version", _missing)

    assert list(bars.loops("both")) == ["asyncio"]

    assert "pip install" in capsys.readouterr().err
    assert report.machine()["packages"] == {"aiorecv": None, "cffi": None, "uvloop": None}


def _missing(name):
    raise importlib.metadata.PackageNotFoundError(name)


def test_numbers_below_one_are_refused():
    run = subprocess.run(
        [sys.executable, "-m", "aiorecv.bench.bars", "--rounds", "0"],
        capture_output=True,
        text=True,
    )

    assert run.returncode == 2
    assert "give a number from 1" in run.stderr
