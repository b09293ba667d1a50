"""What a transport is, what it tells of itself, and how it sends."""

from __future__ import annotations

import asyncio
import socket

import pytest

import aiorecv
from tests.endpoints import LOOPBACK, endpoint, fixed, name_of, numbered, queue, until_closed
from tests.receiving import passes


async def test_it_is_a_datagram_transport_and_a_transport():
    async with endpoint() as (transport, _):
        assert isinstance(transport, aiorecv.DatagramTransport)
        assert isinstance(transport, asyncio.DatagramTransport)
        assert isinstance(transport, asyncio.Transport)


async def test_a_batch_protocol_is_a_datagram_protocol():
    assert issubclass(aiorecv.BatchProtocol, asyncio.DatagramProtocol)


async def test_it_tells_of_its_socket():
    async with endpoint() as (server, _), endpoint(remote_addr=name_of(server)) as (client, _):
        sock = client.get_extra_info("socket")

        assert sock.type == socket.SOCK_DGRAM
        assert client.get_extra_info("sockname") == sock.getsockname()
        assert client.get_extra_info("peername") == name_of(server)
        assert server.get_extra_info("peername") is None
        assert client.get_extra_info("other", "default") == "default"
        assert type(sock).__name__ == "TransportSocket"


async def test_its_repr_tells_its_state():
    async with endpoint() as (transport, _):
        fd = transport.get_extra_info("socket").fileno()
        was_open = repr(transport)
        transport.pause_reading()
        paused = repr(transport)
        transport.close()
        closing = repr(transport)
        await until_closed(transport)

        assert was_open == f"<aiorecv.DatagramTransport open fd={fd} reading write_buffer_size=0>"
        assert "open" in paused
        assert "idle" in paused
        assert "closing" in closing
        assert "closed" in repr(transport)


async def test_its_statistics_count_what_was_received():
    async with endpoint(**fixed(4)) as (transport, protocol):
        queue(transport, *numbered(10))
        await protocol.got(10)

        statistics = transport.statistics()

        assert isinstance(statistics, aiorecv.ReceiverStatistics)
        assert (statistics.packets, statistics.bytes, statistics.reads) == (10, 40, 3)
        assert statistics.buffer_bytes == 0


async def test_its_statistics_count_what_was_sent():
    async with endpoint() as (server, heard), endpoint() as (client, _):
        client.sendto(b"four", name_of(server))
        client.send_batch([(b"12", name_of(server)), (b"345", name_of(server))])
        await heard.got(3)

        statistics = client.send_statistics()

        assert (statistics.packets, statistics.bytes, statistics.dropped) == (3, 9, 0)


async def test_statistics_are_told_after_the_end_too():
    async with endpoint() as (transport, protocol):
        queue(transport, b"x")
        await protocol.got(1)
        transport.sendto(b"y", name_of(transport))
        transport.abort()
        await until_closed(transport)

        assert transport.statistics().packets == 1
        assert transport.send_statistics().packets == 1


async def test_a_batch_is_sent_in_order():
    async with endpoint() as (server, heard), endpoint() as (client, _):
        client.send_batch([(data, name_of(server)) for data in numbered(100)])
        client.send_batch([])

        assert await heard.got(100) == numbered(100)


@pytest.mark.parametrize("data", [b"bytes", bytearray(b"bytes"), memoryview(b"bytes")])
async def test_any_bytes_are_sent(data):
    async with endpoint() as (server, heard), endpoint() as (client, _):
        client.sendto(data, name_of(server))

        assert await heard.got(1) == [b"bytes"]


async def test_empty_datagrams_are_sent():
    async with endpoint() as (server, heard), endpoint() as (client, _):
        client.sendto(b"", name_of(server))
        client.send_batch([(b"", name_of(server))])

        assert await heard.got(2) == [b"", b""]


@pytest.mark.parametrize("data", ["text", 5, None, [1]])
async def test_what_is_no_bytes_is_refused(data):
    async with endpoint() as (transport, _):
        with pytest.raises(TypeError, match="bytes-like"):
            transport.sendto(data, name_of(transport))
        with pytest.raises(TypeError, match="bytes-like"):
            transport.send_batch([(data, name_of(transport))])

        assert transport.send_statistics().packets == 0


async def test_a_connected_endpoint_sends_to_its_peer_only():
    async with endpoint() as (server, heard), endpoint(remote_addr=name_of(server)) as (client, _):
        client.sendto(b"by default")
        client.sendto(b"by name", name_of(server))
        client.send_batch([(b"batch", None), (b"batch", name_of(server))])
        with pytest.raises(ValueError, match="Invalid address"):
            client.sendto(b"x", ("127.0.0.1", 9))
        with pytest.raises(ValueError, match="Invalid address"):
            client.send_batch([(b"x", ("127.0.0.1", 9))])

        assert await heard.got(4) == [b"by default", b"by name", b"batch", b"batch"]


async def test_the_peer_of_a_given_socket_is_where_it_sends(bound):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(bound.getsockname())
        async with endpoint(sock=sock.dup()) as (transport, _):
            transport.sendto(b"x")

            assert transport.get_extra_info("peername") == bound.getsockname()
            assert bound.recv(10) == b"x"


async def test_a_host_name_is_refused_since_looking_it_up_would_block():
    async with endpoint() as (transport, _):
        with pytest.raises(ValueError, match="name"):
            transport.sendto(b"x", ("localhost", 9))


async def test_an_endpoint_without_a_peer_needs_an_address():
    async with endpoint() as (transport, _):
        with pytest.raises((TypeError, ValueError)):
            transport.sendto(b"x")

        assert transport.send_statistics().packets == 0


async def test_a_broadcast_goes_to_the_remote_address_though_it_is_not_connected():
    async with (
        endpoint() as (server, heard),
        endpoint(local_addr=LOOPBACK, remote_addr=name_of(server), allow_broadcast=True) as (
            client,
            _,
        ),
    ):
        client.sendto(b"by default")
        client.send_batch([(b"batch", None)])
        with pytest.raises(ValueError, match="Invalid address"):
            client.sendto(b"x", ("127.0.0.1", 9))

        assert await heard.got(2) == [b"by default", b"batch"]
        assert client.get_extra_info("peername") is None


async def test_what_a_callback_sends_leaves_before_the_next_packet_comes():
    async with endpoint(**fixed()) as (server, heard), endpoint() as (client, answered):
        heard.acts = {
            number: lambda number=number: server.sendto(b"%04d" % number, name_of(client))
            for number in range(40)
        }
        queue(server, *numbered(40))

        assert await answered.got(40) == numbered(40)


async def test_an_idle_endpoint_holds_no_packet_memory():
    async with endpoint() as (transport, protocol):
        queue(transport, *numbered(100))
        await protocol.got(100)
        await passes(2)

        assert transport.statistics().buffer_bytes == 0
