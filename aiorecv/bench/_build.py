"""Build ``aiorecv.bench._sink``, the C reference loops, which use no public name."""

import os
from pathlib import Path

from cffi import FFI

HERE = Path("aiorecv/bench")
HEADERS = (
    "_sink.h",
    "_flood.h",
    "_calls.h",
    "_cycles.h",
    "_headers.h",
    "_allocations.h",
    "_held.h",
    "_frames.h",
)


def contract(header: Path) -> str:
    """The header as cffi reads it: without preprocessor lines, which are for the compiler."""
    lines = header.read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


ffi = FFI()
for name in HEADERS:
    ffi.cdef(contract(HERE / name))
ffi.set_source(
    "aiorecv.bench._sink",
    "\n".join(f'#include "{name}"' for name in HEADERS),
    sources=[
        str(HERE / name)
        for name in (
            "_sink.c",
            "_flood.c",
            "_calls.c",
            "_cycles.c",
            "_headers.c",
            "_allocations.c",
            "_held.c",
            "_frames.c",
        )
    ],
    include_dirs=[str(HERE)],
    depends=[str(HERE / name) for name in HEADERS],
    extra_compile_args=["-std=c11", "-O2", *os.environ.get("AIORECV_CFLAGS", "").split()],
)
