"""Readiness of packet sockets, whose interface may go down, and away. In the receiver's room.

The kernel reports that a link goes down, but a link that is down may be removed without an event.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from aiorecv._native._core import lib
from aiorecv._packet_source import PacketSource
from aiorecv._readiness import Readiness

# Seconds until the first look at a link that is down, and the most between two.
_LOOK_AFTER = (0.02, 0.5)


class PacketReadiness(Readiness):
    """Also looks whether an interface that is down is still there, until it is up again."""

    __slots__ = ("_interface", "_link_pause", "_link_timer", "_source")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: PacketSource,
        unheard: Callable[[], object],
    ) -> None:
        super().__init__(loop, source.sock.fileno(), unheard)
        self._source = source
        self._interface: str = source.sock.getsockname()[0]
        self._link_timer: asyncio.TimerHandle | None = None
        source.on_link_down = self._link_went_down
        if lib.aiorecv_link(self._fd) == 0:
            self._link_went_down()

    def stop(self) -> None:
        """The same, and no look at the link comes any more."""
        super().stop()
        self._source.on_link_down = None
        if self._link_timer is not None:
            self._link_timer.cancel()
            self._link_timer = None

    def _link_went_down(self) -> None:
        if self._link_timer is None:
            self._link_pause = _LOOK_AFTER[0]
            self._look_at_link_later()

    def _look_at_link_later(self) -> None:
        self._link_timer = self._loop.call_later(self._link_pause, self._look_at_link)
        self._link_pause = min(2 * self._link_pause, _LOOK_AFTER[1])

    def _look_at_link(self) -> None:
        self._link_timer = None
        state = lib.aiorecv_link(self._fd)
        if state == 0:
            self._look_at_link_later()
        elif state < 0:
            self._source.end_when_drained(
                OSError(errno.ENODEV, f"the interface {self._interface!r} is gone")
            )
            self.unheard()
            if self.waiting is not None:
                self.waiting()
