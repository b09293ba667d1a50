"""What a read means, told in plain Python: the model that the C decoder is held against."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Mapping, Sequence

import attrs

from aiorecv import Address, PacketBatch
from aiorecv._native._core import lib
from tests.helpers import UDP_GRO
from tests.seam import Message, Step

_HEADER = struct.Struct("@Nii")
_ALIGNMENT = struct.calcsize("N")


@attrs.frozen
class Cut:
    """One packet as a batch ought to give it."""

    data: bytes
    addr: Address
    truncated: bool
    length: int


def packets_of(batch: PacketBatch) -> list[Cut]:
    """What a batch gives, to be compared."""
    return [Cut(p.data, p.addr, p.truncated, p.length) for p in batch.packets()]


@attrs.frozen
class Read:
    """One read as its batch ought to show it."""

    packets: list[Cut]
    messages: int
    trains: int
    truncated: int
    ancillary_truncated: int


def control(*items: tuple[int, int, bytes], told: int | None = None) -> bytes:
    """Ancillary data as the kernel lays it out; ``told`` is a cmsg_len that lies, in the last."""
    made = b""
    for number, (level, kind, data) in enumerate(items):
        length = _HEADER.size + len(data)
        last = number == len(items) - 1
        made += _HEADER.pack(told if last and told is not None else length, level, kind) + data
        made += bytes(-len(made) % _ALIGNMENT)
    return made


def gro(segment: int) -> tuple[int, int, bytes]:
    """The item that tells a train's segment size."""
    return socket.IPPROTO_UDP, UDP_GRO, struct.pack("=i", segment)


def _segment(data: bytes) -> int:
    """The segment size in this ancillary data; 0 if there is none that makes sense."""
    while len(data) >= _HEADER.size:
        length, level, kind = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            break
        value = data[_HEADER.size : length]
        if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO) and len(value) >= 4:
            return max(int.from_bytes(value[:4], "little", signed=True), 0)
        data = data[length + -length % _ALIGNMENT :]
    return 0


def _sizes(message: Message) -> tuple[int, int]:
    """The message's length on the wire and its segment size, both in bytes."""
    wire = len(message.payload) if message.length is None else message.length
    told = len(message.control) if message.control_size is None else message.control_size
    return wire, _segment(message.control[: min(told, lib.AIORECV_CONTROL_SIZE)])


def _packets(message: Message, addr: Address, slot_size: int) -> list[Cut]:
    wire, segment = _sizes(message)
    data = message.payload[: min(wire, slot_size)]
    cut = bool(message.flags & socket.MSG_TRUNC)
    if not 0 < segment < len(data):
        length = min(wire, segment or wire) if cut else len(data)
        return [Cut(data, addr, cut, length)]
    if cut:
        data = data[: len(data) // segment * segment]
    parts = [data[start : start + segment] for start in range(0, len(data), segment)]
    last = len(parts) - 1
    return [Cut(part, addr, cut and i == last, len(part)) for i, part in enumerate(parts)]


def read(
    steps: Sequence[Step], addresses: Mapping[bytes, Address], slots: int, slot_size: int
) -> Read | int:
    """What a read of ``slots`` makes of these steps: what it brings, or its errno."""
    step = next(step for step in steps if step.error != errno.EINTR or step.result != -1)
    result = len(step.messages) if step.result is None else step.result
    if result < 0:
        return step.error
    if result == 0:
        return errno.EAGAIN
    messages = step.messages[: min(result, slots)]
    split = [_packets(m, addresses[_name(m)], slot_size) for m in messages]
    return Read(
        packets=[packet for packets in split for packet in packets],
        messages=len(messages),
        trains=sum(_is_train(m, slot_size) for m in messages),
        truncated=sum(bool(m.flags & socket.MSG_TRUNC) for m in messages),
        ancillary_truncated=sum(bool(m.flags & socket.MSG_CTRUNC) for m in messages),
    )


def _name(message: Message) -> bytes:
    """The name's own bytes: a size that lies is cut to the room there is."""
    size = len(message.name) if message.name_size is None else message.name_size
    return message.name if size else b""


def _is_train(message: Message, slot_size: int) -> bool:
    """Whether the kernel glued it, whatever a cut has left."""
    wire, segment = _sizes(message)
    return 0 < segment < min(wire, slot_size)
