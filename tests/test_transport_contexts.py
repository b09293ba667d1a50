"""Callbacks run in the context that was current when the endpoint was created."""

from __future__ import annotations

import asyncio
import socket
from contextvars import ContextVar, copy_context

import aiorecv
from tests.endpoints import Noting, NotingBatches, endpoint, fixed, name_of, numbered, queue
from tests.receiving import passes

VALUE: ContextVar[str] = ContextVar("VALUE", default="none")


class Seeing(Noting):
    """Notes by the callback's name what it saw."""

    def __init__(self):
        super().__init__()
        self.saw: dict[str, set[str]] = {}

    def _see(self, name):
        self.saw.setdefault(name, set()).add(VALUE.get())

    def connection_made(self, transport):
        self._see("connection_made")
        super().connection_made(transport)

    def datagram_received(self, data, addr):
        self._see("datagram_received")
        super().datagram_received(data, addr)

    def error_received(self, exc):
        self._see("error_received")
        super().error_received(exc)

    def pause_writing(self):
        self._see("pause_writing")
        super().pause_writing()

    def resume_writing(self):
        self._see("resume_writing")
        super().resume_writing()

    def connection_lost(self, exc):
        self._see("connection_lost")
        super().connection_lost(exc)


async def created(make=Seeing, **arguments):
    """An endpoint made where VALUE was "creation"; it is something else here."""
    VALUE.set("creation")
    transport, protocol = await aiorecv.create_datagram_endpoint(make, **arguments)
    VALUE.set("elsewhere")
    return transport, protocol


async def test_reading_and_its_end():
    transport, protocol = await created(local_addr=("127.0.0.1", 0))
    queue(transport, *numbered(3))
    await protocol.got(3)
    transport.close()
    await protocol.lost

    assert protocol.saw == {
        "connection_made": {"creation"},
        "datagram_received": {"creation"},
        "connection_lost": {"creation"},
    }


async def test_reading_that_was_resumed_elsewhere():
    transport, protocol = await created(local_addr=("127.0.0.1", 0), **fixed())
    protocol.acts = {1: transport.pause_reading}
    queue(transport, *numbered(3))
    await protocol.got(2)
    queue(transport, b"later")
    await passes(3)

    transport.resume_reading()
    await protocol.got(4)

    assert protocol.saw["datagram_received"] == {"creation"}
    transport.abort()
    await protocol.lost


async def test_what_the_end_of_a_turn_has_left():
    transport, protocol = await created(local_addr=("127.0.0.1", 0), turn_limit=1e-9, **fixed(128))
    queue(transport, *numbered(100))

    await protocol.got(100)

    assert protocol.saw["datagram_received"] == {"creation"}
    transport.abort()
    await protocol.lost


async def test_errors_of_reading_and_of_sending():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        transport, protocol = await created(remote_addr=peer.getsockname())
    transport.sendto(b"refused")
    await protocol.until(lambda: len(protocol.events) == 2)
    transport.sendto(bytes(65_508))

    assert len(protocol.events) > 2
    assert protocol.saw["error_received"] == {"creation"}
    transport.abort()
    await protocol.lost


async def test_the_flow_of_writing():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs:
        transport, protocol = await created(sock=ours)
        transport.set_write_buffer_limits(0)
        while not transport.get_write_buffer_size():
            transport.sendto(b"x")
        while transport.get_write_buffer_size():
            theirs.recv(10)
            await passes(1)
        transport.close()
        await protocol.lost

    assert protocol.events == ["made", "pause", "resume", ("lost", None)]
    assert {name: protocol.saw[name] for name in ("pause_writing", "resume_writing")} == {
        "pause_writing": {"creation"},
        "resume_writing": {"creation"},
    }
    assert protocol.saw["connection_lost"] == {"creation"}


async def test_a_callback_may_do_anything_in_its_own_context():
    """No context is entered twice, which would be a RuntimeError."""

    class Busy(Seeing):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            self.transport.resume_reading()
            self.transport.sendto(b"late", name_of(self.transport))
            self.transport.abort()

    transport, protocol = await created(Busy, local_addr=("127.0.0.1", 0))
    transport.pause_reading()
    transport.close()
    assert await protocol.lost is None

    assert protocol.events == ["made", ("lost", None)]


async def test_what_a_callback_sets_stays_out_of_the_creators_context():
    class Setting(Noting):
        def datagram_received(self, data, addr):
            VALUE.set("set by a callback")
            super().datagram_received(data, addr)

    VALUE.set("mine")
    async with endpoint(Setting) as (transport, protocol):
        queue(transport, b"x")
        await protocol.got(1)

        assert VALUE.get() == "mine"


async def test_batches_too():
    async def run():
        transport, protocol = await created(NotingBatches, local_addr=("127.0.0.1", 0))
        saw = []
        protocol.acts = {0: lambda: saw.append(VALUE.get())}
        queue(transport, *numbered(3))
        await protocol.got(3)
        transport.abort()
        await protocol.lost
        return saw

    assert await asyncio.create_task(run(), context=copy_context()) == ["creation"]
