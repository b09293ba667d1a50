"""Multicast: joining and leaving groups. Part of the options' room."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from array import array
from pathlib import Path
from typing import TypeAlias

from aiorecv._sockets import SocketOptions

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# linux/in.h and linux/in6.h; the socket module has none of them.
_JOIN_GROUP, _LEAVE_GROUP = 42, 45  # MCAST_JOIN_GROUP, MCAST_LEAVE_GROUP
_JOIN_SOURCE, _LEAVE_SOURCE = 46, 47  # MCAST_JOIN_SOURCE_GROUP, MCAST_LEAVE_SOURCE_GROUP
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29
_STORAGE = 128  # sizeof(struct sockaddr_storage)
_HEAD = struct.Struct("@I0L")  # the interface's index, padded as sockaddr_storage is aligned

_SIOCGIFCONF = 0x8912
_IFREQ = struct.Struct("@16s4x4s16x")  # name, then a sockaddr_in in 24 bytes
_MOST_ADDRESSES = 4096

_LIMITS = {
    4: "net.ipv4.igmp_max_memberships, or igmp_max_msf for sources",
    6: "net.ipv6.mld_max_msf for sources, or net.core.optmem_max",
}


def join(
    options: SocketOptions, group: str, interface: str | int | None, source: str | None
) -> None:
    """Join ``group``; packets of groups it has not joined are kept out from then on."""
    _change(options, group, interface, source, _JOIN_GROUP, _JOIN_SOURCE)


def leave(
    options: SocketOptions, group: str, interface: str | int | None, source: str | None
) -> None:
    """Leave ``group``, named as it was joined."""
    _change(options, group, interface, source, _LEAVE_GROUP, _LEAVE_SOURCE)


def _change(
    options: SocketOptions,
    group: str,
    interface: str | int | None,
    source: str | None,
    any_source: int,
    one_source: int,
) -> None:
    address = _address("group", group)
    if not address.is_multicast:
        raise ValueError(f"group={group!r} is no multicast address: 224.0.0.0/4 or ff00::/8 are")
    level = socket.IPPROTO_IP if address.version == 4 else socket.IPPROTO_IPV6
    index = _index(address, interface)
    request = _HEAD.pack(index) + _sockaddr(address)
    name = any_source
    if source is not None:
        sender = _address("source", source)
        if sender.version != address.version:
            raise ValueError(f"source={source!r} and group={group!r} are of two families")
        request += _sockaddr(sender)
        name = one_source
    sock = options.sock
    try:
        # By itself a socket gets what any socket of the host has joined, on its port; one of
        # both families, of both.
        if sock.family == socket.AF_INET6:
            options.set(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, False)
        if sock.family != socket.AF_INET6 or sock.type != socket.SOCK_RAW:
            options.set(socket.IPPROTO_IP, _IP_MULTICAST_ALL, False)
        sock.setsockopt(level, name, request)
    except OSError as error:
        raise OSError(error.errno, _why(error, address, group, interface)) from None


def _address(name: str, text: object) -> IPAddress:
    if not isinstance(text, str):
        raise TypeError(f"{name} is an address, a str, not {text!r}")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is no IPv4 or IPv6 address") from None


def _sockaddr(address: IPAddress) -> bytes:
    if address.version == 4:
        head = struct.pack("=H2x4s", socket.AF_INET, address.packed)
    else:
        head = struct.pack("=H2xI16s", socket.AF_INET6, 0, address.packed)
    return head.ljust(_STORAGE, b"\0")


def _index(group: IPAddress, interface: str | int | None) -> int:
    """The interface's index; 0 lets the kernel choose by its routes."""
    if interface is None:
        # A group of the link may say its interface itself: ff02::1%eth0.
        zone = getattr(group, "scope_id", None)
        return 0 if zone is None else _index(group, int(zone) if zone.isdigit() else zone)
    if isinstance(interface, bool) or not isinstance(interface, int | str):
        raise TypeError(f"interface is a name, an index or an address, not {interface!r}")
    if isinstance(interface, int):
        if not 0 <= interface < 2**32:
            raise ValueError(f"interface={interface}: an index is 1 or more, 0 lets routes choose")
        return interface
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        return _index_of_address(interface)


def _index_of_address(interface: str) -> int:
    try:
        address = ipaddress.ip_address(interface)
    except ValueError:
        raise OSError(
            errno.ENODEV, f"interface={interface!r}: no interface has that name"
        ) from None
    index = _index_of_ipv6(address) if address.version == 6 else _index_of_ipv4(address)
    if index is None:
        raise OSError(errno.ENODEV, f"interface={interface!r}: no interface has that address")
    return index


def _index_of_ipv4(address: IPAddress) -> int | None:
    """Source: SIOCGIFCONF, netdevice(7): names and addresses, secondary ones too."""
    table = array("B", bytes(_IFREQ.size * _MOST_ADDRESSES))
    wanted = struct.pack("@iP", len(table), table.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        (size,) = struct.unpack_from("@i", fcntl.ioctl(sock, _SIOCGIFCONF, wanted))
    for name, packed in _IFREQ.iter_unpack(table[:size].tobytes()):
        if packed == address.packed:
            # An alias such as eth0:1 has its interface's index.
            return socket.if_nametoindex(name.partition(b"\0")[0].partition(b":")[0].decode())
    return None


def _index_of_ipv6(address: IPAddress) -> int | None:
    """Source: /proc/net/if_inet6, proc(5): address and index in hexadecimal."""
    for line in Path("/proc/net/if_inet6").read_text().splitlines():
        digits, index = line.split()[:2]
        if bytes.fromhex(digits) == address.packed:
            return int(index, 16)
    return None


def _why(error: OSError, group: IPAddress, text: str, interface: object) -> str:
    said = os.strerror(error.errno or 0)
    where = "" if interface is None else f" on interface={interface!r}"
    message = f"group={text!r}{where}: {said}"
    if error.errno in (errno.ENOBUFS, errno.ENOMEM):
        return f"{message}: this socket has all that it may have, raise {_LIMITS[group.version]}"
    if error.errno == errno.ENODEV and interface is None:
        return f"{message}: no route says by which interface, give interface="
    return message
