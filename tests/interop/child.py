"""Runs one project's own datagram tests on loops of one kind, and prints what came of each.

``python -m tests.interop.child SUITE BASE TRANSPORT SOURCES``: TRANSPORT is ``stock`` for the loop
as it is, or ``ours``. The tests are not changed, but for where a loop comes from and, in aioquic's
test of packet loss, where the loss is made. Each run is a process of its own, as suites change
global state.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import socket
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import aiorecv
from tests.interop.loops import BASES, LoopFactory, is_ours, ours, record

Transports = list[asyncio.DatagramTransport]
NewLoop = Callable[..., asyncio.AbstractEventLoop]


def main(suite: str, base: str, transport: str, sources: str) -> None:
    """Print a JSON object: what ``tests.interop.comparing.Outcomes`` is made of."""
    sys.path.insert(0, sources)
    made: list[Transports] = []
    loss = {"sent": 0, "lost": 0}

    def new_loop(constructor: LoopFactory = BASES[base]) -> asyncio.AbstractEventLoop:
        loop = constructor() if transport == "stock" else ours(constructor)()
        made.append(record(loop))
        return loop

    tests = SUITES[suite](base, new_loop)
    if suite == "aioquic" and transport == "ours":
        lose_on_our_send_path(loss)
    result = Outcomes()
    unittest.TestSuite(tests).run(result)
    transports = [transport for of_one_loop in made for transport in of_one_loop]
    told = {
        "tests": result.outcomes,
        "transports": {"made": len(transports), "ours": sum(map(is_ours, transports))},
        "loss": loss,
    }
    print(json.dumps(told))


class Outcomes(unittest.TestResult):
    """What came of each test: ``passed``, ``skipped``, or the traceback of its failure."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.outcomes[test.id()] = "passed"

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self.outcomes[test.id()] = "skipped"

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self.outcomes[test.id()] = self.errors[-1][1]

    addFailure = addError  # noqa: N815

    def addSubTest(self, test: unittest.TestCase, subtest: Any, err: Any) -> None:  # noqa: N802
        raise NotImplementedError("no suite here has subtests")


def cpython(base: str, new_loop: NewLoop) -> Iterator[unittest.TestCase]:
    """All of ``test.test_asyncio`` that makes datagram endpoints.

    Not the tests of ``_SelectorDatagramTransport``: they make that private class themselves.
    """
    package = "test.test_asyncio"
    modules: list[Any] = [
        importlib.import_module(f"{package}.{name}")
        for name in ("test_events", "test_base_events", "test_sendfile")
    ]
    events, base_events, sendfile = modules
    constructor = asyncio.SelectorEventLoop

    def selector_loop(*selector: Any) -> asyncio.AbstractEventLoop:
        if base == "asyncio":
            return new_loop(functools.partial(constructor, *selector))
        loop = new_loop()
        loop._default_executor = None  # type: ignore[attr-defined]  # their tearDown looks at it
        return loop

    # In these modules alone: others ask whether a loop is one.
    names = types.SimpleNamespace(**{**vars(asyncio), "SelectorEventLoop": selector_loop})
    for module in modules:
        module.asyncio = names
    # These classes differ in the selector alone, and uvloop has none.
    kinds = ["EPollEventLoopTests", "PollEventLoopTests", "SelectEventLoopTests"]
    for kind in kinds if base == "asyncio" else kinds[:1]:
        yield from _tests(getattr(events, kind), "datagram_endpoint")
        yield from _tests(getattr(sendfile, kind), "sendfile_not_supported")
    yield from _tests(base_events.BaseEventLoopWithSelectorTests, "datagram_endpoint")


def uvloop(base: str, new_loop: NewLoop) -> Iterator[unittest.TestCase]:
    """``tests/test_udp.py``: the half of it that is for this base."""
    module = importlib.import_module("uvloop_tests.test_udp")
    case = {"asyncio": module.Test_AIO_UDP, "uvloop": module.Test_UV_UDP}[base]
    case.new_loop = lambda self: new_loop()
    yield from _tests(case, "")


def aioquic(base: str, new_loop: NewLoop) -> Iterator[unittest.TestCase]:
    """``tests/test_asyncio.py``, whose tests are run by ``asyncio.run``."""

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return new_loop()

    asyncio.set_event_loop_policy(Policy())
    module = importlib.import_module("aioquic_tests.test_asyncio")
    yield from _tests(module.HighLevelTest, "")


SUITES: dict[str, Callable[[str, NewLoop], Iterator[unittest.TestCase]]] = {
    "aioquic": aioquic,
    "cpython": cpython,
    "uvloop": uvloop,
}


def lose_on_our_send_path(loss: dict[str, int]) -> None:
    """Let aioquic's test of packet loss make its loss in our ``sendto``, and count it.

    It patches ``socket.socket.sendto``, which neither we nor uvloop have to call.
    """
    module: Any = importlib.import_module("aioquic_tests.test_asyncio")
    lossy, of_sockets = module.sendto_with_loss, module.real_sendto
    sendto = aiorecv.DatagramTransport.sendto

    def counted(self: asyncio.DatagramTransport, data: bytes, addr: Any = None) -> None:
        loss["lost"] += 1  # until it is sent after all
        lossy(self, data, addr)

    def really(self: asyncio.DatagramTransport, data: bytes, addr: Any = None) -> None:
        loss["lost"] -= 1
        loss["sent"] += 1
        sendto(self, data, addr)

    module.real_sendto = really
    name = "test_connect_and_serve_with_packet_loss"
    test = getattr(module.HighLevelTest, name)
    # The patches made here are the inner ones: sockets are as they were.
    for owner, replacement in (aiorecv.DatagramTransport, counted), (socket.socket, of_sockets):
        test = mock.patch.object(owner, "sendto", replacement)(test)
    setattr(module.HighLevelTest, name, test)


def _tests(case: type[unittest.TestCase], containing: str) -> Iterator[unittest.TestCase]:
    for name in unittest.defaultTestLoader.getTestCaseNames(case):
        if containing in name:
            yield case(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
