"""What a machine counts of itself, for ``aiorecv bench``: and what it lacks, with the reason."""

import errno
import os
import select
import socket
import sys
import types

import pytest

from aiorecv.bench import counters
from aiorecv.bench._sink import lib
from aiorecv.bench.counters import Stopwatch, cycle_counter


@pytest.mark.parametrize(
    ("counts", "unit", "reason"),
    [
        (range(5), "CPU cycles", ""),
        ((), "TSC ticks", "stands still"),
        (-errno.ENOENT, "TSC ticks", "virtual machines"),
        (-errno.EACCES, "TSC ticks", "perf_event_paranoid"),
        (-errno.EMFILE, "TSC ticks", "Too many open files"),
    ],
)
def test_what_counts_cycles_is_told_with_the_reason(counts, unit, reason, monkeypatch, tmp_path):
    descriptor = counts
    if not isinstance(counts, int):
        path = tmp_path / "counts"
        path.write_bytes(b"".join(count.to_bytes(8, sys.byteorder) for count in counts))
        descriptor = os.open(path, os.O_RDONLY)
    monkeypatch.setattr(counters, "lib", _cpu(descriptor, has_ticks=True))

    with cycle_counter() as found:
        assert found.unit == unit
        assert reason in found.reason
        assert found.read() == (2 if unit == "CPU cycles" else 7)

    if not isinstance(counts, int):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def _cpu(descriptor, *, has_ticks):
    return types.SimpleNamespace(
        cycles_open=lambda: descriptor, ticks_there=lambda: has_ticks, ticks=lambda: 7
    )


def test_without_any_counter_that_is_told(monkeypatch):
    monkeypatch.setattr(counters, "lib", _cpu(-errno.ENOENT, has_ticks=False))

    with cycle_counter() as found:
        assert (found.unit, found.read()) == (None, 0)
        assert "no time stamp counter" in found.reason


def test_this_machine_counts_something_or_tells_why():
    with cycle_counter() as found:
        assert found.reason or found.unit == "CPU cycles"
        if found.unit:
            assert found.read() < found.read()
    assert lib.ticks_there() == (lib.ticks() > 0)


def test_a_stopwatch_measures_a_stretch():
    read = iter((5, 9))
    watch = Stopwatch(counters.Counter("CPU cycles", "", lambda: next(read)))

    watch.start()
    watch.stop()

    assert watch.cycles == 4
    assert watch.ns > 0
    assert watch.cpu_ns > 0


def test_what_the_system_hides_is_unknown(tmp_path):
    assert counters.udp_counters(tmp_path / "snmp") == {}
    assert counters.sysctl("net.core.no_such_setting") is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.close()
        assert counters.socket_drops(sock) == 0


def test_udp_counters_are_those_of_this_namespace(bound, bound_sender):
    before = counters.udp_counters()
    bound_sender.send(b"x")
    bound.recv(1)
    risen = counters.differences(before, counters.udp_counters())

    assert risen["InDatagrams"] >= 1
    assert {"InErrors", "RcvbufErrors"} < set(risen)
    assert counters.differences({"a": 5}, {"a": 7}) == {"a": 2}


def test_drops_are_counted(bound, bound_sender):
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for _ in range(20):
        bound_sender.send(bytes(1000))

    queued = 0
    while select.select([bound], [], [], 0)[0]:
        bound.recv(1000)
        queued += 1

    assert counters.socket_drops(bound) == 20 - queued > 0
