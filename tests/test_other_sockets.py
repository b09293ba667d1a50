"""Sockets that exist already, of every kind that gives packets; streams are refused."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aiorecv
from aiorecv import Metadata
from tests.helpers import descriptors
from tests.namespaces import add_veth, new_network
from tests.receiving import await_readable

ECHO_REQUEST, ECHO_REPLY = {4: 8, 6: 128}, {4: 0, 6: 129}
RTM_NEWLINK, RTM_GETLINK, RTMGRP_LINK = 16, 18, 1
NLMSG_DONE = 3


@pytest.fixture
def network() -> Iterator[None]:
    """A network of the test's own, in which anybody may ping."""
    with new_network():
        Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 2147483647")
        yield


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for raw sockets")


def memberships() -> str:
    """The groups that this network's interfaces are in."""
    return Path("/proc/thread-self/net/igmp6").read_text()


def echo_request(version: int, payload: bytes = b"ping") -> bytes:
    """An ICMP echo request; the kernel writes a ping socket's checksum, and ICMPv6's."""
    return struct.pack("!BBHHH", ECHO_REQUEST[version], 0, 0, 7, 1) + payload


async def drained(receiver: aiorecv.Receiver) -> list[tuple[bytes, aiorecv.Address]]:
    """What is queued now."""
    found = []
    while (batch := receiver.receive_nowait()) is not None:
        with batch:
            found += list(batch)
    return found


def all_from(twin: socket.socket) -> list[tuple[bytes, aiorecv.Address]]:
    """What ``socket.recvfrom`` gives of the same packets."""
    twin.setblocking(False)
    found = []
    while True:
        try:
            found.append(twin.recvfrom(1 << 18))
        except BlockingIOError:
            return found


# --- raw IP


@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")],
    ids=["ipv4", "ipv6"],
)
async def test_raw_packets_have_the_addresses_that_recvfrom_gives(family, host):
    needs_root()
    protocol = 253  # for experiments, RFC 3692: nobody else sends it
    with (
        socket.socket(family, socket.SOCK_RAW, protocol) as ours,
        socket.socket(family, socket.SOCK_RAW, protocol) as twin,
        socket.socket(family, socket.SOCK_RAW, protocol) as sender,
    ):
        async with aiorecv.from_socket(ours) as receiver:
            for data in (b"one", b"", b"three"):
                sender.sendto(data, (host, 0))

            found = await drained(receiver)

        assert found == all_from(twin)
        # An IPv4 raw socket gives the IP header too.
        skip = 20 if family == socket.AF_INET else 0
        assert [data[skip:] for data, _ in found] == [b"one", b"", b"three"]


async def test_raw_packets_tell_where_they_were_sent_and_how(network):
    asked = Metadata.DESTINATION | Metadata.TTL | Metadata.TOS | Metadata.TIMESTAMP
    with (
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 253) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 253) as sender,
    ):
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
        async with aiorecv.from_socket(ours, metadata=asked) as receiver:
            sender.sendto(b"x", ("127.0.0.5", 0))

            with await receiver.receive() as batch:
                (packet,) = batch.packets()

    assert (packet.destination, packet.ttl, packet.tos) == ("127.0.0.5", 9, 0)
    assert packet.timestamp_ns is not None


async def test_raw_ipv6_sockets_join_groups(network):
    add_veth("mc0", "mc1")
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, 253) as sock:
        async with aiorecv.from_socket(sock) as receiver:
            receiver.join_multicast("ff15::7:1", "mc0")

            assert "ff150000000000000000000000070001" in memberships()


# --- ICMP


@pytest.mark.parametrize(
    ("family", "protocol", "host", "version"),
    [
        (socket.AF_INET, socket.IPPROTO_ICMP, "127.0.0.1", 4),
        (socket.AF_INET6, socket.IPPROTO_ICMPV6, "::1", 6),
    ],
    ids=["ipv4", "ipv6"],
)
async def test_ping_sockets_receive_the_answers(network, family, protocol, host, version):
    with (
        socket.socket(family, socket.SOCK_DGRAM, protocol) as ours,
        socket.socket(family, socket.SOCK_DGRAM, protocol) as twin,
    ):
        async with aiorecv.from_socket(ours) as receiver:
            for sock in (ours, twin):
                sock.sendto(echo_request(version), (host, 0))
            with await receiver.receive() as batch:
                ((data, addr),) = batch
            await_readable(twin)
            same, same_addr = twin.recvfrom(1000)

    assert (data[0], data[8:]) == (ECHO_REPLY[version], b"ping")
    # Each has an identifier, and so a checksum, of its own.
    assert (data[:2], data[6:], addr) == (same[:2], same[6:], same_addr)


async def test_a_connected_ping_socket_receives_one_answer_after_another(network):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as sock:
        sock.connect(("127.0.0.1", 0))
        async with aiorecv.from_socket(sock) as receiver:
            for payload in (b"first", b"second"):
                sock.send(echo_request(4, payload))
                with await receiver.receive() as batch:
                    assert batch.payloads()[0][8:] == payload


