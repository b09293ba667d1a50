"""One datagram_received a packet, in order, with real bytes and the addresses of recvfrom."""

from __future__ import annotations

import asyncio
import socket

import pytest

import aiorecv
from tests.endpoints import (
    LOOPBACK,
    Noting,
    endpoint,
    fixed,
    name_of,
    numbered,
    queue,
    queue_train,
    until_closed,
)
from tests.namespaces import new_network
from tests.receiving import passes


async def test_packets_come_one_by_one_in_order_with_their_sender():
    async with endpoint() as (transport, protocol):
        sender = queue(transport, *numbered(50))

        await protocol.got(50)

        assert protocol.packets == numbered(50)
        assert {type(data) for data in protocol.packets} == {bytes}
        assert set(protocol.addresses) == {sender}
        assert protocol.events == ["made"]


async def test_what_was_queued_before_the_creation_comes_after_connection_made(bound, bound_sender):
    order = []

    class Ordered(Noting):
        def connection_made(self, transport):
            super().connection_made(transport)
            order.append("made")

        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            order.append(data)

    bound_sender.send(b"early")

    async with endpoint(Ordered, sock=bound) as (_, protocol):
        await protocol.got(1)

        assert order == ["made", b"early"]


@pytest.mark.parametrize("gro", [None, False])
@pytest.mark.parametrize("payloads", [[b""], [b"", b"a", b"", b"", b"bb"], [b""] * 40], ids=len)
async def test_empty_datagrams_are_packets(payloads, gro):
    async with endpoint(gro=gro) as (transport, protocol):
        queue(transport, *payloads)

        assert await protocol.got(len(payloads)) == payloads


@pytest.mark.parametrize("count", [2, 33, 128])
async def test_trains_are_split(count):
    async with endpoint() as (transport, protocol):
        segments = [*numbered(count - 1), b"end"]
        sender = queue_train(transport, *segments)

        await protocol.got(count)

        assert protocol.packets == segments
        assert set(protocol.addresses) == {sender}


async def test_trains_and_lone_packets_keep_their_order():
    async with endpoint() as (transport, protocol):
        sent = []
        for start in range(0, 400, 20):
            segments = numbered(19, start=start)
            queue_train(transport, *segments)
            queue(transport, b"between")
            sent += [*segments, b"between"]

        await protocol.got(len(sent))

        assert protocol.packets == sent


@pytest.mark.parametrize("size", [1, 1472, 65_507])
async def test_payloads_of_any_size_come_whole(size):
    async with endpoint() as (transport, protocol):
        queue(transport, bytes(size), b"x" * size)

        assert await protocol.got(2) == [bytes(size), b"x" * size]


async def test_ipv6_senders_have_four_parts():
    async with endpoint(local_addr=("::1", 0)) as (transport, protocol):
        sender = queue(transport, b"six")

        await protocol.got(1)

        assert protocol.addresses == [sender]
        assert sender[0] == "::1"
        assert len(sender) == 4


async def test_a_dual_stack_endpoint_hears_ipv4_and_answers_it():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as both:
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, False)
        both.bind(("::", 0))
        async with endpoint(sock=both) as (transport, protocol):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as four:
                four.settimeout(10)
                four.sendto(b"four", ("127.0.0.1", both.getsockname()[1]))
                await protocol.got(1)
                ((host, port, *_),) = protocol.addresses
                transport.sendto(b"back", protocol.addresses[0])

                assert (host, port) == ("::ffff:127.0.0.1", four.getsockname()[1])
                assert four.recv(10) == b"back"


async def test_both_addresses_bind_and_connect():
    async with endpoint() as (server, heard):
        addresses = {"local_addr": LOOPBACK, "remote_addr": name_of(server)}
        async with endpoint(**addresses) as (client, answered):
            client.sendto(b"asked")
            await heard.got(1)
            server.sendto(b"told", heard.addresses[0])
            await answered.got(1)

            assert client.get_extra_info("peername") == name_of(server)
            assert heard.addresses == [name_of(client)]
            assert answered.packets == [b"told"]


async def test_a_host_name_is_looked_up():
    async with endpoint(local_addr=("localhost", 0), family=socket.AF_INET) as (transport, _):
        assert name_of(transport)[0] == "127.0.0.1"


async def test_a_family_alone_makes_a_socket_that_is_bound_when_it_sends():
    async with (
        endpoint() as (server, heard),
        endpoint(family=socket.AF_INET) as (client, protocol),
    ):
        client.sendto(b"asked", name_of(server))
        await heard.got(1)
        server.sendto(b"told", heard.addresses[0])

        assert await protocol.got(1) == [b"told"]


async def test_a_second_endpoint_shares_a_port_only_if_both_ask_for_it():
    async with endpoint(reuse_port=True) as (first, _):
        async with endpoint(local_addr=name_of(first), reuse_port=True) as (second, _):
            assert name_of(second) == name_of(first)
        with pytest.raises(OSError, match="reuse_port"):
            await aiorecv.create_datagram_endpoint(Noting, local_addr=name_of(first))


async def test_a_broadcast_asks_whoever_answers():
    with new_network():
        async with endpoint(local_addr=("0.0.0.0", 0)) as (server, heard):
            port = name_of(server)[1]
            async with endpoint(
                local_addr=("127.0.0.1", 0),
                remote_addr=("127.255.255.255", port),
                allow_broadcast=True,
            ) as (client, answered):
                client.sendto(b"who is there?")
                await heard.got(1)
                server.sendto(b"I am", heard.addresses[0])
                await answered.got(1)

                assert client.get_extra_info("peername") is None
                assert heard.packets == [b"who is there?"]
                assert answered.addresses == [("127.0.0.1", port)]


async def test_the_first_address_that_can_be_had_is_taken(monkeypatch):
    async with endpoint() as (taken, _):
        port = name_of(taken)[1]
        addresses = [
            (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port)),
            (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("::1", port, 0, 0)),
        ]

        async def getaddrinfo(*_, **__):
            return addresses

        monkeypatch.setattr(asyncio.get_running_loop().__class__, "getaddrinfo", getaddrinfo)
        async with endpoint(local_addr=("two.test", port)) as (transport, _):
            assert name_of(transport)[0] == "::1"


async def test_nothing_that_comes_before_the_creator_goes_on_is_lost():
    async with endpoint() as (transport, protocol):
        queue(transport, *numbered(1000))
        await passes(1)
        await protocol.got(1000)

        assert protocol.packets == numbered(1000)


async def test_many_endpoints_of_one_loop_hear_their_own():
    async with endpoint(**fixed()) as (one, first), endpoint(**fixed()) as (two, second):
        queue(one, *numbered(100))
        queue(two, *numbered(100, start=100))

        await first.got(100)
        await second.got(100)

        assert first.packets + second.packets == numbered(200)


async def test_a_flood_of_creations_and_closes_leaves_nothing():
    for _ in range(100):
        transport, protocol = await aiorecv.create_datagram_endpoint(
            Noting, local_addr=("127.0.0.1", 0)
        )
        queue(transport, b"x")
        transport.close()
        await until_closed(transport)

        assert protocol.events == ["made", ("lost", None)]
