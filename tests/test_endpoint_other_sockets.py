"""Endpoints on sockets that are not UDP: AF_UNIX, netlink, raw, packets in sequence."""

from __future__ import annotations

import asyncio
import os
import socket
import struct

import pytest

import aiorecv
from tests.endpoints import LOOPBACK, Noting, endpoint, name_of, numbered, until_closed
from tests.receiving import passes


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "socket")


async def test_a_path_makes_an_af_unix_socket_and_its_senders_have_names(path):
    async with (
        endpoint(family=socket.AF_UNIX, local_addr=path) as (server, heard),
        endpoint(family=socket.AF_UNIX, local_addr=path + "2", remote_addr=path) as (
            client,
            answered,
        ),
    ):
        client.sendto(b"asked")
        await heard.got(1)
        server.sendto(b"told", heard.addresses[0])
        await answered.got(1)

        assert name_of(server) == path
        assert client.get_extra_info("peername") == path
        assert heard.addresses == [path + "2"]
        assert answered.packets == [b"told"]


async def test_the_name_of_an_abstract_socket_is_exact():
    name = f"\0aiorecv test {os.getpid()}"
    async with endpoint(family=socket.AF_UNIX, local_addr=name) as (server, heard):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(name.encode() + b"\0\xff")
            sock.sendto(b"x", name.encode())
            sock.setblocking(False)
            await heard.got(1)
            server.sendto(b"back", heard.addresses[0])

            assert name_of(server) == name.encode()
            assert heard.addresses == [name.encode() + b"\0\xff"]
            assert sock.recv(10) == b"back"


async def test_a_nameless_sender_has_the_address_that_recvfrom_gives(path):
    async with endpoint(family=socket.AF_UNIX, local_addr=path) as (_, heard):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            for data in numbered(3):
                sock.sendto(data, path)

        assert await heard.got(3) == numbered(3)
        assert heard.addresses == [None] * 3


async def test_a_stale_socket_file_is_replaced_and_others_are_not(path, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(path)
    async with endpoint(family=socket.AF_UNIX, local_addr=path) as (server, _):
        assert name_of(server) == path

    (tmp_path / "socket2").touch()
    with pytest.raises(OSError, match="in use"):
        await aiorecv.create_datagram_endpoint(Noting, family=socket.AF_UNIX, local_addr=path + "2")


async def test_a_large_af_unix_datagram_comes_whole():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    async with endpoint(sock=ours) as (_, protocol):
        with theirs:
            theirs.send(bytes(150_000))

            assert await protocol.got(1) == [bytes(150_000)]


async def test_a_netlink_socket_gives_its_answers():
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    sock.bind((0, 0))
    async with endpoint(sock=sock) as (transport, protocol):
        # RTM_GETLINK of everything, with NLM_F_REQUEST and NLM_F_DUMP.
        transport.sendto(struct.pack("=IHHIIB3x", 20, 18, 0x301, 7, 0, 0))
        await protocol.got(1)

        assert b"lo\0" in protocol.packets[0]
        assert protocol.addresses[0] == (0, 0)


async def test_a_raw_socket_gives_its_packets():
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, 253)
    except PermissionError:
        pytest.skip("needs root, to make a raw socket")
    sock.bind(("127.0.0.1", 0))
    async with endpoint(sock=sock) as (transport, protocol):
        transport.sendto(b"raw", ("127.0.0.1", 0))

        await protocol.got(1)

        assert protocol.packets[0][20:] == b"raw"  # behind the IP header
        assert protocol.addresses == [("127.0.0.1", 0)]


@pytest.mark.parametrize("packets", [0, 1, 2, 40])
async def test_a_peer_in_sequence_that_hangs_up_is_the_end(packets):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    async with endpoint(sock=ours) as (_, protocol):
        for data in numbered(packets):
            theirs.send(data)
        theirs.close()

        assert await protocol.lost is None

        assert protocol.packets == numbered(packets)
        assert protocol.events == ["made", ("lost", None)]


async def test_a_peer_in_sequence_that_hangs_up_during_a_pause_is_the_end_after_it():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    async with endpoint(sock=ours, window=aiorecv.FixedWindow(8)) as (transport, protocol):
        protocol.acts = {1: transport.pause_reading}
        for data in numbered(4):
            theirs.send(data)
        theirs.close()
        await protocol.got(2)
        await passes(4)
        while_paused = list(protocol.events)

        transport.resume_reading()
        await protocol.lost

        assert while_paused == ["made"]
        assert protocol.packets == numbered(4)


async def test_a_peer_in_sequence_that_leaves_something_unread_is_an_error_and_the_end():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    async with endpoint(sock=ours) as (transport, protocol):
        transport.sendto(b"never read")
        theirs.close()

        async with asyncio.timeout(10):
            assert await protocol.lost is None

        made, reset, lost = protocol.events
        assert made == "made"
        assert isinstance(reset, ConnectionResetError)
        assert lost == ("lost", None)


async def test_a_socket_closed_under_an_endpoint_ends_it_without_a_spin():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs:
        async with endpoint(sock=ours) as (transport, protocol):
            theirs.send(b"heard")
            await protocol.got(1)
            theirs.send(b"unread")
            ours.close()

            transport.close()
            await until_closed(transport)

            assert protocol.events == ["made", ("lost", None)]


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_RDWR])
async def test_a_socket_that_is_shut_down_does_not_keep_the_loop_busy(how):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs:
        async with endpoint(sock=ours) as (transport, _):
            ours.shutdown(how)
            for _ in range(200):
                await asyncio.sleep(0)
            before = transport.statistics().empty_reads

            for _ in range(500):
                await asyncio.sleep(0)

            assert transport.statistics().empty_reads - before < 100


async def test_one_loop_serves_endpoints_and_receivers():
    async with endpoint() as (transport, protocol), aiorecv.open_udp(LOOPBACK) as receiver:
        transport.sendto(b"to the receiver", receiver.local_addr)
        with await receiver.receive() as batch:
            ((data, addr),) = batch
        receiver.socket.sendto(b"to the endpoint", addr)

        assert data == b"to the receiver"
        assert await protocol.got(1) == [b"to the endpoint"]
