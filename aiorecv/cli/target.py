"""Targets: what ``aiorecv listen`` is told to receive from, and how that is opened."""

from __future__ import annotations

import argparse
import errno
import ipaddress
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias, TypedDict, Unpack
from urllib.parse import parse_qsl, unquote

import attrs

import aiorecv

FORMS = (
    "udp://HOST:PORT, udp://[IPV6]:PORT, udp://GROUP:PORT?interface=NAME&source=ADDRESS, "
    "unix:PATH or unix:@NAME"
)
_UDP = re.compile(
    r"udp://(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^\[\]:/?#@]+)):(?P<port>[0-9]{1,5})/?(?:\?(?P<query>.+))?"
)
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
    group: bool
    interface: str | int | None = None
    sources: tuple[str, ...] = ()

    @asynccontextmanager
    async def open(self, **options: Unpack[Options]) -> AsyncIterator[aiorecv.Receiver]:
        """A receiver of it, closed at the end.

        A group is bound to: what comes for the host itself, or for other groups, on the same
        port is not heard. Others may receive the group beside it, if they share the port too.

        Raises:
            OSError: What the kernel or the resolver says.
        """
        local = (self._host_to_bind(), self.port)
        async with aiorecv.open_udp(local, reuse_port=self.group, **options) as receiver:
            if self.group:
                for source in self.sources or (None,):
                    receiver.join_multicast(self.host, self.interface, source)
            yield receiver

    def _host_to_bind(self) -> str:
        # Groups of a link exist on every one: the kernel wants to know which.
        local = self.group and self.host.startswith("ff") and self.host[3] in "12"
        if local and self.interface is not None and "%" not in self.host:
            return f"{self.host}%{self.interface}"
        return self.host


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


Target: TypeAlias = UdpTarget | UnixTarget


def parse_target(text: str) -> Target:
    """A target as the command line names it, for argparse."""
    kind, _, path = text.partition(":")
    if kind == "unix" and path not in ("", "@"):
        return UnixTarget("\0" + path[1:] if path.startswith("@") else path)
    match = _UDP.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r}: give {FORMS}")
    try:
        return _parse_udp(match)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}; give {FORMS}") from None


def _parse_udp(match: re.Match[str]) -> UdpTarget:
    address: _IPAddress | None = None
    if match["ipv6"]:
        address = ipaddress.IPv6Address(unquote(match["ipv6"]))  # %25 stands for the zone's %
    else:
        with suppress(ValueError):  # a name
            address = ipaddress.IPv4Address(match["host"])
    host = match["host"] if address is None else str(address)
    query = parse_qsl(match["query"], strict_parsing=True) if match["query"] else []
    interfaces = [value for name, value in query if name == "interface"]
    sources = [value for name, value in query if name == "source"]
    if len(interfaces) + len(sources) < len(query) or len(interfaces) > 1:
        raise ValueError("after ? come one interface= and any number of source=")
    group = address is not None and address.is_multicast
    if query and not group:
        raise ValueError("interface and source are for multicast groups")
    for source in sources:
        if type(ipaddress.ip_address(source)) is not type(address):
            raise ValueError(f"source={source} and the group are of two families")
    interface: str | int | None = interfaces[0] if interfaces else None
    if isinstance(interface, str) and interface.isdecimal():
        interface = int(interface)
    return UdpTarget(host, int(match["port"]), group, interface, tuple(sources))


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
