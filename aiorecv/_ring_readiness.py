"""Readiness of packet rings, which poll(2) may call readable for ever. In the receiver's room.

The kernel says so for as long as the block before the one it writes is not given back; and behind
a block that is held longer than a round it writes none. A timer and the end of the last view take
poll's place.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aiorecv._native._core import lib
from aiorecv._packet_readiness import PacketReadiness
from aiorecv._ring_source import RingSource

# Seconds until the first look at a ring that can't be polled, and between looks at one that has
# stopped, which only tell of drops.
_LOOK_AFTER, _LOOK_AT_DROPS = 0.001, 1.0
_DO_NOT_POLL = lib.AIORECV_RING_UNPOLLABLE | lib.AIORECV_RING_STOPPED


class RingReadiness(PacketReadiness):
    """Polls the descriptor only while that tells the truth."""

    __slots__ = ("_look_at_drops", "_ring", "_ring_pause", "_ring_pause_limit", "_ring_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: RingSource,
        unheard: Callable[[], object],
        look_at_drops: Callable[[], object],
    ) -> None:
        super().__init__(loop, source, unheard)
        self._ring = source.ring
        self._look_at_drops = look_at_drops
        # The ring bridges four of them.
        self._ring_pause_limit = max(source.ring.patience / 4, _LOOK_AFTER)
        self._ring_pause = _LOOK_AFTER
        self._ring_timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """The same, and no timer of the ring fires any more."""
        super().stop()
        self._end_ring_timer()

    def _register(self) -> None:
        state = self._ring.state()
        if not state & _DO_NOT_POLL:
            self._end_ring_timer()
            super()._register()
        elif self._ring_timer is None:
            self._unregister()
            self._ring_pause = _LOOK_AFTER
            self._look_at_ring_later(state)

    def _look_at_ring_later(self, state: int) -> None:
        pause = _LOOK_AT_DROPS if state & lib.AIORECV_RING_STOPPED else self._ring_pause
        self._ring_pause = min(2 * self._ring_pause, self._ring_pause_limit)
        self._ring_timer = self._loop.call_later(pause, self._look_at_ring)
        self._ring.poke = self._poked

    def _poked(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._look_at_ring)

    def _look_at_ring(self) -> None:
        self._end_ring_timer()
        if self.waiting is None:
            return
        state = self._ring.state()
        if state & lib.AIORECV_RING_READY:
            self.waiting()
        elif not state & _DO_NOT_POLL:
            self._register()
        else:
            if state & lib.AIORECV_RING_STOPPED:
                self._look_at_drops()
            self._look_at_ring_later(state)

    def _end_ring_timer(self) -> None:
        self._ring.poke = None
        if self._ring_timer is not None:
            self._ring_timer.cancel()
            self._ring_timer = None
