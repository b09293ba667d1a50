"""Batches from real sockets: every way to the packets gives what was sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import attrs
import pytest

import aiorecv
from aiorecv import PacketBatch, _leases, _payloads
from aiorecv._sources import MessageSource
from tests.helpers import UDP_GRO, UDP_SEGMENT, LoopMemory, open_source, read_batch, send

BYTES_0_TO_255 = bytes(range(256))
LARGEST = bytes(number % 253 for number in range(65_507))


@attrs.frozen
class Traffic:
    """What is sent, and so what a batch has to be: a name, senders' indexes and payloads."""

    name: str
    packets: list[tuple[int, bytes]]
    segment: int | None = None
    """All of it as one GSO send in segments of this size, from sender 0."""

    def send(self, senders: list[socket.socket]) -> None:
        if self.segment is None:
            for sender, data in self.packets:
                senders[sender].send(data)
        else:
            senders[0].setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, self.segment)
            senders[0].send(b"".join(data for _, data in self.packets))
            senders[0].setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)


def train(segment: int, count: int, last: int | None = None) -> list[tuple[int, bytes]]:
    whole = [(0, bytes([number % 256]) * segment) for number in range(count)]
    return whole if last is None else [*whole[:-1], (0, b"#" * last)]


TRAFFIC = [
    Traffic("one", [(0, b"alone")]),
    Traffic("one empty", [(0, b"")]),
    Traffic("all empty", [(0, b"")] * 6),
    Traffic("equal, one peer", [(0, b"%03d" % number) for number in range(40)]),
    Traffic("equal, two peers", [(number % 2, b"%03d" % number) for number in range(40)]),
    Traffic("two of a size", [(0, b"ab"), (1, b"cd")]),
    Traffic("mixed", [(number % 3, bytes([number]) * (number * 7 % 31)) for number in range(60)]),
    Traffic("NULs", [(0, b"\0"), (0, b"\0\0ab\0"), (1, BYTES_0_TO_255), (0, b"a\0")]),
    Traffic("largest", [(0, LARGEST)]),
    Traffic("largest among small", [(0, b"a"), (1, LARGEST), (0, b""), (0, b"bc" * 2000)]),
    Traffic("train", train(100, 20), 100),
    Traffic("train with a short end", train(1400, 44, last=3), 1400),
    Traffic("train of single bytes", train(1, 128), 1),
]


@pytest.fixture(params=[False, True], ids=["plain", "gro"])
def source(request: pytest.FixtureRequest) -> Iterator[MessageSource]:
    with open_source(gro=request.param) as opened:
        yield opened


@pytest.fixture
def senders(source: MessageSource) -> Iterator[list[socket.socket]]:
    opened = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for sender in opened:
        sender.connect(source.sock.getsockname())
    yield opened
    for sender in opened:
        sender.close()


@pytest.fixture(params=TRAFFIC, ids=lambda traffic: traffic.name)
def traffic(request: pytest.FixtureRequest) -> Traffic:
    assert isinstance(request.param, Traffic)
    return request.param


@pytest.fixture(params=["read", "copy", "copy of a copy"])
def batch(
    request: pytest.FixtureRequest,
    source: MessageSource,
    senders: list[socket.socket],
    traffic: Traffic,
) -> PacketBatch:
    """The traffic, twice so that trains have neighbours, as one read or as a copy of it."""
    traffic.send(senders)
    traffic.send(senders)
    batch = read_batch(source, 1024, False)
    assert batch is not None
    for _ in range(request.param.count("copy")):
        batch = batch.copy()
    return batch


@pytest.fixture
def pairs(traffic: Traffic, senders: list[socket.socket]) -> list[tuple[bytes, Any]]:
    return [(data, senders[index].getsockname()) for index, data in traffic.packets] * 2


def test_every_way_gives_what_was_sent(batch, pairs):
    sent = [data for data, _ in pairs]

    assert len(batch) == len(pairs)
    assert list(batch) == pairs
    assert list(batch.payloads()) == sent
    assert list(batch.addresses()) == [addr for _, addr in pairs]
    assert [view.tobytes() for view in batch.views()] == sent
    assert batch.nbytes == sum(map(len, sent))
    assert list(batch.lengths) == [len(data) for data in sent]
    packets = [attrs.astuple(packet, recurse=False)[:4] for packet in batch.packets()]
    assert packets == [(data, addr, False, len(data)) for data, addr in pairs]


def test_indexes_and_slices_are_those_of_a_list(batch, pairs):
    count = len(pairs)

    assert [batch[number] for number in range(-count, count)] == pairs + pairs
    for chosen in (
        slice(None),
        slice(1, None),
        slice(None, -1),
        slice(None, None, -2),
        slice(count, None),
    ):
        assert batch[chosen] == pairs[chosen]
    for beyond in (count, -count - 1, 1 << 40):
        with pytest.raises(IndexError):
            batch[beyond]
    with pytest.raises(TypeError):
        batch["0"]


