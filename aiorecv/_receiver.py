"""Receivers: the public face of reading a socket: iteration, statistics, closing."""

from __future__ import annotations

import asyncio
import os
import socket
import warnings
from collections.abc import AsyncIterator
from typing import Any, Self

from aiorecv._addresses import Address
from aiorecv._batch import PacketBatch, Pair
from aiorecv._delivery import Delivery
from aiorecv._descriptors import Descriptor
from aiorecv._errors import ReceiverClosedError
from aiorecv._iteration import Batches, Datagrams
from aiorecv._multicast import join, leave
from aiorecv._reader import Reader
from aiorecv._sockets import SocketOptions
from aiorecv._statistics import ReceiverStatistics
from aiorecv._window import WindowPolicy


class Receiver:
    """Receives the packets of one socket in batches; the openers make it.

    One task at a time may read it, in any of the ways below, on the loop it was opened on. It
    owns the socket, and closes it.

    Reading raises ``ReceiverBusyError`` while another task waits, ``RuntimeError`` on another
    loop or in a forked child, and what the kernel reports as ``OSError``, once each, unless
    ``on_error`` takes it: the receiver stays usable if the error can heal, else it is closed.
    """

    __slots__ = (
        "__weakref__",
        "_delivery",
        "_local_addr",
        "_loop",
        "_options",
        "_pid",
        "_reader",
        "_remote_addr",
        "_sock",
        "_was_blocking",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: Reader,
        delivery: Delivery,
        options: SocketOptions | None,
    ) -> None:
        sock = reader.source.sock
        self._loop = loop
        self._reader = reader
        self._delivery = delivery
        self._options = options
        self._sock = sock
        self._local_addr: Address = sock.getsockname()
        self._remote_addr = _peer_name(sock)
        self._pid = os.getpid()
        self._was_blocking = os.get_blocking(sock.fileno())

    def __aiter__(self) -> AsyncIterator[PacketBatch]:
        """Batches, until the receiver is closed; asking for the next one releases the last."""
        return Batches(self, self._delivery)

    async def receive(self) -> PacketBatch:
        """Wait for the next batch; it is the caller's until released or dropped.

        Write ``with await receiver.receive() as batch:``, since a variable that keeps a batch
        while it waits keeps its memory.

        Raises:
            ReceiverClosedError: If the receiver is closed, or is closed meanwhile.
        """
        batch = self._delivery.ready()
        if batch is None:
            batch = await self._delivery.later()
        if batch is None:
            raise _closed()
        return batch

    def receive_nowait(self) -> PacketBatch | None:
        """What is there now, as a batch of the caller's; None if nothing is.

        Raises:
            ReceiverClosedError: If the receiver is closed.
        """
        batch = self._delivery.now()
        if batch is None and self._delivery.closed:
            raise _closed()
        return batch

    def datagrams(self) -> AsyncIterator[Pair]:
        """The packets one by one, as ``(data, addr)``, until the receiver is closed.

        What a ``break`` leaves of a batch comes first to the next reader, of any kind.
        """
        return Datagrams(self, self._delivery)

    def close(self) -> None:
        """Close the socket: waiting tasks wake, a batch in hand stays valid. Safe to repeat.

        What was read before still comes first; then iteration ends. In a forked child it closes
        the child's own copy of the descriptor, and nothing else. The kernel takes 8 to 22 ms to
        close a packet socket, and up to 33 for a TUN device: a thread waits for that.

        Raises:
            RuntimeError: In another thread than that of the running loop.
        """
        if self._delivery.closed:
            return
        if os.getpid() != self._pid:
            # The event loop's epoll descriptor is shared with the parent, which goes on.
            self._delivery.closed = True
            self._reader.source.close_copy()
            return
        self._check_thread()
        self._delivery.close()

    async def aclose(self) -> None:
        """``close()``, for ``contextlib.aclosing`` and the like."""
        self.close()

    def detach(self) -> socket.socket | Any:
        """End the receiver, and give its socket back as it was; the caller closes it.

        Of ``open_tun`` and ``from_fd`` it is the descriptor, an ``int``.

        Groups that were joined stay joined.
        What was read already is still given by ``receive_nowait()``.

        Raises:
            ReceiverClosedError: If the receiver is closed.
            RuntimeError: If it reads a ring, which its socket would not be without; or in another
                thread than that of the running loop.
        """
        if self._delivery.closed:
            raise _closed()
        if not self._reader.source.detachable:
            raise RuntimeError("a ring can't be taken off its socket: close the receiver")
        self._check_thread()
        self._delivery.leave()
        if self._options is not None:
            self._options.restore()
        # uvloop makes what it watches non-blocking.
        os.set_blocking(self._sock.fileno(), self._was_blocking)
        return self._sock.detach() if isinstance(self._sock, Descriptor) else self._sock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._delivery.closed:
            return
        if self._sock.fileno() != -1:  # of two in one cycle the socket may have warned first
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
        if self._may_close() or os.getpid() != self._pid:
            self.close()
        else:
            self._loop.call_soon_threadsafe(self.close)

    def __repr__(self) -> str:
        state = "closed" if self._delivery.closed else f"fd={self.fileno()}"
        return f"<aiorecv.Receiver {state} local_addr={self._local_addr!r}>"

    @property
    def window(self) -> WindowPolicy:
        """The policy that says how many slots each read offers."""
        return self._reader.window

    @property
    def socket(self) -> socket.socket:
        """The socket itself, for options and sending; the receiver closes it.

        Raises:
            AttributeError: If it reads a descriptor that is no socket.
        """
        if isinstance(self._sock, Descriptor):
            raise AttributeError(f"{self._sock!r} is no socket: fileno() is its number")
        return self._sock

    def fileno(self) -> int:
        """The socket's descriptor; -1 once closed."""
        return self._sock.fileno()

    @property
    def local_addr(self) -> Address:
        """The address the socket is bound to, as when it was opened."""
        return self._local_addr

    @property
    def remote_addr(self) -> Address:
        """The peer the socket is connected to, as when it was opened; None if it is not."""
        return self._remote_addr

    @property
    def fanout_group(self) -> int | None:
        """The number of the ``Fanout`` group it was opened with, for others to join; or None."""
        return self._reader.source.fanout_group

    def join_multicast(
        self, group: str, interface: str | int | None = None, source: str | None = None
    ) -> None:
        """Receive what is sent to a multicast group.

        From the first call on, packets to groups that this socket has not joined are kept out.

        Args:
            group: Its address, IPv4 or IPv6.
            interface: The name, index or address of the interface to receive by; None: the one
                that routes choose.
            source: The address of the only sender to hear; call again for each further one.

        Raises:
            TypeError: If an argument is of the wrong kind.
            ValueError: If ``group`` is no multicast address, or ``source`` no address like it.
            OSError: What the kernel says: ENODEV without such an interface, EADDRINUSE if joined
                already, ENOBUFS naming the sysctl that limits memberships.
            ReceiverClosedError: If the receiver is closed.
        """
        if self._delivery.closed:
            raise _closed()
        join(self._socket_options(), group, interface, source)

    def leave_multicast(
        self, group: str, interface: str | int | None = None, source: str | None = None
    ) -> None:
        """Receive no more of a group; the arguments and errors are those of the joining call.

        A group that was not joined is an OSError (EADDRNOTAVAIL).
        """
        if self._delivery.closed:
            raise _closed()
        leave(self._socket_options(), group, interface, source)

    def statistics(self) -> ReceiverStatistics:
        """What this receiver has seen since it was opened."""
        return self._reader.statistics()

    def _socket_options(self) -> SocketOptions:
        if self._options is None:
            raise ValueError(f"{self._sock!r} is no socket, and has no multicast groups")
        return self._options

    def _may_close(self) -> bool:
        return asyncio._get_running_loop() is self._loop or not self._loop.is_running()

    def _check_thread(self) -> None:
        if not self._may_close():
            raise RuntimeError(
                "close a receiver in the thread of its loop: loop.call_soon_threadsafe does that"
            )


def _closed() -> ReceiverClosedError:
    return ReceiverClosedError("the receiver is closed")


def _peer_name(sock: socket.socket) -> Address:
    try:
        name: Address = sock.getpeername()
    except OSError:
        return None
    return name
