"""Packets as records, and what the kernel tells of each beside its bytes."""

from __future__ import annotations

import enum
import socket
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import attrs

from aiorecv._addresses import Address
from aiorecv._native._core import ffi, lib
from aiorecv._slabs import Slab

if TYPE_CHECKING:
    from aiorecv._native._core import DetailsStruct

Ancillary: TypeAlias = tuple[int, int, bytes]
"""One control message: level, type, data. Source: cmsg(3)."""

_HEADER = Struct("@Nii")


class Metadata(enum.Flag):
    """What to ask the kernel for with each packet; each costs a little, so none is on by itself."""

    NONE = 0
    """Nothing."""

    TIMESTAMP = enum.auto()
    """When the kernel received it, in nanoseconds (SO_TIMESTAMPNS). A GRO train has one time."""

    DESTINATION = enum.auto()
    """The local address it was sent to, and the interface it came by (IP_PKTINFO)."""

    TOS = enum.auto()
    """The TOS or traffic-class byte (IP_RECVTOS); ECN is its low two bits."""

    TTL = enum.auto()
    """The time to live or hop limit that was left (IP_RECVTTL)."""

    DROPS = enum.auto()
    """How many queue entries were dropped before it (SO_RXQ_OVFL)."""

    VLAN = enum.auto()
    """The VLAN tag of a frame, which the kernel takes off it (PACKET_AUXDATA)."""

    RAW = enum.auto()
    """All ancillary data, unparsed."""


class Details(NamedTuple):
    """What is known of one message, as far as it was asked for and told."""

    timestamp_ns: int | None = None
    destination: str | None = None
    interface: int | None = None
    tos: int | None = None
    ttl: int | None = None
    drops: int | None = None
    vlan: tuple[int, int] | None = None
    raw: tuple[Ancillary, ...] | None = None


NOTHING = Details()


@attrs.define(eq=False)
class Packet:
    """One packet of a batch, with what is known of it.

    What ``Metadata`` did not ask for is None; so is what the kernel did not tell.
    """

    data: bytes
    """The payload, cut to the slot."""

    addr: Address
    """The sender, as ``socket.recvfrom`` gives it."""

    truncated: bool
    """Whether it was cut, being larger than a slot; of a cut GRO train the last packet is."""

    length: int
    """Bytes on the wire: more than ``len(data)`` if it was cut."""

    timestamp_ns: int | None = None
    """When the kernel received it, in nanoseconds since 1970 (``time.time_ns``)."""

    destination: str | None = None
    """The address it was sent to: a local one, or the group or broadcast address."""

    interface: int | None = None
    """The index of the interface it came by: see ``socket.if_indextoname``."""

    tos: int | None = None
    """The TOS or traffic-class byte, 0 to 255."""

    ttl: int | None = None
    """The time to live or hop limit that was left, 0 to 255."""

    drops: int | None = None
    """Queue entries the kernel had dropped of this socket before it queued this packet, modulo
    2**32, since the socket was made."""

    vlan: tuple[int, int] | None = None
    """A frame's VLAN tag, which is not in ``data``: ``(tci, tpid)``.

    The low 12 bits of ``tci`` number the VLAN; ``tpid`` is 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    """

    raw: tuple[tuple[int, int, bytes], ...] | None = None
    """All ancillary data: ``(level, type, data)`` for each control message.

    Descriptors in it (SCM_RIGHTS) are the caller's to close from then on.
    """


def details(slab: Slab, message: int, asked: Metadata) -> Details:
    """What the kernel told of one message."""
    told = ffi.new("struct aiorecv_details *")
    lib.aiorecv_detail(slab.core, message, told)
    raw = tuple(ancillary(slab, message)) if Metadata.RAW in asked else None
    return described(told, asked, raw)


def described(
    told: DetailsStruct, asked: Metadata, raw: tuple[Ancillary, ...] | None = None
) -> Details:
    """What was asked for of what the C side was told."""
    size = 16 if told.family == socket.AF_INET6 else 4
    with_destination = Metadata.DESTINATION in asked and told.family
    host = bytes(ffi.buffer(told.destination, size))
    with_drops = Metadata.DROPS in asked and (told.drops or not told.cut)
    return Details(
        told.timestamp_ns or None if Metadata.TIMESTAMP in asked else None,
        socket.inet_ntop(told.family, host) if with_destination else None,
        told.interface if with_destination else None,
        told.tos if Metadata.TOS in asked and told.tos >= 0 else None,
        told.ttl if Metadata.TTL in asked and told.ttl >= 0 else None,
        # The kernel is silent while the count is zero.
        told.drops if with_drops else None,
        (told.vlan_tci, told.vlan_tpid) if Metadata.VLAN in asked and told.vlan_tpid >= 0 else None,
        raw,
    )


def ancillary(slab: Slab, message: int) -> Iterator[Ancillary]:
    """The control messages of one message, whole ones only."""
    size = lib.AIORECV_CONTROL_SIZE
    start = slab.core.control + message * size
    data = bytes(ffi.buffer(start, min(slab.core.controls[message], size)))
    while len(data) >= _HEADER.size:
        length, level, kind = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            return
        yield level, kind, data[_HEADER.size : length]
        data = data[-(-length // 8) * 8 :]
