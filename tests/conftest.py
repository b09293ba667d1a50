"""What all tests share: both event loops, sockets, and the list of allowed skips."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvloop
from hypothesis import settings

import aiorecv
from tests.helpers import libpcap_is_missing, skip_without_libpcap

# A loaded machine is slow without fault of ours.
settings.register_profile("aiorecv", deadline=None)
settings.load_profile("aiorecv")

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")


def _debug_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    # Debug mode also reports slow callbacks, which a loaded machine has without fault of ours.
    loop.slow_callback_duration = 60.0
    return loop


def pytest_asyncio_loop_factories(config, item):
    """Every async test runs on asyncio in debug mode, and on uvloop."""
    return {"asyncio": _debug_loop, "uvloop": uvloop.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Under CI, a skip that is not on the list is a failure: nothing goes untested unseen."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        allowed = [line for line in ALLOWED_SKIPS.read_text().splitlines() if line]
        if not any(item.nodeid.startswith(name) for name in allowed):
            report.outcome = "failed"
            report.longrepr = (
                f"skipped under CI, but not listed in {ALLOWED_SKIPS.name}: {report.longrepr}"
            )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test that needs libpcap is skipped where it is not installed; CI installs it."""
    try:
        return (yield)
    except OSError as error:
        if error.errno == errno.ENOENT and "libpcap" in str(error) and libpcap_is_missing():
            skip_without_libpcap()
        raise


@pytest.fixture
async def receiver() -> AsyncIterator[aiorecv.Receiver]:
    """A receiver on an IPv4 port of the kernel's choice; its window of 2 slots fills soon."""
    window = aiorecv.AdaptiveWindow(initial=2)
    async with aiorecv.open_udp(("127.0.0.1", 0), window=window) as opened:
        yield opened


@pytest.fixture
def sender(receiver: aiorecv.Receiver) -> Iterator[socket.socket]:
    """A blocking socket that is connected to ``receiver``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(receiver.local_addr)
        yield sock


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    """A non-blocking UDP socket on an IPv4 port of the kernel's choice."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        yield sock


@pytest.fixture
def bound_sender(bound: socket.socket) -> Iterator[socket.socket]:
    """A blocking socket that is connected to ``bound``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(bound.getsockname())
        yield sock
