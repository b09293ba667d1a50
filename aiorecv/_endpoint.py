"""Endpoints: from asyncio's arguments to a transport and its protocol."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TypeVar, Unpack

from aiorecv._addresses import Address
from aiorecv._endpoint_sockets import SocketArguments, make_socket
from aiorecv._engine import start_engine
from aiorecv._options import (
    EndpointKeywords,
    ReceiveOptions,
    check_buffer_size,
    takes_receive_options,
)
from aiorecv._sockets import kind_of, raise_receive_buffer
from aiorecv._transport import DatagramTransport

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)


@takes_receive_options(without="on_error")
async def create_datagram_endpoint(
    protocol_factory: Callable[[], _Protocol],
    local_addr: tuple[str, int] | str | None = None,
    remote_addr: tuple[str, int] | str | None = None,
    *,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    reuse_port: bool | None = None,
    allow_broadcast: bool | None = None,
    sock: socket.socket | None = None,
    receive_buffer_size: int | None = 4 << 20,
    **options: Unpack[EndpointKeywords],
) -> tuple[DatagramTransport, _Protocol]:
    """Create a datagram endpoint as the event loop's method of this name does, read in batches.

    Args:
        protocol_factory: Makes the protocol: a ``DatagramProtocol``, or a ``BatchProtocol``.
        local_addr: ``(host, port)`` to bind to; a path for AF_UNIX.
        remote_addr: ``(host, port)`` to connect to; a path for AF_UNIX.
        family: ``socket.AF_INET``, ``AF_INET6`` or ``AF_UNIX``; 0: what the addresses are.
        proto: Handed to ``getaddrinfo`` and ``socket``.
        flags: Handed to ``getaddrinfo``.
        reuse_port: Let several sockets share the port, and its packets (SO_REUSEPORT).
        allow_broadcast: Allow sending to broadcast addresses (SO_BROADCAST).
        sock: A socket to use, which is anything but a stream; the transport owns it. Its receive
            buffer is left alone.
        receive_buffer_size: As in ``open_udp``, as are the receive options.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If arguments contradict each other, or one is out of bounds.
        OSError: What the resolver or the kernel says.
    """
    receive = ReceiveOptions(**options)
    if receive.on_error is not None:
        raise TypeError("on_error is for receivers: here the protocol's error_received is called")
    check_buffer_size(receive_buffer_size)
    wanted = SocketArguments(
        local_addr=local_addr,
        remote_addr=remote_addr,
        family=family,
        proto=proto,
        flags=flags,
        reuse_port=reuse_port,
        allow_broadcast=allow_broadcast,
    )
    with contextlib.ExitStack() as failed:
        remote: Address = None
        if sock is None:
            sock, remote = await make_socket(wanted)
            failed.callback(sock.close)
            raise_receive_buffer(sock, receive_buffer_size)
        else:
            wanted.refuse_with(sock)
            if isinstance(sock, socket.socket) and sock.type == socket.SOCK_STREAM:
                raise ValueError(
                    f"A UDP Socket was expected, got {sock!r}: a stream has no packets"
                )
            kind_of(sock)
            sock.setblocking(False)
        protocol = protocol_factory()
        if not hasattr(protocol, "connection_made"):  # before anything is done to a given socket
            raise TypeError(f"protocol_factory made {protocol!r}, which is no protocol")
        transport = DatagramTransport(start_engine(sock, receive, ours=True), protocol, remote)
        failed.pop_all()
    waiter = asyncio.get_running_loop().create_future()
    transport._start(waiter)
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    return transport, protocol
