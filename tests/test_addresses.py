"""Addresses: what ``socket.recvfrom`` would give, from a table that can not grow for ever."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiorecv
from aiorecv._addresses import AddressTable
from aiorecv._native._core import lib
from aiorecv._options import gro_forbidden
from aiorecv._sockets import UDP_GRO
from aiorecv._sources import MessageSource
from tests.helpers import LoopMemory, little_memory, open_source, read_batch, sockaddr
from tests.seam import Message, Seam, Step

IPV4 = st.ip_addresses(v=4).map(str)
IPV6 = st.ip_addresses(v=6).map(str)
LOOPBACK = st.integers(1, 2**24 - 2).map(lambda n: str(ipaddress.ip_address("127.0.0.0") + n))
PORTS = st.integers(0, 65_535)
WORDS = st.integers(0, 2**32 - 1)


def read_from(names: list[bytes]) -> list[aiorecv.Address]:
    """The addresses that a batch gives for messages with these names."""
    with open_source(64) as source, Seam(source.core, 64) as seam:
        seam.play(Step([Message(b"x", name) for name in names]))
        batch = read_batch(source, len(names), False)
        assert batch is not None
        return list(batch.addresses())


@given(peers=st.lists(st.tuples(IPV4, PORTS), min_size=1, max_size=30))
def test_ipv4_names_are_what_went_into_them(peers):
    assert read_from([sockaddr(*peer) for peer in peers]) == peers


@given(peers=st.lists(st.tuples(IPV6, PORTS, WORDS, WORDS), min_size=1, max_size=30))
def test_ipv6_names_keep_flow_label_and_scope(peers):
    got = read_from([sockaddr(*peer) for peer in peers])

    # The text form is the C library's, as for recvfrom: ipaddress writes mapped ones otherwise.
    expected = [
        (socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, host)), *rest)
        for host, *rest in peers
    ]
    assert got == expected


@given(
    peer=st.one_of(
        st.tuples(IPV4, PORTS),
        st.tuples(IPV6, PORTS),
        st.tuples(st.just("fe80::1%1"), PORTS),
    )
)
def test_names_read_as_the_socket_module_reads_them(peer):
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    host, port = peer
    address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=flags)[0][4]

    assert read_from([sockaddr(*address)]) == [address]


@given(hosts=st.lists(LOOPBACK, min_size=1, max_size=8))
def test_addresses_are_those_of_recvfrom(hosts):
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open_source(gro=True))
        twin = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        twin.bind(("127.0.0.1", 0))
        twin.settimeout(10)
        for host in hosts:
            sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sender.bind((host, 0))
            sender.sendto(b"x", source.sock.getsockname())
            sender.sendto(b"x", twin.getsockname())

        batch = read_batch(source, 8, False)

        assert batch is not None
        assert list(batch) == [twin.recvfrom(1) for _ in hosts]


# --- families, on real sockets


def receiving(family: int, host: str) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, False)
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, not gro_forbidden())
    sock.bind((host, 0))
    sock.settimeout(10)
    return sock


@pytest.fixture(params=["ipv4", "ipv6", "dual stack"])
def exchange(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[MessageSource, socket.socket, list[socket.socket]]]:
    """A source, a plain twin of it, and sockets that send to both."""
    family, host, senders = {
        "ipv4": (socket.AF_INET, "127.0.0.1", [socket.AF_INET]),
        "ipv6": (socket.AF_INET6, "::1", [socket.AF_INET6]),
        "dual stack": (socket.AF_INET6, "::", [socket.AF_INET6, socket.AF_INET]),
    }[request.param]
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(receiving(family, host))
        twin = stack.enter_context(receiving(family, host))
        opened = [stack.enter_context(socket.socket(f, socket.SOCK_DGRAM)) for f in senders]
        yield MessageSource(sock, LoopMemory(), 65_536), twin, opened


def test_every_family_gives_the_addresses_of_recvfrom(exchange):
    source, twin, senders = exchange
    for sender in senders:
        host = "::1" if sender.family == socket.AF_INET6 else "127.0.0.1"
        for target in (source.sock, twin):
            sender.sendto(b"x", (host, target.getsockname()[1]))

    batch = read_batch(source, 8, False)

    assert batch is not None
    expected = [twin.recvfrom(1)[1] for _ in senders]
    assert list(batch.addresses()) == expected
    assert len({*batch.addresses()}) == len(senders)


def test_link_local_peer_has_its_scope():
    addresses = read_from([sockaddr("fe80::1:2", 53, scope_id=7), sockaddr("fe80::1:2", 53)])

    assert addresses == [("fe80::1:2", 53, 0, 7), ("fe80::1:2", 53, 0, 0)]


async def test_answering_a_mapped_peer_works():
    async with aiorecv.open_udp(("::", 0)) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.settimeout(10)
            assert isinstance(receiver.local_addr, tuple)
            peer.sendto(b"question", ("127.0.0.1", receiver.local_addr[1]))

            with await receiver.receive() as batch:
                _, addr = batch[0]
            assert isinstance(addr, tuple)
            receiver.socket.sendto(b"answer", addr)

            assert addr == ("::ffff:127.0.0.1", peer.getsockname()[1], 0, 0)
            assert peer.recv(10) == b"answer"


# --- the table


@given(
    names=st.lists(
        st.one_of(
            st.just(b""),
            st.binary(min_size=2, max_size=lib.AIORECV_NAME_SIZE).map(lambda tail: b"\0\0" + tail),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_peers_have_one_number_each_whatever_their_names(names):
    names = [name[: lib.AIORECV_NAME_SIZE] for name in names]
    with open_source(64) as source, Seam(source.core, 64) as seam:
        seam.play(Step([Message(b"x", name) for name in names]))
        batch = read_batch(source, len(names), False)
        assert batch is not None

        numbers = batch._slab.core.peers[0 : len(names)]
        entries = source.core.peers.entries

        assert source.core.peers.count == len(set(names))
        assert [bytes(entries[n].name)[: entries[n].size] for n in numbers] == names
        # A family of which nothing is known has no address.
        assert set(batch.addresses()) == {None}


def test_more_peers_than_the_table_holds_keep_their_addresses():
    """Three tables' worth: each is replaced when full, and old batches keep theirs."""
    total, slots = 3 * lib.AIORECV_MAX_PEERS, 512
    peers = [(f"10.0.{number // 256}.{number % 256}", 1 + number) for number in range(total)]
    memory = LoopMemory()
    kept = []
    tables = [memory.peers]
    with open_source(64, memory) as source, Seam(source.core, 64) as seam:
        for start in range(0, total, slots):
            part = peers[start : start + slots]
            seam.play(Step([Message(b"x", sockaddr(*peer)) for peer in part]))
            batch = read_batch(source, slots, False)
            assert batch is not None
            kept.append((batch, part))
            if memory.peers is not tables[-1]:
                tables.append(memory.peers)
            assert len(seam.calls) == 1

        for batch, part in kept:
            assert list(batch.addresses()) == part
        assert len(tables) == 3
        assert all(table.core.count <= lib.AIORECV_MAX_PEERS for table in tables)