# --- netlink


def get_links(sock: socket.socket) -> None:
    """Ask for all interfaces: rtnetlink(7)."""
    dump = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
    sock.send(struct.pack("=IHHII", 32, RTM_GETLINK, dump, 1, 0) + bytes(16))


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The types and contents of the netlink messages in one packet."""
    while data:
        size, kind = struct.unpack_from("=IH", data)
        yield kind, data[16:size]
        data = data[-(-size // 4) * 4 :]


async def test_netlink_gives_what_was_asked_for():
    names = {name for _, name in socket.if_nameindex()}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        async with aiorecv.from_socket(sock) as receiver:
            get_links(sock)

            found, kinds = b"", []
            async for data, addr in receiver.datagrams():
                assert addr == (0, 0)  # the kernel
                for kind, content in messages(data):
                    kinds.append(kind)
                    found += content
                if NLMSG_DONE in kinds:
                    break

    assert kinds.count(RTM_NEWLINK) == len(names)
    assert all(name.encode() + b"\0" in found for name in names)


async def test_netlink_news_have_the_addresses_that_recvfrom_gives(network):
    with (
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as ours,
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as twin,
    ):
        for sock in (ours, twin):
            sock.bind((0, RTMGRP_LINK))
        bound = ours.getsockname()
        async with aiorecv.from_socket(ours) as receiver:
            add_veth("mc0", "mc1")

            found = await drained(receiver)

        assert found
        assert found == all_from(twin)
        assert {addr for _, addr in found} == {(0, RTMGRP_LINK)}
        assert receiver.local_addr == bound


async def test_netlink_between_programs_has_the_sender_s_port():
    with (
        socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 2) as ours,  # NETLINK_USERSOCK
        socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 2) as peer,
    ):
        for sock in (ours, peer):
            sock.bind((0, 0))
        async with aiorecv.from_socket(ours) as receiver:
            peer.sendto(b"hello", ours.getsockname())

            with await receiver.receive() as batch:
                assert list(batch) == [(b"hello", peer.getsockname())]


async def test_netlink_that_overflows_is_an_error_that_heals(network):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.bind((0, RTMGRP_LINK))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        errors: list[OSError] = []
        async with aiorecv.from_socket(sock, on_error=errors.append) as receiver:
            for number in range(8):
                add_veth(f"mc{number}", f"mp{number}")
            overflowed = await drained(receiver)

            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            add_veth("last0", "last1")

            found = b"".join(data for data, _ in await drained(receiver))
        assert [error.errno for error in errors] == [errno.ENOBUFS]
        assert overflowed
        assert b"last0\0" in found


# --- what is refused


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
async def test_a_stream_is_refused_and_left_alone(family):
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        before = descriptors()

        with pytest.raises(ValueError, match="stream, which has no packets"):
            aiorecv.from_socket(sock)

        assert descriptors() == before
        assert sock.fileno() != -1


async def test_a_stream_that_is_called_something_else_is_refused():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        liar = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, fileno=os.dup(stream.fileno()))
        with liar, pytest.raises(ValueError, match="stream"):
            aiorecv.from_socket(liar)


NEVER_OF_NETLINK = [flag for flag in Metadata if flag not in (Metadata.RAW, Metadata.VLAN)]


@pytest.mark.parametrize("flag", NEVER_OF_NETLINK, ids=str)
async def test_metadata_that_netlink_never_tells_is_refused(flag):
    with (
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock,
        pytest.raises(ValueError, match="only IP sockets"),
    ):
        aiorecv.from_socket(sock, metadata=flag)


async def test_metadata_that_af_unix_tells_is_told():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    asked = Metadata.TIMESTAMP | Metadata.DROPS
    with theirs:
        async with aiorecv.from_socket(ours, metadata=asked) as receiver:
            theirs.send(b"x")

            with await receiver.receive() as batch:
                (packet,) = batch.packets()

    assert packet.drops == 0
    assert packet.timestamp_ns > 10**18


@pytest.mark.parametrize("gro", [True, None], ids=["insisted", "left"])
async def test_gro_is_for_udp_alone(network, gro):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as sock:
        if gro:
            with pytest.raises(ValueError, match="only UDP sockets"):
                aiorecv.from_socket(sock, gro=gro)
        else:
            async with aiorecv.from_socket(sock, gro=gro) as receiver:
                assert receiver.statistics().packets == 0


async def test_a_socket_of_another_family_is_refused_and_stays_open():
    class CanSocket(socket.socket):
        """As of a family that this kernel may not have."""

        def getsockopt(self, level: int, option: int, *size: int) -> Any:
            if option == socket.SO_DOMAIN:
                return socket.AF_CAN
            return super().getsockopt(level, option, *size)

    with CanSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        with pytest.raises(ValueError, match="neither IP, AF_UNIX, AF_PACKET nor netlink"):
            aiorecv.from_socket(sock)

        assert sock.fileno() != -1
