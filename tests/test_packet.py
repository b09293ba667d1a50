"""AF_PACKET sockets: frames byte-exact and in order, only those that come in."""

from __future__ import annotations

import socket

import pytest

import aiorecv
from tests.namespaces import add_veth, new_network

FRAME = bytes.fromhex("ffffffffffff02000000000188b5")


@pytest.fixture
def wire():
    """In a network of its own, a socket whose frames come in by ``veth0``."""
    with new_network():
        add_veth("veth0", "veth1")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.bind(("veth1", 0))
            yield sock


async def test_frames_come_as_they_were_sent(wire):
    async with aiorecv.open_packet("veth0", protocol=0x88B5) as receiver:
        frames = [FRAME + bytes([number]) * 50 for number in range(100)]
        for frame in frames:
            wire.send(frame)

        received = []
        async for batch in receiver:
            received += batch
            if len(received) >= len(frames):
                break

    assert [data for data, _ in received] == frames
    assert {addr for _, addr in received} == {
        ("veth0", 0x88B5, socket.PACKET_BROADCAST, 1, b"\x02\0\0\0\0\x01")
    }
