"""The flooder: keeps a UDP socket busy, from C, in this process or in one of its own.

``python -m aiorecv.bench.flood`` is that process. It stops by itself when its time is over, or when
the process that started it is gone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from aiorecv.bench._sink import ffi, lib

MAX_SIZE = 65_507
"""The largest UDP payload over IPv4, in bytes."""

# One call of C sends for so long, then Python looks at signals and at the parent.
_SLICE_NS = 50_000_000

_N = TypeVar("_N", int, float)


def flood(sock: socket.socket, *, seconds: float, size: int, rate: float = 0.0) -> int:
    """Send ordinary datagrams from a connected socket for a time; count what the kernel took.

    The first 8 bytes of each are its number, from 0, in the host's byte order, if they fit.

    Args:
        sock: A connected UDP socket.
        seconds: For how long.
        size: Bytes of each datagram, 1 to ``MAX_SIZE``.
        rate: Datagrams a second, at most; 0: as fast as it goes.

    Raises:
        OSError: If sending fails; that nobody listens is no failure.
    """
    body = ffi.new("uint8_t[]", size)
    fields = {"fd": sock.fileno(), "size": size, "body": body, "rate": rate, "credit": 1.0}
    state = ffi.new("struct flood *", fields)
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


def _open(target: tuple[str, int]) -> tuple[socket.socket, Any]:
    """A socket for ``target``, and the address to connect it to."""
    family, kind, protocol, _, address = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM)[0]
    return socket.socket(family, kind, protocol), address


def main(argv: list[str] | None = None) -> int:
    """Flood, then print one line of JSON: ``sent`` and ``seconds``. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m aiorecv.bench.flood", description="Flood a UDP socket from C."
    )
    add = parser.add_argument
    add("--to", type=_parse_target, required=True, metavar="HOST:PORT", help="whom to send to")
    add("--seconds", type=parse_seconds, default=5.0, help="for how long (default: 5)")
    add("--size", type=parse_size, default=64, help="bytes of each datagram (default: 64)")
    add("--rate", type=_parse_rate, default=0.0, help="packets/s at most (default: no limit)")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    try:
        sock, address = _open(arguments.to)
        with sock:
            sock.connect(address)
            sent = flood(sock, seconds=arguments.seconds, size=arguments.size, rate=arguments.rate)
    except OSError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps({"sent": sent, "seconds": round(time.monotonic() - began, 3)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
