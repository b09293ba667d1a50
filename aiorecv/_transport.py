"""Transports: asyncio's datagram transports, fed as receivers are. In the endpoint's room.

A transport owns its socket. What it reads goes to the protocol through a ``Feed``; what it sends
goes out at once, or waits in a buffer with asyncio's limits until the socket takes it.
"""

from __future__ import annotations

import asyncio
import socket
import warnings
from asyncio.trsock import TransportSocket
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any

from aiorecv._addresses import Address
from aiorecv._batch import PacketBatch
from aiorecv._engine import Engine
from aiorecv._feed import Feed
from aiorecv._memory import memory_of
from aiorecv._outlet import Outlet, longer
from aiorecv._statistics import ReceiverStatistics, SenderStatistics
from aiorecv._write_buffer import WriteBuffer

# Packets sent from the buffer before the loop's other tasks have a turn: 64 calls at most.
_PACKETS_A_TURN = 64


class BatchProtocol(asyncio.DatagramProtocol):
    """A datagram protocol that is given whole batches; ``datagram_received`` is not called."""

    def batch_received(self, batch: PacketBatch) -> None:
        """Take the packets of one read; the batch is released when this returns."""


class DatagramTransport(asyncio.DatagramTransport, asyncio.Transport):
    """A datagram transport as asyncio has it; ``create_datagram_endpoint`` makes it.

    ``get_extra_info`` knows ``socket``, ``sockname`` and ``peername``. The protocol's callbacks
    run in the context that was current when the endpoint was created. An exception in one costs
    its packet only, and goes to the loop's exception handler.
    """

    _sock: socket.socket | None = None  # for __del__, if making this fails

    def __init__(
        self,
        engine: Engine,
        protocol: asyncio.BaseProtocol,
        remote: Address,
    ) -> None:
        sock = engine.reader.source.sock
        outlet = Outlet(sock, memory_of(engine.loop))
        extra = {
            "socket": TransportSocket(sock),
            "sockname": sock.getsockname(),
            "peername": outlet.peer,
        }
        super().__init__(extra)
        self._loop = engine.loop
        self._fd = sock.fileno()
        self._reader = engine.reader
        self._outlet = outlet
        self._remote = outlet.peer if remote is None else remote
        self._context = copy_context()
        self._buffer = WriteBuffer(self._call)
        self._timer: asyncio.TimerHandle | None = None
        self._pause = 0.0
        self._dropped = 0
        self._closing = False
        self._lost = False  # connection_lost() is on its way
        self._paused = False
        self._feed = Feed(engine, self)
        self._sock = sock
        self.set_protocol(protocol)

    def _start(self, waiter: asyncio.Future[None]) -> None:
        """Tell the protocol in the next pass, then read, then wake the waiter."""
        self._loop.call_soon(self._protocol.connection_made, self)
        self._loop.call_soon(self._begin, waiter)

    def _begin(self, waiter: asyncio.Future[None]) -> None:
        try:
            if self.is_reading():
                self._feed.resume()
        except Exception as error:  # the loop can't watch the socket
            if not waiter.done():
                waiter.set_exception(error)
        if not waiter.done():
            waiter.set_result(None)

    def __repr__(self) -> str:
        state = "closed" if self._sock is None else "closing" if self._closing else "open"
        reading = "reading" if self.is_reading() else "idle"
        return (
            f"<aiorecv.DatagramTransport {state} fd={self._fd} {reading} "
            f"write_buffer_size={self._buffer.size}>"
        )

    def __del__(self) -> None:
        if self._sock is not None:
            if self._sock.fileno() != -1:  # of two in one cycle the socket may have warned first
                warnings.warn(
                    f"unclosed transport {self!r}", ResourceWarning, source=self, stacklevel=2
                )
            self._feed.stop()
            self._reader.source.close()

    # Protocol and state

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Call this protocol from the next packet on."""
        self._protocol = protocol
        self._feed.call(protocol, batches=isinstance(protocol, BatchProtocol))

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that is called now."""
        return self._protocol

    def is_closing(self) -> bool:
        """Whether the transport is closed, or about to be."""
        return self._closing

    def statistics(self) -> ReceiverStatistics:
        """What has been received since the endpoint was made."""
        return self._reader.statistics()

    def send_statistics(self) -> SenderStatistics:
        """What has been sent since the endpoint was made."""
        return self._outlet.statistics(dropped=self._dropped)

    # Reading

    def is_reading(self) -> bool:
        """Whether packets are delivered: neither paused nor closing."""
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        """Deliver nothing from the next packet on; the kernel's buffer keeps what comes."""
        if self.is_reading():
            self._paused = True
            self._feed.pause()

    def resume_reading(self) -> None:
        """Deliver again, first what the pause has left of a read."""
        if self._paused and not self._closing:
            self._context.run(self._feed.resume)
            self._paused = False

    # Writing

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send one packet, at once if nothing waits before it.

        What the kernel refuses goes to ``error_received``. After ``close()`` packets are dropped.

        Args:
            data: Any contiguous bytes-like object.
            addr: To whom, in numbers: a host name is refused, as looking it up would block. May
                be left out if the endpoint has a remote address.

        Raises:
            TypeError: If ``data`` is not bytes-like, or ``addr`` is no address.
            ValueError: If ``addr`` is not the remote address, or is a host name.
        """
        if self._remote is not None:
            addr = self._checked(addr)
        if self._closing:
            self._dropped += 1
        elif self._buffer or not self._outlet.one(data, addr, self._error_received):
            self._keep(((data, addr),))

    def send_batch(self, packets: Sequence[tuple[Any, Address]]) -> None:
        """Send many packets, ``(data, addr)`` each: as ``sendto`` in turn, by few system calls.

        Raises:
            TypeError: If one is no such pair. Those before it may have been sent, as for
            ValueError: If an address is not the remote one, or is a host name.
        """
        if self._remote is not None:
            packets = [(data, self._checked(addr)) for data, addr in packets]
        if self._closing:
            self._dropped += len(packets)
            return
        taken = 0 if self._buffer else self._outlet.many(packets, self._error_received)
        if taken < len(packets):
            self._keep(packets[taken:])

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent, 8 more for each packet."""
        return self._buffer.size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low and the high limit, in bytes."""
        return self._buffer.low, self._buffer.high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say above how many bytes the protocol pauses writing, and at how many it resumes.

        Without ``high`` it is four times ``low``, or 64 KiB; ``low`` is a quarter of ``high``.

        Raises:
            ValueError: Unless ``high >= low >= 0``.
        """
        self._buffer.set_limits(high, low)

    def _checked(self, addr: Address) -> Address:
        if addr is not None and addr != self._remote:
            raise ValueError(f"Invalid address: must be None or {self._remote!r}")
        return None if self._outlet.peer is not None else self._remote

    def _keep(self, packets: Sequence[tuple[Any, Address]]) -> None:
        """Send these when the socket takes them; what is kept can't change any more."""
        kept = [(self._outlet.check(data, addr), addr) for data, addr in packets]
        if self._closing:  # by a callback that heard of a packet before these
            self._dropped += len(kept)
            return
        if not self._buffer:
            self._await_room()
        self._buffer.add(kept)

    def _await_room(self) -> None:
        self._timer = None
        self._context.run(self._loop.add_writer, self._fd, self._on_writable)

    def _await_no_room(self) -> None:
        self._loop.remove_writer(self._fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_writable(self) -> None:
        errors: list[OSError] = []
        taken = self._outlet.many(self._buffer.first(_PACKETS_A_TURN), errors.append)
        # First, as error_received may abort, or be interrupted: nothing is sent or counted twice.
        self._buffer.drop(taken)
        # Registered for one call each time: uvloop's handle dies of the socket's errors after it.
        self._await_no_room()
        self._pause = 0.0 if taken else longer(self._pause)
        if self._buffer and taken:
            self._await_room()
        elif self._buffer:
            self._timer = self._loop.call_later(self._pause, self._await_room)
        for error in errors:
            self._error_received(error)
        self._buffer.maybe_resume()  # the protocol may send more, or end this
        if self._closing and not self._buffer:
            self._lose(None)

    # Ends

    def close(self) -> None:
        """Read no more, send what is buffered, then tell the protocol and close the socket.

        What was read and not delivered yet is dropped.
        """
        if self._closing:
            return
        self._closing = True
        self._feed.stop()
        if not self._buffer:
            self._lose(None)

    def abort(self) -> None:
        """Close at once: what is buffered is not sent, what was read is not delivered."""
        self._force_close(None)

    def _force_close(self, error: BaseException | None) -> None:
        if self._buffer:
            self._dropped += self._buffer.clear()
            self._await_no_room()
        self._closing = True
        self._feed.stop()
        self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._connection_lost, error, context=self._context)

    def _connection_lost(self, error: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(error)  # type: ignore[arg-type]  # what asyncio gives
        finally:
            self._sock = None
            self._reader.source.close()

    # What the feed tells

    def _callback_failed(self, name: str, error: BaseException) -> None:
        """A callback raised; the loop's exception handler is told."""
        self._loop.call_exception_handler(
            {
                "message": f"Exception in {name}()",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )

    def _error_received(self, error: OSError) -> None:
        """The kernel reported an error that can heal, on reading or on sending."""
        self._call("error_received", error)

    def _call(self, name: str, *arguments: object) -> None:
        # A copy: this may be called in the context itself, which can't be entered twice.
        context = self._context.copy()
        try:
            context.run(getattr(self._protocol, name), *arguments)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._callback_failed(name, error)

    def _reading_failed(self, error: BaseException) -> None:
        """An error that can't heal: the protocol hears of it in ``connection_lost``."""
        if not isinstance(error, OSError):
            self._callback_failed("the receiver", error)
        self._force_close(error)

    def _reading_ended(self) -> None:
        """The other side has hung up: nothing will come any more."""
        self.close()
