"""python-osc's asyncio server, against its own blocking client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
from pythonosc.dispatcher import Dispatcher
from pythonosc.osc_bundle import OscBundle
from pythonosc.osc_bundle_builder import IMMEDIATELY, OscBundleBuilder
from pythonosc.osc_message import OscMessage
from pythonosc.osc_message_builder import OscMessageBuilder
from pythonosc.osc_server import AsyncIOOSCUDPServer
from pythonosc.udp_client import SimpleUDPClient

# Seconds that a client waits for a message that does not come.
PATIENCE = 10.0

Answer = tuple[str, list[object]]


@pytest.fixture
async def port(transports) -> AsyncIterator[int]:
    """Where a server answers each message with its arguments in reverse."""
    dispatcher = Dispatcher()
    dispatcher.map("/reverse", lambda _, *values: ("/reversed", *reversed(values)))
    server = AsyncIOOSCUDPServer(("127.0.0.1", 0), dispatcher, asyncio.get_running_loop())
    transport, _ = await server.create_serve_endpoint()
    yield transport.get_extra_info("sockname")[1]
    transport.close()


async def test_a_message_of_every_kind_comes_back(port):
    values = ["text", 7, 0.5, b"\x00\xff", True]

    answers = await asyncio.to_thread(exchange, port, message(values), 1)

    assert answers == [("/reversed", values[::-1])]


async def test_each_message_of_a_bundle_is_answered_in_order(port):
    bundle = OscBundleBuilder(IMMEDIATELY)
    for number in range(100):
        bundle.add_content(message(["number", number]))

    answers = await asyncio.to_thread(exchange, port, bundle.build(), 100)

    assert answers == [("/reversed", [number, "number"]) for number in range(100)]


def message(values: list[object]) -> OscMessage:
    builder = OscMessageBuilder("/reverse")
    for value in values:
        builder.add_arg(value)
    return builder.build()


def exchange(port: int, content: OscMessage | OscBundle, answers: int) -> list[Answer]:
    """Send this, and give so many answers, or those that come in time."""
    with contextlib.closing(SimpleUDPClient("127.0.0.1", port, timeout=PATIENCE)) as client:
        client.send(content)
        messages = itertools.islice(client.get_messages(), answers)
        return [(message.address, message.params) for message in messages]
