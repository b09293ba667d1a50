"""Probes: what this system allows, found out by trying. No root is needed, nothing is sent."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import socket
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import attrs

import aiorecv

_WANTED_BUFFER = 4 << 20  # bytes: what open_udp asks for by itself

# linux/udp.h, asm-generic/socket.h and linux/if_packet.h; the socket module has none of them.
_UDP_SEGMENT, _UDP_GRO = 103, 104
_SO_TIMESTAMPNS, _SO_MEMINFO = 35, 55
_MEMINFO_SIZE = 36  # bytes
_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3 = 263, 10, 2

_SYSCTLS = Path("/proc/sys/net/core")

_CAP_NET_RAW = (
    "run as root, or with CAP_NET_RAW: setcap cap_net_raw+ep on a copy of the Python binary, or "
    "--cap-add NET_RAW for a container"
)


@attrs.frozen
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool | None
    """Whether it is there; None if that is no question."""
    found: str
    advice: str = ""
    """What to do, if anything is to be done."""


def probe() -> Iterator[Finding]:
    """Everything, in the order it is shown."""
    yield Finding("aiorecv", None, aiorecv.__version__)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("Python", None, python)
    yield Finding("kernel", None, f"{platform.system()} {platform.release()}")
    yield _recvmmsg()
    yield _option(
        "UDP GRO", socket.IPPROTO_UDP, _UDP_GRO, "datagrams come singly; Linux 5.0 and later has it"
    )
    yield _option(
        "UDP GSO", socket.IPPROTO_UDP, _UDP_SEGMENT, "only sending is slower; Linux 4.18 has it"
    )
    yield _option(
        "timestamps",
        socket.SOL_SOCKET,
        _SO_TIMESTAMPNS,
        "opening with Metadata.TIMESTAMP fails; let the sandbox allow setsockopt",
    )
    yield _drop_counter()
    yield _receive_buffer()
    yield _packet_sockets()
    yield _libpcap()
    yield _package("uvloop", "uvloop")
    yield _package("rich", "cli")
    yield from _environment()


def _udp_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _recvmmsg() -> Finding:
    call = ctypes.CDLL(None, use_errno=True).recvmmsg
    with _udp_socket() as sock:
        if call(sock.fileno(), None, 0, int(socket.MSG_DONTWAIT), None) == 0:
            return Finding("recvmmsg", True, "allowed")
    return Finding(
        "recvmmsg",
        False,
        os.strerror(ctypes.get_errno()),
        "packets are read by recvmsg, one a call; let the sandbox's seccomp filter allow recvmmsg",
    )


def _option(name: str, level: int, option: int, otherwise: str) -> Finding:
    with _udp_socket() as sock:
        try:
            sock.setsockopt(level, option, 1)
        except OSError as error:
            return Finding(name, False, str(error.strerror), otherwise)
    return Finding(name, True, "allowed")


def _drop_counter() -> Finding:
    name = "drop counter"
    with _udp_socket() as sock:
        try:
            sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO_SIZE)
        except OSError as error:
            advice = "kernel_drops stays 0 whatever is lost; Linux 4.12 and later has it"
            return Finding(name, False, str(error.strerror), advice)
    return Finding(name, True, "allowed")


def _receive_buffer() -> Finding:
    with _udp_socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WANTED_BUFFER)
        # Twice what was granted: socket(7), SO_RCVBUF.
        granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    limits = ", ".join(f"{name} {_sysctl(name)}" for name in ("rmem_default", "rmem_max"))
    found = f"{granted:,} of {_WANTED_BUFFER:,} bytes granted ({limits})"
    if granted >= _WANTED_BUFFER:
        return Finding("receive buffer", True, found)
    advice = f"bursts overflow it: sysctl -w net.core.rmem_max={_WANTED_BUFFER}"
    return Finding("receive buffer", False, found, advice)


def _sysctl(name: str) -> str:
    try:
        return f"{int((_SYSCTLS / name).read_text()):,}"
    except OSError:  # no procfs, or a kernel that hides it from network namespaces
        return "unknown"


def _packet_sockets() -> Finding:
    name = "packet sockets"
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
    except OSError as error:
        return Finding(name, False, str(error.strerror), f"to sniff, {_CAP_NET_RAW}")
    return Finding(name, True, "allowed, with rings (TPACKET_V3)")


def _libpcap() -> Finding:
    for name in ("libpcap.so.1", "libpcap.so.0.8", "libpcap.so", ctypes.util.find_library("pcap")):
        try:
            call = ctypes.CDLL(name or "libpcap.so").pcap_lib_version
        except OSError:
            continue
        call.restype = ctypes.c_char_p
        return Finding("libpcap", True, call().decode(errors="replace"))
    advice = "to filter by text, install libpcap0.8 (Debian, Ubuntu) or libpcap (Fedora, Arch)"
    return Finding("libpcap", False, "not installed", advice)


def _package(name: str, extra: str) -> Finding:
    if find_spec(name):
        return Finding(name, True, version(name))
    return Finding(name, False, "not installed", f"pip install 'aiorecv[{extra}]'")


_SWITCHES = {
    "AIORECV_GRO": ("0", "GRO is off"),
    "AIORECV_PORTABLE": ("1", "packets are read by recvmsg, not recvmmsg"),
}


def _environment() -> Iterator[Finding]:
    for name, value in sorted(os.environ.items()):
        if name.startswith("AIORECV_"):
            switch, effect = _SWITCHES.get(name, (None, ""))
            found = f"{value!r}: {effect if value == switch else 'without effect'}"
            advice = f"unset {name} to change that" if value == switch else ""
            yield Finding(name, None, found, advice)
