"""Descriptors passed by SCM_RIGHTS: batches that own them until somebody takes them."""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import Iterable, Iterator

from aiorecv._addresses import AddressTable
from aiorecv._batch import CopiedBatch, PacketBatch
from aiorecv._leases import LeasedBatch
from aiorecv._native._core import lib
from aiorecv._packet import Ancillary, Details, Metadata, ancillary
from aiorecv._slabs import Slab

_CARRIERS = (lib.AIORECV_SCM_RIGHTS, lib.AIORECV_SCM_PIDFD)


def descriptors(raw: Iterable[Ancillary]) -> list[int]:
    """The descriptors in one message's ancillary data: unix(7)."""
    found = array("i")
    for level, kind, data in raw:
        if level == socket.SOL_SOCKET and kind in _CARRIERS:
            found.frombytes(data[: len(data) // found.itemsize * found.itemsize])
    return found.tolist()


class _Owning(PacketBatch):
    """Owns descriptors by packet; of a packet that ``packets()`` has made the caller does."""

    __slots__ = ()

    _passed: dict[int, list[int]]

    def _details(self, start: int) -> Iterator[Details]:
        told = super()._details(start)  # type: ignore[safe-super]  # mixed into a whole batch
        for packet, about in enumerate(told, start):
            self._passed.pop(packet, None)
            yield about

    def _copy_from(self, start: int) -> PacketBatch:
        return CopiedRights(self, start)

    def release(self) -> None:
        while self._passed:
            _, passed = self._passed.popitem()
            for descriptor in passed:
                os.close(descriptor)
        super().release()  # type: ignore[safe-super]  # mixed into a whole batch

    def __del__(self) -> None:
        self.release()


class RightsBatch(_Owning, LeasedBatch):
    """A batch of a socket that may be sent descriptors, asked for by ``Metadata.RAW``."""

    __slots__ = ("_passed",)

    def __init__(
        self, slab: Slab, senders: AddressTable, read: int, polled: bool, metadata: Metadata
    ) -> None:
        super().__init__(slab, senders, read, polled, metadata)
        # Datagrams of AF_UNIX are never trains: packets and messages have the same numbers.
        owned = ((i, descriptors(ancillary(slab, i))) for i in range(self._received))
        self._passed = {packet: passed for packet, passed in owned if passed}


class CopiedRights(_Owning, CopiedBatch):
    """A copy of such a batch: the descriptors that it still owned have moved to the copy."""

    __slots__ = ("_passed",)

    def __init__(self, batch: _Owning, start: int) -> None:
        self._passed = {}
        # Those of a packet that somebody has taken are in its ancillary data, but not the batch's.
        owned = {packet - start: passed for packet, passed in batch._passed.items()}
        super().__init__(batch, start)
        self._passed = {packet: passed for packet, passed in owned.items() if packet >= 0}
