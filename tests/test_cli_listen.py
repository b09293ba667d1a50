"""``aiorecv listen``: what it prints, how it is stopped, and what it says when it can't."""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest

import aiorecv
from aiorecv.cli import formats, listen, main
from tests.listening import AIORECV, ANYWHERE, listening, send, sending

WITHOUT_RICH = """
import sys
sys.modules["rich"] = None
from aiorecv.cli import main
sys.exit(main(["listen", *sys.argv[1:]]))
"""
CLOCK = r"\d\d:\d\d:\d\d\.\d{6}"
UDP_SEGMENT = 103


def pause(process: subprocess.Popen[str]) -> None:
    """Stop a process; it has stopped when this returns."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request) -> tuple[str, str]:
    return "--loop", request.param


def test_each_packet_has_a_line_and_the_end_a_line_of_statistics(loop):
    with (
        listening(ANYWHERE, *loop) as one,
        sending(b"hello\n\x1b[2J", "größe".encode() * 10, b"", to=one.address) as (_, port),
    ):
        lines = [one.line() for _ in range(3)]
        one.stop()
        rest, complaints = one.end()

    assert re.fullmatch(rf"{CLOCK}  127\.0\.0\.1:{port}  10 bytes  hello\\n\\x1b\[2J", lines[0])
    assert re.fullmatch(
        rf"{CLOCK}  127\.0\.0\.1:{port}  70 bytes  (größe){{6}}größ\.\.\.", lines[1]
    )
    assert re.fullmatch(rf"{CLOCK}  127\.0\.0\.1:{port}  0 bytes", lines[2])
    assert rest == ""
    assert re.fullmatch(
        r"3 packets, 80 bytes in \d+\.\d s; 0 dropped by the kernel; 0 cut; "
        r"receive buffer [\d,]+ bytes\n",
        complaints,
    )
    assert one.process.returncode == 0


def test_hex_prints_all_bytes_16_a_line():
    with listening(ANYWHERE, "--hex") as one:
        send(bytes(range(0x57, 0x57 + 17)), b"", b"12345678", to=one.address)
        lines = [one.line() for _ in range(6)]

    assert lines[0].endswith("  17 bytes")
    assert lines[1:3] == [
        "00000000  57 58 59 5a 5b 5c 5d 5e  5f 60 61 62 63 64 65 66  |WXYZ[\\]^_`abcdef|",
        "00000010  67                                                |g|",
    ]
    assert lines[3].endswith("  0 bytes")
    assert lines[4].endswith("  8 bytes")
    assert lines[5] == "00000000  31 32 33 34 35 36 37 38                           |12345678|"


def test_text_prints_payloads_alone_and_nothing_a_terminal_would_obey():
    with listening(ANYWHERE, "--text") as one:
        send(b"a:1|c\n", b"b\tc\r\n", "größe".encode(), b"", b"1\n\x1b]0;2\xff\n\n", to=one.address)
        lines = [one.line() for _ in range(7)]

    assert lines == ["a:1|c", "b\tc", "größe", "", "1", "\\x1b]0;2\\xff", ""]


def test_json_is_an_object_a_line_with_text_or_base64():
    with (
        listening(ANYWHERE, "--json") as one,
        sending("größe\n".encode(), b"\xff\0", b"", to=one.address) as sender,
    ):
        objects = [json.loads(one.line()) for _ in range(3)]

    for found in objects:
        assert abs(found.pop("time") - time.time()) < 3600  # in seconds, since 1970
        assert found.pop("addr") == list(sender)
        assert found.pop("truncated") is False
    assert objects == [
        {"length": 8, "text": "größe\n"},
        {"length": 2, "base64": base64.b64encode(b"\xff\0").decode()},
        {"length": 0, "text": ""},
    ]


def test_sigterm_is_a_clean_end_too(loop):
    with listening(ANYWHERE, *loop) as one:
        send(b"x", to=one.address)
        one.line()
        one.stop(signal.SIGTERM)
        _, complaints = one.end()

    assert one.process.returncode == 0
    assert complaints.startswith("1 packet, 1 byte in ")


@pytest.mark.parametrize("show", [[], ["--text"], ["--stats"]], ids=["line", "text", "stats"])
def test_count_reads_so_many_packets_and_no_more(show, loop):
    with (
        listening(ANYWHERE, "--count", "11", *show, *loop) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        pause(one.process)
        # All are queued before it reads any, half of them in a train.
        sock.connect(one.address)
        for _ in range(10):
            sock.send(b"0123456789")
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 10)
        sock.send(b"0123456789" * 10)
        one.stop(signal.SIGCONT)
        printed, complaints = one.end()

    assert one.process.returncode == 0
    assert complaints.startswith("11 packets, 110 bytes in ")
    assert len(printed.splitlines()) == (0 if "--stats" in show else 11)


def test_a_closed_stdout_ends_it_quietly(loop):
    with listening(ANYWHERE, *loop) as one:
        send(b"first", to=one.address)
        one.line()
        one.process.stdout.close()
        send(b"second", to=one.address)
        complaints = one.process.stderr.read()

    assert one.process.returncode == 0
    assert re.fullmatch(r"2 packets, 11 bytes in .*\n", complaints)


def test_a_closed_stdout_ends_the_statistics_quietly(loop):
    with listening(ANYWHERE, "--stats", *loop) as one:
        one.process.stdout.close()
        complaints = one.process.stderr.read()

    assert one.process.returncode == 0
    assert re.fullmatch(r"0 packets, 0 bytes in .*\n", complaints)


def test_a_full_disk_is_told_in_one_line():
    with open("/dev/full", "w") as full, listening(ANYWHERE, stdout=full) as one:
        send(b"x", to=one.address)
        _, complaints = one.end()

    assert one.process.returncode == 1
    assert complaints.splitlines()[1:] == ["aiorecv listen: No space left on device"]


def test_a_second_signal_interrupts_it_where_nobody_reads_its_output(loop):
    with listening(ANYWHERE, "--text", *loop) as one:
        pipe = one.process.stdout
        size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
        send(*[b"x" * 60_000] * (size // 60_000 + 1), to=one.address)
        held = 0
        while held < size:  # until it is stuck
            (held,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
        one.stop(signal.SIGINT)
        one.stop(signal.SIGTERM)
        assert one.process.wait(60) == 130
        complaints = one.process.stderr.read()

    assert re.fullmatch(r"\d packets, \d+,000 bytes in .*\n", complaints)


def test_statistics_are_a_plain_line_a_second_without_rich_and_without_a_terminal(loop):
    command = (sys.executable, "-c", WITHOUT_RICH)
    with listening(ANYWHERE, "--stats", *loop, command=command) as one:
        first = one.line()
        send(b"0123456789", to=one.address)
        second = one.line()
        one.stop()
        rest, complaints = one.end()

    ours = re.escape(one.name)
    assert re.fullmatch(rf"{ours}: 0 packets/s, 0\.0 Mbit/s, 0 drops/s, CPU \d+%", first)
    assert re.fullmatch(
        rf"{ours}: 1 packets/s, 0\.0 Mbit/s, 1\.0 packets a batch, window 8, "
        r"[01] polled and [01] immediate reads/s, 0 drops/s, CPU \d+%",
        second,
    )
    assert rest == ""
    assert complaints.startswith("1 packet, 10 bytes in ")


def show_on_a_terminal(until: str, term: str) -> tuple[int, str]:
    """``--stats`` on a pseudo-terminal; Ctrl-C once it has shown that three packets came."""
    ours, theirs = pty.openpty()
    with (
        open(ours, "rb", buffering=0) as terminal,
        listening(
            ANYWHERE, "--stats", stdout=theirs, command=("env", f"TERM={term}", *AIORECV)
        ) as one,
    ):
        os.close(theirs)
        send(b"1", b"2", b"3", to=one.address)
        shown = ""
        while not re.search(until, shown):
            shown += terminal.read(65_536).decode()
        one.stop()
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            while data := terminal.read(65_536):
                shown += data.decode()
        one.end()
    return one.process.returncode, shown


def test_on_a_terminal_statistics_are_a_live_view_that_vanishes():
    status, shown = show_on_a_terminal(r"packets so far +3 ", "xterm-256color")

    assert status == 0
    for words in ("127.0.0.1:", "packets/s", "bits/s", "window", "polled reads/s", "of a core"):
        assert words in shown
    assert shown.rstrip().endswith("\x1b[2K")  # each line of the panel is erased
    assert "\x1b[?25h" in shown  # and the cursor is back


def test_a_terminal_that_can_show_no_live_view_gets_plain_lines():
    status, shown = show_on_a_terminal(r"packets a batch", "dumb")

    assert status == 0
    assert "\x1b" not in shown
    assert " packets/s, " in shown


def test_statistics_on_a_terminal_say_that_they_need_rich(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    assert main(["listen", ANYWHERE, "--stats"]) == 2

    assert capsys.readouterr().err == (
        "aiorecv listen --stats on a terminal needs rich: pip install 'aiorecv[cli]'\n"
    )


def test_addresses_of_senders_are_words():
    words = [
        formats.format_address(addr)
        for addr in [
            ("192.0.2.1", 5),
            ("2001:db8::1", 5, 0, 0),
            ("fe80::1", 5, 0, 3),
            "/run/a\x1bb",
            b"\0abstract\xff",
            None,
        ]
    ]

    assert words == [
        "192.0.2.1:5",
        "[2001:db8::1]:5",
        "[fe80::1%3]:5",
        "/run/a\\x1bb",
        "@abstract\\udcff",
        "-",
    ]


def test_a_cut_packet_says_so():
    packet = aiorecv.Packet(b"x" * 1000, ("192.0.2.1", 5), True, 3000)

    assert "  1,000 of 3,000 bytes  xxx" in formats.format_line(packet)
    assert formats.format_hex(packet).splitlines()[0].endswith("  1,000 of 3,000 bytes")
    found = json.loads(formats.format_json(packet))
    assert (found["length"], found["truncated"], len(found["text"])) == (3000, True, 1000)


@pytest.mark.parametrize(
    "arguments",
    [["--count", "0"], ["--count", "x"], ["--count", "-1"], ["--hex", "--text"], ["--loop", "x"]],
)
def test_wrong_options_are_refused(capsys, arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["listen", ANYWHERE, *arguments])

    assert exit_.value.code == 2
    assert "aiorecv listen: error: " in capsys.readouterr().err


@attrs.frozen
class Refused:
    """A target whose first read is an error: nobody has the port it has sent to."""

    @contextlib.asynccontextmanager
    async def open(self, **_: object) -> AsyncIterator[aiorecv.Receiver]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
            gone.bind(("127.0.0.1", 0))
            nobody = gone.getsockname()
        async with aiorecv.open_udp(remote_addr=nobody) as receiver:
            receiver.socket.send(b"x")
            yield receiver


@pytest.mark.parametrize("show", ["line", "stats"])
def test_a_read_that_fails_ends_it_with_statistics_and_handlers_restored(capsys, loop, show):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    with pytest.raises(ConnectionRefusedError) as raised:
        listen.run(Refused(), show, None, loop[1])

    assert raised.value.errno == errno.ECONNREFUSED
    assert "\n0 packets, 0 bytes in " in capsys.readouterr().err
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def test_every_option_of_every_command_is_documented():
    page = (Path(__file__).parent.parent / "docs/reference/cli.md").read_text()
    for command in ("listen", "info", "demo"):
        section = page.partition(f"## `aiorecv {command}`")[2].partition("\n## ")[0]

        shown = subprocess.run(
            (sys.executable, "-m", "aiorecv", command, "-h"),
            capture_output=True,
            text=True,
            check=True,
        ).stdout

        options = set(re.findall(r"^  (--[a-z]+)", shown, re.MULTILINE))
        assert options == set(re.findall(r"^`(--[a-z]+)[^`]*`$", section, re.MULTILINE))
