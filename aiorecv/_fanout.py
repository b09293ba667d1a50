"""Fanout: several packet sockets share the frames of one interface. In the options' room."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import attrs

# linux/socket.h and linux/if_packet.h; the socket module has none of them.
_SOL_PACKET, _PACKET_FANOUT = 263, 18
_UNIQUE = 0x2000  # PACKET_FANOUT_FLAG_UNIQUEID
_MODES = {"hash": 0, "round_robin": 1, "cpu": 2, "rollover": 3}


def _check_mode(_fanout: object, _field: object, mode: object) -> None:
    if not isinstance(mode, str) or mode not in _MODES:
        raise ValueError(f"mode={mode!r}: give one of {', '.join(map(repr, _MODES))}")


def _check_group(_fanout: object, _field: object, group: Any) -> None:
    if group is None:
        return
    if not isinstance(group, int) or isinstance(group, bool):
        raise TypeError(f"group is a number, or None for a new one, not {group!r}")
    if not 0 <= group <= 0xFFFF:
        raise ValueError(f"group={group}: give from 0 to 65535, or None for a new one")


@attrs.frozen
class Fanout:
    """How several packet sockets share the frames of one interface: each goes to one of them.

    The first receiver asks for a new group, and the others, of whichever process, join it:
    ``Fanout(group=receiver.fanout_group)``, with the same mode, interface and protocol.

    Raises:
        TypeError: If ``group`` is no int.
        ValueError: If an argument is out of bounds.

    Source: packet(7), PACKET_FANOUT.
    """

    mode: str = attrs.field(default="hash", validator=_check_mode)
    """Who gets a frame: ``"hash"``: by its flow, which stays with one socket; ``"round_robin"``:
    each in turn; ``"cpu"``: by the processor that it came in on; ``"rollover"``: the first, until
    its queue is full, then the next."""

    group: int | None = attrs.field(default=None, validator=_check_group)
    """The group's number, from 0 to 65535, in this network namespace; None: a new one."""


def join_fanout(sock: socket.socket, fanout: Fanout) -> int:
    """Join a packet socket that is bound to a group; returns the group's number.

    Raises:
        OSError: What the kernel says against it.
    """
    kind = _MODES[fanout.mode] | (_UNIQUE if fanout.group is None else 0)
    try:
        sock.setsockopt(_SOL_PACKET, _PACKET_FANOUT, (fanout.group or 0) | kind << 16)
    except OSError as error:
        raise OSError(error.errno, f"{fanout}: {_why(error)}") from None
    return sock.getsockopt(_SOL_PACKET, _PACKET_FANOUT) & 0xFFFF


def _why(error: OSError) -> str:
    said = os.strerror(error.errno or 0)
    if error.errno == errno.EINVAL:
        return (
            f"{said}: the group has another mode, interface or protocol, or the interface is down"
        )
    if error.errno == errno.ENOSPC:
        return f"{said}: the group has as many sockets as it may have"
    return said
