"""Replays: a pattern of arrivals on a real socket, read by a receiver.

The task that reads also sends: on loopback everything is queued when a send returns, so that each
read finds just what the pattern says, at any speed of the machine. Only the receiver's time counts.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from time import perf_counter
from typing import Self

import attrs

import aiorecv
from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.arrivals import Account, Arrival, Pattern
from aiorecv.bench.drains import CountError, make_alike
from aiorecv.bench.queues import charged

# A receiver asks at once when its user comes back later than about 20 us after the last read.
_WORK = 50e-6
_LIMIT = 30.0


@attrs.frozen
class Replay:
    """One pattern as one receiver has read it."""

    account: Account
    statistics: aiorecv.ReceiverStatistics
    seconds: float
    """Until the last packet was in the user's hands, without the sender's work and the user's."""


class _Sender:
    """Sends equal datagrams, and notes how long that took."""

    def __init__(self, addr: object, size: int, most: int) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.connect(addr)  # type: ignore[arg-type] # an IPv4 address
        self._sizes = ffi.new("uint32_t[]", [size] * most)
        self.sent = 0
        self.spent = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def send(self, packets: int) -> None:
        began = perf_counter()
        result = lib.sink_fill(self._sock.fileno(), self._sizes, packets, 0)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        self.sent += packets
        self.spent += perf_counter() - began

    def work(self) -> None:
        """Be the user's own work, which takes long enough for packets to be expected."""
        began = perf_counter()
        while perf_counter() - began < _WORK:
            pass
        self.spent += perf_counter() - began


async def replay(pattern: Pattern, policy: aiorecv.WindowPolicy, size: int) -> Replay:
    """Replay a pattern with datagrams of ``size`` bytes, on the running loop.

    Raises:
        CountError: If packets were lost, or are not what was sent.
    """
    account = Account(size)
    async with aiorecv.open_udp(("127.0.0.1", 0), window=policy, gro=False) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            make_alike(other, receiver)
        most = max(arrival.packets for arrival in pattern.arrivals)
        with _Sender(receiver.local_addr, size, most) as sender:
            began = perf_counter()
            try:
                async with asyncio.timeout(_LIMIT):
                    await _read(receiver, pattern.arrivals, sender, bytes(size), account)
            except TimeoutError:
                raise CountError(f"{account.packets} of {sender.sent} packets came") from None
            seconds = perf_counter() - began - sender.spent
        statistics = receiver.statistics()
    account.empty_reads = statistics.empty_reads
    account.resizes = statistics.window_grows + statistics.window_shrinks
    _check(account, statistics, pattern)
    return Replay(account, statistics, seconds)


async def _read(
    receiver: aiorecv.Receiver,
    arrivals: Sequence[Arrival],
    sender: _Sender,
    payload: bytes,
    account: Account,
) -> None:
    coming = iter(arrivals)
    _arrive(next(coming), sender)
    async for batch in receiver:
        account.read(batch.slots, len(batch))
        alike = 0
        for data, addr in batch:  # noqa: B007 - what users write
            alike += data == payload
        if alike != len(batch):
            raise CountError(f"{len(batch) - alike} of {len(batch)} packets are not what was sent")
        if account.packets == sender.sent:
            arrival = next(coming, None)
            if arrival is None:
                return
            _arrive(arrival, sender)


def _arrive(arrival: Arrival, sender: _Sender) -> None:
    if arrival.awaited:
        # It runs when this task has asked and waits.
        asyncio.get_running_loop().call_soon(sender.send, arrival.packets)
    else:
        sender.send(arrival.packets)
        sender.work()


def _check(account: Account, statistics: aiorecv.ReceiverStatistics, pattern: Pattern) -> None:
    if statistics.kernel_drops:
        raise CountError(f"the kernel dropped {statistics.kernel_drops} packets")
    seen = account.packets, account.reads
    counted = statistics.packets, statistics.reads
    if seen != counted or account.packets != pattern.packets:
        raise CountError(
            f"{pattern.packets} packets were sent; {seen} packets and reads came, the receiver "
            f"counted {counted}"
        )


async def most_at_once(size: int) -> int:
    """How many datagrams of ``size`` bytes a receiver's buffer holds for sure."""
    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            return max(make_alike(other, receiver) // charged(size), 1)
