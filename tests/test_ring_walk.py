"""The walk over a ring's blocks, in ordinary memory: nothing is read beyond a block."""

from __future__ import annotations

import struct
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from aiorecv._addresses import Address, AddressTable
from aiorecv._native._core import ffi, lib
from aiorecv._packet import Metadata
from aiorecv._ring import Ring, RingConfig
from aiorecv._ring_batch import RingBatch

BLOCK_SIZE, BLOCKS = 1 << 17, 3
USER, TIMED_OUT = 1, 1 << 5  # TP_STATUS_USER, TP_STATUS_BLK_TMO
# linux/if_packet.h: struct tpacket_block_desc, tpacket3_hdr, sockaddr_ll.
_BLOCK = struct.Struct("=IIIIII")
_HEADER = struct.Struct("=IIIIIIHH4x")
_VLAN = struct.Struct("=8xHH")
_NAME = struct.Struct("=HHiHBB8s")
_HEAD = 48 + 20


class Frame(NamedTuple):
    """One frame as the kernel would write it."""

    data: bytes
    sender: int = 1
    cut: int = 0
    mac: int = 82
    gap: int = 0


class Senders(AddressTable):
    """Senders by their hardware addresses as numbers."""

    def decode(self, name: bytes) -> Address:
        """That of a sockaddr_ll."""
        return (int.from_bytes(name[12:18], "big"),)


