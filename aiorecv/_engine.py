"""Engines: what reads a socket on the running loop, whoever hears of it then."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import attrs

from aiorecv._descriptors import READ_SLOT_SIZE, Descriptor
from aiorecv._filters import Filter
from aiorecv._memory import memory_of
from aiorecv._options import ReceiveOptions
from aiorecv._packet_readiness import PacketReadiness
from aiorecv._packet_source import PacketSource
from aiorecv._read_source import ReadSource
from aiorecv._reader import Reader, claim_window, unclaim_window
from aiorecv._readiness import Readiness
from aiorecv._ring import Ring
from aiorecv._ring_readiness import RingReadiness
from aiorecv._ring_source import RingSource
from aiorecv._sockets import Kind, SocketOptions, kind_of
from aiorecv._sources import MessageSource, SeqpacketSource


@attrs.frozen(eq=False)
class Engine:
    """A socket, or what is in its place, that is ready to be read."""

    loop: asyncio.AbstractEventLoop
    reader: Reader
    readiness: Readiness
    options: SocketOptions | None
    turn_limit: float


def start_engine(
    sock: socket.socket,
    options: ReceiveOptions,
    filter_: Filter | None = None,
    *,
    ours: bool,
    on_close: Callable[[], object] | None = None,
    ring: Ring | None = None,
) -> Engine:
    """Make ``sock`` ready on the running loop; if this raises, the socket is as it was.

    A socket that is not ``ours`` keeps its own GRO, if the options leave it open. A ``ring`` of its
    own is the source's.
    """
    kind = kind_of(sock)
    loop = asyncio.get_running_loop()
    slot_size = options.slot_size or kind.slot_size
    window = claim_window(options)
    try:
        arguments = sock, memory_of(loop), slot_size, options.metadata
        source = _kind_of_source(kind)(*arguments) if ring is None else RingSource(*arguments, ring)
        source.on_close = on_close
        source.counts_refused = filter_ is not None and kind.is_udp
        reader = Reader(loop, source, window, options)
        # Last, since these touch what the caller has: the socket, and its place on the loop.
        changed = SocketOptions(sock, kind, options, filter_, ours=ours)
        try:
            readiness = _readiness(loop, source, reader)
        except BaseException:
            changed.restore()
            raise
    except BaseException:
        unclaim_window(window)
        raise
    return Engine(loop, reader, readiness, changed, options.turn_limit)


def start_read_engine(descriptor: Descriptor, options: ReceiveOptions) -> Engine:
    """The same for a descriptor that is no socket."""
    loop = asyncio.get_running_loop()
    window = claim_window(options)
    try:
        source = ReadSource(descriptor, memory_of(loop), options.slot_size or READ_SLOT_SIZE)
        reader = Reader(loop, source, window, options)
        readiness = Readiness(loop, descriptor.fileno(), reader.ask_again)
    except BaseException:
        unclaim_window(window)
        raise
    return Engine(loop, reader, readiness, None, options.turn_limit)


def _readiness(loop: asyncio.AbstractEventLoop, source: MessageSource, reader: Reader) -> Readiness:
    if isinstance(source, RingSource):
        return RingReadiness(loop, source, reader.ask_again, reader.warn_of_drops)
    if isinstance(source, PacketSource):
        return PacketReadiness(loop, source, reader.ask_again)
    return Readiness(loop, source.sock.fileno(), reader.ask_again)


def _kind_of_source(kind: Kind) -> type[MessageSource]:
    if kind.family == socket.AF_PACKET:
        return PacketSource
    return SeqpacketSource if kind.type == socket.SOCK_SEQPACKET else MessageSource
