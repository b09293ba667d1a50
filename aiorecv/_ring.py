"""Rings: memory that the kernel and the program share, block by block. In the slabs' room.

The kernel writes frames into blocks, in order; a block is lent to a batch and its views, and goes
back to the kernel when the last of them is gone. Promises that a block is not written while a view
of it lives, whatever happens to the ring. Knows neither asyncio nor time.
"""

from __future__ import annotations

import os
import resource
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from aiorecv._native._core import ffi, lib

if TYPE_CHECKING:
    from aiorecv._native._core import ReceiverStruct, RingStruct

_LEAST_BLOCK, _LARGEST_BLOCK = 128 << 10, 4 << 20
_MOST_BYTES = 1 << 30


def _check_block_size(_config: object, _field: object, size: Any) -> None:
    _check_int("block_size", size, "bytes")
    page = resource.getpagesize()
    if not _LEAST_BLOCK <= size <= _LARGEST_BLOCK or size % page:
        raise ValueError(
            f"block_size={size}: give from {_LEAST_BLOCK} to {_LARGEST_BLOCK} bytes, in whole "
            f"pages of {page}"
        )


def _check_blocks(config: RingConfig, _field: object, blocks: Any) -> None:
    _check_int("blocks", blocks, "blocks")
    if blocks < 2 or blocks * config.block_size > _MOST_BYTES:
        most = _MOST_BYTES // config.block_size
        raise ValueError(
            f"blocks={blocks}: give from 2 to {most} blocks of this size, 1 GiB in all"
        )


def _check_block_timeout(_config: object, _field: object, seconds: Any) -> None:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"block_timeout is in seconds, a number, not {seconds!r}")
    if not 0.001 <= seconds <= 60 or abs(seconds * 1000 - round(seconds * 1000)) > 1e-6:
        raise ValueError(
            f"block_timeout={seconds!r}: give whole milliseconds, from 0.001 to 60 seconds"
        )


def _check_int(name: str, value: object, unit: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a number of {unit}, an int, not {value!r}")


@attrs.frozen
class RingConfig:
    """A ring of blocks that the kernel writes frames into, without a call for each (TPACKET_V3).

    A block is handed over when it is full, or ``block_timeout`` after its first frame: a lone frame
    waits so long. ``blocks * block_timeout`` is how long the program may pause before frames are
    dropped, however few come. The memory, ``blocks * block_size``, is the kernel's, and fixed.

    Raises:
        TypeError: If a number is of the wrong kind.
        ValueError: If one is out of bounds.

    Source: Documentation/networking/packet_mmap.rst of Linux.
    """

    block_size: int = attrs.field(default=1 << 18, validator=_check_block_size)
    """Bytes of a block: whole pages, from 128 KiB, which hold the largest frame, to 4 MiB."""

    blocks: int = attrs.field(default=32, validator=_check_blocks)
    """How many there are: 2 or more."""

    block_timeout: float = attrs.field(default=0.001, validator=_check_block_timeout)
    """Seconds after which a block is handed over that is not full; whole milliseconds."""


# Rings that are not closed, or have blocks that somebody holds: a ring that only its batches knew
# would be garbage with them, and might be unmapped before their own end gives the blocks back.
_ALIVE: set[Ring] = set()


class Ring:
    """The ring of one packet socket."""

    __slots__ = (
        "_lock",
        "_process",
        "_references",
        "buffer",
        "core",
        "held",
        "memory",
        "nbytes",
        "patience",
        "poke",
    )

    def __init__(self, descriptor: int, config: RingConfig) -> None:
        """Make it, before the socket is bound; -1: in ordinary memory, for tests.

        Raises:
            OSError: What the kernel says against it.
        """
        timeout = round(config.block_timeout * 1000)
        core = lib.aiorecv_ring_new(descriptor, config.block_size, config.blocks, timeout)
        if core == ffi.NULL:
            raise OSError(ffi.errno, f"{config}: {os.strerror(ffi.errno)}")
        self.core: RingStruct = core
        self.nbytes = config.block_size * config.blocks
        self.patience = config.blocks * config.block_timeout
        # The mapping lives as long as this object, which every buffer made of it keeps alive.
        self.memory = ffi.gc(core.memory, lambda _: lib.aiorecv_ring_free(core), self.nbytes)
        self.buffer: Any = ffi.buffer(self.memory, self.nbytes)
        self.held = 0
        # A forked child has the same memory, and is not the one to give blocks back.
        self._process = os.getpid()
        self.poke: Callable[[], object] | None = None
        """Called once when a block is given back, by whichever thread."""
        # A view may die in any thread, and calls into C run beside each other. Reentrant: the
        # garbage collector may have it die under a call of ours.
        self._lock = threading.RLock()
        self._references: dict[int, tuple[weakref.ref[Any], int]] = {}
        _ALIVE.add(self)

    def read(self, receiver: ReceiverStruct, polled: bool) -> int:
        """The next block: how many packets it has, or -errno; whoever takes it gives it back."""
        with self._lock:
            received = lib.aiorecv_ring_read(receiver, self.core, polled)
            self.held += received > 0
        return received

    def give(self, block: int) -> None:
        """Nobody reads this block any more, as far as this holder is concerned."""
        if os.getpid() != self._process and not self.core.closed:
            return
        with self._lock:
            lib.aiorecv_ring_give(self.core, block)
            self.held -= 1
            self._forget_if_done()
        poke, self.poke = self.poke, None
        if poke is not None:
            poke()

    def export(self, block: int) -> Any:
        """The object that all views of a batch hold; when it dies, the block is given back."""
        exporter = ffi.buffer(self.memory, self.nbytes)
        reference = weakref.ref(exporter, self._returned)
        with self._lock:
            lib.aiorecv_ring_hold(self.core, block)
            self.held += 1
            # By identity: a buffer can't be hashed.
            self._references[id(reference)] = reference, block
        return exporter

    def state(self) -> int:
        """What can be done next: flags of ``AIORECV_RING``."""
        return lib.aiorecv_ring_state(self.core)

    def close(self) -> None:
        """Let go of the socket; what is held stays readable where it is."""
        with self._lock:
            lib.aiorecv_ring_close(self.core)
            self._forget_if_done()

    def _returned(self, reference: weakref.ref[Any]) -> None:
        self.give(self._references.pop(id(reference))[1])

    def _forget_if_done(self) -> None:
        if self.core.closed and not self.held:
            _ALIVE.discard(self)
