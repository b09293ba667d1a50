"""What the kernel tells of each packet beside its bytes."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

import aiorecv
from aiorecv import Metadata
from aiorecv._options import gro_forbidden

EVERYTHING = (
    Metadata.TIMESTAMP
    | Metadata.DESTINATION
    | Metadata.TOS
    | Metadata.TTL
    | Metadata.DROPS
    | Metadata.RAW
)


def send(receiver, data=b"x", *, to, tos=0, ttl=64):
    """Send one datagram with a TOS and a TTL of its own."""
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, ttl)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
        sock.sendto(data, (to, receiver.local_addr[1]))


async def only(receiver) -> aiorecv.Packet:
    """The one packet that is queued."""
    with await receiver.receive() as batch:
        packets: list[aiorecv.Packet] = list(batch.packets())
    assert len(packets) == 1
    return packets[0]


@pytest.mark.parametrize(
    ("bound", "to", "destination"),
    [
        ("0.0.0.0", "127.0.0.7", "127.0.0.7"),
        ("::1", "::1", "::1"),
        ("::", "::1", "::1"),
        ("::", "127.0.0.7", "::ffff:127.0.0.7"),
    ],
    ids=["ipv4", "ipv6", "dual-stack ipv6", "mapped ipv4"],
)
async def test_all_at_once_of_each_family(bound, to, destination):
    async with aiorecv.open_udp((bound, 0), metadata=EVERYTHING) as receiver:
        before = time.time_ns()
        send(receiver, to=to, tos=0x2E, ttl=33)
        packet = await only(receiver)

        assert before - 10**9 < packet.timestamp_ns < time.time_ns() + 10**9
        assert packet.destination == destination
        assert packet.interface == socket.if_nametoindex("lo")
        assert (packet.tos, packet.ttl, packet.drops) == (0x2E, 33, 0)
        assert packet.raw
        assert receiver.statistics().ancillary_truncated == 0


async def test_nothing_is_told_that_was_not_asked_for(receiver, sender):
    sender.send(b"x")

    packet = await only(receiver)

    unasked = ("timestamp_ns", "destination", "interface", "tos", "ttl", "drops", "raw")
    assert [getattr(packet, name) for name in unasked] == [None] * len(unasked)


@pytest.mark.parametrize("flag", [flag for flag in Metadata if flag is not Metadata.VLAN])
async def test_each_alone_tells_just_what_it_says(flag):
    told = {
        Metadata.TIMESTAMP: {"timestamp_ns"},
        Metadata.DESTINATION: {"destination", "interface"},
        Metadata.TOS: {"tos"},
        Metadata.TTL: {"ttl"},
        Metadata.DROPS: {"drops"},
        Metadata.RAW: {"raw"},
    }
    async with aiorecv.open_udp(("127.0.0.1", 0), metadata=flag) as receiver:
        send(receiver, to="127.0.0.1")
        packet = await only(receiver)

    names = set().union(*told.values())
    assert {name for name in names if getattr(packet, name) is not None} == told[flag]


async def test_timestamps_are_an_array_in_order_of_arrival():
    async with aiorecv.open_udp(("127.0.0.1", 0), metadata=Metadata.TIMESTAMP) as receiver:
        for _ in range(5):
            send(receiver, to="127.0.0.1")
        times = []
        async for batch in receiver:
            assert (batch.timestamps_ns.format, batch.timestamps_ns.readonly) == ("Q", True)
            assert len(batch.timestamps_ns) == len(batch)
            times += batch.timestamps_ns
            assert list(batch.copy().timestamps_ns) == list(batch.timestamps_ns)
            if len(times) == 5:
                break

    assert times == sorted(times)
    assert times[0] > 10**18


async def test_timestamps_that_were_not_asked_for_are_refused(receiver, sender):
    sender.send(b"x")

    with await receiver.receive() as batch, pytest.raises(ValueError, match=r"Metadata\.TIMESTAMP"):
        _ = batch.timestamps_ns


async def test_all_segments_of_a_train_share_its_metadata_and_the_copy_keeps_it():
    asked = Metadata.TTL | Metadata.TIMESTAMP
    gro = None if gro_forbidden() else True
    async with aiorecv.open_udp(("127.0.0.1", 0), metadata=asked, gro=gro) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.IPPROTO_UDP, 103, 10)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
            sock.sendto(bytes(25), receiver.local_addr)
            sock.setsockopt(socket.IPPROTO_UDP, 103, 0)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 7)
            sock.sendto(b"single", receiver.local_addr)

        found = []
        while len(found) < 4:
            with await receiver.receive() as batch:
                packets = list(batch.packets())
                copied = list(batch.copy().packets())
                assert [attrs(packet) for packet in packets] == [attrs(copy) for copy in copied]
                found += [(len(packet.data), packet.ttl) for packet in packets]

    assert found == [(10, 9), (10, 9), (5, 9), (6, 7)]


def attrs(packet):
    return {name: getattr(packet, name) for name in packet.__slots__ if name != "__weakref__"}


async def test_drops_count_what_was_lost_before_a_packet():
    async with aiorecv.open_udp(
        ("127.0.0.1", 0), metadata=Metadata.DROPS, gro=False, receive_buffer_size=None
    ) as receiver:
        receiver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for _ in range(200):
            send(receiver, to="127.0.0.1")
        kept = 0
        while (batch := receiver.receive_nowait()) is not None:
            with batch:
                kept += len(batch)
        send(receiver, to="127.0.0.1")

        packet = await only(receiver)

        assert packet.drops == 200 - kept > 0
        assert receiver.statistics().kernel_drops == packet.drops


async def test_raw_data_is_level_type_and_bytes():
    async with aiorecv.open_udp(("127.0.0.1", 0), metadata=Metadata.RAW | Metadata.TTL) as receiver:
        send(receiver, to="127.0.0.1", ttl=5)
        packet = await only(receiver)

    assert (socket.IPPROTO_IP, socket.IP_TTL, (5).to_bytes(4, "little")) in packet.raw


async def test_wrong_metadata_is_refused_at_once():
    with pytest.raises(TypeError, match="metadata is a Metadata"):
        aiorecv.open_udp(("127.0.0.1", 0), metadata=1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs, pytest.raises(ValueError, match="only IP sockets"):
        aiorecv.from_socket(ours, metadata=Metadata.TTL)
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        with (
            socket.socket(family, socket.SOCK_DGRAM) as sock,
            pytest.raises(ValueError, match="only AF_PACKET sockets"),
        ):
            aiorecv.from_socket(sock, metadata=Metadata.VLAN)


async def test_detach_turns_off_what_was_asked_for():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.bind(("::1", 0))
        receiver = aiorecv.from_socket(sock, metadata=EVERYTHING)
        assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS)

        receiver.detach()

        assert not sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS)
        assert not sock.getsockopt(socket.SOL_SOCKET, 35)
        assert not sock.getsockopt(socket.SOL_SOCKET, 40)
    await asyncio.sleep(0)
