"""UDP sockets: from addresses to a socket, bound and connected. Part of the openers' room."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from typing import Any, TypeAlias

from aiorecv._bpf import Program
from aiorecv._filters import attach as attach_filter

HostPort: TypeAlias = tuple[Any, ...]
_SockAddr: TypeAlias = tuple[Any, ...]


async def lookup(host: str | None, port: Any, *, flags: int = 0, **hints: int) -> list[Any]:
    """``getaddrinfo`` on the running loop; only a name asks the resolver."""
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, **hints, flags=flags | socket.AI_NUMERICHOST)
    return await asyncio.get_running_loop().getaddrinfo(host, port, **hints, flags=flags)


async def _resolve(name: str, addr: HostPort, family: int) -> list[tuple[int, _SockAddr]]:
    """Families and socket addresses that ``addr`` stands for; only a name asks the resolver."""
    host, port = addr[0] or None, addr[1]
    if host == "<broadcast>":
        host = "255.255.255.255"
    flags = socket.AI_PASSIVE if name == "local_addr" else 0
    if family == socket.AF_INET6:
        flags |= socket.AI_V4MAPPED
    hints = {"family": family, "type": socket.SOCK_DGRAM, "flags": flags}
    try:
        infos = await lookup(host, port, **hints)
    except UnicodeError as error:  # IDNA: a label is empty or too long
        raise ValueError(f"{name}={addr!r}: {error}") from None
    except socket.gaierror as error:
        raise socket.gaierror(
            error.errno, f"{name}={addr!r} does not resolve: {error.strerror}"
        ) from None
    if len(addr) == 4 and any(info[0] != socket.AF_INET6 for info in infos):
        raise ValueError(f"{name}={addr!r}: only an IPv6 address has flowinfo and scope_id")
    # Flow label and scope of a longer address are the caller's own.
    return [(info[0], (*info[4][: 4 - len(addr[2:])], *addr[2:])) for info in infos]


async def make_udp_socket(
    local_addr: HostPort | None,
    remote_addr: HostPort | None,
    family: int,
    reuse_port: bool,
    allow_broadcast: bool,
    program: Program | None = None,
) -> socket.socket:
    """A socket bound and connected as asked: the first combination of addresses that works.

    ``program`` is its filter, attached first: no packet gets past it.
    """
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
            with contextlib.ExitStack() as failed:
                failed.callback(sock.close)
                try:
                    if program is not None:
                        attach_filter(sock, program)
                    _set_up(sock, local, reuse_port, allow_broadcast)
                    attach(sock, local, remote)
                except OSError as error:
                    failure = failure or error
                else:
                    failed.pop_all()
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


def attach(sock: socket.socket, local: Any, remote: Any) -> None:
    """Bind and connect a socket, as far as there are addresses.

    Raises:
        OSError: What the kernel says, of which address, and what may help.
    """
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
            raise connect_error(remote, error) from None


def connect_error(remote: Any, error: OSError) -> OSError:
    """The error of connecting to ``remote``, saying so, and what may help."""
    said = f"remote_addr={remote!r} can't be connected to: {_remedy(error)}"
    return OSError(error.errno, said)


_REMEDIES = {
    errno.EADDRINUSE: "give another port, or reuse_port=True to all who share it",
    errno.EADDRNOTAVAIL: "give an address of this host, or '::' or '0.0.0.0' for all",
    errno.EACCES: "ports below 1024 need privileges, a broadcast address allow_broadcast=True",
}


def _remedy(error: OSError) -> str:
    said = os.strerror(error.errno or 0)
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{said} ({remedy})" if remedy else said
