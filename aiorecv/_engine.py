"""Engines: what reads a socket on the running loop, whoever hears of it then."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import attrs

from aiorecv._memory import memory_of
from aiorecv._options import ReceiveOptions
from aiorecv._packet_readiness import PacketReadiness
from aiorecv._packet_source import PacketSource
from aiorecv._reader import Reader, claim_window, unclaim_window
from aiorecv._readiness import Readiness
from aiorecv._sockets import Kind, SocketOptions, kind_of
from aiorecv._sources import MessageSource, SeqpacketSource


@attrs.frozen(eq=False)
class Engine:
    """A socket that is ready to be read."""

    loop: asyncio.AbstractEventLoop
    reader: Reader
    readiness: Readiness
    options: SocketOptions
    turn_limit: float


def start_engine(
    sock: socket.socket,
    options: ReceiveOptions,
    *,
    ours: bool,
    on_close: Callable[[], object] | None = None,
) -> Engine:
    """Make ``sock`` ready on the running loop; if this raises, the socket is as it was.

    A socket that is not ``ours`` keeps its own GRO, if the options leave it open.
    """
    kind = kind_of(sock)
    loop = asyncio.get_running_loop()
    make_source = _kind_of_source(kind)
    slot_size = options.slot_size or kind.slot_size
    window = claim_window(options)
    try:
        source = make_source(sock, memory_of(loop), slot_size, options.metadata)
        source.on_close = on_close
        reader = Reader(loop, source, window, options)
        # Last, since these touch what the caller has: the socket, and its place on the loop.
        changed = SocketOptions(sock, kind, options, ours=ours)
        try:
            readiness = _readiness(loop, source, reader.ask_again)
        except BaseException:
            changed.restore()
            raise
    except BaseException:
        unclaim_window(window)
        raise
    return Engine(loop, reader, readiness, changed, options.turn_limit)


def _readiness(
    loop: asyncio.AbstractEventLoop, source: MessageSource, unheard: Callable[[], object]
) -> Readiness:
    if isinstance(source, PacketSource):
        return PacketReadiness(loop, source, unheard)
    return Readiness(loop, source.sock.fileno(), unheard)


def _kind_of_source(kind: Kind) -> type[MessageSource]:
    if kind.family == socket.AF_PACKET:
        return PacketSource
    return SeqpacketSource if kind.type == socket.SOCK_SEQPACKET else MessageSource
