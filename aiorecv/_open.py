"""Openers: from arguments to a receiver. Checks them at the call; keeps no state."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, Unpack

from aiorecv._options import (
    ReceiveKeywords,
    ReceiveOptions,
    raise_receive_buffer,
    takes_receive_options,
)
from aiorecv._receiver import Receiver, make_receiver

HostPort: TypeAlias = tuple[Any, ...]
_SockAddr: TypeAlias = tuple[Any, ...]
_FAMILIES = (socket.AF_UNSPEC, socket.AF_INET, socket.AF_INET6)


class Opening(Awaitable[Receiver]):
    """A receiver about to be opened: await it, or enter it with ``async with`` to close it too."""

    __slots__ = ("_open", "_receiver")

    def __init__(self, open_: Callable[[], Awaitable[Receiver]]) -> None:
        self._open = open_

    def __await__(self) -> Generator[Any, None, Receiver]:
        return self._open().__await__()

    async def __aenter__(self) -> Receiver:
        self._receiver = await self
        return self._receiver

    async def __aexit__(self, *_: object) -> None:
        self._receiver.close()


@takes_receive_options
def open_udp(
    local_addr: HostPort | None = None,
    *,
    remote_addr: HostPort | None = None,
    family: int = 0,
    reuse_port: bool = False,
    allow_broadcast: bool = False,
    receive_buffer_size: int | None = 4 << 20,
    **options: Unpack[ReceiveKeywords],
) -> Opening:
    """Open a UDP socket and receive from it; ``await`` it or enter it with ``async with``.

    Args:
        local_addr: ``(host, port)`` to bind to. ``("::", port)`` takes IPv4 too, its peers
            written ``::ffff:192.0.2.1``. Port 0 lets the kernel choose: see ``local_addr``.
        remote_addr: ``(host, port)`` to connect to: only its packets are received.
        family: ``socket.AF_INET`` or ``AF_INET6`` to insist on one.
        reuse_port: Let several sockets share the port, and its packets (SO_REUSEPORT).
        allow_broadcast: Allow sending to broadcast addresses (SO_BROADCAST).
        receive_buffer_size: Bytes to ask the kernel's receive buffer to hold; the system may cap
            it (net.core.rmem_max), and it is never lowered. None leaves it.
        gro: Let the kernel glue datagrams of one sender to trains, which are split again: far
            cheaper under load. None: where a slot holds a train. True insists.
        window: The policy for slots a read; None: from 2 to 64, by the backlog.
        slot_size: Bytes of one slot; longer datagrams are cut, and marked. None: 65,536.
        turn_limit: Seconds one task may receive before the loop's other tasks have a turn.
        on_error: Called with each ``OSError`` that can heal, which is then not raised.

    Raises:
        TypeError: At once, if an argument is of the wrong kind.
        ValueError: At once, if an argument is out of bounds, or no address is given.
        OSError: When awaited: what the kernel or the resolver says, and of which argument.
    """
    receive = ReceiveOptions(**options)
    if local_addr is None and remote_addr is None:
        raise ValueError("give local_addr to bind to, remote_addr to connect to, or both")
    for name, addr in (("local_addr", local_addr), ("remote_addr", remote_addr)):
        _check_addr(name, addr)
    if family not in _FAMILIES:
        raise ValueError(f"family={family!r}: give socket.AF_INET, socket.AF_INET6 or 0 for both")
    _check_buffer_size(receive_buffer_size)

    async def open_() -> Receiver:
        sock = await _make_socket(local_addr, remote_addr, family, reuse_port, allow_broadcast)
        try:
            raise_receive_buffer(sock, receive_buffer_size)
            return make_receiver(sock, receive, ours=True)
        except BaseException:
            sock.close()
            raise

    return Opening(open_)


@takes_receive_options
def from_socket(sock: socket.socket, **options: Unpack[ReceiveKeywords]) -> Receiver:
    """Receive from a UDP socket that exists already; the receiver owns it from then on.

    The receive options are those of ``open_udp``, but ``gro=None`` leaves the socket's own
    setting. ``detach()`` gives the socket back as it was. If this raises, the socket stays the
    caller's.

    Raises:
        TypeError: If ``sock`` is no ``socket.socket``, or an option is of the wrong kind.
        ValueError: If it is no UDP socket, or an option is out of bounds.
        OSError: If it is closed.
        RuntimeError: Without a running loop, or if a transport of the loop has the socket.
    """
    receive = ReceiveOptions(**options)
    if not isinstance(sock, socket.socket):
        raise TypeError(f"sock is a socket.socket, not {sock!r}")
    if sock.fileno() == -1:
        raise OSError(errno.EBADF, f"sock is closed: {sock!r}")
    kind = sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
    if sock.family not in _FAMILIES or kind != socket.SOCK_DGRAM or not _is_udp(sock):
        raise ValueError(f"sock is no UDP socket (IPv4 or IPv6, SOCK_DGRAM): {sock!r}")
    return make_receiver(sock, receive, ours=False)


def _is_udp(sock: socket.socket) -> bool:
    protocol = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
    return protocol == socket.IPPROTO_UDP


def _check_addr(name: str, addr: object) -> None:
    if addr is None:
        return
    if not isinstance(addr, tuple) or len(addr) not in (2, 4):
        raise TypeError(f"{name} is a tuple (host, port), not {addr!r}")
    host, port = addr[:2]
    if not (host is None or isinstance(host, str)) or not isinstance(port, int):
        raise TypeError(f"{name} is (host: str, port: int), not {addr!r}")
    if not 0 <= port <= 65_535:
        raise ValueError(f"{name}={addr!r}: a port is from 0 to 65535")


def _check_buffer_size(size: object) -> None:
    if size is None:
        return
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"receive_buffer_size is a number of bytes, an int, not {size!r}")
    if not 1 <= size < 2**30:
        raise ValueError(f"receive_buffer_size={size}: give from 1 to {2**30 - 1} bytes, or None")


async def _resolve(name: str, addr: HostPort, family: int) -> list[tuple[int, _SockAddr]]:
    """Families and socket addresses that ``addr`` stands for; only a name asks the resolver."""
    host, port = addr[0] or None, addr[1]
    if host == "<broadcast>":
        host = "255.255.255.255"
    flags = socket.AI_PASSIVE if name == "local_addr" else 0
    if family == socket.AF_INET6:
        flags |= socket.AI_V4MAPPED
    hints: dict[str, Any] = {"family": family, "type": socket.SOCK_DGRAM}
    try:
        infos = socket.getaddrinfo(host, port, **hints, flags=flags | socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, **hints, flags=flags)
        except socket.gaierror as error:
            raise socket.gaierror(
                error.errno, f"{name}={addr!r} does not resolve: {error.strerror}"
            ) from None
    # Flow label and scope of a longer address are the caller's own.
    return [(info[0], (*info[4][: 4 - len(addr[2:])], *addr[2:])) for info in infos]


async def _make_socket(
    local_addr: HostPort | None,
    remote_addr: HostPort | None,
    family: int,
    reuse_port: bool,
    allow_broadcast: bool,
) -> socket.socket:
    """A socket bound and connected as asked: the first combination of addresses that works."""
    locals_: list[tuple[int, _SockAddr | None]] = [(family, None)]
    if local_addr is not None:
        locals_ = list(await _resolve("local_addr", local_addr, family))
    failure: OSError | None = None
    for local_family, local in locals_:
        remotes: list[tuple[int, _SockAddr | None]] = [(local_family, None)]
        try:
            if remote_addr is not None:
                remotes = list(await _resolve("remote_addr", remote_addr, local_family))
        except OSError as error:
            failure = failure or error
            continue
        for remote_family, remote in remotes:
            sock = socket.socket(remote_family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            try:
                _set_up(sock, local, reuse_port, allow_broadcast)
                _attach(sock, local, remote)
            except OSError as error:
                failure = failure or error
                sock.close()
            except BaseException:
                sock.close()
                raise
            else:
                return sock
    assert failure is not None  # every way out of the loop but success has set it
    raise failure


def _set_up(
    sock: socket.socket,
    local: _SockAddr | None,
    reuse_port: bool,
    allow_broadcast: bool,
) -> None:
    if sock.family == socket.AF_INET6 and local is not None and local[0] == "::":
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, False)
    if reuse_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, True)
    if allow_broadcast:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, True)


def _attach(sock: socket.socket, local: _SockAddr | None, remote: _SockAddr | None) -> None:
    if local is not None:
        try:
            sock.bind(local)
        except OSError as error:
            raise OSError(
                error.errno, f"local_addr={local!r} can't be bound: {_remedy(error)}"
            ) from None
    if remote is not None:
        try:
            sock.connect(remote)
        except OSError as error:
            raise OSError(
                error.errno,
                f"remote_addr={remote!r} can't be connected to: {_remedy(error)}",
            ) from None


_REMEDIES = {
    errno.EADDRINUSE: "give another port, or reuse_port=True to all who share it",
    errno.EADDRNOTAVAIL: "give an address of this host, or '::' or '0.0.0.0' for all",
    errno.EACCES: "ports below 1024 need privileges, a broadcast address allow_broadcast=True",
}


def _remedy(error: OSError) -> str:
    said = os.strerror(error.errno or 0)
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{said} ({remedy})" if remedy else said
