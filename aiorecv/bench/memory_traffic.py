"""What is sent to the process that ``bench memory`` looks at, and that all of it has come.

Works on addresses and accounts alone: whoever asks the process for its account is handed in.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Self

import attrs

from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.drains import CountError
from aiorecv.bench.flood import longest_train
from aiorecv.bench.memory_child import HOST, REQUEST_SIZE, Account

SIZE = 1400
"""Payload bytes of each packet that is no request."""

TRAIN = longest_train(SIZE)
"""Packets of a train."""

# What has not come by then was lost; seconds.
_PATIENCE = 30.0


class Traffic:
    """A sender to some ports of loopback; a context manager."""

    def __init__(self) -> None:
        self.ports: Sequence[int] = ()
        """Where to send to."""
        self.sent = Account()
        """What the process is to have received by now."""
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.settimeout(_PATIENCE)
        self._sock.bind((HOST, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def requests(self, count: int) -> None:
        """Send so many requests, each after the answer to the one before, to the ports in turns.

        Raises:
            CountError: If an answer is missing, or is not the request.
        """
        for number in range(count):
            address = (HOST, self.ports[number % len(self.ports)])
            request = number.to_bytes(8, "big") * (REQUEST_SIZE // 8)
            self._sock.sendto(request, address)
            try:
                answer = self._sock.recvfrom(2 * REQUEST_SIZE)
            except TimeoutError:
                raise CountError(f"request {number} of {count} was not answered") from None
            if answer != (request, address):
                raise CountError(f"request {number} of {count} came back as another")
        self._sends(count, count * REQUEST_SIZE, count)

    def packets(self, each: int) -> None:
        """Send so many single packets to each port, and wait for nothing."""
        for port in self.ports:
            for _ in range(each):
                self._sock.sendto(bytes(SIZE), (HOST, port))
        self._sends(each * len(self.ports), each * len(self.ports) * SIZE)

    def trains(self, nbytes: int, account: Callable[[], Account], most_queued: int) -> None:
        """Send at least ``nbytes``, in whole trains spread over the ports, one port after another.

        As fast as it goes, but never more than ``most_queued`` bytes ahead of ``account``.

        Raises:
            CountError: If the process does not get on.
        """
        whole, rest = divmod(-(-nbytes // (TRAIN * SIZE)), len(self.ports))
        sizes = ffi.new("uint32_t[]", [TRAIN * SIZE])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            came = account().bytes
            for number, port in enumerate(self.ports):
                sender.connect((HOST, port))
                for _ in range(whole + (number < rest)):
                    self._sends(TRAIN, TRAIN * SIZE)
                    least = self.sent.bytes - max(most_queued, TRAIN * SIZE)
                    if came < least:
                        came = _wait(account, least).bytes
                    sent = lib.sink_fill(sender.fileno(), sizes, 1, SIZE)
                    if sent < 0:
                        raise OSError(-sent, os.strerror(-sent))

    def check(self, account: Callable[[], Account]) -> None:
        """Wait until all that was sent is in ``account``.

        Raises:
            CountError: If less or more has come.
        """
        got = _wait(account, self.sent.bytes)
        if got != self.sent:
            raise CountError(f"{got} came of {self.sent}")

    def _sends(self, packets: int, nbytes: int, requests: int = 0) -> None:
        self.sent = Account(
            self.sent.packets + packets, self.sent.bytes + nbytes, self.sent.requests + requests
        )


def _wait(account: Callable[[], Account], nbytes: int) -> Account:
    """Ask for the account until so many bytes have come."""
    end = time.monotonic() + _PATIENCE
    while (got := account()).bytes < nbytes:
        if time.monotonic() > end:
            raise CountError(f"packets were lost: {got.bytes:,} of {nbytes:,} bytes came")
    return got


def added(one: Account, other: Account) -> Account:
    """What both have received together."""
    pairs = zip(attrs.astuple(one), attrs.astuple(other), strict=True)
    return Account(*(a + b for a, b in pairs))
