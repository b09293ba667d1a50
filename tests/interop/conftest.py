"""What these tests share: loops whose datagram endpoints are ours, and the transports they made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.interop.loops import BASES, assert_ours, ours, record


def pytest_asyncio_loop_factories(config, item):
    """Every async test runs on asyncio and on uvloop, with our datagram endpoints."""
    return {name: ours(base) for name, base in BASES.items()}


@pytest.fixture
async def transports() -> AsyncIterator[list[asyncio.DatagramTransport]]:
    """The datagram transports that the test's loop made, whoever asked for them.

    At the test's end there must be one or more, all of them ours.
    """
    made = record(asyncio.get_running_loop())

    yield made

    assert made, "no datagram transport was made on this loop"
    for transport in made:
        assert_ours(transport)
