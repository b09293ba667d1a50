"""The source of descriptors that are no sockets: a packet a ``read``."""

from __future__ import annotations

import errno
import socket
from typing import cast

from aiorecv._descriptors import Descriptor
from aiorecv._native._core import lib
from aiorecv._packet import Metadata
from aiorecv._sources import HungUpError, LoopMemory, MessageSource
from aiorecv._threads import start_thread


class _NoDrops:
    """Drops that nobody tells of: a device counts its own."""

    __slots__ = ()

    total = freezes = 0

    def __init__(self, _: object) -> None: ...

    def update(self) -> int:
        return 0


class ReadSource(MessageSource):
    """A descriptor that gives a packet a ``read``: TUN devices, packet pipes."""

    __slots__ = ()

    _drop_counter = _NoDrops

    def __init__(self, descriptor: Descriptor, memory: LoopMemory, slot_size: int) -> None:
        # It has what is asked of a socket here, and below nothing else is.
        super().__init__(cast("socket.socket", descriptor), memory, slot_size)
        lib.aiorecv_receiver_read(self.core)

    def read(self, slots: int, polled: bool) -> int:
        """The same, by a ``read`` for each packet.

        Raises:
            HungUpError: At the end of file.
            OSError: What the kernel reports.
        """
        try:
            return super().read(slots, polled)
        except OSError as error:
            if error.errno == lib.AIORECV_END_OF_FILE:
                raise HungUpError from None
            if error.errno == errno.EBADFD:  # tun_get() finds no device
                name = self.sock.getsockname()
                raise OSError(errno.ENODEV, f"the interface {name!r} is gone") from None
            raise

    def close(self) -> None:
        """Close it; a device in a thread, as its interface takes 15 to 30 ms to go away."""
        if self.sock.getsockname() is not None:
            start_thread(Descriptor(self.sock.detach()).close)
        super().close()

    def drain_errors(self) -> int:
        """It has no error queue."""
        return 0

    def sample(self) -> int:
        """It tells of nothing."""
        return 0

    def _set_up(self, metadata: Metadata) -> None:
        """It has no options."""
