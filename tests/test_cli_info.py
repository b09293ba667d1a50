"""``aiorecv info``: what it finds, on this system and under a sandbox, and how it prints that."""

from __future__ import annotations

import json
import os
import platform
import pty
import re
import socket
import subprocess
import sys
from importlib.metadata import version

import pytest

import aiorecv
from aiorecv.cli import main, probes

AIORECV = (sys.executable, "-m", "aiorecv", "info")
NAMES = [
    "aiorecv",
    "Python",
    "kernel",
    "recvmmsg",
    "UDP GRO",
    "UDP GSO",
    "timestamps",
    "drop counter",
    "receive buffer",
    "packet sockets",
    "libpcap",
    "uvloop",
    "rich",
]

# Runs the command under a filter that refuses, or leaves undone, what the probes try.
FORBIDDEN = """
import errno, socket, sys
import pyseccomp as seccomp
rules = seccomp.SyscallFilter(seccomp.ALLOW)
def refuse(number, call, **arguments):
    wanted = [seccomp.Arg(int(name[1:]), seccomp.EQ, value) for name, value in arguments.items()]
    rules.add_rule(seccomp.ERRNO(number), call, *wanted)
refuse(errno.EPERM, "recvmmsg")
refuse(errno.ENOPROTOOPT, "setsockopt", _1=socket.IPPROTO_UDP, _2=104)  # UDP_GRO
refuse(errno.ENOPROTOOPT, "setsockopt", _1=socket.IPPROTO_UDP, _2=103)  # UDP_SEGMENT
refuse(errno.EACCES, "setsockopt", _1=socket.SOL_SOCKET, _2=35)  # SO_TIMESTAMPNS
refuse(0, "setsockopt", _1=socket.SOL_SOCKET, _2=socket.SO_RCVBUF)  # as one capped
refuse(errno.EINVAL, "getsockopt", _1=socket.SOL_SOCKET, _2=55)  # SO_MEMINFO
refuse(errno.EPERM, "socket", _0=socket.AF_PACKET)
rules.load()
from aiorecv.cli import main
sys.exit(main(["info", *sys.argv[1:]]))
"""


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would change the output."""
    hints = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in hints and not name.startswith("AIORECV_")
    }
    return kept | {"TERM": "xterm-256color", "COLUMNS": "200", "LINES": "40"} | more


def run(*command: str, **more: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env=environment(**more)
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_without_a_terminal_each_finding_has_a_plain_line():
    shown = run(*AIORECV)

    lines = dict(line.split(": ", 1) for line in shown.splitlines())
    assert list(lines) == NAMES
    assert lines["aiorecv"] == aiorecv.__version__
    assert lines["Python"] == f"CPython {platform.python_version()}"
    assert lines["kernel"] == f"Linux {platform.release()}"
    assert lines["uvloop"] == f"yes: {version('uvloop')}"
    assert lines["rich"] == f"yes: {version('rich')}"
    for name in ("recvmmsg", "UDP GRO", "UDP GSO", "timestamps", "drop counter"):
        assert lines[name] == "yes: allowed"


def test_json_has_the_same_names_and_says_what_is_there():
    found = json.loads(run(*AIORECV, "--json"))

    assert list(found) == [name.replace(" ", "_") for name in NAMES]
    assert all(set(fields) == {"ok", "found", "advice"} for fields in found.values())
    assert found["Python"]["ok"] is None
    assert found["UDP_GRO"] == {"ok": True, "found": "allowed", "advice": ""}
    assert found["receive_buffer"]["ok"] == (found["receive_buffer"]["advice"] == "")


def test_the_receive_buffer_is_what_a_receiver_would_get():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2

    found = json.loads(run(*AIORECV, "--json"))["receive_buffer"]

    assert found["found"].startswith(f"{granted:,} of 4,194,304 bytes granted (rmem_default ")
    assert found["ok"] == (granted >= 4 << 20)


def test_what_is_forbidden_comes_with_advice():
    try:
        import pyseccomp as _  # noqa: F401
    except (ImportError, RuntimeError):
        pytest.skip("needs pyseccomp, and libseccomp (libseccomp2) to load")

    found = json.loads(run(sys.executable, "-c", FORBIDDEN, "--json"))

    told = {
        name: (fields["found"].partition(" (")[0], fields["advice"])
        for name, fields in found.items()
        if fields["ok"] is False
    }
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        default = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    assert told == {
        "recvmmsg": (
            "Operation not permitted",
            "packets are read by recvmsg, one a call; let the sandbox's seccomp filter allow "
            "recvmmsg",
        ),
        "UDP_GRO": (
            "Protocol not available",
            "datagrams come singly; Linux 5.0 and later has it",
        ),
        "UDP_GSO": ("Protocol not available", "only sending is slower; Linux 4.18 has it"),
        "timestamps": (
            "Permission denied",
            "opening with Metadata.TIMESTAMP fails; let the sandbox allow setsockopt",
        ),
        "drop_counter": (
            "Invalid argument",
            "kernel_drops stays 0 whatever is lost; Linux 4.12 and later has it",
        ),
        "receive_buffer": (
            f"{default:,} of 4,194,304 bytes granted",
            "bursts overflow it: sysctl -w net.core.rmem_max=4194304",
        ),
        "packet_sockets": (
            "Operation not permitted",
            "to sniff, run as root, or with CAP_NET_RAW: setcap cap_net_raw+ep on a copy of the "
            "Python binary, or --cap-add NET_RAW for a container",
        ),
    }


def test_packet_sockets_are_as_this_user_has_them():
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0):
            allowed = True
    except PermissionError:
        allowed = False

    assert json.loads(run(*AIORECV, "--json"))["packet_sockets"]["ok"] == allowed


def test_the_environment_is_told_with_what_it_does():
    switches = {"AIORECV_GRO": "0", "AIORECV_PORTABLE": "1", "AIORECV_OTHER": "x"}

    shown = run(*AIORECV, **switches)

    assert shown.splitlines()[len(NAMES) :] == [
        "AIORECV_GRO: '0': GRO is off: unset AIORECV_GRO to change that",
        "AIORECV_OTHER: 'x': without effect",
        "AIORECV_PORTABLE: '1': packets are read by recvmsg, not recvmmsg: "
        "unset AIORECV_PORTABLE to change that",
    ]
    assert "AIORECV_GRO: '1': without effect" in run(*AIORECV, AIORECV_GRO="1")


def test_what_is_not_installed_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.setitem(sys.modules, "rich", None)

    assert main(["info"]) == 0

    shown = capsys.readouterr().out
    assert "uvloop: no: not installed: pip install 'aiorecv[uvloop]'\n" in shown
    assert "rich: no: not installed: pip install 'aiorecv[cli]'\n" in shown


def test_without_rich_a_terminal_has_plain_lines_too(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    assert main(["info"]) == 0

    assert f"aiorecv: {aiorecv.__version__}\n" in capsys.readouterr().out


def test_limits_that_the_kernel_hides_are_unknown(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(probes, "_SYSCTLS", tmp_path)

    assert main(["info"]) == 0

    assert "(rmem_default unknown, rmem_max unknown)" in capsys.readouterr().out


def test_on_a_terminal_it_is_a_table():
    ours, theirs = pty.openpty()
    shown = b""
    with subprocess.Popen(AIORECV, stdout=theirs, env=environment(AIORECV_GRO="[b]")) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as terminal:
            try:
                while data := terminal.read(65_536):
                    shown += data
            except OSError:  # EIO: nobody has the other end any more
                pass

    assert process.returncode == 0
    text = re.sub(r"\x1b\[[\d;]*m", "", shown.decode())
    assert re.search(r"found +what to do", text)
    # What is wrapped has nothing in the first column.
    rows = [line for line in text.splitlines() if re.match(r" ?\S", line)][1:]
    assert [row.strip().split("  ")[0] for row in rows] == [*NAMES, "AIORECV_GRO"]
    assert re.search(r"recvmmsg +yes +allowed", text)
    assert "'[b]': without effect" in text


def test_a_closed_stdout_ends_it_quietly():
    ours, theirs = os.pipe()
    os.close(ours)

    done = subprocess.run(
        AIORECV, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False, env=environment()
    )

    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, "")
