"""What the kernel dropped is counted at once, and said."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

import pytest

import aiorecv
from aiorecv._options import gro_forbidden
from aiorecv._statistics import KernelDrops
from tests.helpers import UDP_SEGMENT
from tests.receiving import Clock, queued


@pytest.fixture
async def small():
    """A receiver whose kernel buffer holds a few packets, which are no trains.

    A read of one slot is always full: then the receiver looks for drops.
    """
    async with aiorecv.open_udp(
        ("127.0.0.1", 0), gro=False, receive_buffer_size=None, window=aiorecv.FixedWindow(1)
    ) as receiver:
        receiver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        yield receiver


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(autouse=True)
def logged(caplog):
    caplog.set_level(logging.DEBUG, "aiorecv")
    return caplog


def drain(receiver) -> int:
    """Read all there is; returns how many packets."""
    received = 0
    while (batch := receiver.receive_nowait()) is not None:
        with batch:
            received += len(batch)
    return received


def overflow(receiver, packets=100):
    """Send more than the buffer holds, and return how many were dropped."""
    before = receiver.statistics().kernel_drops
    queued(receiver, *[b"x"] * packets)
    return receiver.statistics().kernel_drops - before


def rmem_max() -> str:
    """The kernel's limit; a network namespace of one's own does not show it."""
    limit = Path("/proc/sys/net/core/rmem_max")
    return limit.read_text().strip() if limit.exists() else "unknown"


class FakeSocket:
    """A socket that tells of drops by its ``count``; None: it can't."""

    def __init__(self, count: int | None) -> None:
        self.count = count
        self.number = 7

    def fileno(self) -> int:
        return self.number

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        assert (level, name, size) == (socket.SOL_SOCKET, 55, 36)
        if self.count is None:
            raise OSError
        return bytes(32) + self.count.to_bytes(4, sys.byteorder)


async def test_sent_is_received_and_dropped_at_any_time(small):
    sent = received = 0
    for _ in range(5):
        sent += 50
        dropped = overflow(small, 50)
        assert 0 < dropped < 50
        received += drain(small)

        assert sent == received + small.statistics().kernel_drops


async def test_drops_are_counted_before_anything_is_read(small):
    dropped = overflow(small)

    assert dropped == small.statistics().kernel_drops == 100 - drain(small)


async def test_of_trains_entries_are_counted():
    gro = None if gro_forbidden() else True
    async with aiorecv.open_udp(("127.0.0.1", 0), gro=gro, receive_buffer_size=None) as receiver:
        receiver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 100)
            for _ in range(50):
                sock.sendto(bytes(1000), receiver.local_addr)

        received = drain(receiver)
        dropped = receiver.statistics().kernel_drops

    assert received > 0
    assert 0 < dropped <= 500 - received
    if gro:
        # Ten packets an entry.
        assert 10 * dropped == 500 - received


async def test_they_count_from_the_opening():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for _ in range(50):
            sock.sendto(b"x", sock.getsockname())
        async with aiorecv.from_socket(sock) as receiver:
            assert receiver.statistics().kernel_drops == 0
            drain(receiver)
            assert overflow(receiver) > 0


def test_the_kernels_count_may_wrap():
    sock = FakeSocket(2**32 - 3)
    drops = KernelDrops(sock)

    totals = []
    for sock.count in (2**32 - 1, 1, 1, 2**32 - 1):
        totals.append(drops.update())

    assert totals == [2, 4, 4, 4 + 2**32 - 2]


def test_a_closed_socket_keeps_what_was_seen_last():
    sock = FakeSocket(0)
    drops = KernelDrops(sock)
    sock.count = 5
    drops.update()
    sock.number, sock.count = -1, 9

    assert drops.update() == 5


def test_a_kernel_that_does_not_tell_has_none():
    assert KernelDrops(FakeSocket(None)).update() == 0


async def test_the_warning_says_how_many_how_large_and_what_to_do(small, logged):
    dropped = overflow(small)

    drain(small)

    (record,) = logged.records
    message = record.getMessage()
    assert (record.name, record.levelno) == ("aiorecv", logging.WARNING)
    assert f"dropped {dropped} " in message
    assert f"{small.statistics().receive_buffer_size} bytes" in message
    assert f"(it is {rmem_max()})" in message
    assert "net.core.rmem_max" in message
    assert "receive_buffer_size" in message
    assert str(small.local_addr[1]) in message


async def test_while_drops_rise_one_warning_a_second_tells_all_since_the_last(small, logged, clock):
    first = overflow(small)
    drain(small)
    assert len(logged.records) == 1

    later = 0
    for _ in range(9):
        clock.now += 0.1
        later += overflow(small)
        drain(small)
    assert len(logged.records) == 1

    clock.now += 0.11
    later += overflow(small)
    drain(small)
    assert [record.args[1:3] for record in logged.records] == [
        (first, first),
        (later, first + later),
    ]


async def test_no_warning_comes_again_without_new_drops(small, logged, clock):
    overflow(small)
    for _ in range(5):
        clock.now += 2
        drain(small)
        queued(small, *[b"x"] * 2)

    assert len(logged.records) == 1


async def test_each_receiver_warns_for_itself(logged, clock):
    for _ in range(2):
        async with aiorecv.open_udp(("127.0.0.1", 0), receive_buffer_size=None) as receiver:
            receiver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            overflow(receiver)
            drain(receiver)

    assert len(logged.records) == 2


async def test_closing_says_what_was_not_yet_said(small, logged):
    dropped = overflow(small)

    small.close()

    (record,) = logged.records
    assert f"dropped {dropped} " in record.getMessage()
    assert small.statistics().kernel_drops == dropped


async def test_without_drops_nothing_is_said(receiver, logged):
    queued(receiver, *[b"x"] * 100)
    assert drain(receiver) == 100
    receiver.close()

    assert not logged.records


async def test_where_procfs_hides_the_limit_the_warning_still_comes(small, logged, monkeypatch):
    def missing(self):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    overflow(small)

    small.close()

    assert "it is unknown" in logged.text


async def test_who_hears_of_drops_may_close_the_receiver(small):
    class Closing(logging.Handler):
        heard = 0

        def emit(self, record):
            self.heard += 1
            small.close()

    handler = Closing()
    logging.getLogger("aiorecv").addHandler(handler)
    try:
        overflow(small)
        small.close()
    finally:
        logging.getLogger("aiorecv").removeHandler(handler)

    assert handler.heard == 1
    assert small.fileno() == -1
