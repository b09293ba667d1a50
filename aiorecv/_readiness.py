"""Readiness: when the loop reports a descriptor readable, and to whom.

Part of the receiver's room. Registered only as far as somebody waits: a callback that finds
nobody takes itself off the loop, so packets that nobody reads cost no CPU.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

from aiorecv._native._core import lib

# So many wake-ups in a row that bring nothing are no accident: a socket that was shut down, or a
# call that a sandbox refuses, is readable for ever.
FRUITLESS_WAKE_UPS = 8
# Seconds between looks at such a descriptor: doubled each time, up to the second.
_BACK_OFF = (0.001, 0.5)


class Readiness:
    """One descriptor's registration with the event loop.

    The loop knows this object, not the receiver, which it therefore keeps alive only while a
    task waits.
    """

    __slots__ = (
        "_direct",
        "_epoll",
        "_fd",
        "_loop",
        "_may_nest",
        "_pause",
        "_registered",
        "_timer",
        "fruitless",
        "unheard",
        "waiting",
    )

    waiting: Callable[[], object] | None
    """Called when the descriptor is readable; None while nobody waits."""

    unheard: Callable[[], object]
    """Called when readiness came while nobody waited."""

    fruitless: int
    """Wake-ups in a row that brought nothing; whoever reads a packet sets it to 0."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, unheard: Callable[[], object]
    ) -> None:
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
        self._direct: Callable[[], object] | None = None
        self._epoll: select.epoll | None = None
        self._registered = False
        # asyncio's own loops report an error as readability. uvloop's handle dies of it in
        # silence (its poll watcher stops at the first EPOLLERR), and others may: there, a
        # descriptor that can have errors is watched through an epoll descriptor of its own,
        # inside which an error is plain readability.
        self._may_nest = not isinstance(loop, asyncio.SelectorEventLoop)
        self._timer: asyncio.TimerHandle | None = None
        self._pause = 0.0
        self.waiting = None
        self.unheard = unheard
        self.fruitless = 0

    def watch(self, readable: Callable[[], object]) -> None:
        """Have the loop itself call ``readable``, until ``unwatch()``: a call less each time."""
        self._direct = readable
        self.wait(readable)

    def unwatch(self) -> None:
        """Leave the descriptor alone until watched again."""
        self.waiting = None
        self._unregister()

    def wait(self, waiting: Callable[[], object]) -> None:
        """Call ``waiting`` whenever the descriptor is readable, until ``waiting`` is set None."""
        self.waiting = waiting
        if self._timer is None:
            self._register()

    def note_fruitless(self, drain_errors: Callable[[], int]) -> None:
        """A wake-up brought nothing: several in a row have a cause that will not go away."""
        self.fruitless += 1
        if self.fruitless >= FRUITLESS_WAKE_UPS:
            if drain_errors():
                self.fruitless = 0
            else:
                self._back_off()

    def _back_off(self) -> None:
        """Leave the descriptor alone for a while: longer each time, until a packet comes."""
        if self._timer is not None:
            return
        if self.fruitless == FRUITLESS_WAKE_UPS:
            self._pause = _BACK_OFF[0]
        self._unregister()
        self._timer = self._loop.call_later(self._pause, self._look_again)
        self._pause = min(2 * self._pause, _BACK_OFF[1])

    def stop(self) -> None:
        """Take the descriptor off the loop; to be done before it is closed."""
        self.waiting = None
        self._unregister()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None

    def _look_again(self) -> None:
        self._timer = None
        if self.waiting is not None:
            self._register()

    def _register(self) -> None:
        if self._may_nest and self._epoll is None and lib.aiorecv_can_fail(self._fd):
            self._nest()
        if not self._registered:
            self._loop.add_reader(self._watched(), self._direct or self._fired)
            self._registered = True

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
            self._unregister()
            self.unheard()
        else:
            waiting()
