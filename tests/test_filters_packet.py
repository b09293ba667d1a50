"""``filter=`` on packet sockets: texts by link type, VLAN tags, programs that cut."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import threading

import pytest

import aiorecv
from aiorecv import Metadata
from aiorecv._filters import Filter, attached
from tests.frames import OURS, frame, new_wire, receive_all, send_as_one, tcp_frame
from tests.helpers import skip_without_libpcap
from tests.namespaces import add_address, new_network, set_down, set_up

_ACCEPT_20 = [(6, 0, 0, 20)]


@pytest.fixture
def wire():
    """A socket whose frames come in by ``veth0``, in a network of their own."""
    with new_wire() as sock:
        yield sock


def tagged(payload: bytes, vlan: int) -> bytes:
    """A frame with an 802.1Q tag."""
    return frame(struct.pack("!HH", vlan, OURS) + payload, protocol=0x8100)


async def test_only_what_the_text_says_is_received(wire):
    text = f"ether proto {OURS:#x} and ether src 02:00:00:00:00:02 and ether[14] = 0x61"
    frames = [frame(data.ljust(46), source) for source in (1, 2) for data in (b"a", b"b", b"a2")]
    async with aiorecv.open_packet("veth0", filter=text) as receiver:
        for one in frames:
            wire.send(one)

        received = await receive_all(receiver, 2)

        assert [data for data, _ in received] == [frames[3], frames[5]]
        assert receiver.receive_nowait() is None


@pytest.mark.parametrize(
    ("text", "hears"),
    [("vlan", [7, 8]), ("vlan 7", [7]), ("vlan 8 and ether[14] = 0x78", [8]), ("vlan 9", [])],
)
async def test_vlan_is_looked_for_where_the_kernel_has_put_it(wire, text, hears):
    async with (
        aiorecv.open_packet("veth0", filter=text, metadata=Metadata.VLAN) as receiver,
        aiorecv.open_packet("veth0", protocol=OURS) as other,
    ):
        wire.send(frame(b"x".ljust(46)))
        for number in (7, 8):
            wire.send(tagged(b"x".ljust(46), number))
        await receive_all(other, 3)  # all have come

        with contextlib.ExitStack() as batches:
            found = []
            while batch := receiver.receive_nowait():
                found += batches.enter_context(batch).packets()
            assert [packet.vlan for packet in found] == [(number, 0x8100) for number in hears]


async def test_vlan_needs_an_interface_that_is_up(wire):
    skip_without_libpcap()
    set_down("veth0")

    with pytest.raises(OSError, match="names vlan") as raised:
        await aiorecv.open_packet("veth0", filter="vlan 7")

    assert raised.value.errno == errno.ENETDOWN
    set_up("veth0")


async def test_a_program_that_cuts_tells_of_it(wire):
    sent = frame(bytes(range(200)))
    async with aiorecv.open_packet("veth0", protocol=OURS, filter=_ACCEPT_20) as receiver:
        wire.send(sent)
        wire.send(sent)

        with await receiver.receive() as batch:
            packets = list(batch.packets())

        assert [packet.data for packet in packets] == [sent[:20]] * len(packets)
        assert all(packet.truncated and packet.length == len(sent) for packet in packets)
        assert all(packet.vlan is None for packet in packets)
        assert receiver.statistics().truncated == len(packets)


async def test_a_text_cuts_nothing(wire):
    add_address("veth0", "10.0.0.1")
    sent = tcp_frame(63_000)
    async with aiorecv.open_packet("veth0", filter="tcp and greater 60000") as receiver:
        send_as_one(wire, sent)

        ((data, _),) = await receive_all(receiver, 1)

        assert len(data) == len(sent)
        assert receiver.statistics().truncated == 0


async def test_lo_has_ethernet_headers():
    with new_network():
        async with aiorecv.open_packet("lo", filter="udp and ip[28] = 0x61") as receiver:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for data in (b"no", b"a yes"):
                    sock.sendto(data, ("127.0.0.1", 9))

            ((data, _),) = await receive_all(receiver, 1)

    assert data.endswith(b"a yes")


async def test_a_tunnel_has_ip_headers():
    with new_network(), _new_tun("tun0") as tun:
        set_up("tun0")
        async with aiorecv.open_packet("tun0", filter="udp dst port 53") as receiver:
            for port in (52, 53, 54):
                head = struct.pack("!BBHHHBBH", 0x45, 0, 32, 0, 0, 64, 17, 0)
                os.write(tun, head + bytes(8) + struct.pack("!HHHH4x", 1, port, 12, 0))

            ((data, _),) = await receive_all(receiver, 1)

    assert data[22:24] == (53).to_bytes(2, "big")


def test_a_text_is_refused_on_links_that_libpcap_is_not_told_of():
    with pytest.raises(ValueError, match="'can0' is of hardware type 280: give instructions"):
        Filter("udp").for_frames(280, "can0")


async def test_a_text_that_does_not_compile_is_refused_with_the_reason(wire):
    with pytest.raises(ValueError, match=r"does not compile: .*syntax error"):
        await aiorecv.open_packet("veth0", filter="udp and and")


async def test_not_one_frame_gets_past_while_opening(wire):
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            for data in (b"bad", b"good"):
                wire.send(frame(data.ljust(46)))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        for number in range(16):
            fanout = aiorecv.Fanout() if number % 2 else None
            async with aiorecv.open_packet(
                "veth0", filter="ether[14:4] = 0x676f6f64", fanout=fanout
            ) as receiver:
                with await receiver.receive() as batch:
                    assert {data[14:18] for data in batch.payloads()} == {b"good"}
    finally:
        stop.set()
        thread.join()


async def test_a_bound_socket_is_filtered_by_its_interface_and_given_back(wire):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind(("veth0", OURS))
        receiver = aiorecv.from_socket(sock, filter="ether[14] = 0x61")
        for data in (b"b", b"a"):
            wire.send(frame(data.ljust(46)))

        ((data, _),) = await receive_all(receiver, 1)

        assert data[14:15] == b"a"
        receiver.detach()
        assert attached(sock) == []


async def test_a_socket_that_cuts_is_given_back_without_auxiliary_data(wire):
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as sock:
        sock.bind(("veth0", OURS))
        receiver = aiorecv.from_socket(sock, filter=_ACCEPT_20)
        wire.send(frame(bytes(50)))

        with await receiver.receive() as batch:
            (packet,) = batch.packets()

        assert (len(packet.data), packet.length, packet.truncated) == (20, 50, True)
        receiver.detach()
        assert sock.getsockopt(263, 8) == 0  # PACKET_AUXDATA


async def test_a_text_is_refused_on_sockets_it_has_no_one_meaning_for(wire):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        with pytest.raises(ValueError, match="bind sock first"):
            aiorecv.from_socket(sock, filter="udp")

        sock.bind(("veth0", OURS))
        with new_network(), pytest.raises(ValueError, match="another network namespace"):
            aiorecv.from_socket(sock, filter="udp")
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as sock:
        sock.bind(("veth0", OURS))
        with pytest.raises(ValueError, match="give instructions"):
            aiorecv.from_socket(sock, filter="udp")


@contextlib.contextmanager
def _new_tun(name: str):
    device = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(device, 0x400454CA, struct.pack("@16sH22x", name.encode(), 0x1001))  # TUNSETIFF
        yield device
    finally:
        os.close(device)
