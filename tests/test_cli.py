"""The command line: ``aiorecv demo``, on a terminal and off it."""

from __future__ import annotations

import importlib
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import aiorecv
from aiorecv.cli import demo, main
from aiorecv.cli.report import Report, Result

AIORECV = (sys.executable, "-m", "aiorecv")
COUNTER = (sys.executable, "-m", "aiorecv.cli.counter")
NUMBER = r"([\d,]+)"
ROW = re.compile(
    rf"^ *(aiorecv on \w+|asyncio's own|uvloop's own) +{NUMBER} +{NUMBER} +{NUMBER} +([\d.]+)%"
    rf" +([\d.]+) +{NUMBER} *\r?$",
    re.MULTILINE,
)

# A flooder as the demo starts it, whose datagrams go elsewhere.
ASTRAY = """
import socket, sys
from aiorecv.bench.flood import main
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.bind(("127.0.0.1", 0))
    sys.exit(main([*sys.argv[1:], "--to", "127.0.0.1:%d" % sock.getsockname()[1]]))
"""


def environment() -> dict[str, str]:
    """Ours, without what would change how rich sees the terminal."""
    hints = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    kept = {name: value for name, value in os.environ.items() if name not in hints}
    return kept | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """``aiorecv`` with pipes in the place of a terminal."""
    return subprocess.run(
        (*AIORECV, *arguments), capture_output=True, text=True, check=False, env=environment()
    )


def run_on_a_terminal(*arguments: str) -> tuple[int, str]:
    """``aiorecv`` on a pseudo-terminal: its exit status, and all that it wrote."""
    ours, theirs = pty.openpty()
    shown = b""
    with subprocess.Popen((*AIORECV, *arguments), stdout=theirs, env=environment()) as process:
        os.close(theirs)
        while True:
            try:
                shown += os.read(ours, 65_536)
            except OSError:  # EIO: nobody has the other end any more
                break
        os.close(ours)
    return process.returncode, shown.decode()


def check_table(shown: str, loop: str) -> None:
    """Every receiver has a row, it got something, and the numbers agree."""
    rows = {row[0]: row[1:] for row in ROW.findall(shown)}
    assert list(rows) == [f"aiorecv on {loop}", "asyncio's own", "uvloop's own"]
    for sent, received, lost, _percent, cpu, buffer in rows.values():
        counts = [int(text.replace(",", "")) for text in (sent, received, lost)]
        assert counts[1] > 0
        assert counts[2] >= 0
        assert counts[0] == counts[1] + counts[2]
        assert float(cpu) > 0
        assert int(buffer.replace(",", "")) > 0


def test_without_a_terminal_the_demo_ends_with_a_table():
    done = run("demo", "--seconds", "0.3", "--loop", "asyncio")

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    check_table(done.stdout, "asyncio")


