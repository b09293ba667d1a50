"""The source of AF_PACKET sockets: frames of an interface, and the names of their interfaces."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable
from functools import partial

from aiorecv._addresses import Address, AddressTable
from aiorecv._links import link_name
from aiorecv._packet import Metadata
from aiorecv._sources import LoopMemory, MessageSource
from aiorecv._statistics import PacketDrops
from aiorecv._threads import start_thread

_SOCKADDR_LL = struct.Struct("=2x2siHBB")  # protocol, index, hatype, pkttype, halen: packet(7)


class FrameAddresses(AddressTable):
    """Senders of frames. A table of the source's own: interfaces have their names by socket."""

    __slots__ = ("_names", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._names: dict[int, str] = {}

    def decode(self, name: bytes) -> Address:
        """``(interface, protocol, packet type, hardware type, hardware address)``, packet(7)."""
        protocol, index, hatype, pkttype, halen = _SOCKADDR_LL.unpack_from(name)
        if index not in self._names:
            self._names[index] = link_name(self._sock, index)
        hardware = name[_SOCKADDR_LL.size :][:halen]
        number = int.from_bytes(protocol, "big")
        return self._names[index], number, pkttype, hatype, hardware


class PacketSource(MessageSource):
    """An AF_PACKET socket, read by ``recvmmsg``."""

    __slots__ = ("_end", "on_link_down")

    _drop_counter = PacketDrops

    def __init__(
        self,
        sock: socket.socket,
        memory: LoopMemory,
        slot_size: int,
        metadata: Metadata = Metadata.NONE,
    ) -> None:
        super().__init__(sock, memory, slot_size, metadata)
        self.on_link_down: Callable[[], object] | None = None
        self._end: OSError | None = None

    def read(self, slots: int, polled: bool) -> int:
        """The same; a link that goes down may come back under another name, or not at all."""
        try:
            read = super().read(slots, polled)
        except OSError as error:
            self._note_error(error.errno)
            raise
        if not read:
            self._check_end()
        return read

    def _note_error(self, number: int | None) -> None:
        if number == errno.ENETDOWN:
            self._renew_peers()
            if self.on_link_down is not None:
                self.on_link_down()

    def _check_end(self) -> None:
        if self._end is not None:
            raise self._end

    def end_when_drained(self, error: OSError) -> None:
        """Nothing comes any more: behind what is queued, reading raises this."""
        self._end = error

    def close(self) -> None:
        """The same, without the milliseconds that it takes: packet_release in af_packet.c."""
        descriptor = self.sock.detach()
        if descriptor != -1:
            start_thread(partial(os.close, descriptor))
        super().close()

    def _first_peers(self) -> AddressTable:
        return FrameAddresses(self.sock)

    def _renew_peers(self) -> None:
        self._use_peers(FrameAddresses(self.sock))
