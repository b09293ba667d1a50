"""What tests of senders share: sockets to send to, and system calls that fail when told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import aiorecv
from aiorecv._native._core import ffi

_FFI: Any = ffi

OK = 0
"""In a script: ask the kernel."""


class Only(NamedTuple):
    """In a script: let the kernel have just so many of the messages."""

    messages: int


class SendFaults:
    """Plays a script to one of a sender's calls, from ``with`` to its end.

    Each entry is an errno to fail with, ``OK`` or ``Only``; after the last the kernel is asked.
    """

    def __init__(self, sender, path: str, *script: int | Only) -> None:
        self.calls = 0
        """How often the sender has called."""
        self.core = sender._outlet.core
        self._path = path
        self._script = script
        self._system = getattr(self.core, path)
        self._ours = _FFI.callback(_FFI.typeof(self._system), self._call, error=-1)
        self._portable = self.core.portable

    def __enter__(self) -> Self:
        self.core.portable = self._path == "sendmsg"
        setattr(self.core, self._path, self._ours)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self.core, self._path, self._system)
        self.core.portable = self._portable

    def _call(self, fd: int, messages: Any, *rest: int) -> int:
        step = self._script[self.calls] if self.calls < len(self._script) else OK
        self.calls += 1
        if isinstance(step, Only):
            rest = (step.messages, *rest[1:])
        elif step:
            _FFI.errno = step
            return -1
        sent: int = self._system(fd, messages, *rest)
        return sent


PATHS = ("sendmmsg", "sendmsg")
"""The ways a sender sends many packets."""


@contextlib.contextmanager
def udp(host: str = "127.0.0.1", *, dual: bool = False) -> Iterator[socket.socket]:
    """A UDP socket on a port of the kernel's choice, with room for many packets."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        if dual:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind((host, 0))
        yield sock


def queued(sock: socket.socket) -> list[bytes]:
    """Take everything that waits in a socket: on one host, what was sent is there."""
    packets = []
    with contextlib.suppress(BlockingIOError):
        while True:
            packets.append(sock.recv(1 << 18, socket.MSG_DONTWAIT))
    return packets


def of(addr: object, *packets: bytes) -> list[tuple[bytes, Any]]:
    """Packets that all go to one address."""
    return [(data, addr) for data in packets]


def errnos(errors: list[OSError]) -> list[int | None]:
    """What was wrong, in numbers."""
    return [error.errno for error in errors]


@contextlib.contextmanager
def full_pair(tmp_path) -> Iterator[tuple[socket.socket, socket.socket]]:
    """An AF_UNIX datagram socket, and its peer, which has room for a few packets alone."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
    ):
        peer.bind(str(tmp_path / "peer"))
        sock.connect(str(tmp_path / "peer"))
        yield sock, peer


def fill(sender: aiorecv.Sender, addr: Any = None) -> int:
    """Send until the socket takes no more; returns how many packets that was."""
    taken = sender.send_nowait([(b"filling", addr)] * 1000)
    assert 0 < taken < 1000
    return taken


async def passes(count: int) -> None:
    """That many passes of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def waiting(sender: aiorecv.Sender, *packets: bytes) -> asyncio.Task[None]:
    """A task that waits to send these to the sender's peer."""
    task = asyncio.ensure_future(sender.send([(data, None) for data in packets]))
    await passes(3)
    assert not task.done()
    return task
