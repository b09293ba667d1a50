"""One sample of ``bench memory``: the life of one process, and of the one that follows it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from aiorecv.bench.drains import CountError
from aiorecv.bench.memory_child import Account
from aiorecv.bench.memory_process import Process, Setting, started
from aiorecv.bench.memory_traffic import Traffic, added

PHASES = ("boot", "rpc", "bulk", "bulkrpc", "quiet", "restored", "restoredrpc")
"""When memory is looked at, in this order."""

REQUESTS = 300
"""Of each rpc phase; one to each receiver, where there are more."""

# Packets for each socket just before it leaves its process, and as many while nobody reads it.
_ON_THE_WAY = 2


@attrs.frozen
class Life:
    """What a process goes through."""

    receivers: int
    boot: float
    """Seconds after which a fresh process, or one that had nothing to do, is looked at."""
    bulk: int
    """Bytes that come in bulk."""


@attrs.frozen
class Sample:
    """What was seen of one life."""

    memory: dict[str, dict[str, float]]
    """By phase and unit."""
    waited: int
    """Packets that waited in the sockets for the second process; none was lost."""


def live(setting: Setting, life: Life, arm: str, loop: str) -> Sample:
    """Go through all phases.

    Raises:
        CountError: If what came is not what was sent, or what came back is not what was asked.
        ChildProcessError: If a process failed; it has said why on stderr.
    """
    memory: dict[str, dict[str, float]] = {}
    with Traffic() as traffic:
        with started(setting, arm, loop) as process:
            _before(process, traffic, life, memory)
            traffic.packets(_ON_THE_WAY)
            left, descriptors = process.leave()
        with _closing(descriptors):
            traffic.packets(_ON_THE_WAY)
            with started(setting, arm, loop) as fresh:
                fresh.take(descriptors)
                waited = _after(fresh, traffic, life, left, memory)
    return Sample(memory, waited)


def _before(
    process: Process, traffic: Traffic, life: Life, memory: dict[str, dict[str, float]]
) -> None:
    """The phases of the first process."""
    requests = max(REQUESTS, life.receivers)
    traffic.ports, buffer_size = process.open(life.receivers)
    process.sleep_until(life.boot)
    memory["boot"] = process.memory()

    traffic.requests(requests)
    traffic.check(process.account)
    memory["rpc"] = process.memory()

    # Half of the buffer: the kernel counts its own records beside the payload.
    traffic.trains(life.bulk, process.account, buffer_size // 2)
    traffic.check(process.account)
    memory["bulk"] = process.memory()

    traffic.requests(requests)
    traffic.check(process.account)
    memory["bulkrpc"] = process.memory()

    time.sleep(life.boot)
    memory["quiet"] = process.memory()


def _after(
    fresh: Process, traffic: Traffic, life: Life, left: Account, memory: dict[str, dict[str, float]]
) -> int:
    """The phases of the process that has got the sockets; returns what waited for it."""

    def account() -> Account:
        return added(left, fresh.account())

    traffic.check(account)
    waited = fresh.account().packets
    if waited < _ON_THE_WAY * life.receivers:
        raise CountError("packets were read while nobody was to read them")
    fresh.sleep_until(life.boot)
    memory["restored"] = fresh.memory()

    traffic.requests(max(REQUESTS, life.receivers))
    traffic.check(account)
    memory["restoredrpc"] = fresh.memory()
    return waited


@contextmanager
def _closing(descriptors: list[int]) -> Iterator[None]:
    try:
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
