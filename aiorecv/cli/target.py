"""Targets: what ``aiorecv listen`` is told to receive from, and how that is opened."""

from __future__ import annotations

import argparse
import errno
import ipaddress
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias, TypedDict, Unpack
from urllib.parse import parse_qsl, unquote

import attrs

import aiorecv

FORMS = (
    "udp://HOST:PORT, udp://[IPV6]:PORT, udp://GROUP:PORT?interface=NAME&source=ADDRESS, "
    "packet:INTERFACE, tun:NAME, unix:PATH or unix:@NAME"
)
_UDP = re.compile(
    r"udp://(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^\[\]:/?#@]+)):(?P<port>[0-9]{1,5})/?(?:\?(?P<query>.+))?"
)
_OF_A_LINK = (1, 2)  # scopes of IPv6 groups, RFC 4291: the same group is there on every interface
_IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class Options(TypedDict):
    """What a target passes on to its opener."""

    gro: bool | None
    metadata: aiorecv.Metadata
    window: aiorecv.WindowPolicy | None


@attrs.frozen
class UdpTarget:
    """An address of this host, or a multicast group to join."""

    host: str
    port: int
    zone: str | int | None = None
    """The interface, where an address of a link is the same on every one."""
    group: bool = False
    interface: str | int | None = None
    sources: tuple[str, ...] = ()
    filter: str | None = None

    @asynccontextmanager
    async def open(self, **options: Unpack[Options]) -> AsyncIterator[aiorecv.Receiver]:
        """A receiver of it, closed at the end.

        A group is bound to: what comes for the host itself, or for other groups, on the same
        port is not heard. Others may receive the group beside it, if they share the port too.

        Raises:
            OSError: What the kernel or the resolver says; ENOENT without libpcap for a filter.
            argparse.ArgumentTypeError: If the filter does not compile.
        """
        local: tuple[str | int, ...] = (self.host, self.port)
        if self.zone is not None:
            local += (0, _index(self.zone))
        try:
            opened = await aiorecv.open_udp(
                local, reuse_port=self.group, filter=self.filter, **options
            )
        except ValueError as error:  # so late nothing else is looked at
            raise argparse.ArgumentTypeError(str(error)) from None
        async with opened as receiver:
            if self.group:
                for source in self.sources or (None,):
                    receiver.join_multicast(self.host, self.interface, source)
            yield receiver


@attrs.frozen
class UnixTarget:
    """The path of an AF_UNIX socket, or NUL and an abstract name."""

    path: str

    @asynccontextmanager
    async def open(self, **options: Unpack[Options]) -> AsyncIterator[aiorecv.Receiver]:
        """A receiver of it, closed at the end. A socket that somebody has is not replaced.

        Raises:
            OSError: What the kernel says.
        """
        if not self.path.startswith("\0"):
            _check_unused(self.path)
        async with aiorecv.open_unix(self.path, **options) as receiver:
            yield receiver


@attrs.frozen
class PacketTarget:
    """The frames that come in by an interface."""

    interface: str
    filter: str | None = None
    ring: bool = False

    @asynccontextmanager
    async def open(self, **options: Unpack[Options]) -> AsyncIterator[aiorecv.Receiver]:
        """A receiver of them, closed at the end.

        Raises:
            OSError: What the kernel says; ENOENT without libpcap for a filter.
            argparse.ArgumentTypeError: If the filter does not compile, or the name can't be one.
        """
        ring = aiorecv.RingConfig() if self.ring else None
        window = None if self.ring else options["window"]
        try:
            opened = await aiorecv.open_packet(
                self.interface,
                filter=self.filter,
                ring=ring,
                window=window,
                metadata=options["metadata"],
            )
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        async with opened as receiver:
            yield receiver


@attrs.frozen
class TunTarget:
    """What the host sends by a TUN device, which is made if there is none of that name."""

    name: str

    @asynccontextmanager
    async def open(self, **options: Unpack[Options]) -> AsyncIterator[aiorecv.Receiver]:
        """A receiver of it, closed at the end; a device tells no times.

        Raises:
            OSError: What the kernel says.
            argparse.ArgumentTypeError: If the name can't be one.
        """
        try:
            opening = aiorecv.open_tun(self.name, window=options["window"])
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        async with opening as receiver:
            yield receiver


