"""UDP GSO: equal packets to one peer leave as one message, and arrive as they would singly."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import socket
import struct

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

import aiorecv
from aiorecv._options import gro_forbidden
from tests.namespaces import new_network
from tests.sending import OK, PATHS, SendFaults, queued, udp


@pytest.fixture(autouse=True)
def gso_allowed(monkeypatch):
    """Here GSO is on, whatever the environment says for other tests."""
    monkeypatch.delenv("AIORECV_GSO", raising=False)


@pytest.fixture
def route():
    """A sender, a socket to send to, and its address."""
    with udp() as sock, udp() as target:
        yield sock, target, target.getsockname()


def send(sock: socket.socket, addr: object, *packets: bytes) -> aiorecv.SenderStatistics:
    sender = aiorecv.Sender(sock)
    assert sender.send_nowait([(data, addr) for data in packets]) == len(packets)
    return sender.statistics()


@pytest.mark.parametrize(
    ("packets", "runs"),
    [
        ([b"aaa", b"bbb", b"ccc"], 1),
        ([b"aaa", b"bbb", b"c"], 1),  # a shorter one ends a run ...
        ([b"aaa", b"bbb", b"c", b"d", b"e"], 2),  # ... which those behind it may not join
        ([b"aaa", b"bbb", b"cccc"], 1),
        ([b"a", b"bb", b"cc"], 1),
        ([b"aaa", b"", b"bbb"], 0),
        ([b"", b"", b""], 0),
        ([b"a"], 0),
        ([bytes([number]) for number in range(200)], 4),  # 64, 64, 64 and 8
        ([b"a" * 30_000, b"b" * 30_000, b"c" * 30_000], 1),  # a message has at most 65,487 bytes
        ([b"a" * 32_743, b"b" * 32_744], 0),
        ([b"a" * 32_744, b"b" * 32_743], 1),
        ([b"a" * 32_744, b"b" * 32_744], 0),
        ([b"a" * 65_507, b"b" * 65_507], 0),
    ],
)
async def test_runs_are_sent_at_once_and_arrive_as_packets(route, packets, runs):
    sock, target, addr = route

    statistics = send(sock, addr, *packets)

    assert queued(target) == packets
    assert (statistics.packets, statistics.bytes) == (len(packets), sum(map(len, packets)))
    assert statistics.gso_sends == runs


async def test_a_run_of_the_largest_size_is_sent_over_ipv6():
    with udp("::1") as sock, udp("::1") as target:
        packets = [bytes([number]) * 1007 for number in range(65)] + [b"x" * 32]

        statistics = send(sock, target.getsockname(), *packets)

        assert queued(target) == packets
        assert statistics.gso_sends == 2


async def test_a_receiver_gets_a_run_as_one_train(receiver):
    with udp() as sock:
        statistics = send(sock, receiver.local_addr, *[b"segment %d" % n for n in range(10)])

        found: list[bytes] = []
        while len(found) < 10:  # of single segments a read takes as many as it has slots
            with await receiver.receive() as batch:
                found += batch.payloads()
        assert found == [b"segment %d" % n for n in range(10)]
        assert statistics.gso_sends == 1
        assert receiver.statistics().trains == (not gro_forbidden())


async def test_packets_to_two_peers_by_turns_stay_in_order(route):
    sock, target, addr = route
    with udp() as other:
        to = {addr: target, other.getsockname(): other}
        packets = [(b"%d" % number, [*to][number // 3 % 2]) for number in range(10, 70)]

        taken = aiorecv.Sender(sock).send_nowait(packets)

        assert taken == 60
        for peer, taker in to.items():
            assert queued(taker) == [data for data, addr in packets if addr == peer]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("refusal", [errno.EIO, errno.EINVAL])
async def test_where_gso_is_refused_packets_go_singly_from_then_on(route, path, refusal):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)
    packets = [b"%d" % number for number in range(10, 30)]

    with SendFaults(sender, path, refusal):
        assert sender.send_nowait([(data, addr) for data in packets]) == 20
        assert sender.send_nowait([(data, addr) for data in packets]) == 20

    assert queued(target) == packets * 2
    statistics = sender.statistics()
    assert (statistics.packets, statistics.errors, statistics.gso_sends) == (40, 0, 0)


async def test_runs_before_a_refused_one_are_sent_once(route):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)
    packets = [b"aa", b"bb", b"ccc", b"ddd", b"ee"]

    with SendFaults(sender, "sendmsg", OK, errno.EIO):
        assert sender.send_nowait([(data, addr) for data in packets]) == 5

    assert queued(target) == packets
    assert sender.statistics().packets == 5


@pytest.mark.parametrize("path", PATHS)
async def test_a_refusal_that_is_the_packets_own_does_not_end_gso(route, path):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)

    with SendFaults(sender, path), pytest.raises(OSError, match="Invalid argument"):
        sender.send_nowait([(b"a", ("0.0.0.1", 9)), (b"b", ("0.0.0.1", 9)), (b"c", addr)])
    send_more = sender.send_nowait([(b"d", addr), (b"e", addr)])

    assert send_more == 2
    assert queued(target) == [b"c", b"d", b"e"]
    assert sender.statistics().gso_sends == 1


@pytest.mark.parametrize("path", PATHS)
async def test_a_run_too_large_for_its_path_goes_singly_and_gso_stays(route, path):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)

    with SendFaults(sender, path, errno.EMSGSIZE):
        assert sender.send_nowait([(b"a", addr), (b"b", addr)]) == 2
        assert sender.send_nowait([(b"c", addr), (b"d", addr)]) == 2

    assert queued(target) == [b"a", b"b", b"c", b"d"]
    assert sender.statistics().gso_sends == 1


async def test_behind_a_run_too_large_for_its_path_the_next_is_sent_at_once(route):
    sock, target, addr = route
    sender = aiorecv.Sender(sock)
    packets = [b"aaa", b"bbb", b"c", b"d", b"e"]

    with SendFaults(sender, "sendmmsg", errno.EMSGSIZE):
        assert sender.send_nowait([(data, addr) for data in packets]) == 5

    assert queued(target) == packets
    assert sender.statistics().gso_sends == 1


def set_mtu(interface: str, size: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8922, struct.pack("@16si20x", interface.encode(), size))  # SIOCSIFMTU


async def test_segments_larger_than_the_mtu_arrive_in_fragments():
    with new_network():
        set_mtu("lo", 1500)
        with udp() as sock, udp() as target:
            packets = [b"a" * 2000, b"b" * 2000, b"c" * 2000, b"d" * 1000, b"e" * 1000]

            send(sock, target.getsockname(), *packets)

            assert queued(target) == packets


async def test_the_environment_turns_it_off(route, monkeypatch):
    monkeypatch.setenv("AIORECV_GSO", "0")
    sock, target, addr = route

    statistics = send(sock, addr, b"a", b"b", b"c")

    assert queued(target) == [b"a", b"b", b"c"]
    assert statistics.gso_sends == 0


async def test_sockets_that_are_not_udp_have_none():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        assert not aiorecv.Sender(sock)._outlet.core.gso


# Few sizes, so that runs are common; sizes around what one message holds.
SIZES = st.sampled_from([0, 1, 2, 2, 2, 3, 1000, 1000, 1023, 1024, 32_743, 32_744])
SENT = st.lists(st.tuples(SIZES, st.integers(0, 1)), max_size=150)


async def arrived(sent: list[tuple[int, int]], *, gso: bool, path: str) -> list[list[bytes]]:
    """What two peers get of packets of these sizes."""
    with contextlib.ExitStack() as stack:
        sock, *peers = (stack.enter_context(udp()) for _ in range(3))
        sender = aiorecv.Sender(sock)
        sender._outlet.core.gso = gso
        sender._outlet.core.portable = path == "sendmsg"
        packets = [
            (bytes([number]) * size, peers[peer].getsockname())
            for number, (size, peer) in enumerate(sent)
        ]
        got: list[list[bytes]] = [[], []]
        for start in range(0, len(packets), 70):  # a receive buffer takes no more large ones
            await sender.send(packets[start : start + 70])
            for peer, taken in zip(peers, got, strict=True):
                taken += queued(peer)
        assert sender.statistics().packets == len(sent)
        return got


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@settings(max_examples=50)
@given(sent=SENT)
def test_peers_get_the_same_with_gso_and_without(loop_factory, sent):
    expected = [
        [bytes([number]) * size for number, (size, peer) in enumerate(sent) if peer == wanted]
        for wanted in (0, 1)
    ]
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        for gso in (True, False):
            for path in PATHS:
                assert runner.run(arrived(sent, gso=gso, path=path)) == expected
