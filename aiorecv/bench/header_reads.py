"""Header reads: one socket of loopback, and C that reads it with headers made in several ways."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Self

from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.drains import RECEIVE_BUFFER_SIZE, CountError
from aiorecv.bench.queues import Filler, Queue, charged

ENTRIES = (1, 3, 4, 8, 16, 19)
"""Memory pieces a message; a virtio-net frame has at most 19: 2 + MAX_SKB_FRAGS."""

MESSAGES = (1, 64)
"""A read: one packet, and a whole window."""

WAYS = {
    "once": lib.HEADERS_ONCE,
    "refilled": lib.HEADERS_REFILLED,
    "heap": lib.HEADERS_HEAP,
    "small": lib.HEADERS_SMALL,
}

# So that each of 19 entries gets some of it.
SIZE = 1216


class HeaderReads:
    """Reads of ``messages`` messages of ``entries`` pieces each; a context manager."""

    def __init__(self, messages: int, entries: int, *, system_call: bool) -> None:
        self._messages = messages
        self._stack = contextlib.ExitStack()
        sock = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_SIZE)
        granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self.room = min(granted // charged(SIZE), 1024)
        """Packets that the socket's queue holds for sure, if the system allows a window of them."""
        self._addr = sock.getsockname()
        self._calls = system_call
        entry_size = -(-SIZE // entries)
        fd = sock.fileno() if system_call else -1
        self._headers = lib.headers_new(fd, messages, entries, entry_size)
        if self._headers == ffi.NULL:
            self._stack.close()
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        self._stack.callback(lib.headers_free, self._headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fill(self, reads: int) -> None:
        """Queue what so many reads will take; nothing, where no system call is made."""
        if self._calls:
            with Filler(Queue(reads * self._messages, (SIZE, SIZE)), self._addr) as filler:
                filler.fill()

    def read(self, way: str, reads: int) -> int:
        """Read so many times, and return the nanoseconds it took.

        Raises:
            CountError: If what came is not what was sent.
        """
        headers = self._headers
        before = headers.received, headers.bytes
        spent = lib.headers_read(headers, WAYS[way], reads)
        if spent < 0:
            raise CountError(f"reading by {way}: {os.strerror(-spent)}")
        if self._calls:
            packets = reads * self._messages
            came = headers.received - before[0], headers.bytes - before[1]
            if came != (packets, packets * SIZE):
                raise CountError(f"{came} packets and bytes came of {packets}, {packets * SIZE}")
            if lib.headers_zeroed(headers, SIZE) != self._messages:
                raise CountError(f"reading by {way}: payloads are not what was sent")
        return spent
