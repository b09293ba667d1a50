"""``aiorecv bench headers``: ways to build headers, and who allocates."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from aiorecv.bench import _sink, allocations, header_reads, headers
from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.drains import CountError
from aiorecv.bench.header_reads import ENTRIES, MESSAGES, SIZE, WAYS, HeaderReads
from aiorecv.bench.report import Run
from aiorecv.cli import main


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.parametrize("messages", MESSAGES)
def test_every_way_reads_what_was_sent(way, entries, messages):
    with HeaderReads(messages, entries, system_call=True) as reads:
        for _ in range(2):
            reads.fill(2)
            assert reads.read(way, 2) > 0


def test_reads_of_an_empty_queue_are_told():
    with (
        HeaderReads(1, 3, system_call=True) as reads,
        pytest.raises(CountError, match="reading by once: Resource temporarily"),
    ):
        reads.read("once", 1)


def test_a_short_read_is_told():
    with HeaderReads(64, 3, system_call=True) as reads:
        reads._messages = 63
        reads.fill(1)
        reads._messages = 64

        with pytest.raises(CountError, match=r"\(63, 76608\) packets and bytes came of 64"):
            reads.read("heap", 1)


def test_a_payload_that_did_not_reach_its_memory_is_told(monkeypatch):
    monkeypatch.setattr(header_reads, "lib", _BlindLib())
    with HeaderReads(1, 3, system_call=True) as reads:
        reads.fill(1)

        with pytest.raises(CountError, match="payloads are not what was sent"):
            reads.read("once", 1)


class _BlindLib:
    """The C module, but for what it finds in memory."""

    def __getattr__(self, name):
        return getattr(lib, name)

    def headers_zeroed(self, _headers, _size):
        return 0


def test_other_bytes_are_told():
    with HeaderReads(1, 4, system_call=True) as reads:
        reads.fill(1)
        assert lib.headers_zeroed(reads._headers, SIZE) == 0  # memory is all ones at first
        reads.read("small", 1)
        assert lib.headers_zeroed(reads._headers, SIZE) == 1
        assert lib.headers_zeroed(reads._headers, 1 << 20) == 0


def test_without_a_system_call_nothing_comes():
    with HeaderReads(64, 19, system_call=False) as reads:
        reads.fill(10)
        assert reads.read("heap", 10) > 0
        assert reads._headers.received == 0


def test_numbers_out_of_bounds_are_refused():
    for messages, entries, size in ((0, 1, 1), (65, 1, 1), (1, 0, 1), (1, 65, 1), (1, 1, 0)):
        assert lib.headers_new(-1, messages, entries, size) == ffi.NULL
    with pytest.raises(OSError, match="Invalid argument"):
        HeaderReads(65, 1, system_call=False)

    with HeaderReads(1, 1, system_call=False) as reads:
        assert lib.headers_read(reads._headers, 4, 1) == lib.headers_read(reads._headers, -1, 1)
        assert lib.headers_read(reads._headers, 4, 1) < 0


def test_allocations_are_counted_where_the_library_is_preloaded():
    counts = allocations.count_all("both")

    made = {(messages, entries, way): each for messages, entries, way, each in counts["headers"]}
    assert len(made) == len(MESSAGES) * len(ENTRIES) * len(WAYS)
    for messages in MESSAGES:
        assert [made[messages, n, "once"] for n in ENTRIES] == [0] * 6
        assert [made[messages, n, "refilled"] for n in ENTRIES] == [0] * 6
        # Room for 4, 8, 16, and 32.
        assert [made[messages, n, "heap"] / messages for n in ENTRIES] == [1, 1, 1, 2, 3, 4]
        assert [made[messages, n, "small"] / messages for n in ENTRIES] == [0, 0, 0, 1, 2, 3]
    assert list(counts["receivers"]) == ["asyncio 1", "asyncio 64", "uvloop 1", "uvloop 64"]
    for found in counts["receivers"].values():
        assert found["own"] == 0
        assert found["with_python"] > found["process"]
        assert found["python_peak_bytes"] > 0
        assert found["python_growth_bytes"] < 1


OWN = """
import os
import aiorecv.bench._sink as sink
lib, ffi = sink.lib, sink.ffi
def made(directory, way):
    name = ffi.new("char[]", directory)
    lib.allocations_watch(name)
    before = lib.allocations_below(), lib.allocations_counted()
    lib.headers_read(headers, way, 100)
    after = lib.allocations_below(), lib.allocations_counted()
    return [b - a for a, b in zip(before, after)]
headers = lib.headers_new(-1, 1, 4, 64)
own = os.fsencode(os.path.dirname(sink.__file__))
print([made(own, lib.HEADERS_HEAP), made(b"/nowhere", lib.HEADERS_HEAP), made(own, 0)])
"""


def test_allocations_of_libraries_in_a_directory_are_counted_by_themselves():
    done = subprocess.run(
        [sys.executable, "-c", OWN],
        env={**os.environ, "LD_PRELOAD": _sink.__file__},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert json.loads(done.stdout) == [[100, 100], [0, 100], [0, 0]]


def test_nothing_is_counted_without_preloading(capsys):
    assert not lib.allocations_are_counted()

    assert allocations.main(["headers"]) == 1

    assert "preload" in capsys.readouterr().err


def test_why_allocations_are_not_counted_is_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(_sink, "__file__", str(tmp_path / "none.so"))
    monkeypatch.setattr(headers, "MESSAGES", (1,))
    kept = tmp_path / "headers.json"

    assert main(["bench", "headers", "--repeat", "1", "--packets", "1", "--json", str(kept)]) == 0

    assert "none.so failed" in Run.load(kept).facts["reason"]
    assert "none.so failed" in capsys.readouterr().out


def test_the_command_prints_and_keeps_its_figures(capsys, tmp_path):
    kept = tmp_path / "headers.json"
    options = ["--repeat", "2", "--packets", "64"]

    assert main(["bench", "headers", *options, "--json", str(kept)]) == 0

    shown = capsys.readouterr()
    run = Run.load(kept)
    tables = headers.tables(run)
    assert [len(table.rows) for table in tables] == [6, 6, 6, 6, 12, 4]
    for table in tables:
        assert table.title in shown.out
    timed = run.find("64 messages, 19 entries, with recvmmsg", "once", "ns/call")
    assert len(timed.samples) == 2
    assert run.find("1 message, 19 entries", "heap", "allocations/call").samples == (4,)
    assert "counting allocations" in shown.err


def test_more_packets_than_a_queue_holds_are_filled_in_turns():
    with HeaderReads(1, 1, system_call=True) as reads:
        reads.room = 3

        assert headers._sample(reads, 1, "once", 10) > 0

        assert reads._headers.received == 10


@pytest.mark.parametrize("arguments", [["--repeat", "0"], ["--packets", "x"]])
def test_wrong_arguments_are_told(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "headers", *arguments])

    assert "a number from 1" in capsys.readouterr().err


def test_each_of_the_entries_gets_some_of_a_datagram():
    assert all((n - 1) * -(-SIZE // n) < SIZE for n in ENTRIES)
    assert max(MESSAGES) == lib.HEADERS_MAX_MESSAGES


def test_a_tree_that_is_the_working_directory_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "aiorecv").mkdir()
    (tmp_path / "aiorecv" / "__init__.py").write_text("raise ImportError('not what is installed')")
    monkeypatch.chdir(tmp_path)

    assert "reason" not in allocations.count_all("asyncio")
