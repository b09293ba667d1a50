"""The examples work on real traffic, on both loops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

COLLECTOR = Path(__file__).parent.parent / "examples" / "collector.py"


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_arguments(request) -> list[str]:
    return ["--uvloop"] if request.param == "uvloop" else []


@pytest.fixture
def senders() -> Iterator[list[socket.socket]]:
    """Two peers; the first will be the busier one."""
    with (
        socket.socket(type=socket.SOCK_DGRAM) as first,
        socket.socket(type=socket.SOCK_DGRAM) as second,
    ):
        for sock in (first, second):
            sock.bind(("127.0.0.1", 0))
        yield [first, second]


def _start(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    """A collector that listens, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", COLLECTOR, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on ('127.0.0.1', "), line
    return process, int(line.rstrip(")\n").rpartition(" ")[2])


def _send(senders: list[socket.socket], port: int) -> list[str]:
    """Send 60 and 40 packets; returns what the collector says of them."""
    first, second = senders
    for _ in range(60):
        first.sendto(b"deploys:1|c", ("127.0.0.1", port))
    for _ in range(40):
        second.sendto(b"", ("127.0.0.1", port))
    return [
        f"{first.getsockname()}: 60 packets, 660 bytes",
        f"{second.getsockname()}: 40 packets, 0 bytes",
        "total: 100 packets, 660 bytes",
        "dropped by the kernel: 0",
    ]


def _finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def _queued(port: int) -> int:
    """Bytes that wait in the kernel's queue of the socket that is bound to ``port``."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    (queued,) = (row[4].split(":")[1] for row in rows if int(row[1].split(":")[1], 16) == port)
    return int(queued, 16)


def test_the_collector_counts_by_sender_and_stops_at_its_count(loop_arguments, senders):
    process, port = _start("--count", "100", *loop_arguments)

    expected = _send(senders, port)

    assert _finish(process) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_collector_prints_what_it_has_counted(loop_arguments, senders, number):
    process, port = _start(*loop_arguments)
    expected = _send(senders, port)
    while _queued(port):  # what was read before closing is still delivered
        os.sched_yield()

    process.send_signal(number)

    assert _finish(process) == expected
