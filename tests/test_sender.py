"""Senders: packets arrive as they are and in order, over every family; misuse is told."""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import re
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import aiorecv
from tests.sending import queued, udp

# Of all kinds: empty, equal in runs, longer and shorter than the one before.
PACKETS = [b"", b"a", b"bb", b"cc", b"dd", b"e", b"", b"", b"f" * 1000, b"g" * 1000, b"h" * 999]


def of_unix(name: str | bytes, stack: contextlib.ExitStack) -> tuple[socket.socket, Any]:
    sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    target = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    target.bind(name)
    return sock, target


@pytest.fixture(params=["ipv4", "ipv6", "dual to ipv4", "path", "abstract", "netlink"])
def route(
    request: pytest.FixtureRequest, tmp_path
) -> Iterator[tuple[socket.socket, socket.socket, Any]]:
    """A socket to send on, one to send to, and where that is."""
    with contextlib.ExitStack() as stack:
        kind = request.param
        if kind in ("path", "abstract"):
            name = str(tmp_path / "peer") if kind == "path" else b"\0" + uuid.uuid4().bytes
            sock, target = of_unix(name, stack)
            addr: Any = name
        elif kind == "netlink":
            sock, target = (
                stack.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2))
                for _ in range(2)
            )
            sock.bind((0, 0))
            target.bind((0, 0))
            addr = target.getsockname()
        else:
            ipv4 = kind == "ipv4"
            sock = stack.enter_context(udp() if ipv4 else udp("::", dual=True))
            target = stack.enter_context(udp("::1" if kind == "ipv6" else "127.0.0.1"))
            addr = target.getsockname()
        yield sock, target, addr


def allowed(sock: socket.socket) -> list[bytes]:
    """Few enough for an AF_UNIX queue; netlink refuses empty packets."""
    netlink = sock.family == socket.AF_NETLINK
    return [data for data in PACKETS[:9] if data or not netlink]


async def test_packets_arrive_unchanged_and_in_order(route):
    sock, target, addr = route
    packets = allowed(sock)

    taken = aiorecv.Sender(sock).send_nowait([(data, addr) for data in packets])

    assert taken == len(packets)
    assert queued(target) == packets


async def test_on_a_connected_socket_no_address_and_the_peers_are_the_same(route):
    sock, target, addr = route
    mapped = sock.family == socket.AF_INET6 and ":" not in addr[0]
    sock.connect((f"::ffff:{addr[0]}", addr[1]) if mapped else addr)
    sender = aiorecv.Sender(sock)
    peer = sock.getpeername()
    packets = allowed(sock)

    await sender.send(list(zip(packets, [None, peer] * 5, strict=False)))

    assert queued(target) == packets
    other = ("127.0.0.9", 9) if isinstance(peer, tuple) else "other"
    with pytest.raises(ValueError, match="the socket is connected to"):
        sender.send_nowait([(b"x", other)])


async def test_hundreds_of_packets_are_64_a_call():
    with udp() as sock, udp() as target:
        sender = aiorecv.Sender(sock)
        packets = [
            b"x" * (1 + number) for number in range(200)
        ]  # of one size none goes with another

        await sender.send([(data, target.getsockname()) for data in packets])

        assert queued(target) == packets
        statistics = sender.statistics()
        assert (statistics.packets, statistics.bytes) == (200, sum(range(201)))
        assert (statistics.errors, statistics.dropped) == (0, 0)
        assert statistics.calls == (200 if sender._outlet.core.portable else 4)


@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"as it is"),
        memoryview(b"as it is"),
        memoryview(b"what is as it is")[8:],
        array.array("H", b"as it is"),
    ],
    ids=lambda data: type(data).__name__,
)
async def test_any_contiguous_buffer_is_sent(data):
    with udp() as sock, udp() as target:
        to = target.getsockname()

        taken = aiorecv.Sender(sock).send_nowait([(data, to), (b"", to)])

        assert taken == 2
        assert queued(target) == [b"as it is", b""]


async def test_a_batch_is_echoed_as_it_came(receiver):
    with udp() as client:
        for data in PACKETS:
            client.sendto(data, receiver.local_addr)
        sender = aiorecv.Sender(receiver)

        while (batch := receiver.receive_nowait()) is not None:
            with batch:
                assert sender.send_nowait(batch) == len(batch)

        assert queued(client) == PACKETS


async def test_packets_in_sequence_are_sent():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        await aiorecv.Sender(ours).send([(b"one", None), (b"two", None)])

        assert [theirs.recv(10), theirs.recv(10)] == [b"one", b"two"]


