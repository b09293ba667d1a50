"""loop_factory() makes loops of any base whose datagram endpoints are ours."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

import aiorecv
from tests.endpoints import LOOPBACK, Noting, name_of, queue
from tests.receiving import passes

BASES = [
    pytest.param(None, id="default"),
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(asyncio.SelectorEventLoop, id="class"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
    pytest.param(uvloop.Loop, id="uvloop class"),
]


def run(base, main):
    """What a coroutine function returns, on a loop of ``base``."""
    with asyncio.Runner(loop_factory=aiorecv.loop_factory(base)) as runner:
        return runner.run(main())


@pytest.mark.parametrize("base", BASES)
def test_every_endpoint_of_the_loop_is_ours(base):
    async def main():
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_datagram_endpoint(Noting, LOOPBACK)
        queue(transport, b"heard")
        await protocol.got(1)
        transport.close()
        await protocol.lost
        return type(transport), protocol.packets

    assert run(base, main) == (aiorecv.DatagramTransport, [b"heard"])


@pytest.mark.parametrize("base", BASES)
def test_the_receive_options_are_taken_too(base):
    async def main():
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_datagram_endpoint(
            Noting, local_addr=LOOPBACK, window=aiorecv.FixedWindow(3), receive_buffer_size=None
        )
        transport.abort()
        await protocol.lost
        return transport.statistics().window_slots

    assert run(base, main) == 3


@pytest.mark.parametrize("base", BASES)
def test_the_loop_is_of_its_bases_type_and_all_else_is_its_own(base):
    plain = (base or asyncio.new_event_loop)()
    ours = aiorecv.loop_factory(base)()

    try:
        assert type(ours) is type(plain)
        changed = {
            name
            for name in dir(plain)
            if getattr(ours, name, None) is not getattr(plain, name, None)
            and callable(getattr(plain, name))
            and getattr(getattr(ours, name), "__func__", None)
            is not getattr(getattr(plain, name), "__func__", None)
        }
        assert changed == {"create_datagram_endpoint"}
        assert set(vars(ours)) - set(vars(plain)) == {"create_datagram_endpoint"}
    finally:
        plain.close()
        ours.close()


def test_loops_made_elsewhere_are_left_alone():
    aiorecv.loop_factory(asyncio.SelectorEventLoop)().close()
    loop = asyncio.SelectorEventLoop()

    try:
        transport, _ = loop.run_until_complete(
            loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=LOOPBACK)
        )
        assert not isinstance(transport, aiorecv.DatagramTransport)
        transport.close()
        loop.run_until_complete(passes(2))
    finally:
        loop.close()


def test_streams_of_the_loop_are_its_own():
    async def main():
        async def echo(reader, writer):
            writer.write(await reader.read(10))
            writer.close()

        server = await asyncio.start_server(echo, *LOOPBACK)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"stream")
        answer = await reader.read()
        writer.close()
        server.close()
        return answer

    assert run(None, main) == b"stream"
    assert run(uvloop.new_event_loop, main) == b"stream"


def test_a_factory_makes_many_loops():
    make = aiorecv.loop_factory()
    one, two = make(), make()

    assert one is not two
    one.close()
    two.close()


def test_reuse_address_is_refused_as_uvloop_refuses_it():
    async def main():
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="reuse_address=True"):
            await loop.create_datagram_endpoint(Noting, local_addr=LOOPBACK, reuse_address=True)
        with pytest.warns(DeprecationWarning, match="reuse_address"):
            transport, protocol = await loop.create_datagram_endpoint(
                Noting, local_addr=LOOPBACK, reuse_address=False
            )
        sock = transport.get_extra_info("socket")
        reuses = sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        transport.close()
        await protocol.lost
        return type(transport), reuses

    assert run(uvloop.new_event_loop, main) == (aiorecv.DatagramTransport, 0)


def test_reuse_address_raises_what_uvloops_own_method_raises():
    async def attempt(value):
        loop = asyncio.get_running_loop()
        try:
            with pytest.warns(DeprecationWarning, match="reuse_address") as warned:
                transport, _ = await loop.create_datagram_endpoint(
                    asyncio.DatagramProtocol, local_addr=LOOPBACK, reuse_address=value
                )
        except ValueError as error:
            return str(error)
        transport.close()
        await passes(3)
        return str(warned[0].message)

    async def main():
        return await attempt(False)

    async def insisting():
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="reuse_address") as info:
            await loop.create_datagram_endpoint(Noting, local_addr=LOOPBACK, reuse_address=True)
        return str(info.value)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        theirs = runner.run(main()), runner.run(insisting())

    assert (run(uvloop.new_event_loop, main), run(uvloop.new_event_loop, insisting)) == theirs


@pytest.mark.parametrize("value", [True, False, None])
def test_reuse_address_is_unknown_where_the_base_does_not_take_it(value):
    async def main():
        loop = asyncio.get_running_loop()
        with pytest.raises(TypeError, match="reuse_address"):
            await loop.create_datagram_endpoint(Noting, local_addr=LOOPBACK, reuse_address=value)

    run(asyncio.new_event_loop, main)


@pytest.mark.parametrize("base", [5, "uvloop", asyncio.new_event_loop])
def test_a_base_that_cannot_be_called_is_refused(base):
    if callable(base):
        assert callable(aiorecv.loop_factory(base))
    else:
        with pytest.raises(TypeError, match="can't be called"):
            aiorecv.loop_factory(base)


def test_a_base_that_makes_no_loop_is_refused_when_it_is_used():
    make = aiorecv.loop_factory(lambda: 5)

    with pytest.raises(TypeError, match="no event loop"):
        make()


def test_a_base_whose_loops_take_no_attributes_is_refused_and_its_loop_closed():
    made = []

    class Closed(asyncio.SelectorEventLoop):
        def __setattr__(self, name, value):
            if name == "create_datagram_endpoint":
                raise AttributeError(name)
            super().__setattr__(name, value)

    def base():
        made.append(Closed())
        return made[0]

    with pytest.raises(TypeError, match="takes no attributes"):
        aiorecv.loop_factory(base)()

    assert made[0].is_closed()


def test_a_sender_of_a_loop_of_ours_may_be_any_endpoint():
    async def main():
        loop = asyncio.get_running_loop()
        server, heard = await loop.create_datagram_endpoint(Noting, local_addr=LOOPBACK)
        client, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=name_of(server)
        )
        client.sendto(b"asked")
        await heard.got(1)
        client.abort()
        server.abort()
        await heard.lost
        await passes(2)
        return heard.packets

    assert run(uvloop.new_event_loop, main) == [b"asked"]
    assert run(None, main) == [b"asked"]
