"""Sockets of endpoints: made from asyncio's arguments, by asyncio's rules. In the endpoint's room.

Source: ``create_datagram_endpoint`` in CPython's Lib/asyncio/base_events.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, TypeAlias

import attrs

from aiorecv._addresses import Address
from aiorecv._udp import attach, connect_error, lookup
from aiorecv._unix import remove_stale

_Pair: TypeAlias = list[Any]


@attrs.frozen(kw_only=True)
class SocketArguments:
    """What says how a socket is made, named as asyncio names it."""

    local_addr: Any
    remote_addr: Any
    family: int
    proto: int
    flags: int
    reuse_port: bool | None
    allow_broadcast: bool | None

    def refuse_with(self, sock: socket.socket) -> None:
        """Raise if something was given beside a socket that is made already."""
        given = attrs.asdict(self, filter=lambda _, value: bool(value), recurse=False)
        if given:
            problems = ", ".join(f"{name}={value}" for name, value in given.items())
            raise ValueError(
                f"socket modifier keyword arguments can not be used when sock is specified. "
                f"({problems})"
            )


async def make_socket(wanted: SocketArguments) -> tuple[socket.socket, Address]:
    """A non-blocking socket, bound and connected as asked; and where it sends by itself, or None.

    The first family for which both addresses can be had is taken. With ``allow_broadcast`` the
    socket is not connected, so that whoever hears a broadcast can answer.

    Raises:
        ValueError: If the arguments contradict each other, or no family suits both addresses.
        TypeError: If an address is of the wrong kind.
        OSError: What the resolver or the kernel says of the first family.
    """
    failure: OSError | None = None
    for family, proto, local, remote in await _candidates(wanted):
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, proto)
        with contextlib.ExitStack() as failed:
            failed.callback(sock.close)
            try:
                if wanted.reuse_port:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, True)
                if wanted.allow_broadcast:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, True)
                attach(sock, local, None)
                if remote is not None and not wanted.allow_broadcast:
                    await _connect(sock, remote)
            except OSError as error:
                failure = failure or error
            else:
                failed.pop_all()
                return sock, remote
    assert failure is not None  # there is at least one candidate
    raise failure


async def _connect(sock: socket.socket, remote: Any) -> None:
    try:
        await asyncio.get_running_loop().sock_connect(sock, remote)
    except OSError as error:
        raise connect_error(remote, error) from None


async def _candidates(wanted: SocketArguments) -> list[tuple[int, int, Address, Address]]:
    family, proto = wanted.family, wanted.proto
    local, remote = wanted.local_addr, wanted.remote_addr
    if family == socket.AF_UNIX:
        if wanted.reuse_port:
            raise ValueError("reuse_port=True: AF_UNIX sockets have no ports to share")
        for addr in (local, remote):
            if addr is not None and not isinstance(addr, str):
                raise TypeError(f"string is expected as the path of a socket, not {addr!r}")
        if local:
            remove_stale(local)
        return [(family, proto, local or None, remote or None)]
    if not (local or remote):
        if family == 0:
            raise ValueError(
                "unexpected address family: give local_addr, remote_addr, family or sock"
            )
        return [(family, proto, None, None)]
    by_kind: dict[tuple[int, int], _Pair] = {}
    for index, addr in enumerate((local, remote)):
        if addr is None:
            continue
        if not (isinstance(addr, tuple) and len(addr) == 2):
            raise TypeError(f"2-tuple is expected as an address, (host, port), not {addr!r}")
        for found_family, _, found_proto, _, found in await lookup(
            *addr, family=family, type=socket.SOCK_DGRAM, proto=proto, flags=wanted.flags
        ):
            by_kind.setdefault((found_family, found_proto), [None, None])[index] = found
    both = [
        (*kind, *pair)
        for kind, pair in by_kind.items()
        if not (local and pair[0] is None) and not (remote and pair[1] is None)
    ]
    if not both:
        raise ValueError(
            f"can not get address information: local_addr={local!r} and remote_addr={remote!r} "
            "have no family in common"
        )
    return both
