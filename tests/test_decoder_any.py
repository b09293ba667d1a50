"""Any script at all, decoded as the model says, by every public way to the packets."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiorecv import Address, PacketBatch
from tests import decoder_model as model
from tests.decoder_model import control, gro
from tests.helpers import UDP_GRO, open_source, read_batch, sockaddr
from tests.seam import Message, Seam, Step

if TYPE_CHECKING:
    from aiorecv._native._core import ReceiverStruct

SLOT = 512
PEERS: dict[bytes, Address] = {
    b"": None,
    sockaddr("192.0.2.1", 9): ("192.0.2.1", 9),
    sockaddr("192.0.2.2", 9): ("192.0.2.2", 9),
    sockaddr("2001:db8::1", 1, 7, 0): ("2001:db8::1", 1, 7, 0),
    sockaddr("fe80::1", 65_535, 0, 3): ("fe80::1", 65_535, 0, 3),
}
NAMES = st.sampled_from(sorted(PEERS))
ITEMS = st.one_of(
    st.builds(gro, st.one_of(st.integers(-3, 700), st.integers(-(2**31), 2**31 - 1))),
    st.tuples(st.sampled_from([0, 1, 6, 17]), st.integers(100, 108), st.binary(max_size=24)),
)
FLAGS = st.sampled_from(
    [0, 0, socket.MSG_TRUNC, socket.MSG_CTRUNC, socket.MSG_TRUNC | socket.MSG_CTRUNC]
)


@st.composite
def messages(draw, plain):
    name = draw(NAMES)
    size = draw(st.one_of(st.integers(0, SLOT), st.sampled_from([0, 1, 64, SLOT])))
    payload = (draw(st.binary(min_size=1, max_size=8)) * SLOT)[:size]
    if plain:
        return Message(payload, name)
    items = draw(st.lists(ITEMS, max_size=4))
    told = draw(st.one_of(st.none(), st.none(), st.integers(0, 64), st.just(2**63)))
    data = control(*items, told=told)
    sizes = [st.none(), st.integers(0, len(data))]
    if told is None:  # of two lies together the decoder may read on in its own old bytes
        sizes.append(st.just(2**32 - 1))
    return Message(
        payload if size < SLOT else payload + b"tail",
        name,
        data,
        draw(FLAGS),
        draw(st.one_of(st.none(), st.integers(SLOT, 2**32 - 1))) if size >= SLOT else None,
        draw(st.one_of(st.none(), st.just(0xFFFFFFFF))) if name else None,
        draw(st.one_of(sizes)),
    )


@st.composite
def reads(draw):
    """Slots, polled or not, and the steps of one read."""
    slots = draw(st.integers(1, 20))
    kind = draw(st.sampled_from(["plain", "any", "equal"]))
    made = draw(st.lists(messages(plain=kind != "any"), max_size=slots))
    if kind == "equal" and made:
        made = made[:1] * draw(st.integers(1, slots))
    step = draw(
        st.sampled_from(
            [
                Step(made),
                Step(made),
                Step(made, result=draw(st.integers(0, len(made)))),
                Step(made, result=slots + 2) if len(made) == slots else Step(made),
                Step.fails(errno.ECONNREFUSED),
            ]
        )
    )
    interrupted = [Step.fails(errno.EINTR)] * draw(st.integers(0, 2))
    return slots, draw(st.booleans()), [*interrupted, step]


# A segment size without its number tells nothing; the one behind it does.
NUMBERLESS = Message(b"ab", b"", control((socket.IPPROTO_UDP, UDP_GRO, b""), gro(1)))


# Of a cut train the last packet is marked, though its bytes are those of the one before.
CUT_TRAIN = Message(b"\0\0", b"", control(gro(1)), flags=socket.MSG_TRUNC)


@given(script=st.lists(reads(), max_size=6))
@example(script=[(1, False, [Step([NUMBERLESS])])])
@example(script=[(1, False, [Step([CUT_TRAIN])])])
def test_any_script_is_decoded_as_the_model_says(script):
    with open_source(SLOT) as source, Seam(source.core, SLOT) as seam:
        seam.play(*[step for _, _, steps in script for step in steps])
        brought = []

        for slots, polled, steps in script:
            expected = model.read(steps, PEERS, slots, SLOT)
            if isinstance(expected, model.Read):
                brought.append((expected, polled))
                check(read_batch(source, slots, polled), expected, slots, polled)
            elif expected == errno.EAGAIN:
                assert read_batch(source, slots, polled) is None
            else:
                with pytest.raises(OSError, match=r".") as raised:
                    read_batch(source, slots, polled)
                assert raised.value.errno == expected

        assert seam.finished
        assert sum(call.unarmed for call in seam.calls) == 0
        check_counters(source.core, brought)


def check(batch: PacketBatch | None, expected: model.Read, slots: int, polled: bool) -> None:
    assert batch is not None
    assert model.packets_of(batch) == expected.packets
    pairs = [(packet.data, packet.addr) for packet in expected.packets]
    assert list(batch) == batch[:] == pairs
    assert [batch[number] for number in range(len(batch))] == pairs
    assert list(batch.payloads()) == [data for data, _ in pairs]
    assert list(batch.addresses()) == [addr for _, addr in pairs]
    assert [bytes(view) for view in batch.views()] == [data for data, _ in pairs]
    assert list(batch.lengths) == [len(data) for data, _ in pairs]
    buffer = batch.buffer
    located = zip(batch.offsets, batch.lengths, strict=True)
    assert [bytes(buffer[start : start + size]) for start, size in located] == [
        data for data, _ in pairs
    ]
    assert batch.nbytes == sum(len(data) for data, _ in pairs)
    assert (batch.slots, batch.polled) == (slots, polled)
    assert batch.full == (expected.messages == slots)


def check_counters(core: ReceiverStruct, brought: list[tuple[model.Read, bool]]) -> None:
    results = [read for read, _ in brought]
    assert core.reads == len(brought)
    assert core.polled_reads == sum(polled for _, polled in brought)
    assert core.packets == sum(len(read.packets) for read in results)
    assert core.bytes == sum(len(p.data) for read in results for p in read.packets)
    assert core.rearmed == sum(read.messages for read in results)
    assert core.trains == sum(read.trains for read in results)
    assert core.truncated == sum(read.truncated for read in results)
    assert core.ancillary_truncated == sum(read.ancillary_truncated for read in results)
