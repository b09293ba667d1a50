"""Counters: what this machine counts of itself: CPU cycles, UDP's counters, drops, settings.

Reads only, decides nothing. What a machine lacks is told with the reason.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter_ns, thread_time_ns

import attrs

from aiorecv.bench._sink import lib

# asm-generic/socket.h and linux/sock_diag.h: SO_MEMINFO gives words, SK_MEMINFO_DROPS is one.
_SO_MEMINFO, _DROPS_WORD, _WORD = 55, 8, 4
_REASONS = {
    errno.ENOENT: "this CPU has no such counter, as most virtual machines",
    errno.EOPNOTSUPP: "this CPU has no such counter, as most virtual machines",
    errno.EACCES: "needs CAP_PERFMON, or kernel.perf_event_paranoid of 1 or less",
    errno.EPERM: "needs CAP_PERFMON, or a sandbox that allows it",
}


@attrs.frozen
class Counter:
    """What counts the CPU's work, as near to cycles as this machine comes."""

    unit: str | None
    """What it counts: ``CPU cycles``, ``TSC ticks``, or None for nothing."""
    reason: str
    """Why it does not count cycles; empty if it does."""
    read: Callable[[], int]


@contextlib.contextmanager
def cycle_counter() -> Iterator[Counter]:
    """The calling thread's CPU cycles, else the time stamp counter, else nothing.

    Ticks of the time stamp counter run at one pace, whether the thread runs or waits.
    """
    fd = lib.cycles_open()
    if fd < 0:
        yield _without_cycles(f"perf_event_open: {_REASONS.get(-fd, os.strerror(-fd))}")
        return
    try:
        if _read_cycles(fd) < _read_cycles(fd):
            yield Counter("CPU cycles", "", lambda: _read_cycles(fd))
        else:
            yield _without_cycles("perf_event_open: the counter stands still")
    finally:
        os.close(fd)


def _without_cycles(reason: str) -> Counter:
    if lib.ticks_there():
        return Counter("TSC ticks", reason, lib.ticks)
    return Counter(None, f"{reason}; this kind of CPU has no time stamp counter", lambda: 0)


def _read_cycles(fd: int) -> int:
    # Empty if the kernel could not keep the counter on the CPU: then it stands still.
    return int.from_bytes(os.read(fd, 8), sys.byteorder)


class Stopwatch:
    """Measures a stretch of the calling thread's work: wall clock, CPU time and cycles."""

    def __init__(self, counter: Counter) -> None:
        self._read = counter.read
        self.ns = self.cpu_ns = self.cycles = 0

    def start(self) -> None:
        """Begin; the wall clock begins last."""
        self._cpu_ns = thread_time_ns()
        self._cycles = self._read()
        self._ns = perf_counter_ns()

    def stop(self) -> None:
        """End; the wall clock ends first."""
        self.ns = perf_counter_ns() - self._ns
        self.cycles = self._read() - self._cycles
        self.cpu_ns = thread_time_ns() - self._cpu_ns


def socket_drops(sock: socket.socket) -> int:
    """Messages that the kernel dropped because ``sock`` had no room, modulo 2**32."""
    try:
        words = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, (_DROPS_WORD + 1) * _WORD)
    except OSError:  # Linux before 4.12
        return 0
    return int.from_bytes(words[-_WORD:], sys.byteorder)


def udp_counters(snmp: Path = Path("/proc/net/snmp")) -> dict[str, int]:
    """UDP's counters over IPv4 in this network namespace, all programs'; empty if unknown."""
    try:
        lines = [line.split() for line in snmp.read_text().splitlines()]
    except OSError:
        return {}
    names, values = [line[1:] for line in lines if line[:1] == ["Udp:"]]
    return dict(zip(names, map(int, values), strict=True))


def differences(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much each counter has risen."""
    return {name: value - before[name] for name, value in after.items()}


def sysctl(name: str) -> int | None:
    """A number of the kernel's settings, such as ``net.core.rmem_max``; None if it is hidden."""
    try:
        return int(Path("/proc/sys", *name.split(".")).read_text())
    except OSError:
        return None