class Block:
    """A ring in ordinary memory, whose blocks a test writes as the kernel would."""

    def __init__(self) -> None:
        self.ring = Ring(-1, RingConfig(BLOCK_SIZE, BLOCKS))
        self.peers = Senders()
        self.core = ffi.new("struct aiorecv_receiver *")
        lib.aiorecv_receiver_init(self.core, -1)
        self.core.peers = self.peers.core
        self.memory = self.ring.buffer

    def write(self, number: int, frames: list[Frame], status: int = USER) -> None:
        """Fill a block."""
        start, at = number * BLOCK_SIZE, 48
        for index, one in enumerate(frames):
            size = -(-(one.mac + len(one.data) + one.gap) // 8) * 8
            following = size if index + 1 < len(frames) else 0
            length = len(one.data)
            self.put(
                start + at, _HEADER.pack(following, 7, 9, length, length + one.cut, 0, one.mac, 0)
            )
            name = _NAME.pack(17, 8, 3, 1, 0, 6, one.sender.to_bytes(6, "big"))
            self.put(start + at + 48, name)
            self.put(start + at + one.mac, one.data)
            at += size
        # Version, private area, then status, packets, first packet's offset, length.
        self.put(start, _BLOCK.pack(3, 48, status, len(frames), 48, at))

    def put(self, at: int, data: bytes) -> None:
        self.memory[at : at + len(data)] = data

    def read(self, metadata: Metadata = Metadata.NONE) -> RingBatch | int:
        """The next batch, or what the walk returned."""
        received = self.ring.read(self.core, False)
        if received == -lib.AIORECV_PEERS_FULL:
            self.peers = Senders()
            self.core.peers = self.peers.core
            return self.read(metadata)
        if received <= 0:
            return received
        return RingBatch(self.ring, self.peers, received, False, metadata)

    def status(self, number: int) -> int:
        at = number * BLOCK_SIZE + 8
        return int.from_bytes(self.memory[at : at + 4], "little")

    def close(self) -> None:
        self.ring.close()


FRAMES = st.lists(
    st.builds(
        Frame,
        data=st.binary(max_size=300),
        sender=st.integers(1, 5),
        cut=st.sampled_from([0, 0, 0, 1, 1000]),
        mac=st.sampled_from([82, 82, 82, 90, 70]),
        gap=st.sampled_from([0, 0, 8, 40]),
    ),
    min_size=1,
    max_size=60,
)


@given(blocks=st.lists(FRAMES, min_size=1, max_size=7), hold=st.booleans())
def test_every_frame_comes_as_it_was_written_and_in_order(blocks, hold):
    block = Block()
    for number, frames in enumerate(blocks):
        place = number % BLOCKS
        block.write(place, frames, USER | TIMED_OUT * (number % 2))

        batch = block.read()

        assert isinstance(batch, RingBatch)
        assert list(batch) == [(one.data, (one.sender,)) for one in frames]
        assert batch.payloads() == [one.data for one in frames]
        assert batch.views() == [one.data for one in frames]
        assert batch.full == (number % 2 == 0)
        assert [packet.length for packet in batch.packets()] == [
            len(one.data) + one.cut for one in frames
        ]
        assert [packet.truncated for packet in batch.packets()] == [one.cut > 0 for one in frames]
        assert batch[-1][0] == frames[-1].data
        view = batch.views()[-1] if hold else None
        batch.release()
        assert block.status(place) & USER == bool(hold)
        del view
        assert block.status(place) == 0
        assert isinstance(block.read(), int)
    sent = [one for frames in blocks for one in frames]
    assert block.core.packets == len(sent)
    assert block.core.bytes == sum(len(one.data) for one in sent)
    assert block.core.truncated == sum(one.cut > 0 for one in sent)
    block.close()


@given(
    frames=FRAMES,
    damage=st.lists(
        st.tuples(st.integers(0, 4000), st.integers(0, 2**32 - 1)), min_size=1, max_size=20
    ),
    count=st.integers(0, 2**32 - 1),
)
def test_whatever_a_block_says_nothing_outside_it_is_read(frames, damage, count):
    block = Block()
    block.write(0, frames)
    for at, value in damage:
        block.put(at // 4 * 4, value.to_bytes(4, "little"))
    block.put(8, USER.to_bytes(4, "little"))
    block.put(12, count.to_bytes(4, "little"))

    batch = block.read()

    if isinstance(batch, RingBatch):
        layout = batch._laid_out()
        for start, length in zip(layout.offsets, layout.lengths, strict=True):
            assert start + length <= BLOCK_SIZE
        assert [len(data) for data in batch.payloads()] == list(layout.lengths)
        list(batch.packets())
        batch.release()
    assert block.status(0) == 0
    block.close()


def test_a_frame_without_a_next_one_is_the_last_whatever_the_block_says():
    block = Block()
    block.write(0, [Frame(b"one"), Frame(b"two")])
    block.put(12, (1_000).to_bytes(4, "little"))

    batch = block.read()

    assert isinstance(batch, RingBatch)
    assert batch.payloads() == [b"one", b"two"]
    batch.release()
    block.close()


def test_more_senders_than_a_table_holds_come_in_parts_of_a_block():
    block = Block()
    frames = [Frame(b"x", sender, mac=68) for sender in range(1_500)]
    for number in range(BLOCKS):
        block.write(number, [one._replace(sender=one.sender + 1_500 * number) for one in frames])

    senders: list[Address] = []
    parts = 0
    while isinstance(batch := block.read(), RingBatch):
        parts += 1
        senders += batch.addresses()
        batch.release()

    assert senders == [(number,) for number in range(4_500)]
    assert parts == BLOCKS + 1
    assert [block.status(number) for number in range(BLOCKS)] == [0] * BLOCKS
    block.close()


def test_a_part_that_is_held_holds_the_block():
    block = Block()
    block.write(0, [Frame(b"x", sender, mac=68) for sender in range(1_500)])
    block.write(1, [Frame(b"x", sender, mac=68) for sender in range(1_500, 3_000)])
    block.write(2, [Frame(b"x", sender, mac=68) for sender in range(3_000, 4_500)])
    first, second, third = block.read(), block.read(), block.read()
    assert isinstance(third, RingBatch)
    fourth = block.read()
    assert isinstance(fourth, RingBatch)
    assert len(third) + len(fourth) == 1_500

    third.release()
    assert block.status(2) == USER
    fourth.release()
    assert block.status(2) == 0
    for batch in (first, second):
        batch.release()
    block.close()
