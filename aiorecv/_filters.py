"""Filters: BPF programs that the kernel runs on each packet. In the options' room."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from typing import TypeAlias

Instruction: TypeAlias = tuple[int, int, int, int]
"""``(code, jt, jf, k)``, as ``struct sock_filter`` has them: linux/filter.h."""

# asm-generic/socket.h; the socket module has neither.
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_INSTRUCTION = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")

REJECT_ALL: Sequence[Instruction] = [(0x06, 0, 0, 0)]
"""Returns 0 bytes of every packet."""


def attach(sock: socket.socket, program: Sequence[Instruction]) -> None:
    """Have the kernel run ``program`` on each packet, in the place of one that runs now."""
    code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*one) for one in program))
    request = _PROGRAM.pack(len(program), ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, request)


def detach(sock: socket.socket) -> None:
    """Let every packet in."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