def test_offsets_and_lengths_point_into_the_buffer(batch, pairs):
    buffer, offsets, lengths = batch.buffer, batch.offsets, batch.lengths

    assert (buffer.format, offsets.format, lengths.format) == ("B", "I", "I")
    assert offsets.shape == lengths.shape == (len(pairs),)
    assert [
        bytes(buffer[start : start + size]) for start, size in zip(offsets, lengths, strict=True)
    ] == [data for data, _ in pairs]


def test_nothing_can_be_written_through_a_batch(batch):
    for view in (batch.buffer, batch.offsets, batch.lengths, *batch.views()):
        assert view.readonly
        with pytest.raises(TypeError):
            view[0:0] = b""


def test_gro_glues_what_was_sent_as_a_train_and_the_batch_does_not_show_it(source, batch, traffic):
    glued = source.sock.getsockopt(socket.IPPROTO_UDP, UDP_GRO) and traffic.segment
    messages = 2 if glued else 2 * len(traffic.packets)

    assert source.core.trains == (2 if glued else 0)
    if isinstance(batch, _leases.LeasedBatch):  # a copy knows of no messages
        assert batch._received == messages
    assert source.core.packets == 2 * len(traffic.packets)
    assert (batch.slots, batch.full, batch.polled) == (1024, False, False)


def test_releasing_amid_a_train_batch_stops_its_iteration(source, senders):
    Traffic("", train(10, 3), 10).send(senders)
    Traffic("", train(10, 3), 10).send(senders)
    batch = read_batch(source, 8, False)
    glued = batch._received == 2
    seen = []

    # Bytes that were made stay: without GRO all of them were made at once.
    with pytest.raises(aiorecv.BatchReleasedError) if glued else nullcontext():
        for data, _ in batch:
            seen.append(data)
            batch.release()

    assert seen == [data for _, data in train(10, 3)] * (1 if glued else 2)


# --- what was cut


def test_datagram_larger_than_a_slot_is_cut_and_marked_with_its_length_on_the_wire():
    memory = LoopMemory()
    with (
        open_source(100, memory) as source,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.connect(source.sock.getsockname())
        for size in (100, 101, 5000, 0):
            sender.send((BYTES_0_TO_255 * 20)[:size])

        batch = read_batch(source, 8, False)

        assert batch is not None
        for given in (batch, batch.copy()):
            packets = list(given.packets())
            assert [packet.truncated for packet in packets] == [False, True, True, False]
            assert [packet.length for packet in packets] == [100, 101, 5000, 0]
            assert [packet.data for packet in packets] == [BYTES_0_TO_255[:100]] * 3 + [b""]
            assert given.nbytes == 300
        assert source.core.truncated == 2


async def test_cut_datagrams_are_counted_and_do_not_spoil_their_neighbours():
    async with aiorecv.open_udp(("127.0.0.1", 0), slot_size=4, gro=False) as receiver:
        send(receiver, b"ab", b"abcdef", b"gh")

        seen: list[tuple[bytes, bool]] = []
        while len(seen) < 3:
            with await receiver.receive() as batch:
                seen += [(packet.data, packet.truncated) for packet in batch.packets()]

        assert seen == [(b"ab", False), (b"abcd", True), (b"gh", False)]
        statistics = receiver.statistics()
        assert (statistics.truncated, statistics.bytes, statistics.packets) == (1, 8, 3)


def test_more_lengths_than_are_remembered_all_come_out_right(source, senders):
    sender = senders[0]
    for length in range(300):
        for _ in range(4):
            sender.send(b"x" * length)
        with read_batch(source, 4, False) as batch:
            assert list(batch.payloads()) == [b"x" * length] * 4


def test_a_batch_of_many_bytes_is_cut_in_portions_and_in_order(source, senders, monkeypatch):
    for room in (_payloads, _leases):  # a default receive buffer holds no more than these
        monkeypatch.setattr(room, "AT_ONCE_BYTES", 1 << 17)
    sent = []
    for number, sender in enumerate(senders):
        data = bytes([number]) * (60_000 + number)
        sender.send(data)
        sent.append((data, sender.getsockname()))

    with read_batch(source, 64, False) as batch:
        assert list(batch) == sent


def test_many_equal_packets_of_many_bytes_are_cut_in_portions_too(source, senders, monkeypatch):
    for room in (_payloads, _leases):
        monkeypatch.setattr(room, "AT_ONCE_BYTES", 1 << 12)
    sent = []
    for number in range(9):
        sender = senders[number % 3]
        sender.send(bytes([number]) * 1000)
        sent.append((bytes([number]) * 1000, sender.getsockname()))

    with read_batch(source, 64, False) as batch:
        assert list(batch) == sent
        assert list(batch.payloads()) == [data for data, _ in sent]
        pairs = iter(batch)
        assert next(pairs) == sent[0]
    # The rest of the portion, at most: what would come then is not cut yet.
    with pytest.raises(aiorecv.BatchReleasedError):
        list(pairs)
