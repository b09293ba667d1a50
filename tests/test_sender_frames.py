"""Senders on packet sockets: frames as they are, to where they are bound or told to send."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

import aiorecv
from tests.frames import OURS, address, frame, new_wire, receive_all

FRAMES = [frame(bytes([number]) * 46, number) for number in range(100)]


@pytest.fixture
def wire():
    """A socket whose frames come in by ``veth0``, in a network of their own."""
    with new_wire() as sock:
        yield sock


@pytest.mark.parametrize(
    "addr",
    [None, ("veth1", OURS), ("veth1", OURS, 0), ("veth1", OURS, 0, 1, b"\xff" * 6)],
    ids=["bound", "two", "three", "five"],
)
async def test_frames_arrive_as_they_are_and_in_order(wire, addr):
    async with aiorecv.open_packet("veth0", protocol=OURS) as receiver:
        sender = aiorecv.Sender(wire)

        await sender.send([(one, addr) for one in FRAMES])

        received = await receive_all(receiver, len(FRAMES))
    assert received == [(one, address(number)) for number, one in enumerate(FRAMES)]
    assert sender.statistics().packets == len(FRAMES)


async def test_a_receiver_answers_to_the_address_that_it_has_received(wire):
    async with (
        aiorecv.open_packet("veth0", protocol=OURS) as receiver,
        aiorecv.open_packet("veth1", protocol=OURS) as other,
    ):
        wire.send(FRAMES[1])
        ((data, addr),) = await receive_all(receiver, 1)

        assert aiorecv.Sender(receiver).send_nowait([(data, addr), (FRAMES[2], None)]) == 2

        got = [data for data, _ in await receive_all(other, 2)]
    assert got == [FRAMES[1], FRAMES[2]]


async def test_an_endpoint_sends_frames(wire):
    async with aiorecv.open_packet("veth0", protocol=OURS) as receiver:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.bind(("veth1", 0))
        transport, _ = await aiorecv.create_datagram_endpoint(asyncio.DatagramProtocol, sock=sock)

        transport.sendto(FRAMES[3], ("veth1", OURS))

        assert await receive_all(receiver, 1) == [(FRAMES[3], address(3))]
        transport.close()


async def test_more_addresses_than_a_table_holds_are_sent_to(wire):
    sender = aiorecv.Sender(wire)
    async with aiorecv.open_packet("veth0", protocol=OURS) as receiver:
        for start in range(0, 6_000, 100):
            packets = [
                (frame(bytes(46)), ("veth1", OURS, 0, 1, number.to_bytes(6, "big")))
                for number in range(start, start + 100)
            ]
            await sender.send(packets)
            await receive_all(receiver, 100)


async def test_an_unknown_interface_is_named(wire):
    sender = aiorecv.Sender(wire)

    with pytest.raises(OSError, match="interface='nowhere'") as caught:
        sender.send_nowait([(FRAMES[0], ("nowhere", OURS))])

    assert caught.value.errno == errno.ENODEV


@pytest.mark.parametrize(
    ("addr", "error", "said"),
    [
        ("veth1", TypeError, "addr is"),
        (("veth1",), TypeError, "addr is"),
        (("veth1", "ip"), TypeError, "addr is"),
        ((1, OURS), TypeError, "interface is a name"),
        (("veth1", OURS, 0, 0, "ff"), TypeError, "addr is"),
        (("veth1", 0x10000), ValueError, "16 bits"),
        (("veth1", OURS, 0, 0, bytes(9)), ValueError, "8 bytes"),
        (("veth1", OURS, 300), ValueError, "out of bounds"),
        (("veth1" * 4, OURS), ValueError, "from 1 to 15 bytes"),
    ],
)
async def test_what_is_no_address_is_refused(wire, addr, error, said):
    with pytest.raises(error, match=said):
        aiorecv.Sender(wire).send_nowait([(FRAMES[0], addr)])