def test_without_a_terminal_there_is_a_line_a_second():
    done = run("demo", "--seconds", "1.5", "--size", "200", "--loop", "uvloop")

    lines = re.findall(r"^(.*): [\d,]+ packets/s, [\d,.]+ Mbit/s, (.*)$", done.stdout, re.MULTILINE)
    seen = dict(lines)
    assert list(seen) == ["aiorecv on uvloop", "asyncio's own", "uvloop's own"]
    assert re.search(
        r"[\d.]+ packets a batch, window \d+, [\d,]+ polled and [\d,]+ immediate reads/s, "
        r"[\d,]+ drops/s, CPU \d+%",
        seen["aiorecv on uvloop"],
    )
    assert "batch" not in seen["asyncio's own"]
    check_table(done.stdout, "uvloop")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_on_a_terminal_the_demo_is_live_and_ends_with_the_same_table(loop):
    status, shown = run_on_a_terminal("demo", "--seconds", "0.6", "--loop", loop)

    assert status == 0, shown
    panels, table = shown.rsplit("\x1b[?25h", maxsplit=1)  # where the cursor is back
    for words in (
        f"aiorecv on {loop}, ",
        "asyncio's own, ",
        "packets/s",
        "bits/s",
        "packets a batch",
        "window",
        "polled reads/s",
        "immediate reads/s",
        "drops/s",
        "of a core",
    ):
        assert words in panels
    check_table(re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", table), loop)


def test_a_flood_that_does_not_come_is_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(demo, "_FLOOD", (sys.executable, "-c", ASTRAY))

    assert main(["demo", "--seconds", "0.2"]) == 1

    captured = capsys.readouterr()
    assert captured.err == "aiorecv demo: nothing came\n"
    assert re.search(r"aiorecv on uvloop +[\d,]+ +0 +[\d,]+ +100.0% +- ", captured.out)


@pytest.mark.parametrize(
    ("child", "script", "complaint"),
    [
        ("_COUNTER", "", "aiorecv on uvloop did not start"),
        ("_COUNTER", "print('{\"port\": 9}'); raise SystemExit(3)", "aiorecv on uvloop failed"),
        ("_FLOOD", "raise SystemExit(3)", "the flood failed"),
    ],
)
def test_a_child_that_fails_is_a_failure(monkeypatch, capsys, child, script, complaint):
    monkeypatch.setattr(demo, child, (sys.executable, "-c", script))

    assert main(["demo", "--seconds", "0.2"]) == 1

    assert capsys.readouterr().err == f"aiorecv demo: {complaint}\n"


def test_ctrl_c_ends_the_demo_and_its_children():
    command = (*AIORECV, "demo", "--seconds", "600")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the heading
        process.stdout.readline()  # of the first second: both children are at work
        tasks = Path(f"/proc/{process.pid}/task")
        children = [
            pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()
        ]

        process.send_signal(signal.SIGINT)

        _, complaints = process.communicate()
    assert process.returncode == 130
    assert complaints == ""
    assert len(children) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_receiver_whose_demo_is_gone_ends_quietly():
    with subprocess.Popen(
        (*COUNTER, "aiorecv", "asyncio"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()  # its port

        process.stdout.close()
        process.stdin.close()

        complaints = process.stderr.read()
    assert process.returncode == 0
    assert complaints == b""


def test_without_rich_the_demo_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)

    assert main(["demo"]) == 2

    assert capsys.readouterr().err == "aiorecv demo needs rich: pip install 'aiorecv[cli]'\n"


def test_the_command_line_itself_needs_no_rich():
    script = "import sys; sys.modules['rich'] = None; import aiorecv.cli; aiorecv.cli.main(['-h'])"

    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True
    )

    assert "demo" in done.stdout


def test_without_uvloop_its_row_says_so_and_aiorecv_runs_on_asyncio(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert main(["demo", "--seconds", "0.2"]) == 0

    shown = capsys.readouterr().out
    assert [row[0] for row in ROW.findall(shown)] == ["aiorecv on asyncio", "asyncio's own"]
    assert re.search(r"uvloop's own +not installed", shown)
    assert "pip install 'aiorecv[uvloop]'" in shown


def test_asking_for_a_loop_that_is_not_installed_is_refused(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    with pytest.raises(SystemExit) as exit_:
        main(["demo", "--loop", "uvloop"])

    assert exit_.value.code == 2
    assert "not installed: pip install 'aiorecv[uvloop]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--seconds", "0"],
        ["demo", "--seconds", "nan"],
        ["demo", "--size", "0"],
        ["demo", "--size", "65508"],
        ["demo", "--loop", "trio"],
        ["demo", "more"],
        ["nothing"],
    ],
)
def test_wrong_arguments_are_refused(capsys, arguments):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)

    assert exit_.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 2

    assert "demo" in capsys.readouterr().err


@pytest.mark.parametrize("command", [AIORECV, (str(Path(sys.executable).with_name("aiorecv")),)])
def test_the_version(command):
    done = subprocess.run((*command, "--version"), capture_output=True, text=True, check=True)

    assert done.stdout == f"aiorecv {aiorecv.__version__}\n"


def test_a_receiver_that_got_nothing_has_no_cost_a_packet():
    report = Report(elapsed=1, cpu=1, packets=0, bytes=0, drops=0, receive_buffer_size=1)

    assert Result("nobody", 10, report).cpu_per_million is None


def test_the_demo_works_in_a_directory_that_has_another_aiorecv(tmp_path):
    """The installed command is run in a source tree, whose C part may not be built."""
    package = tmp_path / "aiorecv"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('not the installed one')")

    done = subprocess.run(
        (sys.executable, "-P", *AIORECV[1:], "demo", "--seconds", "0.2"),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment(),
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert len(ROW.findall(done.stdout)) == 3


def test_importing_what_python_m_runs_runs_nothing(capsys):
    module = importlib.import_module("aiorecv.__main__")

    assert module.main is main
    assert capsys.readouterr() == ("", "")