Target: TypeAlias = UdpTarget | PacketTarget | TunTarget | UnixTarget


def filtered(target: Target, text: str) -> Target:
    """The same target, of which only packets are received that a filter accepts.

    Raises:
        argparse.ArgumentTypeError: If it can't have one.
    """
    if not isinstance(target, UdpTarget | PacketTarget):
        raise argparse.ArgumentTypeError("--filter is for UDP and for packet: targets")
    return attrs.evolve(target, filter=text)


def by_ring(target: Target) -> Target:
    """The same target, read by a ring.

    Raises:
        argparse.ArgumentTypeError: If it can't be.
    """
    if not isinstance(target, PacketTarget):
        raise argparse.ArgumentTypeError("--ring is for packet: targets")
    return attrs.evolve(target, ring=True)


def parse_target(text: str) -> Target:
    """A target as the command line names it, for argparse."""
    kind, _, path = text.partition(":")
    if kind == "unix" and path not in ("", "@"):
        return UnixTarget("\0" + path[1:] if path.startswith("@") else path)
    if kind in ("packet", "tun") and path:
        return PacketTarget(path) if kind == "packet" else TunTarget(path)
    match = _UDP.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r}: give {FORMS}")
    try:
        return _parse_udp(match)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}; give {FORMS}") from None


def _parse_udp(match: re.Match[str]) -> UdpTarget:
    interface, sources = _parse_query(match["query"])
    host, port, zone = match["host"], int(match["port"]), None
    address: _IPAddress
    if match["ipv6"]:
        address = ipaddress.IPv6Address(unquote(match["ipv6"]))  # %25 stands for the zone's %
        host, _, zone = str(address).partition("%")
    else:
        try:
            address = ipaddress.IPv4Address(host)
        except ValueError:  # a name
            host.encode("idna")  # or the resolver would refuse it by a UnicodeError
            address = ipaddress.IPv4Address(0)
    if not address.is_multicast:
        if match["query"]:
            raise ValueError("interface and source are for multicast groups")
        return UdpTarget(host, port, _number(zone))
    for source in sources:
        if ipaddress.ip_address(source).version != address.version:
            raise ValueError(f"source={source} and the group are of two families")
    interface = interface or zone
    if address.version == 6 and address.packed[1] & 0xF in _OF_A_LINK:
        if not interface:
            raise ValueError("a group of one link needs interface=")
        zone = interface
    return UdpTarget(host, port, _number(zone), True, _number(interface), sources)


def _parse_query(query: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The interface and the sources after the question mark."""
    pairs = parse_qsl(query, strict_parsing=True) if query else []
    interfaces = [value for name, value in pairs if name == "interface"]
    sources = tuple(value for name, value in pairs if name == "source")
    if len(interfaces) + len(sources) < len(pairs) or len(interfaces) > 1:
        raise ValueError("after ? come one interface= and any number of source=")
    return interfaces[0] if interfaces else None, sources


def _number(interface: str | None) -> str | int | None:
    """An interface's index as a number; a name or an address as it is."""
    if interface and interface.isdecimal() and int(interface) < 2**31:
        return int(interface)
    return interface or None


def _index(interface: str | int) -> int:
    if isinstance(interface, int):
        return interface
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise OSError(
            errno.ENODEV, f"interface={interface!r}: no interface has that name"
        ) from None


def _check_unused(path: str) -> None:
    """``open_unix`` replaces a socket that is there: right for a program that comes back to its
    own, but a look at what arrives must not take the socket of a running one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except OSError as error:
            # Of another type, or connected to somebody else: in use all the same.
            if error.errno not in (errno.EPROTOTYPE, errno.EPERM):
                return
    raise OSError(errno.EADDRINUSE, f"path={path!r} can't be bound: another program receives there")
