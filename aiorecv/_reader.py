"""Readers: how one read goes. Part of the receiver's room.

Asks the window for slots, the source for a batch, and tells the errors that heal from those that
end a receiver. Keeps the rule of when asking at once is worth it. Never waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import logging
import weakref
from collections.abc import Callable
from typing import Protocol

from aiorecv._options import ReceiveOptions, window_slots
from aiorecv._payloads import BYTES_SHIFT, RECEIVED_MASK, is_full
from aiorecv._sources import HungUpError, MessageSource
from aiorecv._statistics import ReceiverStatistics
from aiorecv._window import WindowPolicy

# A consumer that comes back later than this has worked; packets may have queued meanwhile, and
# an EAGAIN (0.4 us) is cheaper than a wait (2 to 4 us).
_RETRY_AFTER = 20e-6
# Seconds between looks at the kernel's drops, and so between warnings.
_LOOK_EVERY = 1.0
# Errors reported in one go before the loop gets its turn.
_ERRORS_A_TURN = 4
# Errors after which the descriptor goes on working.
_HEALING = frozenset(
    {
        # What ICMP and ICMPv6 turn into: icmp_err_convert in net/ipv4/icmp.c, and net/ipv6/icmp.c.
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENOPROTOOPT,
        errno.ECONNREFUSED,
        errno.EMSGSIZE,
        errno.EOPNOTSUPP,
        errno.EHOSTDOWN,
        errno.ENONET,
        errno.EPROTO,
        errno.EACCES,
        # The peer of an AF_UNIX socket went away; another may come.
        errno.ECONNRESET,
        # The interface is down, or memory is short.
        errno.ENETDOWN,
        errno.ENOBUFS,
        errno.ENOMEM,
    }
)

_LOG = logging.getLogger("aiorecv")

# Policies in use: an object here serves a receiver and may serve no second one.
_IN_USE: weakref.WeakValueDictionary[int, WindowPolicy] = weakref.WeakValueDictionary()


def claim_window(options: ReceiveOptions) -> WindowPolicy:
    """The policy of a new receiver, which no other has or had."""
    window = options.make_window()
    if id(window) in _IN_USE:
        raise ValueError(f"window={window!r} serves another receiver: make one for each")
    _IN_USE[id(window)] = window
    return window


def unclaim_window(window: WindowPolicy) -> None:
    """Its receiver did not come to be."""
    del _IN_USE[id(window)]


def _recorder(window: WindowPolicy) -> Callable[..., None]:
    """The policy's ``record``, or one in front of it that leaves out what it does not take."""
    record = window.record
    try:
        if "nbytes" in inspect.signature(record).parameters:
            return record
    except (TypeError, ValueError):  # in C, or made by one that hides what it takes
        pass

    def without_bytes(*, received: int, polled: bool, nbytes: int) -> None:
        record(received=received, polled=polled)

    return without_bytes


class Owner(Protocol):
    """Whoever takes what a reader reads."""

    def close(self) -> None:
        """An error that can't heal has ended the reader."""


