"""Network namespaces: empty but for ``lo``, with interfaces and addresses as wanted. Needs root.

Without iproute2, which a machine may lack: by ioctl, netdevice(7), and by rtnetlink(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import itertools
import os
import socket
import struct
import time
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFNAME = 0x8913, 0x8914, 0x8923
_IFF_UP, _IFF_RUNNING = 0x1, 0x40

# linux/rtnetlink.h, linux/if_link.h and linux/if_addr.h.
_RTM_NEWLINK, _RTM_DELLINK, _RTM_NEWADDR = 16, 17, 20
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_IFLA_IFNAME, _IFLA_LINKINFO = 3, 18
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFA_LOCAL, _IFA_LABEL = 2, 3
_IFA_F_NODAD = 0x02

_LINK = bytes(16)  # struct ifinfomsg: any interface
_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def new_network() -> Iterator[None]:
    """The calling thread is in a network namespace of its own, in which ``lo`` is up.

    Raises:
        PermissionError: Without CAP_SYS_ADMIN.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_NEWNET))
        try:
            set_up("lo")
            yield
        finally:
            _check(_libc.setns(home, _CLONE_NEWNET))
    finally:
        os.close(home)


def set_up(interface: str) -> None:
    """Switch an interface on."""
    _set_flags(interface, _IFF_UP)


def set_down(interface: str) -> None:
    """Switch an interface off."""
    _set_flags(interface, 0)


def add_veth(name: str, peer: str) -> None:
    """Two interfaces with a wire between them, both up."""
    kind = _attribute(_IFLA_INFO_KIND, b"veth")
    other = _LINK + _attribute(_IFLA_IFNAME, peer.encode() + b"\0")
    info = kind + _attribute(_IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, other))
    name_too = _attribute(_IFLA_IFNAME, name.encode() + b"\0")

    _request(_RTM_NEWLINK, _LINK + name_too + _attribute(_IFLA_LINKINFO, info))
    set_up(name)
    set_up(peer)
    _await_running(name)
    _await_running(peer)


def rename(interface: str, name: str) -> None:
    """Give an interface another name."""
    request = struct.pack("@16s16s8x", interface.encode(), name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFNAME, request)


def remove(interface: str) -> None:
    """Remove an interface, and so the other end of its wire."""
    index = socket.if_nametoindex(interface)
    _request(_RTM_DELLINK, struct.pack("=BxHiII", 0, 0, index, 0, 0), more=0)


def add_address(interface: str, address: str, *, label: str | None = None) -> None:
    """Give an interface an address, with ``label`` as an alias such as ``eth0:1``."""
    ip, index = ipaddress.ip_address(address), socket.if_nametoindex(interface)
    family, prefix = (socket.AF_INET, 24) if ip.version == 4 else (socket.AF_INET6, 64)
    # Usable at once, without asking the link whether somebody else has it.
    head = struct.pack("=BBBBI", family, prefix, _IFA_F_NODAD, 0, index)
    more = b"" if label is None else _attribute(_IFA_LABEL, label.encode() + b"\0")
    _request(_RTM_NEWADDR, head + _attribute(_IFA_LOCAL, ip.packed) + more)
    if ip.version == 6:
        _await_route(address)


def _await_route(address: str) -> None:
    """Return once packets to an IPv6 address of this host arrive; until then they leave by wire.

    The kernel makes that route in a work queue: addrconf_dad_work in net/ipv6/addrconf.c.
    """
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 0))
        sock.settimeout(0.001)
        for _ in range(10_000):
            sock.sendto(b"", sock.getsockname())
            with contextlib.suppress(TimeoutError):
                sock.recv(1)
                return
    raise TimeoutError(f"{address} has no route to itself")


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _await_running(interface: str) -> None:
    """Return once the kernel has heard that the wire is there; until then packets may be lost.

    It hears so in a work queue, at most once a second: net/core/link_watch.c.
    """
    request = struct.pack("@16s24x", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(10_000):
            (flags,) = struct.unpack_from("=h", fcntl.ioctl(sock, _SIOCGIFFLAGS, request), 16)
            if flags & _IFF_RUNNING:
                return
            time.sleep(0.001)
    raise TimeoutError(f"{interface} has no carrier")


def _set_flags(interface: str, flags: int) -> None:
    request = struct.pack("@16sh22x", interface.encode(), flags)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, request)


def _attribute(kind: int, data: bytes) -> bytes:
    packed = struct.pack("=HH", 4 + len(data), kind) + data
    return packed.ljust(-(-len(packed) // 4) * 4, b"\0")


def _request(kind: int, payload: bytes, more: int = _EXCLUSIVE | _CREATE) -> None:
    """Ask the kernel for a change, and raise what it says against it."""
    flags = _REQUEST | _ACK | more
    head = struct.pack("=IHHII", 16 + len(payload), kind, flags, next(_numbers), 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.send(head + payload)
        (result,) = struct.unpack_from("=i", sock.recv(8192), 16)
    if result:
        raise OSError(-result, os.strerror(-result))
