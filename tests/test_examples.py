"""The examples work on real traffic, on both loops."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


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


def _start(name: str, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """An example that listens, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on ("), line
    return process, int(line.split(", ")[1].rstrip(")\n"))


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
    queued = (row[4].split(":")[1] for row in rows if int(row[1].split(":")[1], 16) == port)
    # The kernel lists a socket twice if others come and go meanwhile.
    return max(int(size, 16) for size in queued)


def test_the_collector_counts_by_sender_and_stops_at_its_count(loop_arguments, senders):
    process, port = _start("collector.py", "--count", "100", *loop_arguments)

    expected = _send(senders, port)

    assert _finish(process) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_collector_prints_what_it_has_counted(loop_arguments, senders, number):
    process, port = _start("collector.py", *loop_arguments)
    expected = _send(senders, port)
    while _queued(port):  # what was read before closing is still delivered
        os.sched_yield()

    process.send_signal(number)

    assert _finish(process) == expected


def test_the_multicast_reader_prints_what_its_group_is_sent(loop_arguments, senders):
    process, port = _start("multicast.py", "239.7.1.1", "--interface", "lo", *loop_arguments)
    first, second = senders
    for sock in senders:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

    first.sendto(b"a price", ("239.7.1.1", port))
    second.sendto(b"another", ("239.7.1.1", port))
    while _queued(port):
        os.sched_yield()
    process.send_signal(signal.SIGINT)

    assert _finish(process) == [
        f"{first.getsockname()}: b'a price'",
        f"{second.getsockname()}: b'another'",
        "packets: 2",
    ]


def test_the_multicast_reader_hears_the_sources_it_was_told_of(loop_arguments):
    arguments = ("--interface", "lo", "--source", "127.0.0.2", "--source", "127.0.0.3")
    process, port = _start("multicast.py", "239.7.1.1", *arguments, "--count", "2", *loop_arguments)

    for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
        with socket.socket(type=socket.SOCK_DGRAM) as sock:
            sock.bind((host, 0))
            interface = socket.inet_aton("127.0.0.1")
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            sock.sendto(host.encode(), ("239.7.1.1", port))

    lines = _finish(process)
    assert [line.partition(": ")[2] for line in lines[:2]] == ["b'127.0.0.2'", "b'127.0.0.3'"]
    assert lines[2:] == ["packets: 2"]


def test_the_metadata_example_tells_what_the_kernel_tells(loop_arguments, senders):
    process, port = _start("metadata.py", "--host", "::", "--count", "2", *loop_arguments)
    first, second = senders
    first.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
    second.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 46 << 2 | 1)

    first.sendto(b"one", ("127.0.0.7", port))
    second.sendto(b"", ("127.0.0.1", port))

    peers = [("::ffff:127.0.0.1", sock.getsockname()[1], 0, 0) for sock in senders]
    *lines, last = _finish(process)
    assert lines == [
        f"{peers[0]} to ::ffff:127.0.0.7 by lo: 3 bytes, ttl 9, dscp 0, ecn 0, drops 0",
        f"{peers[1]} to ::ffff:127.0.0.1 by lo: 0 bytes, ttl 64, dscp 46, ecn 1, drops 0",
    ]
    assert re.fullmatch(r"packets: 2; the longest wait in the kernel: \d+\.\d{3} ms", last)


def _ask(senders: list[socket.socket], port: int) -> list[list[bytes]]:
    """Send requests to a server that answers in capitals; returns what each sender hears."""
    heard = []
    for n, sock in enumerate(senders):
        sock.settimeout(60)
        requests = [b"%d: request %d" % (n, number) for number in range(50)]
        for request in requests:
            sock.sendto(request, ("127.0.0.1", port))
        heard.append([sock.recv(100) for _ in requests])
    return heard


ANSWERS = [[b"%d: REQUEST %d" % (n, number) for number in range(50)] for n in range(2)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_with_one_line_changed_answers_by_our_transport(loop_arguments, senders, number):
    process, port = _start("server_one_line.py", *loop_arguments)

    heard = _ask(senders, port)
    process.send_signal(number)

    assert heard == ANSWERS
    assert _finish(process) == ["answered: 100 by DatagramTransport", "dropped by the kernel: 0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_not_changed_answers_by_our_transport(loop_arguments, senders, number):
    process, port = _start("server_unchanged.py", *loop_arguments)

    heard = _ask(senders, port)
    process.send_signal(number)

    assert heard == ANSWERS
    assert _finish(process) == ["answered: 100 by DatagramTransport"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_aiohttp_service_tells_its_counters_and_closes_with_its_application(
    loop_arguments, senders, number
):
    process, port = _start("aiohttp_service.py", *loop_arguments)
    assert process.stdout is not None
    url = process.stdout.readline().removeprefix("counters at ").strip()

    _send(senders, port)
    by_sender = {
        str(sock.getsockname()): count for sock, count in zip(senders, (60, 40), strict=True)
    }
    while _queued(port):  # what has left the queue is counted before a request is looked at
        os.sched_yield()
    with urllib.request.urlopen(url, timeout=60) as answer:
        counters = json.load(answer)
    process.send_signal(number)

    counts = {"packets": 100, "bytes": 660, "truncated": 0, "kernel_drops": 0}
    assert counters == {**counts, "senders": by_sender}
    assert _finish(process) == ["packets: 100"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_written_for_batches_gives_the_same_answers(loop_arguments, senders, number):
    process, port = _start("server_batches.py", *loop_arguments)

    heard = _ask(senders, port)
    process.send_signal(number)

    assert heard == ANSWERS
    assert _finish(process) == ["answered: 100 refused: 0", "dropped by the kernel: 0"]