def test_memory_that_is_short_is_an_error_of_the_table():
    tables = []

    with little_memory(16 << 20), pytest.raises(OSError, match="no memory for peers") as raised:
        for _ in range(100):
            tables.append(AddressTable())  # noqa: PERF401  # what was made before the error counts

    assert raised.value.errno == errno.ENOMEM
    assert tables


def test_sources_of_one_loop_share_the_table_that_replaces_a_full_one():
    memory = LoopMemory()
    first = memory.peers
    with open_source(64, memory) as one, open_source(64, memory) as other:
        for start in range(0, lib.AIORECV_MAX_PEERS + 1, 1024):
            assert ports_read(one, start) == list(range(start, start + 1024))
        second = memory.peers
        assert second is not first
        assert other.core.peers == first.core

        assert ports_read(other, 0) == list(range(1024))

        assert memory.peers is second
        assert one.core.peers == other.core.peers == second.core


def ports_read(source: MessageSource, start: int) -> list[int]:
    """The ports of the senders that a read of 1024 peers from port ``start`` on gives."""
    with Seam(source.core, 64) as seam:
        ports = range(start, start + 1024)
        seam.play(Step([Message(b"x", sockaddr("10.1.0.1", port)) for port in ports]))
        batch = read_batch(source, 1024, False)
        assert batch is not None
        return [addr[1] for addr in batch.addresses() if isinstance(addr, tuple)]
