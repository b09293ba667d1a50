"""A receiver stays within what a sandbox can write down about its system calls."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

try:
    import pyseccomp as _  # noqa: F401
except (ImportError, RuntimeError):
    pytest.skip("needs pyseccomp, and libseccomp (libseccomp2) to load", allow_module_level=True)

# Runs the filter of the example, then calls recvmmsg as bare as C would.
PRELUDE = """
import ctypes, socket, sys
sys.path.insert(0, sys.argv[1])
import sandboxed
libc = ctypes.CDLL(None, use_errno=True)
left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
headers = (ctypes.c_char * (64 * 64))()  # zeroes: messages without a buffer, 64 bytes each
sandboxed.lock_down(16)

def recvmmsg(slots, flags, timeout):
    right.send(b"x")
    received = libc.recvmmsg(left.fileno(), headers, slots, flags, timeout)
    print(received if received >= 0 else -ctypes.get_errno())
"""


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    # The sandbox is one for recvmmsg, whatever path the tests themselves take.
    kept = {name: value for name, value in os.environ.items() if name != "AIORECV_PORTABLE"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=kept
    )


def _probe(code: str) -> subprocess.CompletedProcess[str]:
    return _run("-c", PRELUDE + code, EXAMPLES)


@pytest.mark.parametrize("loop_arguments", [[], ["--uvloop"]], ids=["asyncio", "uvloop"])
def test_a_sandboxed_receiver_grows_shrinks_and_never_exceeds_its_maximum(loop_arguments):
    done = _run(EXAMPLES / "sandboxed.py", *loop_arguments)

    # A single recvmsg would have killed it.
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "after a burst: 16 slots",
        "after single packets: 2 slots",
        "after a second burst: 16 slots",
        "17 slots: EACCES",
    ]


def test_the_filter_refuses_every_other_way_to_call_recvmmsg():
    done = _probe(
        """
recvmmsg(16, socket.MSG_DONTWAIT | socket.MSG_TRUNC, None)
recvmmsg(17, socket.MSG_DONTWAIT, None)
recvmmsg(1, 0, None)
recvmmsg(1, socket.MSG_DONTWAIT, (ctypes.c_long * 2)(1, 0))
left.close()
right.close()
"""
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [int(line) for line in done.stdout.split()] == [1, *3 * [-errno.EACCES]]


def test_the_filter_kills_whoever_calls_recvmsg():
    done = _probe("left.recvmsg(1)")

    assert done.returncode == -signal.SIGSYS
