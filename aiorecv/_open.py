"""Openers: from arguments to a receiver. Checks them at the call; keeps no state."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Unpack

from aiorecv._delivery import Delivery
from aiorecv._engine import start_engine
from aiorecv._filters import Filter, FilterLike, parse_filter
from aiorecv._options import (
    ReceiveKeywords,
    ReceiveOptions,
    check_buffer_size,
    takes_receive_options,
)
from aiorecv._receiver import Receiver
from aiorecv._ring import Ring
from aiorecv._sockets import raise_receive_buffer
from aiorecv._threads import in_thread
from aiorecv._udp import HostPort, make_udp_socket
from aiorecv._unix import make_unix_socket

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


@takes_receive_options()
def open_udp(
    local_addr: HostPort | None = None,
    *,
    remote_addr: HostPort | None = None,
    family: int = 0,
    reuse_port: bool = False,
    allow_broadcast: bool = False,
    receive_buffer_size: int | None = 4 << 20,
    filter: FilterLike = None,  # noqa: A002  # the word for it
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
        filter: Which datagrams the kernel is to queue: a text in tcpdump's language, such as
            ``"src net 192.0.2.0/24"``, compiled by libpcap; or BPF instructions
            ``(code, jt, jf, k)``, which are given the datagram from its UDP header on. ``gro``
            None is off with instructions, and with a text that looks at more than addresses,
            protocols and ports: a train would be judged by its first datagram.
        gro: Let the kernel glue datagrams of one sender to trains, which are split again: far
            cheaper under load. None: where a slot holds a train and no timestamps are asked for,
            of which a train has one. True insists.
        metadata: What to ask the kernel for beside each packet's bytes: flags of ``Metadata``.
        window: The policy for slots a read; None: from 2 to 64, by the backlog.
        slot_size: Bytes of one slot; longer datagrams are cut, and marked. None: 65,536.
        turn_limit: Seconds one task may receive before the loop's other tasks have a turn.
        on_error: Called with each ``OSError`` that can heal, which is then not raised.

    Raises:
        TypeError: At once, if an argument is of the wrong kind.
        ValueError: At once, if an argument is out of bounds, or no address is given; when awaited,
            if the text of ``filter`` does not compile, or the kernel refuses its instructions.
        OSError: When awaited: what the kernel or the resolver says, and of which argument; ENOENT
            if libpcap is needed, and not installed.
    """
    receive = ReceiveOptions(**options)
    if local_addr is None and remote_addr is None:
        raise ValueError("give local_addr to bind to, remote_addr to connect to, or both")
    for name, addr in (("local_addr", local_addr), ("remote_addr", remote_addr)):
        _check_addr(name, addr)
    for name, value in (("reuse_port", reuse_port), ("allow_broadcast", allow_broadcast)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} is True or False, not {value!r}")
    if family not in _FAMILIES:
        raise ValueError(f"family={family!r}: give socket.AF_INET, socket.AF_INET6 or 0 for both")
    check_buffer_size(receive_buffer_size)
    wanted = parse_filter(filter)

    async def open_() -> Receiver:
        # In a thread, since a text may name hosts for libpcap to look up.
        program = None if wanted is None else await in_thread(wanted.for_udp, _forget)
        sock = await make_udp_socket(
            local_addr, remote_addr, family, reuse_port, allow_broadcast, program
        )
        try:
            raise_receive_buffer(sock, receive_buffer_size)
            return make_receiver(sock, receive, wanted, ours=True)
        except BaseException:
            sock.close()
            raise

    return Opening(open_)


@takes_receive_options()
def open_unix(path: str | bytes | os.PathLike[str], **options: Unpack[ReceiveKeywords]) -> Opening:
    """Open an AF_UNIX datagram socket and receive from it; ``await`` it or use ``async with``.

    Args:
        path: Where to bind it. One that starts with NUL is an abstract name, exactly as long as
            it is given. A socket file that is there already is replaced; the receiver's own is
            removed when it closes.

    The receive options are those of ``open_udp``, but for GRO.

    Raises:
        TypeError: At once, if an argument is of the wrong kind.
        ValueError: At once, if an argument is out of bounds, or ``path`` is empty.
        OSError: When awaited: what the kernel says of ``path``.
    """
    receive = ReceiveOptions(**options)
    name = os.fspath(path)
    if not name:
        raise ValueError("path is empty: give a file's path, or a name that starts with NUL")

    async def open_() -> Receiver:
        sock, unlink = make_unix_socket(name)
        try:
            return make_receiver(sock, receive, ours=True, on_close=unlink)
        except BaseException:
            sock.close()
            if unlink is not None:
                unlink()
            raise

    return Opening(open_)


@takes_receive_options()
def from_socket(
    sock: socket.socket,
    *,
    filter: FilterLike = None,  # noqa: A002  # the word for it
    **options: Unpack[ReceiveKeywords],
) -> Receiver:
    """Receive from a socket that exists already; the receiver owns it from then on.

    Any that gives packets will do: UDP, raw IP and ICMP, AF_UNIX (SOCK_DGRAM or SOCK_SEQPACKET),
    AF_PACKET and netlink. The receive options are those of ``open_udp``, but ``gro=None`` leaves
    the socket's own setting. ``detach()`` gives the socket back as it was. If this raises, the
    socket stays the caller's.

    ``filter`` is as in ``open_udp`` and ``open_packet``, and takes the place of the socket's own.
    What was queued before is still received. A text is for UDP and for packet sockets that are
    bound, other sockets take instructions. Write addresses in it as numbers: this waits while
    libpcap looks names up.

    Raises:
        TypeError: If ``sock`` is no ``socket.socket``, or an option is of the wrong kind.
        ValueError: If it is a stream or of another family, or an option is out of bounds; if
            ``filter`` does not compile or suit, or the socket has an eBPF filter already.
        OSError: If it is closed; ENOENT if libpcap is needed, and not installed.
        RuntimeError: Without a running loop, or if a transport of the loop has the socket.
    """
    return make_receiver(sock, ReceiveOptions(**options), parse_filter(filter), ours=False)


def make_receiver(
    sock: socket.socket,
    options: ReceiveOptions,
    filter_: Filter | None = None,
    *,
    ours: bool,
    on_close: Callable[[], object] | None = None,
    fanout_group: int | None = None,
    ring: Ring | None = None,
) -> Receiver:
    """A receiver for ``sock`` on the running loop; if this raises, the socket is as it was."""
    engine = start_engine(sock, options, filter_, ours=ours, on_close=on_close, ring=ring)
    if fanout_group is not None:
        engine.reader.source.fanout_group = fanout_group
    delivery = Delivery(engine.loop, engine.reader, engine.readiness, engine.turn_limit)
    return Receiver(engine.loop, engine.reader, delivery, engine.options)


def _forget(_program: object) -> None:
    """What was compiled for somebody who has gone needs no undoing."""


def _check_addr(name: str, addr: object) -> None:
    if addr is None:
        return
    if not isinstance(addr, tuple) or len(addr) not in (2, 4):
        raise TypeError(f"{name} is a tuple (host, port), not {addr!r}")
    host, port = addr[:2]
    if not (host is None or isinstance(host, str)) or not isinstance(port, int):
        raise TypeError(f"{name} is (host: str, port: int), not {addr!r}")
    if not all(isinstance(number, int) for number in addr[2:]):
        raise TypeError(f"{name} is (host, port, flowinfo: int, scope_id: int), not {addr!r}")
    if not 0 <= port <= 65_535:
        raise ValueError(f"{name}={addr!r}: a port is from 0 to 65535")
