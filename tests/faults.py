"""Faults: system calls that fail when told, in the place of a receiver's own.

A receiver's C record holds ``recvmmsg`` and ``recvmsg`` as function pointers. ``Faults`` puts a
function there that fails as its script says, and else asks the kernel.
"""

from __future__ import annotations

from typing import Any, Self

from aiorecv._native._core import ffi as core_ffi

OK = 0
"""In a script: ask the kernel."""

_FFI: Any = core_ffi

PATHS = ("recvmmsg", "recvmsg")
"""The ways a receiver reads."""


def core_of(receiver) -> Any:
    """The C record of a receiver."""
    return receiver._reader.source.core


def take_path(receiver, path: str) -> None:
    """Make ``receiver`` read in this way, whatever the environment says."""
    core_of(receiver).portable = path == "recvmsg"


class Faults:
    """Plays a script to one of a receiver's calls, from ``with`` to its end.

    Each entry is an errno to fail with, or ``OK``; after the last every call is ``then``.
    """

    def __init__(self, receiver, path: str, *script: int, then: int = OK) -> None:
        self.calls = 0
        """How often the receiver has called."""
        self._core = core_of(receiver)
        self._path = path
        self._script = script
        self._then = then
        self._system = getattr(self._core, path)
        self._ours = _FFI.callback(_FFI.typeof(self._system), self._call, error=-1)

    def __enter__(self) -> Self:
        setattr(self._core, self._path, self._ours)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the kernel from now on."""
        setattr(self._core, self._path, self._system)

    def _call(self, *arguments: object) -> int:
        fails = self._script[self.calls] if self.calls < len(self._script) else self._then
        self.calls += 1
        if fails:
            _FFI.errno = fails
            return -1
        received: int = self._system(*arguments)
        return received
