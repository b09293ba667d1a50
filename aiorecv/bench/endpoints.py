"""Endpoints: arms whose user is a datagram protocol, whoever's transport calls it."""

from __future__ import annotations

import asyncio
import socket
from time import perf_counter
from typing import Any, Self

from aiorecv.bench.drains import CountError, Drain
from aiorecv.bench.peers import Open
from aiorecv.bench.queues import Filler


class CountingProtocol(asyncio.DatagramProtocol):
    """Counts packets down to the end of a fill, and does nothing else."""

    def __init__(self, drain: Drain, lost: asyncio.Future[None]) -> None:
        self.left = 0
        """Packets that have not come yet; less than none if more came than were sent."""
        self._finish = drain.finish
        self._lost = lost

    def expect(self, packets: int) -> None:
        """A fill of so many packets comes next."""
        self.left = packets

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.left -= 1
        if not self.left:
            self._finish(perf_counter(), 0, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set_result(None)


class AddingProtocol(CountingProtocol):
    """Adds up the payloads' bytes as well, which costs more than all its counting."""

    def expect(self, packets: int) -> None:
        super().expect(packets)
        self._nbytes = 0

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.left -= 1
        self._nbytes += len(data)
        if not self.left:
            self._finish(perf_counter(), 0, self._nbytes)


class EndpointDrain(Drain):
    """A protocol on a transport; an async context manager, which closes the socket.

    Bytes are added up only in fills that are there to be checked.
    """

    def __init__(self, open_transport: Open, sock: socket.socket, packets: int) -> None:
        super().__init__(packets)
        self._open = open_transport
        self._sock = sock

    async def __aenter__(self) -> Self:
        self._lost = asyncio.get_running_loop().create_future()
        self._counting = CountingProtocol(self, self._lost)
        self._adding = AddingProtocol(self, self._lost)
        self._transport = await self._open(lambda: self._counting, self._sock)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()
        await self._lost
        self._sock.close()

    async def time(self, filler: Filler) -> float:
        """As every drain does; packets that come twice, or between fills, are errors too."""
        protocol = self._adding if self.checking else self._counting
        self._check_surplus()
        protocol.expect(self.packets)
        self._transport.set_protocol(protocol)
        taken = await super().time(filler)
        self._check_surplus()
        return taken

    def _check_surplus(self) -> None:
        surplus = -self._counting.left - self._adding.left
        if surplus:
            raise CountError(f"{surplus} packets came that were not sent")
