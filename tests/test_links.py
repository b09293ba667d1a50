"""Links that go down, come up again, or are gone: packet sockets report it, and go on or end."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket

import pytest

import aiorecv
from aiorecv._packet_readiness import PacketReadiness
from tests.frames import OURS, address, frame, new_wire, receive_all, set_up_again
from tests.namespaces import add_veth, new_network, remove, rename, set_down
from tests.receiving import until_waiting


@pytest.fixture
def wire():
    """A socket whose frames come in by ``veth0``, in a network of their own."""
    with new_wire() as sock:
        yield sock


@pytest.fixture
async def receiver(wire):
    async with aiorecv.open_packet("veth0", protocol=OURS) as opened:
        yield opened


def sends(wire, text: bytes):
    """Send a frame; returns it as it will be received."""
    data = frame(text.ljust(46))
    wire.send(data)
    return data, address()


def readiness_of(receiver) -> PacketReadiness:
    readiness = receiver._delivery._readiness
    assert isinstance(readiness, PacketReadiness)
    return readiness


async def down(receiver) -> None:
    """The next thing the receiver tells is that its link is down."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - by its number
        await receiver.receive()
    assert caught.value.errno == errno.ENETDOWN


async def test_a_link_that_goes_down_is_reported_once_and_frames_from_before_come_next(
    receiver, wire
):
    expected = [sends(wire, b"one"), sends(wire, b"two")]
    set_down("veth0")

    await down(receiver)

    assert await receive_all(receiver, 2) == expected
    assert receiver.receive_nowait() is None
    assert receiver.statistics().errors == 1


async def test_a_task_that_waits_hears_of_it_and_receives_once_the_link_is_up_again(receiver, wire):
    for turn in range(2):
        waiting = asyncio.ensure_future(down(receiver))
        await until_waiting(waiting)
        set_down("veth0")
        await waiting
        set_up_again(wire)
        receiving = asyncio.ensure_future(receive_all(receiver, 1))
        await until_waiting(receiving)

        expected = sends(wire, b"%d" % turn)

        assert await receiving == [expected]


async def test_on_error_takes_it_and_the_task_goes_on_waiting(wire):
    errors: list[OSError] = []
    async with aiorecv.open_packet("veth0", protocol=OURS, on_error=errors.append) as receiver:
        waiting = asyncio.ensure_future(receive_all(receiver, 1))
        await until_waiting(waiting)
        set_down("veth0")
        while not errors:
            await asyncio.sleep(0)
        set_up_again(wire)

        expected = sends(wire, b"up again")

        assert await waiting == [expected]
    assert [error.errno for error in errors] == [errno.ENETDOWN]


async def test_a_link_that_is_down_at_opening_is_waited_for(wire):
    set_down("veth0")
    async with aiorecv.open_packet("veth0", protocol=OURS) as receiver:
        await down(receiver)
        set_up_again(wire)

        expected = sends(wire, b"up")

        assert await receive_all(receiver, 1) == [expected]


@pytest.mark.parametrize("before", ["up", "down", "down at opening"])
async def test_a_receiver_whose_interface_is_removed_ends_saying_so(wire, before):
    if before == "down at opening":
        set_down("veth0")
    async with aiorecv.open_packet("veth0", protocol=OURS) as receiver:
        if before == "down":
            set_down("veth0")
        if before != "up":
            await down(receiver)
        waiting = asyncio.ensure_future(receiver.receive())
        await until_waiting(waiting)
        remove("veth0")
        if before == "up":
            with pytest.raises(OSError, match="Network is down"):
                await waiting
            waiting = asyncio.ensure_future(receiver.receive())

        with pytest.raises(OSError, match="'veth0' is gone") as caught:
            await waiting

        assert caught.value.errno == errno.ENODEV
        assert receiver.fileno() == -1
        with pytest.raises(aiorecv.ReceiverClosedError):
            await receiver.receive()
        assert receiver.statistics().last_error.errno == errno.ENODEV


async def test_iteration_raises_that_the_interface_is_gone(receiver):
    async def read() -> None:
        async for _ in receiver:
            pass

    set_down("veth0")
    await down(receiver)
    waiting = asyncio.ensure_future(read())
    await until_waiting(waiting)
    remove("veth0")

    with pytest.raises(OSError, match="'veth0' is gone"):
        await waiting


async def test_frames_that_were_queued_come_before_the_end(receiver, wire):
    expected = [data for data, _ in (sends(wire, b"one"), sends(wire, b"two"))]
    set_down("veth0")
    await down(receiver)
    remove("veth0")
    while receiver._reader.source._end is None:
        await asyncio.sleep(0.005)

    with await receiver.receive() as batch:
        # The socket knows no name of it any more, as recvfrom would not.
        assert list(batch) == [(data, address(interface="")) for data in expected]
    with pytest.raises(OSError, match="'veth0' is gone"):
        await receiver.receive()


async def test_an_endpoint_is_told_that_its_interface_is_gone(wire):
    class Noting(asyncio.DatagramProtocol):
        errors: list[OSError] = []  # noqa: RUF012 - one protocol

        def error_received(self, exc):
            self.errors.append(exc)

        def connection_lost(self, exc):
            lost.set_result(exc)

    lost = asyncio.get_running_loop().create_future()
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind(("veth0", OURS))
    await aiorecv.create_datagram_endpoint(Noting, sock=sock)
    set_down("veth0")
    while not Noting.errors:
        await asyncio.sleep(0)
    remove("veth0")

    assert (await lost).errno == errno.ENODEV
    assert [error.errno for error in Noting.errors] == [errno.ENETDOWN]


async def test_a_link_that_stays_down_costs_few_looks(receiver):
    readiness = readiness_of(receiver)
    looks = []
    look = type(readiness)._look_at_link

    def noted(self) -> None:
        looks.append(self._link_pause)
        look(self)

    set_down("veth0")
    await down(receiver)
    waiting = asyncio.ensure_future(receiver.receive())
    await until_waiting(waiting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(readiness), "_look_at_link", noted)
        readiness._link_timer.cancel()
        readiness._look_at_link_later()
        while len(looks) < 5:
            await asyncio.sleep(0.01)

    assert looks == [0.08, 0.16, 0.32, 0.5, 0.5]
    assert receiver.statistics().empty_reads < 5
    waiting.cancel()


@pytest.mark.parametrize("end", ["close", "detach", "drop"])
async def test_no_look_comes_after_the_end(wire, end):
    receiver = await aiorecv.open_packet("veth0", protocol=OURS)
    set_down("veth0")
    await down(receiver)
    readiness = readiness_of(receiver)
    assert readiness._link_timer is not None

    if end == "close":
        receiver.close()
    elif end == "detach":
        receiver.detach().close()
    else:
        with pytest.warns(ResourceWarning, match="unclosed"):
            del receiver
            gc.collect()

    assert readiness._link_timer is None


async def test_a_link_that_comes_back_under_another_name_is_called_by_it(receiver, wire):
    first = sends(wire, b"one")
    assert await receive_all(receiver, 1) == [first]
    set_down("veth0")
    await down(receiver)
    rename("veth0", "other0")
    set_up_again(wire, "other0")

    data, _ = sends(wire, b"two")

    assert await receive_all(receiver, 1) == [(data, address(interface="other0"))]


async def test_the_link_is_looked_at_in_the_sockets_own_network(wire):
    async with aiorecv.open_packet("veth0", protocol=OURS) as receiver:
        set_down("veth0")
        await down(receiver)
        with new_network():
            add_veth("veth0", "veth1")
            readiness = readiness_of(receiver)
            readiness._look_at_link()
            assert readiness._link_timer is not None
