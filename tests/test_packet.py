"""AF_PACKET sockets: frames byte-exact and in order, only those that come in."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

import pytest

import aiorecv
from aiorecv import Metadata
from tests.frames import OURS, address, frame, new_wire, receive_all, send_as_one, tcp_frame
from tests.helpers import descriptors
from tests.namespaces import add_veth, new_network


@pytest.fixture
def wire():
    """A socket whose frames come in by ``veth0``, in a network of their own."""
    with new_wire() as sock:
        yield sock


@pytest.fixture
async def receiver(wire):
    async with aiorecv.open_packet("veth0", protocol=OURS) as opened:
        yield opened


async def test_frames_come_as_they_were_sent_and_in_order(receiver, wire):
    frames = [frame(bytes([number]) * (46 + 13 * number)) for number in range(100)]
    for one in frames:
        wire.send(one)

    received = await receive_all(receiver, len(frames))

    assert received == [(one, address()) for one in frames]
    assert receiver.local_addr == ("veth0", OURS, 0, 1, _hardware_address("veth0"))
    assert receiver.remote_addr is None


async def test_addresses_are_those_that_recvfrom_gives(receiver, wire):
    senders = [1, 2, 3, 2, 1, 200]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as other:
        other.bind(("veth0", OURS))
        for source in senders:
            wire.send(frame(bytes(50), source))

        received = await receive_all(receiver, len(senders))

        assert received == [other.recvfrom(2048) for _ in senders]
    assert [addr for _, addr in received] == [address(source) for source in senders]


async def test_more_senders_than_a_table_holds_keep_their_addresses(receiver, wire):
    numbers = list(range(0, 20_000, 3))
    for start in range(0, len(numbers), 100):
        some = numbers[start : start + 100]
        for number in some:
            hardware = b"\x02\0" + number.to_bytes(4, "big")
            wire.send(b"\xff" * 6 + hardware + struct.pack("!H", OURS) + bytes(50))

        received = await receive_all(receiver, len(some))

        assert [int.from_bytes(addr[-1][2:], "big") for _, addr in received] == some


async def test_only_what_comes_in_is_received(wire):
    async with aiorecv.open_packet("veth0") as receiver:  # of one protocol the kernel tells no more
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as ours:
            ours.bind(("veth0", 0))
            ours.send(frame(b"going out".ljust(46)))
        wire.send(frame(b"coming in".ljust(46)))

        received = await receive_all(receiver, 1)

        assert received == [(frame(b"coming in".ljust(46)), address())]
        assert receiver.receive_nowait() is None


async def test_every_protocol_is_received_unless_one_is_asked_for(wire):
    async with (
        aiorecv.open_packet("veth0") as every,
        aiorecv.open_packet("veth0", protocol=0x88B6) as one,
    ):
        for protocol in (OURS, 0x88B6):
            wire.send(frame(bytes(50), protocol=protocol))

        received = [addr[1] for _, addr in await receive_all(every, 2)]

        assert received == [OURS, 0x88B6]
        assert [addr[1] for _, addr in await receive_all(one, 1)] == [0x88B6]


async def test_no_frame_of_another_interface_is_received(wire):
    add_veth("veth2", "veth3")
    flooding = True

    def flood() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.bind(("veth3", 0))
            while flooding:
                sock.send(frame(b"elsewhere".ljust(46)))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        for _ in range(5):
            async with aiorecv.open_packet("veth0", protocol=OURS) as receiver:
                wire.send(frame(b"here".ljust(46)))
                received = await receive_all(receiver, 1)
                assert received == [(frame(b"here".ljust(46)), address())]
                assert receiver.receive_nowait() is None
    finally:
        flooding = False
        thread.join()


@pytest.mark.parametrize("tpid", [0x8100, 0x88A8])
async def test_the_tag_of_a_vlan_is_told_and_taken_off(wire, tpid):
    tagged = frame(struct.pack("!HH", 0x6007, OURS) + b"tagged".ljust(46), protocol=tpid)
    plain = frame(b"plain".ljust(46))
    async with aiorecv.open_packet("veth0", metadata=Metadata.VLAN) as receiver:
        wire.send(tagged)
        wire.send(plain)

        packets = []
        async for batch in receiver:
            packets += batch.packets()
            if len(packets) == 2:
                break

    assert [(packet.data, packet.vlan) for packet in packets] == [
        (frame(b"tagged".ljust(46)), (0x6007, tpid)),
        (plain, None),
    ]
    assert [packet.length for packet in packets] == [60, 60]


async def test_times_and_drops_are_told(wire):
    asked = Metadata.TIMESTAMP | Metadata.DROPS | Metadata.VLAN | Metadata.RAW
    async with aiorecv.open_packet("veth0", protocol=OURS, metadata=asked) as receiver:
        wire.send(frame(bytes(50)))

        async for batch in receiver:
            (packet,) = batch.packets()
            break

    assert packet.timestamp_ns > 10**18
    assert packet.drops == 0
    assert {kind for _, kind, _ in packet.raw} >= {8}  # PACKET_AUXDATA


async def test_what_only_ip_sockets_tell_is_refused(wire):
    before = descriptors()

    with pytest.raises(ValueError, match="only IP sockets"):
        await aiorecv.open_packet("veth0", metadata=Metadata.TTL)

    await _until(lambda: descriptors() == before)


async def test_a_frame_of_the_largest_size_is_whole(wire):
    async with aiorecv.open_packet("lo", protocol=0x0800) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.sendto(bytes(65_507), sock.getsockname())

        ((data, addr),) = await receive_all(receiver, 1)

    assert len(data) == 65_507 + 8 + 20 + 14
    assert addr[:2] == ("lo", 0x0800)
    assert receiver.statistics().truncated == 0


async def test_a_frame_that_gso_made_comes_whole(wire):
    sent = tcp_frame(63_000)
    async with aiorecv.open_packet("veth0", protocol=0x0800) as receiver:
        send_as_one(wire, sent)

        ((data, addr),) = await receive_all(receiver, 1)

    assert data[:50] + bytes(2) + data[52:] == sent  # but for the checksum
    assert addr == address(protocol=0x0800)


async def test_what_came_and_what_was_dropped_is_what_was_sent(wire):
    sent = 2_000
    async with aiorecv.open_packet("veth0", protocol=OURS, receive_buffer_size=None) as receiver:
        receiver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
        for number in range(sent):
            wire.send(frame(number.to_bytes(4, "big").ljust(46)))
            if number == sent // 2:  # the kernel forgets what it has told
                assert receiver.statistics().kernel_drops > 0

        received = 0
        while batch := receiver.receive_nowait():
            received += len(batch)
            batch.release()
        statistics = receiver.statistics()

    assert 0 < received < sent
    assert received + statistics.kernel_drops == sent
    assert receiver.statistics().kernel_drops == statistics.kernel_drops


async def test_drops_of_before_are_not_counted(wire):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 5_000)
        sock.bind(("veth0", OURS))
        for _ in range(1_000):
            wire.send(frame(bytes(50)))

        receiver = aiorecv.from_socket(sock)

        assert receiver.statistics().kernel_drops == 0
        receiver.close()


@pytest.mark.parametrize("kind", [socket.SOCK_RAW, socket.SOCK_DGRAM], ids=["raw", "cooked"])
async def test_a_packet_socket_that_exists_is_received_from_and_given_back(wire, kind):
    with socket.socket(socket.AF_PACKET, kind, 0) as sock:
        sock.bind(("veth0", OURS))
        receiver = aiorecv.from_socket(sock, metadata=Metadata.VLAN)
        wire.send(frame(b"one".ljust(46)))

        ((data, addr),) = await receive_all(receiver, 1)

        assert data == (b"" if kind == socket.SOCK_DGRAM else frame(b"")) + b"one".ljust(46)
        assert addr == address()
        assert receiver.detach() is sock
        assert sock.getsockopt(263, 8) == 0  # PACKET_AUXDATA
        assert sock.fileno() != -1


async def test_an_endpoint_on_a_packet_socket_is_called_with_frames(wire):
    class Noting(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            told.set_result((data, addr))

    told = asyncio.get_running_loop().create_future()
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind(("veth0", OURS))
    transport, _ = await aiorecv.create_datagram_endpoint(Noting, sock=sock)
    wire.send(frame(b"one".ljust(46)))

    assert await told == (frame(b"one".ljust(46)), address())
    transport.close()


async def test_promiscuous_receives_frames_to_others(wire):
    for promiscuous in (False, True):
        async with aiorecv.open_packet("veth0", protocol=OURS, promiscuous=promiscuous) as receiver:
            assert _is_promiscuous("veth0") is promiscuous
            wire.send(frame(bytes(50), to="020000000099"))
            ((_, addr),) = await receive_all(receiver, 1)
            assert addr[2] == socket.PACKET_OTHERHOST

        await _until(lambda: not _is_promiscuous("veth0"))


async def test_closing_leaves_no_descriptor(wire):
    before = descriptors()
    receiver = await aiorecv.open_packet("veth0")

    receiver.close()

    assert receiver.fileno() == -1
    await _until(lambda: descriptors() == before)


async def test_a_cancelled_opening_leaves_nothing_open(wire):
    before = descriptors()
    task = asyncio.ensure_future(aiorecv.open_packet("veth0").__aenter__())
    await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await _until(lambda: descriptors() == before)


async def test_names_are_those_of_the_sockets_own_network(wire):
    async with aiorecv.open_packet("veth0", protocol=OURS) as receiver:
        wire.send(frame(bytes(50)))
        with new_network():
            ((_, addr),) = await receive_all(receiver, 1)

    assert addr == address()


async def test_an_unknown_interface_is_named(wire):
    before = descriptors()

    with pytest.raises(OSError, match="interface='nowhere'") as caught:
        await aiorecv.open_packet("nowhere")

    assert caught.value.errno == 19  # ENODEV
    assert descriptors() == before


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"interface": 3}, TypeError, "interface is a name"),
        ({"interface": ""}, ValueError, "from 1 to 15 bytes"),
        ({"interface": "x" * 16}, ValueError, "from 1 to 15 bytes"),
        ({"interface": "a\0b"}, ValueError, "from 1 to 15 bytes"),
        ({"protocol": "ip"}, TypeError, "protocol is a number"),
        ({"protocol": True}, TypeError, "protocol is a number"),
        ({"protocol": 0}, ValueError, "protocol=0x0"),
        ({"protocol": 0x10000}, ValueError, "protocol=0x10000"),
        ({"promiscuous": 1}, TypeError, "promiscuous is True or False"),
        ({"receive_buffer_size": 0}, ValueError, "receive_buffer_size=0"),
        ({"slot_size": 0}, ValueError, "slot_size=0"),
    ],
)
async def test_wrong_arguments_are_refused_at_the_call(arguments, error, said):
    with pytest.raises(error, match=said):
        aiorecv.open_packet(**{"interface": "lo", **arguments})


async def test_gro_is_refused(wire):
    with pytest.raises(ValueError, match="gro=True"):
        await aiorecv.open_packet("lo", gro=True)


def test_without_the_capability_the_error_names_it(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become an ordinary user")
    program = (
        "import asyncio, os, aiorecv\n"
        "os.seteuid(65534)\n"
        "async def main():\n"
        "    await aiorecv.open_packet('lo')\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "except PermissionError as error:\n"
        "    print(error)\n"
        "os.seteuid(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "CAP_NET_RAW" in done.stdout, done.stderr


def _hardware_address(interface: str) -> Any:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((interface, 0))
        return sock.getsockname()[4]


def _is_promiscuous(interface: str) -> bool:
    """By the count of those that ask for it: net/core/dev.c."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        head = struct.pack("=IHHII", 32, 18, 1, 1, 0)  # RTM_GETLINK
        sock.send(head + struct.pack("=BxHiII", 0, 0, socket.if_nametoindex(interface), 0, 0))
        answer = sock.recv(65_536)
    position = 32
    while position < len(answer):
        size, kind = struct.unpack_from("=HH", answer, position)
        if kind == 30:  # IFLA_PROMISCUITY
            return any(answer[position + 4 : position + 8])
        position += -(-size // 4) * 4
    raise AssertionError("the kernel does not tell")


async def _until(condition) -> None:
    """What is closed in a thread is closed soon."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
