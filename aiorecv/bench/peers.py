"""Peers: the datagram transports that ours is compared with, and ours, each as it is opened.

Each is opened on a bound socket, which it owns from then on, and calls ``datagram_received``.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs

import aiorecv

Factory: TypeAlias = Callable[[], asyncio.DatagramProtocol]
Open: TypeAlias = Callable[[Factory, socket.socket], Awaitable[asyncio.DatagramTransport]]
"""Makes the protocol, opens a transport on the running loop and waits until it reads."""


@attrs.frozen
class Peer:
    """One transport."""

    name: str
    open: Open
    package: str | None = None
    """The distribution that has it; None: Python's own library."""

    @property
    def version(self) -> str | None:
        """What is installed; None if nothing is, or need be."""
        if self.package is None:
            return None
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None

    @property
    def is_missing(self) -> bool:
        """Whether it has to be installed first: ``pip install 'aiorecv[bench]'``."""
        return self.package is not None and self.version is None


async def open_ours(factory: Factory, sock: socket.socket) -> asyncio.DatagramTransport:
    """aiorecv's endpoint."""
    transport, _ = await aiorecv.create_datagram_endpoint(factory, sock=sock)
    return transport


async def open_own(factory: Factory, sock: socket.socket) -> asyncio.DatagramTransport:
    """The running loop's own endpoint."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(factory, sock=sock)
    return transport


async def _open_qh3(factory: Factory, sock: socket.socket) -> asyncio.DatagramTransport:
    # What qh3.asyncio.connect() and serve() open their sockets with; no public name leads there.
    module = importlib.import_module("qh3.asyncio._transport")
    loop = asyncio.get_running_loop()
    opened = await module.create_optimized_datagram_transport(loop, factory, sock)
    transport: asyncio.DatagramTransport = opened[0]
    return transport


async def _open_aiofastnet(factory: Factory, sock: socket.socket) -> asyncio.DatagramTransport:
    module = importlib.import_module("aiofastnet")
    loop = asyncio.get_running_loop()
    opened = await module.create_datagram_endpoint(loop, factory, sock=sock)
    transport: asyncio.DatagramTransport = opened[0]
    return transport


ASYNCIO = Peer("asyncio", open_own)
UVLOOP = Peer("uvloop", open_own, "uvloop")
QH3 = Peer("qh3", _open_qh3, "qh3")
AIOFASTNET = Peer("aiofastnet", _open_aiofastnet, "aiofastnet")
