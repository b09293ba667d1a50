"""The process that ``bench memory`` looks at: ``python -m aiorecv.bench.memory_child``.

An application with some UDP sockets, each read by the same design, its arm. It sends each request
back to where it came from, and adds up all other packets' bytes. It is told what to do over a
socket, and ends when that is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import resource
import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

import aiorecv
from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.bars import loops
from aiorecv.bench.drains import RECEIVE_BUFFER_SIZE, UDP_GRO

HOST = "127.0.0.1"

REQUEST_SIZE = 1024
"""Bytes of a request; what has another size is none."""

DESCRIPTORS_AT_ONCE = 250
"""Sockets a message: Linux passes at most 253, SCM_MAX_FD."""

MOST = 1 << 16
"""Bytes of the longest message over the control socket."""

_HELD_SLOTS = 8


@attrs.define
class Account:
    """What has been received by all sockets together."""

    packets: int = 0
    """After trains were split."""
    bytes: int = 0
    """Payload bytes, requests included."""
    requests: int = 0
    """Packets that were sent back."""


class Reader(Protocol):
    """One socket, and who reads it."""

    async def leave(self) -> socket.socket:
        """Read no more; what was read is accounted for. The socket is the caller's."""


class ReceiverReader:
    """A task that iterates over a receiver, as users write it."""

    def __init__(
        self, sock: socket.socket, account: Account, window: aiorecv.WindowPolicy | None
    ) -> None:
        self._receiver = aiorecv.from_socket(sock, window=window)
        self._task = asyncio.ensure_future(self._serve(account))

    async def leave(self) -> socket.socket:
        sock = self._receiver.detach()
        await self._task
        return sock

    async def _serve(self, account: Account) -> None:
        sock = self._receiver.socket
        async for batch in self._receiver:
            for data, addr in batch:
                if len(data) == REQUEST_SIZE:
                    sock.sendto(data, addr)  # type: ignore[arg-type]  # over UDP all have one
                    account.requests += 1
                account.bytes += len(data)
            account.packets += len(batch)


class HeldReader:
    """C with eight slots of 64 KiB that were zeroed at the start, and are held for life."""

    def __init__(self, sock: socket.socket, account: Account) -> None:
        self._sock = sock
        self._account = account
        self._sink = lib.sink_new(sock.fileno(), _HELD_SLOTS)
        if self._sink == ffi.NULL:
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        lib.held_zero(self._sink)
        asyncio.get_running_loop().add_reader(sock.fileno(), self._readable)

    async def leave(self) -> socket.socket:
        asyncio.get_running_loop().remove_reader(self._sock.fileno())
        lib.sink_free(self._sink)
        return self._sock

    def _readable(self) -> None:
        packets = lib.sink_drain(self._sink)
        if packets == -errno.EAGAIN:
            return
        _check(packets)
        self._account.packets += packets
        for i in range(_HELD_SLOTS):
            size = lib.held_size(self._sink, i)
            if size == 0:
                break
            # As an application has it, and as the other arms do: as bytes.
            data = bytes(ffi.buffer(lib.held_payload(self._sink, i), size))
            if size == REQUEST_SIZE:
                _check(lib.held_echo(self._sink, i, size))
                self._account.requests += 1
            self._account.bytes += len(data)


ARMS: dict[str, Callable[[socket.socket, Account], Reader]] = {
    "preallocated 8 x 64 KiB": HeldReader,
    "fixed 8": lambda sock, account: ReceiverReader(sock, account, aiorecv.FixedWindow(8)),
    "adaptive": lambda sock, account: ReceiverReader(sock, account, None),
}
"""The designs, the base first; ``adaptive`` has the window that is the default."""


class Application:
    """All sockets of this process, and what it is told."""

    def __init__(self, control: socket.socket, arm: str) -> None:
        self._control = control
        self._read = ARMS[arm]
        self._account = Account()
        self._readers: list[Reader] = []
        self._socks: list[socket.socket] = []

    async def run(self) -> None:
        """Do what comes over the control socket, until it is closed."""
        while order := await self._order():
            match order:
                case {"open": count}:
                    self._add([_bound() for _ in range(count)])
                    self._answer(
                        ports=[sock.getsockname()[1] for sock in self._socks],
                        receive_buffer_size=_receive_buffer_size(self._socks[0]),
                    )
                case {"take": _}:
                    self._answer(receivers=len(self._readers))
                case "account":
                    self._answer(**attrs.asdict(self._account))
                case "leave":
                    await self._leave()

    async def _order(self) -> Any:
        """The next order; None at the end. Sockets that come with it have readers by then."""
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._control.fileno())
        text, descriptors, _, _ = socket.recv_fds(self._control, MOST, DESCRIPTORS_AT_ONCE)
        self._add([socket.socket(fileno=descriptor) for descriptor in descriptors])
        return json.loads(text) if text else None

    def _add(self, socks: Sequence[socket.socket]) -> None:
        self._socks += socks
        self._readers += [self._read(sock, self._account) for sock in socks]

    async def _leave(self) -> None:
        """Give all sockets away, then tell what had been received."""
        socks = [await reader.leave() for reader in self._readers]
        for start in range(0, len(socks), DESCRIPTORS_AT_ONCE):
            some = socks[start : start + DESCRIPTORS_AT_ONCE]
            descriptors = [sock.fileno() for sock in some]
            socket.send_fds(self._control, [b"{}"], descriptors)
        self._answer(**attrs.asdict(self._account))
        for sock in socks:
            sock.close()

    def _answer(self, **told: object) -> None:
        self._control.send(json.dumps(told).encode())


def _bound() -> socket.socket:
    """A socket as ``aiorecv.open_udp`` makes it, for all arms alike."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_SIZE)
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, True)
    sock.bind((HOST, 0))
    return sock


def _receive_buffer_size(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def raise_descriptor_limit() -> int:
    """Let this process open as many descriptors as it may; returns how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def main(argv: Sequence[str] | None = None) -> int:
    """Run the application; returns the exit status."""
    parser = argparse.ArgumentParser("python -m aiorecv.bench.memory_child", description=__doc__)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), required=True)
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--control", type=int, required=True, help="a socket's descriptor")
    arguments = parser.parse_args(argv)
    raise_descriptor_limit()
    with (
        socket.socket(fileno=arguments.control) as control,
        asyncio.Runner(loop_factory=loops(arguments.loop)[arguments.loop]) as runner,
    ):
        try:
            runner.run(Application(control, arguments.arm).run())
        except (KeyboardInterrupt, BrokenPipeError):
            return 1  # whoever asked is gone, or wants to be
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
