"""Copies and releases of batches: what may be kept, and what is left."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Callable, Iterator

import pytest

import aiorecv
from aiorecv import PacketBatch, _leases, _payloads
from aiorecv._sources import MessageSource
from tests.helpers import open_source, read_batch


@pytest.fixture
def source() -> Iterator[MessageSource]:
    with open_source(gro=True) as opened:
        yield opened


@pytest.fixture
def sender(source: MessageSource) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.connect(source.sock.getsockname())
        yield opened


@pytest.fixture
def read(source: MessageSource, sender: socket.socket) -> Callable[..., PacketBatch]:
    """Send these payloads from one socket, and read them."""

    def send_and_read(*payloads: bytes, slots: int = 64, polled: bool = False) -> PacketBatch:
        for data in payloads:
            sender.send(data)
        batch = read_batch(source, slots, polled)
        assert batch is not None
        return batch

    return send_and_read


# --- copies


def test_copy_is_packed_and_keeps_no_slab(source, read):
    batch = read(b"first", b"", b"second")

    copied = batch.copy()
    batch.release()

    assert source.held_bytes() == 0
    assert bytes(copied.buffer) == b"firstsecond"
    assert list(copied.offsets) == [0, 5, 5]
    assert copied.nbytes == len(copied.buffer)
    assert copied[2][0] == b"second"


def test_copy_tells_of_the_read_it_came_from(read):
    batch = read(b"a", b"b", slots=2, polled=True)

    copied = batch.copy()

    assert isinstance(copied, PacketBatch)
    assert (copied.slots, copied.full, copied.polled) == (2, True, True)


def test_copy_is_unharmed_by_what_comes_into_the_slab_next(read):
    batch = read(b"old")
    copied = batch.copy()
    batch.release()

    read(b"new")

    assert list(copied.payloads()) == [b"old"]


# --- release

TOUCHES: list[Callable[[PacketBatch], object]] = [
    iter,
    lambda batch: batch[0],
    lambda batch: batch[:],
    lambda batch: batch[1:1],
    lambda batch: batch.payloads(),
    lambda batch: batch.addresses(),
    lambda batch: batch.views(),
    lambda batch: batch.packets(),
    lambda batch: batch.buffer,
    lambda batch: batch.offsets,
    lambda batch: batch.lengths,
    lambda batch: batch.copy(),
]


@pytest.mark.parametrize("make", [lambda b: b, lambda b: b.copy()], ids=["read", "copy"])
@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("used", [False, True], ids=["untouched", "used before"])
def test_released_batch_refuses_its_packets_and_names_the_remedy(read, make, touch, used):
    batch = make(read(b"a", b"bc"))
    if used:
        for each in TOUCHES:
            each(batch)

    batch.release()

    with pytest.raises(aiorecv.BatchReleasedError, match=r"copy\(\)"):
        touch(batch)


@pytest.mark.parametrize("make", [lambda b: b, lambda b: b.copy()], ids=["read", "copy"])
def test_released_batch_still_answers_about_the_read(read, make):
    batch = make(read(b"a", b"bc", polled=True))

    batch.release()
    batch.release()

    assert (len(batch), batch.nbytes) == (2, 3)
    assert (batch.polled, batch.full, batch.slots) == (True, False, 64)
    assert "2 packets, 3 bytes" in repr(batch)


def test_with_releases(source, read):
    with read(b"a") as batch:
        assert source.held_bytes() == 64 * (source.slot_size + 576)  # no whole pages apart

    assert source.held_bytes() == 0
    with pytest.raises(aiorecv.BatchReleasedError):
        batch.payloads()


def test_dropped_batch_gives_its_slab_back(source, read):
    batch = read(b"a")
    gone = weakref.ref(batch)

    del batch
    gc.collect()

    assert gone() is None
    assert source.held_bytes() == 0


def test_bytes_are_the_users_for_ever(read):
    batch = read(b"mine", b"too")
    pairs = list(batch)
    batch.release()

    read(b"xxxx", b"yyy")

    assert [data for data, _ in pairs] == [b"mine", b"too"]


SIZES = (b"one", b"three", b"x", b"fourteen bytes")


def test_a_begun_iterator_gives_what_it_has_copied_after_a_release(read):
    batch = read(*SIZES)
    pairs = iter(batch)

    batch.release()
    read(b"ONE", b"THREE")

    assert [data for data, _ in pairs] == list(SIZES)
    with pytest.raises(aiorecv.BatchReleasedError):
        iter(batch)


def test_iterators_over_many_bytes_end_when_their_batch_is_released(read, monkeypatch):
    for room in (_payloads, _leases):  # a default receive buffer holds no more than these
        monkeypatch.setattr(room, "AT_ONCE_BYTES", 1 << 17)
    large = [bytes([number]) * (60_000 + number) for number in range(3)]
    batch = read(*large)
    begun, other, late = iter(batch), iter(batch), iter(batch)
    assert next(begun)[0] == next(other)[0] == large[0]

    batch.release()

    for pairs, copied in ((begun, 1), (other, 1), (late, 0)):
        with pytest.raises(aiorecv.BatchReleasedError):
            for _ in range(copied + 1):
                next(pairs)


def test_an_iterator_keeps_a_batch_that_nobody_else_has(read):
    assert [data for data, _ in read(*SIZES)] == list(SIZES)
