"""Filters: which packets the kernel is to queue. In the options' room.

Makes the program that suits a socket from what the user gave, attaches it, and finds out which one
was there before.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from aiorecv._bpf import (
    MAX_INSTRUCTIONS,
    Instruction,
    Program,
    check_instructions,
    moved_to_udp,
    uncut,
)
from aiorecv._bpf_flows import judges_flows
from aiorecv._native._core import ffi, lib
from aiorecv._pcap import ETHERNET, RAW_IP, compile_text

if TYPE_CHECKING:
    from aiorecv._sockets import Kind

FilterLike: TypeAlias = str | Sequence[tuple[int, int, int, int]] | None

# asm-generic/socket.h (not that of SPARC or PA-RISC).
_SO_ATTACH_FILTER, _SO_DETACH_FILTER, _SO_NETNS_COOKIE = 26, 27, 71
_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter
_PROGRAM = struct.Struct("@HP")  # struct sock_fprog

# Where frames begin with an Ethernet header, and where with that of IP: linux/if_arp.h.
_LINK_TYPES = {
    1: ETHERNET,
    772: ETHERNET,  # lo
    519: RAW_IP,  # modems
    768: RAW_IP,  # IP in IP
    769: RAW_IP,
    776: RAW_IP,
    0xFFFE: RAW_IP,  # TUN, WireGuard
}


REJECT_ALL: Program = [Instruction(0x06, 0, 0, 0)]
"""Returns 0 bytes of every packet."""


@attrs.define(eq=False)
class Filter:
    """What the user gave: a text in tcpdump's language, or a program."""

    given: str | Program
    judges_trains: bool = False
    """Whether it judges all datagrams of a train alike; known once it is compiled."""

    @property
    def may_cut(self) -> bool:
        """Whether a packet socket may get frames that it has cut."""
        return not isinstance(self.given, str)

    def for_udp(self) -> Program:
        """The program for a UDP socket.

        Raises:
            ValueError: If there is none.
            OSError: If libpcap is needed, and not there.
        """
        if isinstance(self.given, str):
            program = compile_text(self.given, RAW_IP)
            self.judges_trains = judges_flows(program)
            return uncut(moved_to_udp(program))
        return uncut(self.given)

    def for_frames(self, hardware: int, interface: str) -> Program:
        """The program for a packet socket on an interface of this type, ARPHRD_... in C.

        Raises:
            ValueError: If there is none.
            OSError: The same as above; or if the interface has to be at work, and is not.
        """
        if not isinstance(self.given, str):
            return self.given
        link_type = _LINK_TYPES.get(hardware)
        if link_type is None:
            raise ValueError(
                f"filter={self.given!r}: a text is for Ethernet and IP, and {interface!r} is of "
                f"hardware type {hardware}: give instructions"
            )
        return compile_text(self.given, link_type, interface)

    def for_socket(self, sock: socket.socket, kind: Kind) -> Program:
        """The program for a socket that exists. Raises the same."""
        if kind.is_udp:
            return self.for_udp()
        if not isinstance(self.given, str):
            return self.given if kind.family == socket.AF_PACKET else uncut(self.given)
        if kind.family != socket.AF_PACKET or kind.type != socket.SOCK_RAW:
            raise ValueError(
                f"filter={self.given!r}: a text is for UDP and for whole frames (AF_PACKET, "
                f"SOCK_RAW): give instructions for {sock!r}"
            )
        interface, _, _, hardware, _ = sock.getsockname()
        if not interface:
            raise ValueError(
                f"filter={self.given!r}: what it means depends on the interface: bind sock first"
            )
        if not _is_in_our_network(sock):
            raise ValueError(
                f"filter={self.given!r}: sock is of another network namespace than this thread"
            )
        return self.for_frames(hardware, interface)


def parse_filter(given: object) -> Filter | None:
    """``filter=`` as it was given, checked as far as it can be without a socket.

    Raises:
        TypeError: If it is of the wrong kind.
        ValueError: If it is out of bounds.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return Filter(given)
    if isinstance(given, bytes | bytearray | memoryview) or not isinstance(given, Sequence):
        raise TypeError(
            f"filter is a text such as 'udp port 53', or a sequence of (code, jt, jf, k), "
            f"not {given!r}"
        )
    return Filter(check_instructions(given))


def attach(sock: socket.socket, program: Program) -> None:
    """Let ``sock`` queue only what ``program`` accepts.

    Raises:
        ValueError: If the kernel refuses the program.
        OSError: If it has no room for it, or the socket's filter is locked.

    Source: socket(7), SO_ATTACH_FILTER.
    """
    packed = b"".join(_INSTRUCTION.pack(*one) for one in program)
    memory = ffi.from_buffer("uint8_t[]", packed)
    request = _PROGRAM.pack(len(program), int(ffi.cast("uintptr_t", memory)))
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, request)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ValueError(
                "filter: the kernel refuses the program: an instruction is unknown, a jump leads "
                "back or out of it, or it does not end by a return"
            ) from None
        raise OSError(error.errno, f"filter: {error.strerror}{_remedy(error)}") from None


def _remedy(error: OSError) -> str:
    if error.errno == errno.ENOMEM:
        return "; a shorter one, or a larger net.core.optmem_max, may do"
    return "; the socket's filter is locked (SO_LOCK_FILTER)" if error.errno == errno.EPERM else ""


def detach(sock: socket.socket) -> None:
    """Let ``sock`` queue everything again."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def attached(sock: socket.socket) -> Program:
    """The program that ``sock`` has; empty if it has none.

    Raises:
        ValueError: If it has one that can't be read, and so not be put back.
    """
    memory = ffi.new("uint8_t[]", MAX_INSTRUCTIONS * _INSTRUCTION.size)
    length = lib.aiorecv_get_filter(sock.fileno(), memory, MAX_INSTRUCTIONS)
    if length == -errno.EACCES:
        raise ValueError(f"filter: {sock!r} has an eBPF program already, which can't be put back")
    if length < 0:
        raise OSError(-length, os.strerror(-length))
    packed = bytes(ffi.buffer(memory, length * _INSTRUCTION.size))
    return [Instruction(*one) for one in _INSTRUCTION.iter_unpack(packed)]


def _is_in_our_network(sock: socket.socket) -> bool:
    """Whether the names of interfaces mean the same to this thread as to ``sock``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        try:
            cookies = {
                one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8) for one in (sock, ours)
            }
        except OSError:  # Linux before 5.14: nobody can tell
            return True
    return len(cookies) == 1
