"""Small things that tests of the receiver share."""

from __future__ import annotations

import asyncio
import select
import socket

import aiorecv


def queued(receiver: aiorecv.Receiver, *packets: bytes, to=None) -> list[bytes]:
    """Send packets to ``receiver`` from a new socket; they are queued when this returns."""
    with socket.socket(receiver.socket.family, socket.SOCK_DGRAM) as sock:
        for data in packets:
            sock.sendto(data, to or receiver.local_addr)
    return list(packets)


def await_readable(sock: socket.socket) -> None:
    """Return once ``sock`` has something, without telling the event loop."""
    readable, _, _ = select.select([sock], [], [], 10)
    assert readable


async def until_waiting(task: asyncio.Future[object]) -> None:
    """Let ``task`` run until it waits for its receiver."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()


async def passes(count: int) -> None:
    """That many passes of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


class Clock:
    """A clock that moves when told to, in the place of ``monotonic``."""

    def __init__(self, monkeypatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("aiorecv._delivery.monotonic", self)

    def __call__(self) -> float:
        return self.now
