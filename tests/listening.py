"""A running ``aiorecv listen``, and what its tests send it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

AIORECV = (sys.executable, "-m", "aiorecv", "listen")
ANYWHERE = "udp://127.0.0.1:0"


def environment() -> dict[str, str]:
    """Ours, without what would change how rich sees the terminal."""
    hints = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    kept = {name: value for name, value in os.environ.items() if name not in hints}
    return kept | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}


class Listening:
    """A running ``aiorecv listen``."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self.process = process
        self.name = name
        """As it says itself."""

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.name.rpartition(":")
        return host.strip("[]"), int(port)

    def line(self) -> str:
        """The next line of its output."""
        return self.process.stdout.readline().removesuffix("\n")

    def stop(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[str, str]:
        """What else it prints on stdout and on stderr until it ends."""
        return self.process.communicate(timeout=60)


@contextlib.contextmanager
def listening(
    *arguments: str, stdout: Any = subprocess.PIPE, command: tuple[str, ...] = AIORECV
) -> Iterator[Listening]:
    """``aiorecv listen`` with these arguments, ready to receive."""
    with subprocess.Popen(
        (*command, *arguments),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            first = process.stderr.readline()
            name = re.fullmatch(r"listening on (.*), Ctrl-C stops it\n", first)
            assert name, first
            yield Listening(process, name[1])
            process.terminate()
        except BaseException:
            process.kill()
            raise


@contextlib.contextmanager
def sending(*packets: bytes, to: Any, family: int = socket.AF_INET) -> Iterator[Any]:
    """Send packets from a new socket of loopback, and tell its name."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        for data in packets:
            sock.sendto(data, to)
        yield sock.getsockname()


def send(*packets: bytes, to: Any) -> None:
    with sending(*packets, to=to):
        pass
