"""One read decoded, from scripts that no kernel would play on one machine."""

from __future__ import annotations

import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiorecv._native._core import lib
from tests import decoder_model as model
from tests.decoder_model import control, gro
from tests.helpers import open_source, read_batch, sockaddr
from tests.seam import Call, Message, Seam, Step

SLOT = 512
ALICE, BOB = sockaddr("192.0.2.1", 9), sockaddr("192.0.2.2", 9)
TIME = (socket.SOL_SOCKET, 35, bytes(16))


@pytest.fixture
def source():
    with open_source(SLOT) as opened:
        yield opened


@pytest.fixture
def seam(source):
    with Seam(source.core, SLOT) as placed:
        yield placed


def train(segment: int, size: int, **more: int) -> Message:
    payload = bytes(number % 251 for number in range(size))
    return Message(payload, ALICE, control(gro(segment)), **more)


# --- what comes back from recvmmsg


def test_interrupted_calls_are_made_again(source, seam):
    seam.play(Step.fails(errno.EINTR), Step.fails(errno.EINTR), Step([Message(b"data", ALICE)]))

    batch = read_batch(source, 2, False)

    assert batch is not None
    assert batch[:] == [(b"data", ("192.0.2.1", 9))]
    assert len(seam.calls) == 3
    assert source.core.reads == 1


def test_partial_count_takes_just_that_many(source, seam):
    seam.play(Step([Message(b"%d" % number, ALICE) for number in range(8)], result=3))

    batch = read_batch(source, 8, False)

    assert batch is not None
    assert batch.payloads() == [b"0", b"1", b"2"]
    assert (batch.slots, batch.full) == (8, False)


def test_count_above_the_window_is_cut_to_it(source, seam):
    seam.play(Step([Message(b"%d" % number, ALICE) for number in range(4)], result=9))

    batch = read_batch(source, 4, False)

    assert batch is not None
    assert list(batch.payloads()) == [b"0", b"1", b"2", b"3"]
    assert batch.full


@pytest.mark.parametrize("nothing", [Step(), Step.fails(errno.EAGAIN)])
def test_nothing_there_is_no_read(source, seam, nothing):
    seam.play(nothing)

    assert read_batch(source, 4, True) is None

    core = source.core
    assert (core.reads, core.polled_reads, core.empty_reads, core.rearmed) == (0, 0, 1, 0)


@pytest.mark.parametrize("error", [errno.ECONNREFUSED, errno.ENETDOWN, errno.EBADF])
def test_error_is_the_kernels_own_and_costs_no_slab(source, seam, error):
    seam.play(Step.fails(error), Step([Message(b"behind", ALICE)]))

    with pytest.raises(OSError, match=r".") as raised:
        read_batch(source, 4, False)
    batch = read_batch(source, 4, False)

    assert raised.value.errno == error
    assert batch is not None
    assert batch.payloads()[0] == b"behind"
    assert len(source._memory.pool.slabs) == 1
    assert source.core.empty_reads == 0


@given(windows=st.lists(st.tuples(st.integers(1, 1024), st.booleans(), st.floats(0, 1))))
def test_every_call_offers_just_the_window_and_never_waits(windows):
    with open_source(SLOT) as source, Seam(source.core, SLOT) as seam:
        counts = [round(share * slots) for slots, _, share in windows]
        # The same few messages serve any count: the headers behind them are still checked.
        seam.play(*[Step([Message(b"x", ALICE)] * min(count, 3)) for count in counts])

        for slots, polled, _ in windows:
            read_batch(source, slots, polled)

        flags = socket.MSG_DONTWAIT | socket.MSG_TRUNC
        assert seam.calls == [Call(slots, flags, False, 0) for slots, _, _ in windows]


def test_just_the_headers_that_were_used_are_armed_again(source, seam):
    steps = [Step([Message(b"x", ALICE, control(TIME))] * count) for count in (8, 1, 0, 5, 8)]
    seam.play(*steps)

    for _ in steps:
        read_batch(source, 8, False)

    assert source.core.rearmed == 8 + 1 + 0 + 5 + 8
    assert [call.unarmed for call in seam.calls] == [0] * 5


@pytest.mark.parametrize("slots", [0, 9, -9, 1025])
def test_slots_that_the_slab_lacks_are_refused_before_the_call(source, seam, slots):
    slab = source._memory.pool.make(8, SLOT)
    seam.play(Step([Message(b"x", ALICE)]))

    assert lib.aiorecv_receive(source.core, slab.core, slots) == -errno.EINVAL

    assert seam.calls == []


# --- one message


