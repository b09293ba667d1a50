"""The flooder: counts, pace, and when it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aiorecv.bench.flood import flood, main

FLOOD = (sys.executable, "-m", "aiorecv.bench.flood")

# Starts a flood that would last for minutes, and waits until its own stdin ends.
PARENT = """
import subprocess, sys
subprocess.Popen(sys.argv[1:])
sys.stdin.read()
"""


@pytest.fixture
def sink() -> Iterator[socket.socket]:
    """A bound socket with room for thousands of datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(("127.0.0.1", 0))
        yield sock


@pytest.fixture
def source(sink: socket.socket) -> Iterator[socket.socket]:
    """A socket connected to ``sink``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(sink.getsockname())
        yield sock


def target(sink: socket.socket) -> str:
    host, port = sink.getsockname()
    return f"{host}:{port}"


def drain(sink: socket.socket) -> list[bytes]:
    sink.setblocking(False)
    got = []
    while True:
        try:
            got.append(sink.recv(65_536))
        except BlockingIOError:
            return got


@pytest.mark.parametrize("size", [8, 64, 1400])
def test_what_was_sent_is_received_numbered_and_in_order(sink, source, size):
    sent = flood(source, seconds=0.2, size=size, rate=5000)

    got = drain(sink)
    assert sent > 0
    assert len(got) == sent
    assert {len(data) for data in got} == {size}
    assert [int.from_bytes(data[:8], sys.byteorder) for data in got] == list(range(sent))


def test_datagrams_too_small_for_a_number_have_none(sink, source):
    sent = flood(source, seconds=0.1, size=7, rate=500)

    assert drain(sink) == [bytes(7)] * sent


@pytest.mark.parametrize("rate", [20, 3000])
def test_the_rate_is_never_exceeded(sink, source, rate):
    sent = flood(source, seconds=0.2, size=64, rate=rate)

    assert 0 < sent <= 1 + rate * 0.2


def test_without_a_rate_it_sends_at_once(sink, source):
    assert flood(source, seconds=0.05, size=64) >= 64


def test_nobody_listening_is_no_failure(sink, source):
    sink.close()

    assert flood(source, seconds=0.05, size=64, rate=1000) >= 0


def test_a_failing_send_is_an_error(source):
    source.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        flood(source, seconds=1.0, size=64)


def test_a_process_of_its_own_tells_how_much_it_sent(sink):
    command = (*FLOOD, "--to", target(sink), "--seconds", "0.2", "--size", "9", "--rate", "1000")

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    said = json.loads(done.stdout)
    assert said["sent"] == len(drain(sink)) > 0
    assert said["seconds"] > 0
    assert done.stderr == ""


def test_the_command_runs_in_this_process_too(sink, capsys):
    assert main(["--to", target(sink), "--seconds", "0.05", "--rate", "1000"]) == 0

    assert json.loads(capsys.readouterr().out)["sent"] == len(drain(sink))


def test_it_stops_when_its_parent_is_gone(sink):
    command = (sys.executable, "-c", PARENT, *FLOOD)
    options = ("--to", target(sink), "--seconds", "600", "--rate", "100")
    with subprocess.Popen(
        (*command, *options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        sink.recv(64)  # the flood runs

        parent.communicate()  # the parent ends; the pipe's last writer is the flood, so it has too

    assert parent.returncode == 0


def test_interrupted_it_ends_quietly(sink):
    command = (*FLOOD, "--to", target(sink), "--seconds", "600", "--rate", "100")
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        sink.recv(64)  # the flood runs

        os.kill(process.pid, signal.SIGINT)

        _, complaints = process.communicate()
    assert process.returncode == 130
    assert complaints == b""


def test_what_the_kernel_refuses_is_said_in_one_line(capsys):
    assert main(["--to", "255.255.255.255:9"]) == 1  # broadcast needs a permission

    complaint = capsys.readouterr().err
    assert "Permission denied" in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--to", "127.0.0.1", "give HOST:PORT"),
        ("--to", ":9", "give HOST:PORT"),
        ("--to", "127.0.0.1:65536", "give HOST:PORT"),
        ("--seconds", "0", "give a positive number of seconds"),
        ("--seconds", "inf", "give a positive number of seconds"),
        ("--seconds", "soon", "give a positive number of seconds"),
        ("--size", "0", "give from 1 to 65507 bytes"),
        ("--size", "65508", "give from 1 to 65507 bytes"),
        ("--rate", "-1", "give packets/s"),
        ("--rate", "nan", "give packets/s"),
    ],
)
def test_a_wrong_argument_is_refused_with_a_remedy(capsys, option, value, remedy):
    with pytest.raises(SystemExit) as exit_:
        main(["--to", "127.0.0.1:9", f"{option}={value}"])

    assert exit_.value.code == 2
    assert remedy in capsys.readouterr().err
