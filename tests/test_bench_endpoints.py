"""The bars' endpoint arms: whose transport they are, what they check. Never how fast."""

import asyncio
import importlib.metadata
import socket

import attrs
import pytest

from aiorecv.bench import bars
from aiorecv.bench.drains import CountError
from aiorecv.bench.endpoints import EndpointDrain
from aiorecv.bench.peers import AIOFASTNET, ASYNCIO, QH3, UVLOOP, open_ours
from aiorecv.bench.queues import Filler, Queue
from aiorecv.bench.rows import ROWS

ENDPOINT = next(row for row in ROWS if row.name == "endpoint")


@pytest.fixture
def bound():
    """A UDP socket on loopback, which the arm closes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


@pytest.mark.parametrize("peer", [UVLOOP, QH3, AIOFASTNET], ids=lambda peer: peer.name)
async def test_every_peer_is_opened_by_a_transport_of_its_own(bound, peer):
    opened = []

    async def open_and_keep(factory, sock):
        opened.append(await peer.open(factory, sock))
        return opened[0]

    async with EndpointDrain(open_and_keep, bound, 1):
        package = type(opened[0]).__module__.split(".")[0]

    own = type(asyncio.get_running_loop()).__module__.split(".")[0]
    assert package == (own if peer is UVLOOP else peer.name)
    assert bound.fileno() == -1


@pytest.mark.parametrize("checking", [False, True])
@pytest.mark.parametrize("peer", [ASYNCIO, QH3, AIOFASTNET], ids=lambda peer: peer.name)
async def test_an_endpoint_drains_fill_after_fill(bound, peer, checking):
    queue = Queue(60, (10, 900), 4)

    async with EndpointDrain(peer.open, bound, queue.packets) as drain:
        drain.checking = checking
        with Filler(queue, bound.getsockname()) as filler:
            assert await drain.time(filler) > 0
            assert await drain.time(filler) > 0


async def test_an_endpoint_that_alters_packets_is_an_error_not_a_figure(bound):
    async with EndpointDrain(_delivering(lambda data: [data[1:]]), bound, 2) as drain:
        drain.checking = True
        with (
            Filler(Queue(2, (64, 64)), bound.getsockname()) as filler,
            pytest.raises(CountError, match="126 of 128 bytes"),
        ):
            await drain.time(filler)


async def test_an_endpoint_that_delivers_twice_is_an_error_not_a_figure(bound):
    async with EndpointDrain(_delivering(lambda data: [data, data]), bound, 1) as drain:
        with (
            Filler(Queue(1, (64, 64)), bound.getsockname()) as filler,
            pytest.raises(CountError, match="1 packets came that were not sent"),
        ):
            await drain.time(filler)


async def test_packets_between_fills_are_an_error(bound):
    async with EndpointDrain(open_ours, bound, 1) as drain:
        with Filler(Queue(1, (64, 64)), bound.getsockname()) as filler:
            await drain.time(filler)
            drain._counting.datagram_received(b"", None)
            drain.checking = True
            with pytest.raises(CountError, match="not sent"):
                await drain.time(filler)


def _delivering(change):
    """An opener of transports that deliver what ``change`` makes of each payload."""

    async def open_changed(factory, sock):
        transport = await open_ours(factory, sock)
        set_protocol = transport.set_protocol

        def set_changed(protocol):
            received = type(protocol).datagram_received

            def deliver(data, addr):
                for changed in change(data):
                    received(protocol, changed, addr)

            protocol.datagram_received = deliver
            set_protocol(protocol)

        transport.set_protocol = set_changed
        return transport

    return open_changed


@pytest.mark.parametrize("summed", [False, True])
async def test_bytes_are_added_up_in_timed_fills_only_if_asked_for(monkeypatch, summed):
    checked = []
    time = EndpointDrain.time

    async def noting(drain, filler):
        checked.append(drain.checking)
        return await time(drain, filler)

    monkeypatch.setattr(EndpointDrain, "time", noting)
    row = attrs.evolve(ENDPOINT, queue=Queue(256, (64, 64)))

    await bars.measure(row, "this loop", rounds=1, repeats=2, summed=summed)

    assert checked == [True, summed, summed] * 2


def test_a_rival_that_is_not_installed_is_named_and_left_out(monkeypatch, capsys):
    monkeypatch.setattr(importlib.metadata, "version", _missing)
    few = ["--queue", "64", "--rounds", "1", "--repeat", "1"]

    assert bars.main([*few, "--only", "qh3"]) == 0

    printed = capsys.readouterr()
    assert printed.out.splitlines() == [bars.HEADING]
    assert printed.err == "qh3 is not installed: pip install 'aiorecv[bench]'\n"


def _missing(name):
    raise importlib.metadata.PackageNotFoundError(name)