@pytest.mark.parametrize(
    ("length", "flags"), [(513, socket.MSG_TRUNC), (2**32 - 1, socket.MSG_TRUNC), (600, 0)]
)
def test_length_beyond_the_slot_never_reads_beyond_it(source, seam, length, flags):
    whole = bytes(range(256)) * 2
    seam.play(Step([Message(whole + b"beyond", ALICE, flags=flags, length=length)] * 2))

    batch = read_batch(source, 2, False)

    assert batch is not None
    told = length if flags else 512
    expected = model.Cut(whole, ("192.0.2.1", 9), bool(flags), told)
    assert model.packets_of(batch) == [expected, expected]
    assert batch.nbytes == 1024
    assert source.core.truncated == (2 if flags else 0)


def test_name_longer_than_its_room_is_cut(source, seam):
    seam.play(Step([Message(b"a", ALICE, name_size=0xFFFF), Message(b"b", ALICE)]))

    batch = read_batch(source, 2, False)

    assert batch is not None
    assert batch.addresses()[0] == ("192.0.2.1", 9)


def test_message_without_a_name_has_no_address_also_after_one_with(source, seam):
    seam.play(Step([Message(b"a", ALICE), Message(b"b"), Message(b"c"), Message(b"d", ALICE)]))

    batch = read_batch(source, 4, False)

    assert batch is not None
    assert list(batch.addresses()) == [("192.0.2.1", 9), None, None, ("192.0.2.1", 9)]


# --- trains


@pytest.mark.parametrize("count", [1, 2, 64, 127, 128, 129, 200])
@pytest.mark.parametrize("last", [1, 2])
def test_train_of_any_number_of_segments_is_split(source, seam, count, last):
    length = 2 * (count - 1) + last
    seam.play(Step([train(2, length), Message(b"", BOB)]))

    batch = read_batch(source, 2, False)

    assert batch is not None
    payload = train(2, length).payload
    parts = [payload[start : start + 2] for start in range(0, length, 2)]
    assert list(batch.payloads()) == [*parts, b""]
    assert len(batch) == count + 1
    assert source.core.packets == count + 1


@pytest.mark.parametrize("segment", [0, -1, -(2**31), 100, 101, 2**31 - 1])
def test_segment_that_splits_nothing_leaves_a_plain_datagram(source, seam, segment):
    seam.play(Step([train(segment, 100)]))

    batch = read_batch(source, 1, False)

    assert batch is not None
    assert batch.payloads()[0] == train(segment, 100).payload
    assert (len(batch), source.core.trains) == (1, 0)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (control((17, 104, b"\x0a\0\0")), None),
        (control(gro(10), told=15), None),
        (control(gro(10), told=0), None),
        (control(gro(10), told=1 << 40), None),
        (control(gro(10)), 12),
        (control(gro(10)), 19),
        (control((6, 104, struct.pack("=i", 10))), None),
        (control((17, 103, struct.pack("=i", 10))), None),
    ],
    ids=["3 bytes", "len 15", "len 0", "len huge", "cut head", "cut data", "level", "type"],
)
def test_ancillary_data_that_makes_no_sense_splits_nothing(source, seam, data, size):
    message = Message(b"0123456789abcdef", ALICE, data, socket.MSG_CTRUNC, control_size=size)
    seam.play(Step([message]))

    batch = read_batch(source, 1, False)

    assert batch is not None
    assert batch.payloads()[0] == b"0123456789abcdef"
    assert source.core.ancillary_truncated == 1


def test_segment_size_is_found_behind_other_items_and_in_full_room(source, seam):
    room = control(TIME, (0, 2, b"\1"), gro(3))
    seam.play(
        Step([Message(b"abcde", ALICE, room), Message(b"fghij", BOB, room, control_size=1 << 31)])
    )

    batch = read_batch(source, 2, False)

    assert batch is not None
    assert list(batch.payloads()) == [b"abc", b"de", b"fgh", b"ij"]
    assert list(batch.addresses()) == [("192.0.2.1", 9)] * 2 + [("192.0.2.2", 9)] * 2


def test_segment_size_of_a_message_before_is_not_taken_again(source, seam):
    seam.play(Step([train(3, 9)]), Step([Message(b"abcdefghi", ALICE)]))

    first, second = read_batch(source, 1, False), read_batch(source, 1, False)

    assert first is not None
    assert second is not None
    assert (len(first), len(second)) == (3, 1)


@pytest.mark.parametrize("segment", [3, 100, 512, 600])
def test_cut_train_keeps_its_whole_segments_and_marks_the_last(source, seam, segment):
    seam.play(Step([train(segment, 512, flags=socket.MSG_TRUNC, length=1300)]))

    batch = read_batch(source, 1, False)

    assert batch is not None
    packets = model.packets_of(batch)
    size = min(segment, 512)
    assert [len(packet.data) for packet in packets] == [size] * (512 // size)
    assert [packet.truncated for packet in packets] == [False] * (len(packets) - 1) + [True]
    assert packets[-1].length == segment
    assert batch.nbytes == 512 // size * size
    assert source.core.truncated == 1
