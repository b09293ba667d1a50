"""The few errors that are ours: misuse of an object. The kernel's stay ``OSError``."""

from __future__ import annotations


class AiorecvError(Exception):
    """What all errors of aiorecv derive from; never raised itself."""


class ReceiverClosedError(AiorecvError):
    """The receiver is closed, and what it had read has been given out."""


class ReceiverBusyError(AiorecvError):
    """Another task is waiting for this receiver; a receiver has one reader at a time."""


class BatchReleasedError(AiorecvError):
    """The batch was released, so its memory may hold newer packets.

    A batch from ``async for`` is released when the next one is asked for. ``copy()`` makes a
    batch that can be kept.
    """
