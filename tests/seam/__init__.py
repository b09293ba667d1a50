"""The fault seam: a ``recvmmsg`` that plays a script, for what one machine can't produce.

A receiver's C record holds ``recvmmsg`` as a function pointer. ``Seam`` puts a function of a small
C module there, which is built once a session; it fills headers as told, and records what it was
asked. Past the end of its script the kernel is asked.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import attrs
from cffi import FFI

from aiorecv._native._core import ffi as core_ffi
from aiorecv._native._core import lib as core_lib

_HERE = Path(__file__).parent
_SIGNATURE = "int (*)(int, struct mmsghdr *, unsigned int, int, struct timespec *)"
_CALL_LIMIT = 4096


@attrs.frozen
class Message:
    """One message as the kernel would write it; sizes that are None are the true ones."""

    payload: bytes = b""
    name: bytes = b""
    control: bytes = b""
    flags: int = 0
    length: int | None = None
    name_size: int | None = None
    control_size: int | None = None


@attrs.frozen
class Step:
    """What one call does: fills headers and returns ``result`` (None: how many it filled)."""

    messages: Sequence[Message] = ()
    result: int | None = None
    error: int = 0

    @classmethod
    def fails(cls, error: int) -> Self:
        """A call that fails with this errno."""
        return cls(result=-1, error=error)

    @classmethod
    def real(cls) -> Self:
        """A call that asks the kernel."""
        return cls(result=_built().lib.SEAM_REAL)


@attrs.frozen
class Call:
    """What one call was asked."""

    vlen: int
    flags: int
    timed: bool
    """It had a timeout."""
    unarmed: int
    """Headers that were not ready for a message."""


@cache
def _built() -> Any:
    """The C module, compiled once; loaded, it needs its file no longer."""
    header = (_HERE / "seam.h").read_text().splitlines()
    ffi = FFI()
    ffi.cdef("\n".join(line for line in header if not line.startswith("#")))
    ffi.set_source(
        "aiorecv_seam",
        '#include "seam.h"',
        sources=[str(_HERE / "seam.c")],
        include_dirs=[str(_HERE)],
    )
    with tempfile.TemporaryDirectory(prefix="aiorecv-seam-") as directory:
        path = ffi.compile(tmpdir=directory)
        spec = importlib.util.spec_from_file_location("aiorecv_seam", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


class Seam:
    """The seam of one descriptor, from ``with`` to its end."""

    def __init__(self, core: Any, slot_size: int = 65_536) -> None:
        """``core`` is the receiver's C record; ``slot_size`` that of its slots."""
        built = _built()
        self._core = core
        self._ffi, self._lib = built.ffi, built.lib
        self._kept: list[Any] = []
        self._script = self._ffi.new("struct seam_script *")
        self._calls = self._ffi.new("struct seam_call[]", _CALL_LIMIT)
        self._script.calls = self._calls
        self._script.call_limit = _CALL_LIMIT
        self._script.slot_size = slot_size
        self._script.name_size = core_lib.AIORECV_NAME_SIZE
        self._script.control_size = core_lib.AIORECV_CONTROL_SIZE

    def __enter__(self) -> Self:
        assert self._lib.seam_play(self._core.fd, self._script) == 0
        self._system = self._core.recvmmsg
        # The seam is in the place of recvmmsg, also where the environment asks for recvmsg.
        self._portable, self._core.portable = self._core.portable, False
        function = self._ffi.addressof(self._lib, "seam_recvmmsg")
        address = int(self._ffi.cast("uintptr_t", function))
        self._core.recvmmsg = core_ffi.cast(_SIGNATURE, address)
        return self

    def __exit__(self, *_: object) -> None:
        self._core.recvmmsg = self._system
        self._core.portable = self._portable
        self._lib.seam_play(self._core.fd, self._ffi.NULL)

    def play(self, *steps: Step) -> None:
        """Play these steps, one a call; the record of calls starts anew."""
        self._kept.clear()
        array = self._keep(self._ffi.new("struct seam_step[]", [self._step(s) for s in steps]))
        self._script.steps = array
        self._script.step_count = len(steps)
        self._script.next_step = self._script.call_count = 0

    @property
    def calls(self) -> list[Call]:
        """What the calls since ``play()`` were asked, in order."""
        count = self._script.call_count
        assert count <= _CALL_LIMIT
        return [
            Call(call.vlen, call.flags, bool(call.timed), call.unarmed)
            for call in self._calls[0:count]
        ]

    @property
    def finished(self) -> bool:
        """Whether every step was played."""
        return bool(self._script.next_step == self._script.step_count)

    def _keep(self, cdata: Any) -> Any:
        self._kept.append(cdata)
        return cdata

    def _step(self, step: Step) -> dict[str, Any]:
        messages = [self._message(message) for message in step.messages]
        return {
            "messages": self._keep(self._ffi.new("struct seam_message[]", messages)),
            "count": len(messages),
            "result": len(messages) if step.result is None else step.result,
            "error": step.error,
        }

    def _message(self, message: Message) -> dict[str, Any]:
        def told(size: int | None, data: bytes) -> int:
            return len(data) if size is None else size

        return {
            "payload": self._keep(self._ffi.from_buffer("uint8_t[]", message.payload)),
            "payload_size": len(message.payload),
            "name": self._keep(self._ffi.from_buffer("uint8_t[]", message.name)),
            "name_size": len(message.name),
            "control": self._keep(self._ffi.from_buffer("uint8_t[]", message.control)),
            "control_size": len(message.control),
            "length": told(message.length, message.payload),
            "told_name_size": told(message.name_size, message.name),
            "told_controllen": told(message.control_size, message.control),
            "flags": message.flags,
        }
