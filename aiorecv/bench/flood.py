"""The flooder: keeps a UDP socket busy, from C, in this process or in one of its own.

``python -m aiorecv.bench.flood`` is that process. It stops by itself when its time is over, or when
the process that started it is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.options import whole_number

MAX_SIZE = 65_507
"""The largest UDP payload over IPv4, in bytes."""

# One call of C sends for so long, then Python looks at signals and at the parent.
_SLICE_NS = 50_000_000

# linux/udp.h; Python's socket module has neither.
UDP_SEGMENT = 103
"""The option that makes a send a train."""
_MAX_SEGMENTS = 128  # UDP_MAX_SEGMENTS

_N = TypeVar("_N", int, float)


def longest_train(size: int) -> int:
    """The most datagrams of ``size`` bytes that the kernel takes in one UDP GSO send."""
    return min(_MAX_SEGMENTS, MAX_SIZE // size)


def flood(
    *socks: socket.socket, seconds: float, size: int, rate: float = 0.0, train: int = 1
) -> int:
    """Send datagrams from connected sockets, in turns, for a time; count what the kernel took.

    The first 8 bytes of each are its number, from 0, in the host's byte order, if they fit; of a
    train only its first datagram has one.

    Args:
        socks: Connected UDP sockets.
        seconds: For how long.
        size: Bytes of each datagram, 1 to ``MAX_SIZE``.
        rate: Datagrams a second, at most; 0: as fast as it goes.
        train: Datagrams a send, 1 to ``longest_train(size)``; more than 1 are sent by UDP GSO.

    Raises:
        OSError: If sending fails; that nobody listens is no failure.
    """
    if train > 1:
        for sock in socks:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
    fds = ffi.new("int[]", [sock.fileno() for sock in socks])
    body = ffi.new("uint8_t[]", size * train)
    fields = {"fds": fds, "flows": len(socks), "size": size, "train": train, "body": body}
    state = ffi.new("struct flood *", {**fields, "rate": rate, "credit": 1.0})
    parent = os.getppid()
    now = time.monotonic_ns()
    end = now + int(seconds * 1e9)
    while now < end and os.getppid() == parent:
        result = lib.flood_send(state, min(now + _SLICE_NS, end))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        now = time.monotonic_ns()
    sent: int = state.sent
    return sent


def parse_seconds(text: str) -> float:
    """A positive, finite number of seconds, for argparse."""
    return _parse(float, text, lambda value: 0 < value < math.inf, "a positive number of seconds")


def parse_size(text: str) -> int:
    """The bytes of a UDP payload, for argparse."""
    return _parse(int, text, lambda value: 1 <= value <= MAX_SIZE, f"from 1 to {MAX_SIZE} bytes")


def _parse_rate(text: str) -> float:
    return _parse(float, text, lambda value: 0 <= value < math.inf, "packets/s, 0 for no limit")


def _parse(kind: Callable[[str], _N], text: str, allowed: Callable[[_N], bool], remedy: str) -> _N:
    try:
        value = kind(text)
        if allowed(value):
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r}: give {remedy}")


def _parse_target(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r}: give HOST:PORT, such as 127.0.0.1:9999")
    return host.strip("[]"), int(port)


def _connect(target: tuple[str, int]) -> socket.socket:
    """A socket that is connected to ``target``."""
    family, kind, protocol, _, address = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m aiorecv.bench.flood", description="Flood a UDP socket from C."
    )
    add = parser.add_argument
    add("--to", type=_parse_target, required=True, metavar="HOST:PORT", help="whom to send to")
    add("--seconds", type=parse_seconds, default=5.0, help="for how long (default: 5)")
    add("--size", type=parse_size, default=64, help="bytes of each datagram (default: 64)")
    add("--rate", type=_parse_rate, default=0.0, help="packets/s at most (default: no limit)")
    add(
        "--flows",
        type=whole_number(1, 1024),
        default=1,
        help="sockets that take turns (default: 1)",
    )
    add(
        "--train",
        type=whole_number(1, 1024),
        default=1,
        help="datagrams a send, by GSO (default: 1)",
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Flood, then print one line of JSON: ``sent`` and ``seconds``. Returns the exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.train > longest_train(arguments.size):
        parser.error(f"--train: at most {longest_train(arguments.size)} datagrams of this size")
    began = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(_connect(arguments.to)) for _ in range(arguments.flows)]
            sent = flood(
                *socks,
                seconds=arguments.seconds,
                size=arguments.size,
                rate=arguments.rate,
                train=arguments.train,
            )
    except OSError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps({"sent": sent, "seconds": round(time.monotonic() - began, 3)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
