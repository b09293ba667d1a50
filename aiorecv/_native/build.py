"""Build ``aiorecv._native._core`` from the C files beside this one; run by setuptools."""

import os
from pathlib import Path

from cffi import FFI

HERE = Path("aiorecv/_native")


def contract(header: Path) -> str:
    """The header as cffi reads it: without preprocessor lines, which are for the compiler."""
    lines = header.read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


NAMES = (
    "slab",
    "peers",
    "ancillary",
    "descriptor",
    "receive",
    "read",
    "layout",
    "ring",
    "ring_walk",
    "send",
)

ffi = FFI()
ffi.cdef(contract(HERE / "aiorecv.h"))
ffi.set_source(
    "aiorecv._native._core",
    '#include "aiorecv.h"',
    sources=[str(HERE / f"{name}.c") for name in NAMES],
    include_dirs=[str(HERE)],
    depends=[str(HERE / name) for name in ("aiorecv.h", "peers.h", "ancillary.h", "ring.h")],
    extra_compile_args=[
        "-std=c11",
        "-O2",
        *os.environ.get("AIORECV_CFLAGS", "").split(),
    ],
    extra_link_args=os.environ.get("AIORECV_LDFLAGS", "").split(),
)
