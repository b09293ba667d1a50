"""``source=``: an answer leaves from the address that was asked."""

from __future__ import annotations

import errno
import socket

import pytest

import aiorecv
from tests.sending import queued, udp


@pytest.fixture
def dual():
    """A socket on all addresses, IPv4 and IPv6."""
    with udp("::", dual=True) as sock:
        yield sock


async def test_a_run_and_a_lone_packet_leave_from_the_address_that_is_asked_for():
    with udp("0.0.0.0") as sock, udp() as client:
        sender = aiorecv.Sender(sock)
        to = client.getsockname()

        sender.send_nowait([(b"equal", to), (b"equal", to), (b"longer!", to)], source="127.0.0.2")
        await sender.send([(b"plain", to)])

        got = [client.recvfrom(10) for _ in range(4)]
        assert [data for data, _ in got] == [b"equal", b"equal", b"longer!", b"plain"]
        assert [addr[0] for _, addr in got] == ["127.0.0.2"] * 3 + ["127.0.0.1"]


@pytest.mark.parametrize("source", ["127.0.0.2", "::ffff:127.0.0.2"])
async def test_a_dual_stack_socket_answers_ipv4_from_an_ipv4_address(dual, source):
    with udp() as client:
        aiorecv.Sender(dual).send_nowait([(b"a", client.getsockname())] * 2, source=source)

        for _ in range(2):
            assert client.recvfrom(10) == (b"a", ("127.0.0.2", dual.getsockname()[1]))


async def test_a_dual_stack_socket_answers_ipv6_from_an_ipv6_address(dual):
    with udp("::1") as client:
        aiorecv.Sender(dual).send_nowait([(b"a", client.getsockname())], source="::1")

        assert client.recvfrom(10) == (b"a", ("::1", dual.getsockname()[1], 0, 0))


@pytest.mark.parametrize(("host", "source"), [("::1", "127.0.0.2"), ("127.0.0.1", "::1")])
async def test_an_answer_that_can_not_leave_from_there_does_not_leave_at_all(dual, host, source):
    with udp(host) as client:
        sender = aiorecv.Sender(dual)

        with pytest.raises(OSError, match="Invalid argument"):
            sender.send_nowait([(b"a", client.getsockname())] * 2, source=source)

        assert queued(client) == []
        # It was the source, not GSO.
        sender._outlet.core.gso = True
        with pytest.raises(OSError, match="Invalid argument"):
            sender.send_nowait([(b"a", client.getsockname())] * 2, source=source)
        assert sender._outlet.core.gso


async def test_an_address_that_the_host_has_not_is_the_kernels_error():
    with udp("0.0.0.0") as sock, udp() as client:
        with pytest.raises(OSError, match=r"unreachable|argument|assign") as raised:
            aiorecv.Sender(sock).send_nowait([(b"a", client.getsockname())], source="192.0.2.1")

        assert raised.value.errno in {errno.ENETUNREACH, errno.EINVAL, errno.EADDRNOTAVAIL}
        assert queued(client) == []


async def test_what_destination_says_is_where_the_answer_comes_from():
    asked = aiorecv.Metadata.DESTINATION
    async with aiorecv.open_udp(("::", 0), metadata=asked) as receiver:
        sender = aiorecv.Sender(receiver)
        port = receiver.socket.getsockname()[1]
        for host, client_host in (("127.0.0.7", "127.0.0.1"), ("::1", "::1")):
            with udp(client_host) as client:
                client.connect((host, port))  # it takes packets of this address alone
                client.settimeout(10)
                client.send(b"question")

                with await receiver.receive() as batch:
                    for packet in batch.packets():
                        answer = [(b"answer", packet.addr)]
                        await sender.send(answer, source=packet.destination)

                assert client.recv(10) == b"answer"


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("localhost", ValueError, "no address in numbers"),
        ("::1", ValueError, "no address in numbers"),
        ("127.1", ValueError, "no address in numbers"),
        ("127.0.0.1\0", ValueError, "no address in numbers"),
        ("", ValueError, "no address in numbers"),
        (b"127.0.0.1", TypeError, "a str"),
        (["127.0.0.1"], TypeError, "a str"),
        (2130706433, TypeError, "a str"),
    ],
)
async def test_what_is_no_source_is_refused_before_a_packet_is_sent(source, error, said):
    with udp() as sock, udp() as client:
        sender = aiorecv.Sender(sock)

        with pytest.raises(error, match=said):
            sender.send_nowait([(b"a", client.getsockname())], source=source)
        with pytest.raises(error, match=said):
            await sender.send([(b"a", client.getsockname())], source=source)

        assert queued(client) == []


@pytest.mark.parametrize("source", ["1:2", "5", "fe80::1%lo"])
async def test_an_ipv6_socket_takes_no_parts_of_addresses_for_a_source(dual, source):
    with pytest.raises(ValueError, match="no address in numbers"):
        aiorecv.Sender(dual).send_nowait([(b"a", ("::1", 9))], source=source)


async def test_only_ip_sockets_have_a_source():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sender = aiorecv.Sender(sock)

        with pytest.raises(ValueError, match="only IP sockets"):
            sender.send_nowait([(b"a", "nowhere")], source="127.0.0.1")
