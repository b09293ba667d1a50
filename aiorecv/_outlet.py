"""Outlets: a stand-in."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import Any

from aiorecv._addresses import Address
from aiorecv._statistics import SenderStatistics


class Outlet:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.packets = self.nbytes = 0
        try:
            self.peer: Address = sock.getpeername()
        except OSError:
            self.peer = None

    def checked(self, data: Any, addr: Address) -> bytes:
        return bytes(data)

    def one(self, data: Any, addr: Address, report: Callable[[OSError], object]) -> bool:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        for _ in range(2):
            try:
                if self.peer is not None:
                    self.sock.send(data)
                else:
                    self.sock.sendto(data, addr)
            except BlockingIOError:
                return False
            except OSError as error:
                report(error)
                if error.errno != errno.ECONNREFUSED:
                    return True
            else:
                self.packets += 1
                self.nbytes += len(data)
                return True
        return True

    def many(
        self,
        packets: Sequence[tuple[Any, Address]],
        first: int,
        source: None,
        report: Callable[[OSError], object],
    ) -> int:
        for n, (data, addr) in enumerate(packets[first:], first):
            if not self.one(data, addr, report):
                return n
        return len(packets)

    def statistics(self, *, dropped: int = 0) -> SenderStatistics:
        return SenderStatistics(self.packets, self.nbytes, 0, 0, 0, dropped)