class Reader:
    """Reads a source by a window of slots."""

    __slots__ = (
        "_loop",
        "_look_at",
        "_record",
        "_warned_of",
        "ended",
        "errors",
        "grows",
        "last_error",
        "on_error",
        "owner",
        "peak",
        "shrinks",
        "slots",
        "source",
        "try_at",
        "window",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: MessageSource,
        window: WindowPolicy,
        options: ReceiveOptions,
    ) -> None:
        self.source = source
        self.window = window
        self._record = _recorder(window)
        self.ended = False
        self.errors = 0
        self.last_error: OSError | None = None
        self.owner: Owner | None = None
        self.grows = 0
        self.shrinks = 0
        self.peak = self.slots = window_slots(window)
        self._loop = loop
        self.on_error = options.on_error
        self._look_at = 0.0
        self._warned_of = 0
        # When asking at once begins to be worth it: now, as packets may be there already.
        self.try_at = 0.0

    def read(self, polled: bool) -> int:
        """One read in one number, to be taken from the source at once; 0 if nothing is there.

        Whoever has taken it says so by ``note()``.

        Raises:
            OSError: If ``on_error`` does not take it, or it can't heal: then the reader has ended.
            ValueError: If the policy's slots are out of bounds. Nothing was read.
        """
        slots = self.window.slots
        if slots != self.slots:
            slots = self.follow_window()
        try:
            return self.source.read(slots, polled)
        except (OSError, HungUpError) as error:
            return self._read_behind(error, polled)

    def note(self, read: int, now: float, polled: bool) -> None:
        """Draw the conclusions from a read, and tell the policy; raises what that does."""
        if not is_full(read):
            # The socket is drained; asking again would only buy an EAGAIN (410 ns).
            self.try_at = now + _RETRY_AFTER
        else:
            self.try_at = 0.0
            if now >= self._look_at:
                self._look_at = now + _LOOK_EVERY
                self.warn_of_drops()
        self._record(received=read & RECEIVED_MASK, polled=polled, nbytes=read >> BYTES_SHIFT)

    def note_nothing(self, now: float) -> None:
        """Nothing came."""
        self.try_at = now + _RETRY_AFTER

    def ask_again(self) -> None:
        """Packets may be there: whoever asks next shall not wait."""
        self.try_at = 0.0

    def follow_window(self) -> int:
        """Note a change of the window's slots; returns them."""
        slots = window_slots(self.window)
        self.grows += slots > self.slots
        self.shrinks += slots < self.slots
        self.peak = max(self.peak, slots)
        self.slots = slots
        return slots

    def statistics(self) -> ReceiverStatistics:
        """What has been read since this was made."""
        source, core = self.source, self.source.core
        if not self.ended:
            source.sample()
        with contextlib.suppress(TypeError, ValueError):  # the next read reports such a policy
            self.follow_window()
        return ReceiverStatistics(
            packets=core.packets,
            bytes=core.bytes,
            batches=core.reads,
            trains=core.trains,
            reads=core.reads,
            polled_reads=core.polled_reads,
            immediate_reads=core.reads - core.polled_reads,
            full_reads=core.full_reads,
            empty_reads=core.empty_reads,
            truncated=core.truncated,
            errors=self.errors,
            last_error=self.last_error,
            kernel_drops=source.kernel_drops,
            ancillary_truncated=core.ancillary_truncated,
            ring_freezes=source.ring_freezes,
            window_slots=self.slots,
            window_peak=self.peak,
            window_grows=self.grows,
            window_shrinks=self.shrinks,
            buffer_bytes=source.held_bytes(),
            receive_buffer_size=source.receive_buffer_size,
        )

    def _read_behind(self, error: OSError | HungUpError, polled: bool) -> int:
        """Report an error, and read what the kernel has queued behind it."""
        for _ in range(_ERRORS_A_TURN):
            self._report(error)
            if self.ended:
                return 0
            try:
                return self.source.read(self.slots, polled)
            except (OSError, HungUpError) as another:
                error = another
        self._report(error)
        return 0

    def end(self) -> None:
        """No read comes after this: look at the drops once more."""
        self.ended = True
        self.owner = self.on_error = None  # which may know this reader: a cycle
        self.warn_of_drops()

    def warn_of_drops(self) -> None:
        """Say what the kernel has dropped since the last time, if it did."""
        drops = self.source.sample()
        before = self._warned_of
        # What its filter refuses, a UDP socket counts as dropped, and nobody can tell it apart.
        if drops > before and not self.source.counts_refused:
            self._warned_of = drops  # first: a handler of the warning may close the receiver
            _LOG.warning(
                "%r: the kernel dropped %d queued messages since the last warning, %d in all: %s",
                self.source.sock,
                drops - before,
                drops,
                self.source.advice(),
            )

    def _close(self) -> None:
        if self.owner is not None:
            self.owner.close()

    def _report(self, error: OSError | HungUpError) -> None:
        if isinstance(error, HungUpError):
            self._close()
            return
        self.errors += 1
        # A copy: this one, once raised, knows by its traceback who reads, which would be a cycle.
        self.last_error = OSError(*error.args)
        if error.errno not in _HEALING:
            self._close()
            raise error
        self.ask_again()  # packets may be queued behind the error
        # Of a socket that asked for IP_RECVERR the queue has to be emptied too.
        self.source.drain_errors()
        if self.on_error is None:
            raise error
        try:
            self.on_error(error)
        except Exception as exc:
            self._loop.call_exception_handler(
                {"message": "Exception in on_error", "exception": exc}
            )
