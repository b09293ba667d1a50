"""Event loops for the tests of this directory, and a record of the transports that they made."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

import uvloop

import aiorecv

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

# Not in debug mode: that traces every call, which slows these libraries several times.
BASES: dict[str, LoopFactory] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


def ours(base: LoopFactory) -> LoopFactory:
    """A constructor of loops like ``base``'s, whose datagram endpoints are ours."""
    return aiorecv.loop_factory(base)


def is_ours(transport: asyncio.BaseTransport) -> bool:
    """Whether a transport is one of aiorecv's."""
    return isinstance(transport, aiorecv.DatagramTransport)


def assert_ours(transport: asyncio.BaseTransport) -> None:
    """Fail unless a transport is one of aiorecv's."""
    assert is_ours(transport), f"{transport!r} is the loop's own transport"


def record(loop: asyncio.AbstractEventLoop) -> list[asyncio.DatagramTransport]:
    """A list to which every datagram transport that the loop makes from now on is added.

    Libraries hide their transports; what the loop gave them is seen here.
    """
    made: list[asyncio.DatagramTransport] = []
    create = loop.create_datagram_endpoint

    @functools.wraps(create)
    async def create_and_record(*args, **options):
        transport, protocol = await create(*args, **options)
        made.append(transport)
        return transport, protocol

    loop.create_datagram_endpoint = create_and_record
    return made