async def test_nothing_to_send_is_no_call(receiver):
    sender = aiorecv.Sender(receiver)

    await sender.send([])

    assert sender.send_nowait([]) == 0
    assert sender.statistics().calls == 0


async def test_the_socket_stays_as_it_was():
    with udp() as sock, udp() as target:
        assert sock.getblocking()
        sender = aiorecv.Sender(sock)

        await sender.send([(b"equal", target.getsockname())] * 3)

        assert sock.getblocking()
        assert sock.getsockopt(socket.IPPROTO_UDP, 103) == 0  # UDP_SEGMENT
        del sender
        assert sock.fileno() != -1


# --- misuse


@pytest.mark.parametrize(
    ("packets", "error", "said"),
    [
        ([("text", ("127.0.0.1", 9))], TypeError, "bytes-like object, not 'str'"),
        ([(5, ("127.0.0.1", 9))], TypeError, "bytes-like object, not 'int'"),
        ([(memoryview(b"abcd")[::2], ("127.0.0.1", 9))], TypeError, "contiguous"),
        ([b"packet"], TypeError, "sequence of pairs"),
        (b"packet", TypeError, "sequence of pairs"),
        ([(b"x",)], TypeError, "sequence of pairs"),
        ([(b"x", ("127.0.0.1", 9), 0)], TypeError, "sequence of pairs"),
        ([(b"x", None)], ValueError, "say to whom"),
        ([(b"x", "127.0.0.1")], TypeError, "tuple"),
        ([(b"x", ["127.0.0.1", 9])], TypeError, "tuple"),
        ([(b"x", ("localhost", 9))], ValueError, "looks a host name up"),
    ],
)
async def test_what_is_no_packet_is_refused_and_nothing_of_its_call_sent(packets, error, said):
    with udp() as sock, udp() as target:
        sender = aiorecv.Sender(sock)
        good = [] if isinstance(packets, bytes) else [(b"good", target.getsockname())]

        with pytest.raises(error, match=said):
            sender.send_nowait([*good, *packets] if good else packets)
        with pytest.raises(error, match=said):
            await sender.send([*good, *packets] if good else packets)

        assert queued(target) == []
        assert sender.statistics().calls == 0


@pytest.mark.parametrize("thing", [None, 5, "socket"])
async def test_a_sender_needs_a_socket_or_a_receiver(thing):
    with pytest.raises(TypeError, match=re.escape(f"not {thing!r}")):
        aiorecv.Sender(thing)


async def test_a_stream_has_no_packets():
    with socket.socket() as stream, pytest.raises(ValueError, match="is a stream"):
        aiorecv.Sender(stream)


async def test_on_error_has_to_be_callable(receiver):
    with pytest.raises(TypeError, match="on_error is called"):
        aiorecv.Sender(receiver, on_error="loudly")


def test_a_sender_needs_a_running_loop():
    with udp() as sock, pytest.raises(RuntimeError, match="no running event loop"):
        aiorecv.Sender(sock)


async def test_a_sender_is_of_its_loop_alone():
    with udp() as sock:
        sender = aiorecv.Sender(sock)

        async def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="loop it was made on"):
                sender.send_nowait([])
            with pytest.raises(RuntimeError, match="loop it was made on"):
                await sender.send([])

        await asyncio.to_thread(asyncio.run, elsewhere())


async def test_a_receiver_of_another_loop_is_refused(receiver):
    async def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            aiorecv.Sender(receiver)

    await asyncio.to_thread(asyncio.run, elsewhere())


@pytest.mark.parametrize("end", ["close", "detach"])
async def test_a_receiver_that_has_ended_sends_no_more(receiver, end):
    sender = aiorecv.Sender(receiver)
    left = getattr(receiver, end)()

    with pytest.raises(aiorecv.ReceiverClosedError):
        sender.send_nowait([])
    with pytest.raises(aiorecv.ReceiverClosedError):
        await sender.send([])
    with pytest.raises(aiorecv.ReceiverClosedError):
        aiorecv.Sender(receiver)

    if left is not None:
        left.close()


async def test_a_closed_socket_is_a_bad_descriptor():
    with udp() as sock:
        sender = aiorecv.Sender(sock)

    for call in (lambda: sender.send_nowait([]), lambda: aiorecv.Sender(sock)):
        with pytest.raises(OSError, match="is closed") as raised:
            call()
        assert raised.value.errno == errno.EBADF
    with pytest.raises(OSError, match="is closed"):
        await sender.send([])


async def test_a_sender_says_what_it_sends_on(receiver):
    assert repr(aiorecv.Sender(receiver)) == f"<aiorecv.Sender on {receiver!r}>"
    assert repr(aiorecv.Sender(receiver.socket)) == f"<aiorecv.Sender on {receiver.socket!r}>"
