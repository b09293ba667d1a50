"""Ancillary data that was cut: counted, and what is missing is unknown, never an old value."""

from __future__ import annotations

import socket
import struct
from array import array

import pytest

import aiorecv
from aiorecv import Metadata
from aiorecv._native._core import lib
from tests.decoder_model import control
from tests.faults import PATHS, core_of, take_path
from tests.helpers import descriptors, sockaddr
from tests.seam import Message, Seam, Step

TOLD = ("timestamp_ns", "destination", "interface", "tos", "ttl", "drops")
ASKED = Metadata.TIMESTAMP | Metadata.DESTINATION | Metadata.TOS | Metadata.TTL | Metadata.DROPS
NAME = sockaddr("127.0.0.1", 9)
SECONDS = 1_700_000_000
# As an IPv4 socket with all of these gives it; the levels and types are those of ip(7).
ITEMS = {
    "timestamp_ns": (socket.SOL_SOCKET, 35, struct.pack("@qq", SECONDS, 5)),
    "drops": (socket.SOL_SOCKET, 40, struct.pack("=I", 7)),
    "destination": (socket.IPPROTO_IP, 8, struct.pack("=I4s4s", 3, b"\x7f\0\0\1", b"\x7f\0\0\1")),
    "tos": (socket.IPPROTO_IP, socket.IP_TOS, b"\x2e"),
    "ttl": (socket.IPPROTO_IP, socket.IP_TTL, struct.pack("=i", 33)),
}
KNOWN = (SECONDS * 10**9 + 5, "127.0.0.1", 3, 0x2E, 33, 7)


@pytest.fixture
async def receiver():
    async with aiorecv.open_udp(("127.0.0.1", 0), metadata=ASKED) as opened:
        take_path(opened, "recvmmsg")
        yield opened


def whole(*names: str) -> Message:
    return Message(b"x", NAME, control(*(ITEMS[name] for name in names)))


def cut(data: bytes) -> Message:
    return Message(b"x", NAME, data, flags=socket.MSG_CTRUNC)


def read(receiver, message: Message) -> tuple[object, ...]:
    """What a read of this message tells, in the order of ``TOLD``."""
    with Seam(core_of(receiver)) as seam:
        seam.play(Step([message]))
        with receiver.receive_nowait() as batch:
            (packet,) = batch.packets()
            assert batch.timestamps_ns[0] == (packet.timestamp_ns or 0)
    return tuple(getattr(packet, name) for name in TOLD)


async def test_whole_data_is_told(receiver):
    assert read(receiver, whole(*ITEMS)) == KNOWN
    assert receiver.statistics().ancillary_truncated == 0


async def test_a_quiet_kernel_has_dropped_nothing(receiver):
    assert read(receiver, whole("ttl")) == (None, None, None, None, 33, 0)


@pytest.mark.parametrize("size", range(0, len(control(*ITEMS.values())), 4))
async def test_what_lies_behind_a_cut_is_unknown(receiver, size):
    read(receiver, whole(*ITEMS))  # whose values are still in the slab

    told = read(receiver, cut(control(*ITEMS.values())[:size]))

    ends = {name: len(control(*list(ITEMS.values())[: at + 1])) for at, name in enumerate(ITEMS)}
    ends["interface"] = ends["destination"]
    for name, value, known in zip(TOLD, told, KNOWN, strict=True):
        # The padding behind an item may be gone without harm.
        if ends[name] <= size:
            assert value == known
        elif ends[name] > size + 8:
            assert value is None
        else:
            assert value in (None, known)
    assert receiver.statistics().ancillary_truncated == 1


async def test_an_item_cut_inside_is_unknown(receiver):
    read(receiver, whole(*ITEMS))

    for level, kind, value in ITEMS.values():
        # The kernel shortens the item's own length when it cuts it (net/core/scm.c, put_cmsg).
        told = read(receiver, cut(control((level, kind, value[: len(value) // 2]))))
        assert told == (None,) * len(TOLD)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("raw", [False, True])
async def test_too_many_descriptors_are_cut_by_the_kernel_and_none_leaks(path, raw):
    before = descriptors()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    metadata = Metadata.RAW if raw else Metadata.NONE
    with theirs:
        async with aiorecv.from_socket(ours, metadata=metadata) as receiver:
            take_path(receiver, path)
            rights = array("i", [theirs.fileno()] * 250)
            theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

            with await receiver.receive() as batch:
                assert batch.payloads() == (b"x",)

            assert receiver.statistics().ancillary_truncated == 1
            assert len(rights) * rights.itemsize > lib.AIORECV_CONTROL_SIZE
    assert descriptors() == before


@pytest.mark.parametrize("told", [0, 15, 25, 1 << 40], ids=["none", "short", "long", "huge"])
async def test_raw_data_ends_where_an_item_lies_about_its_length(told):
    first, second = ITEMS["ttl"], ITEMS["drops"]
    message = Message(b"x", NAME, control(first, second, told=told))
    async with aiorecv.open_udp(("127.0.0.1", 0), metadata=Metadata.RAW) as receiver:
        with Seam(core_of(receiver)) as seam:
            seam.play(Step([message]))
            with receiver.receive_nowait() as batch:
                (packet,) = batch.packets()

    assert packet.data == b"x"
    assert packet.raw == (first,)
