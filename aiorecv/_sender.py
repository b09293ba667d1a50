"""Senders: packets in order to where they shall go, and waiting for a socket that is full."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from aiorecv._addresses import Address
from aiorecv._errors import ReceiverClosedError
from aiorecv._memory import memory_of
from aiorecv._outlet import Outlet, longer, source_of
from aiorecv._receiver import Receiver
from aiorecv._statistics import SenderStatistics

_Packets: TypeAlias = Sequence[tuple[Any, Address]]


class Sender:
    """Sends packets on a socket, or on that of a receiver, by as few system calls as it takes.

    Up to 64 packets go out by one ``sendmmsg``, from the buffers they are in; packets of equal
    size to one peer as one message, which the kernel splits (UDP GSO), where it can. The socket
    is not owned: whoever made it closes it, and its options stay as they are.

    A packet that the kernel refuses is left out, and the others are sent, in order.
    """

    __slots__ = ("_lock", "_loop", "_on_error", "_outlet", "_receiver", "_sends")

    def __init__(
        self,
        sock_or_receiver: socket.socket | Receiver,
        *,
        on_error: Callable[[OSError], object] | None = None,
    ) -> None:
        """Send on ``sock_or_receiver``, from the running loop.

        Args:
            sock_or_receiver: A socket with packets, connected or not, or a receiver. On that
                of ``open_tun`` or ``from_fd`` addresses are None, and each packet is a ``writev``.
            on_error: Called with each ``OSError`` by which a packet was refused, or which tells
                of an earlier one (ICMP). None: the first one is raised once all else is sent.

        Raises:
            TypeError: If it is neither, or ``on_error`` can't be called.
            ValueError: If it is a stream.
            OSError: If the socket is closed.
            ReceiverClosedError: If the receiver is.
            RuntimeError: Without a running loop, or on another than the receiver's.
        """
        if on_error is not None and not callable(on_error):
            raise TypeError(f"on_error is called with each OSError; {on_error!r} can't be called")
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        sock = sock_or_receiver
        if isinstance(sock, Receiver):
            if sock._loop is not self._loop:
                raise RuntimeError("the receiver belongs to another event loop: send there")
            self._receiver = sock
            sock = sock._sock
        self._on_error = on_error
        self._lock = asyncio.Lock()
        # Sends under way: between two of them the lock is free for a moment.
        self._sends = 0
        self._check()
        self._outlet = Outlet(sock, memory_of(self._loop))

    def __repr__(self) -> str:
        return f"<aiorecv.Sender on {self._receiver or self._outlet.sock!r}>"

    def send_nowait(self, packets: _Packets, *, source: str | None = None) -> int:
        """Send what the socket takes now; returns how many packets that is, from the first on.

        Args:
            packets: ``(data, addr)`` each: any contiguous bytes-like object, and an address in
                numbers; None on a connected socket.
            source: The local address to send from, of several: ``Packet.destination`` of what
                is answered.

        Returns 0 while a ``send()`` waits, which comes first.

        Raises:
            TypeError: If a packet is no such pair. Those before it may have been sent, as for
            ValueError: If an address is a host name, or not the connected peer's; or ``source``
                is no address of the socket's family.
            OSError: The first by which a packet was refused, without ``on_error``; notes in it
                tell of others, and of packets that were not taken. EBADF: the socket is closed.
            ReceiverClosedError: If the receiver is closed.
            RuntimeError: On another loop.
        """
        self._check()
        if self._sends:
            return 0
        refusals: list[OSError] = []
        taken = self._send(packets, source, refusals)
        if refusals and taken < len(packets):
            refusals[0].add_note(f"{taken} of {len(packets)} packets were taken")
        _raise_first(refusals)
        return taken

    async def send(self, packets: _Packets, *, source: str | None = None) -> None:
        """Send all packets, waiting whenever the socket is full. Sends wait in turn.

        Cancelled, it leaves out what it had not sent. Takes and raises what ``send_nowait()``
        does.
        """
        self._check()
        refusals: list[OSError] = []
        self._sends += 1
        try:
            async with self._lock:
                await self._send_all(packets, source, refusals)
        finally:
            self._sends -= 1
        _raise_first(refusals)

    def statistics(self) -> SenderStatistics:
        """What this sender has sent since it was made."""
        return self._outlet.statistics()

    async def _send_all(
        self, packets: _Packets, source: str | None, refusals: list[OSError]
    ) -> None:
        pause = 0.0
        woken = False
        while True:
            self._check()
            taken = self._send(packets, source, refusals)
            packets = packets[taken:]
            if not packets:
                return
            pause = longer(pause) if woken and not taken else 0.0
            await self._room(pause)
            woken = True

    def _send(self, packets: _Packets, source: str | None, refusals: list[OSError]) -> int:
        outlet = self._outlet
        if outlet.sock.fileno() == -1:  # its number may be somebody else's by now
            raise OSError(errno.EBADF, "the sender's socket is closed")
        origin = None if source is None else source_of(source, outlet.family)
        report = refusals.append if self._on_error is None else self._report
        return outlet.many(packets, report, origin)

    def _report(self, error: OSError) -> None:
        assert self._on_error is not None  # or this would not be asked
        try:
            self._on_error(error)
        except Exception as exc:
            self._loop.call_exception_handler(
                {"message": "Exception in on_error", "exception": exc}
            )
        self._check()  # it may have closed the receiver

    def _check(self) -> None:
        if asyncio._get_running_loop() is not self._loop:
            raise RuntimeError("a sender belongs to the event loop it was made on: send there")
        if self._receiver is not None and self._receiver._delivery.closed:
            raise ReceiverClosedError("the sender's receiver is closed")

    async def _room(self, pause: float) -> None:
        """Wait until the socket has room, or so long; or until its receiver is closed."""
        waiter = self._loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        with contextlib.ExitStack() as stack:
            if pause:
                stack.callback(self._loop.call_later(pause, wake).cancel)
            else:
                # In an epoll descriptor of its own: others may wait for the same socket, and a
                # socket that is closed meanwhile leaves it by itself.
                epoll = stack.enter_context(select.epoll())
                epoll.register(self._outlet.sock.fileno(), select.EPOLLOUT)
                self._loop.add_reader(epoll.fileno(), wake)
                stack.callback(self._loop.remove_reader, epoll.fileno())
            if self._receiver is not None:
                stack.callback(self._receiver._delivery.when_left(wake))
            await waiter


def _raise_first(refusals: list[OSError]) -> None:
    if refusals:
        first, *others = refusals
        if others:
            first.add_note(f"{len(others)} more packets were refused")
        raise first
