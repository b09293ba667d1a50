"""libpcap: compiles tcpdump's filter language, where it is installed. In the options' room.

Looked for when a text is first to be compiled, and called by cffi without a compiler.
"""

from __future__ import annotations

import ctypes.util
import errno
import functools
import os
import re
import threading
from typing import Any

import cffi

from aiorecv._bpf import Instruction, Program

ETHERNET, RAW_IP = 1, 12  # DLT_EN10MB, DLT_RAW: pcap/dlt.h
_NAMES = ("libpcap.so.1", "libpcap.so.0.8", "libpcap.so")
_SNAPSHOT_SIZE = 262_144  # bytes: what an accepting program returns, more than any frame has
_NETMASK_UNKNOWN = 0xFFFFFFFF
_NO_SUCH_DEVICE, _NOT_UP = -5, -9  # PCAP_ERROR_NO_SUCH_DEVICE, PCAP_ERROR_IFACE_NOT_UP
_VLAN = re.compile(r"\bvlan\b")
# Before libpcap 1.8 two compilations at once upset each other.
_lock = threading.Lock()


def compile_text(text: str, link_type: int, interface: str | None = None) -> Program:
    """The program that ``text`` means for packets of a link type.

    A text that names ``vlan`` is compiled as for a capture of ``interface`` that is under way: just
    so does libpcap look for the tag where the kernel has put it. It has to be an interface of the
    calling thread's network namespace.

    Raises:
        ValueError: If it does not compile.
        OSError: If libpcap is not installed, or there is no such capture.

    Source: pcap-filter(7), pcap_compile(3PCAP).
    """
    ffi, pcap = _library()
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"filter={text!r} is no text that can be written as UTF-8") from None
    if b"\0" in encoded:
        raise ValueError(f"filter={text!r} has a NUL in it")
    with _lock:
        if interface is not None and _VLAN.search(text):
            handle = _capture(ffi, pcap, text, interface)
        else:
            handle = pcap.pcap_open_dead(link_type, _SNAPSHOT_SIZE)
        try:
            return _compile(ffi, pcap, handle, text, encoded)
        finally:
            pcap.pcap_close(handle)


def _compile(ffi: Any, pcap: Any, handle: Any, text: str, encoded: bytes) -> Program:
    compiled = ffi.new("struct bpf_program *")
    if pcap.pcap_compile(handle, compiled, encoded, 1, _NETMASK_UNKNOWN) != 0:
        reason = ffi.string(pcap.pcap_geterr(handle)).decode(errors="replace")
        raise ValueError(f"filter={text!r} does not compile: {reason}")
    try:
        instructions = ffi.unpack(compiled.bf_insns, compiled.bf_len)
        return [Instruction(one.code, one.jt, one.jf, one.k) for one in instructions]
    finally:
        pcap.pcap_freecode(compiled)


def _capture(ffi: Any, pcap: Any, text: str, interface: str) -> Any:
    reason = ffi.new("char[256]")  # PCAP_ERRBUF_SIZE
    handle = pcap.pcap_create(os.fsencode(interface), reason)
    if handle == ffi.NULL:
        raise OSError(errno.EIO, f"filter={text!r}: {ffi.string(reason).decode(errors='replace')}")
    pcap.pcap_set_snaplen(handle, _SNAPSHOT_SIZE)
    pcap.pcap_set_buffer_size(handle, 1)  # bytes, or as few as it can: nothing is captured
    status = pcap.pcap_activate(handle)
    if status >= 0:
        return handle
    said = ffi.string(pcap.pcap_statustostr(status)).decode(errors="replace")
    pcap.pcap_close(handle)
    number = {_NO_SUCH_DEVICE: errno.ENODEV, _NOT_UP: errno.ENETDOWN}.get(status, errno.EIO)
    raise OSError(
        number,
        f"filter={text!r} names vlan, which libpcap compiles for an interface at work; "
        f"{interface}: {said}",
    )


def find_library() -> list[str]:
    """The names that libpcap may have here, likeliest first."""
    found = ctypes.util.find_library("pcap")
    return [*_NAMES, found] if found else list(_NAMES)


@functools.cache
def _library() -> tuple[Any, Any]:
    ffi = cffi.FFI()
    ffi.cdef(_DECLARATIONS)
    for name in find_library():
        try:
            return ffi, ffi.dlopen(name)
        except OSError:
            continue
    raise OSError(
        errno.ENOENT,
        "a filter given as text is compiled by libpcap, which is not installed: "
        "install the package libpcap0.8 (Debian, Ubuntu) or libpcap (Fedora, Arch, Alpine), "
        "or give instructions",
    )


# pcap/pcap.h and pcap/bpf.h.
_DECLARATIONS = """
typedef struct pcap pcap_t;
struct bpf_insn { unsigned short code; unsigned char jt; unsigned char jf; unsigned int k; };
struct bpf_program { unsigned int bf_len; struct bpf_insn *bf_insns; };
pcap_t *pcap_open_dead(int linktype, int snaplen);
pcap_t *pcap_create(const char *source, char *errbuf);
int pcap_set_snaplen(pcap_t *p, int snaplen);
int pcap_set_buffer_size(pcap_t *p, int size);
int pcap_activate(pcap_t *p);
int pcap_compile(pcap_t *p, struct bpf_program *fp, const char *str, int optimize,
                 unsigned int netmask);
void pcap_freecode(struct bpf_program *fp);
char *pcap_geterr(pcap_t *p);
const char *pcap_statustostr(int error);
void pcap_close(pcap_t *p);
"""
