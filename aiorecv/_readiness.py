"""Readiness: when the loop reports a descriptor readable, and to whom.

Part of the receiver's room. Registered only as far as somebody waits: a callback that finds
nobody takes itself off the loop, so packets that nobody reads cost no CPU.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

from aiorecv._native._core import lib


class Readiness:
    """One descriptor's registration with the event loop.

    The loop knows this object, not the receiver, which it therefore keeps alive only while a
    task waits.
    """

    __slots__ = (
        "_epoll",
        "_fd",
        "_loop",
        "_may_nest",
        "_registered",
        "reported",
        "waiting",
    )

    waiting: Callable[[], object] | None
    """Called when the descriptor is readable; None while nobody waits."""

    reported: bool
    """Readiness came while nobody waited."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        """Check that the loop can watch ``fd``.

        Raises:
            TypeError: If the loop has no ``add_reader``.
        """
        try:
            loop.remove_reader(fd)
        except NotImplementedError:
            raise TypeError(
                f"{type(loop).__name__} has no add_reader, which receiving needs: run on "
                "asyncio.SelectorEventLoop or uvloop"
            ) from None
        self._loop = loop
        self._fd = fd
        self._epoll: select.epoll | None = None
        self._registered = False
        # asyncio's own loops report an error as readability. uvloop's handle dies of it in
        # silence (its poll watcher stops at the first EPOLLERR), and others may: there, a
        # descriptor that can have errors is watched through an epoll descriptor of its own,
        # inside which an error is plain readability.
        self._may_nest = not isinstance(loop, asyncio.SelectorEventLoop)
        self.waiting = None
        self.reported = False

    def wait(self, waiting: Callable[[], object]) -> None:
        """Call ``waiting`` whenever the descriptor is readable, until ``waiting`` is set None."""
        self.waiting = waiting
        self.reported = False
        if self._may_nest and self._epoll is None and lib.aiorecv_can_fail(self._fd):
            self._nest()
        if not self._registered:
            self._loop.add_reader(self._watched(), self._fired)
            self._registered = True

    def stop(self) -> None:
        """Take the descriptor off the loop; to be done before it is closed."""
        self.waiting = None
        self._unregister()
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None

    def _watched(self) -> int:
        return self._fd if self._epoll is None else self._epoll.fileno()

    def _nest(self) -> None:
        epoll = select.epoll()
        try:
            epoll.register(self._fd, select.EPOLLIN)
        except BaseException:
            epoll.close()
            raise
        self._unregister()
        self._epoll = epoll

    def _unregister(self) -> None:
        if self._registered:
            self._registered = False
            if not self._loop.is_closed():
                self._loop.remove_reader(self._watched())

    def _fired(self) -> None:
        waiting = self.waiting
        if waiting is None:
            self.reported = True
            self._unregister()
        else:
            waiting()
