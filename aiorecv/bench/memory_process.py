"""A process that ``bench memory`` looks at: started, told what to do, its memory read, ended."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from aiorecv.bench.cgroups import Cgroup, CgroupError, child_cgroup
from aiorecv.bench.memory_child import DESCRIPTORS_AT_ONCE, MOST, Account
from aiorecv.bench.processes import module

RSS, ANON, NON_RECLAIMABLE = "RssAnon KiB", "cgroup anon KiB", "cgroup non-reclaimable KiB"
UNITS = (RSS, ANON, NON_RECLAIMABLE)
"""What is looked at: the process itself; and its cgroup, where there can be one."""

# The longest that a process may take for an order, in seconds: 1,000 sockets take less than 1.
_PATIENCE = 60.0


@attrs.frozen
class Setting:
    """What all samples of a run have in common."""

    cgroups: bool
    """Whether each process gets a memory cgroup of its own."""
    parent: Path | None
    """Where these are made; None: in this process's own."""


def why_no_cgroup(parent: Path | None) -> str | None:
    """Why there can be no memory cgroup here; None if there can."""
    try:
        with child_cgroup("memory", parent) as group:
            group.memory()
    except CgroupError as error:
        return str(error)
    return None


class Process:
    """A running process, from `started`."""

    def __init__(self, pid: int, control: socket.socket, group: Cgroup | None) -> None:
        self._pid = pid
        self._control = control
        self._group = group
        self._started = time.monotonic()

    def sleep_until(self, seconds: float) -> None:
        """Sleep until it is so old."""
        time.sleep(max(0.0, self._started + seconds - time.monotonic()))

    def memory(self) -> dict[str, float]:
        """What it has in memory now, by unit."""
        found = {RSS: float(_rss_anon(self._pid))}
        if self._group is not None:
            now = self._group.memory()
            found |= {ANON: now.anon / 1024, NON_RECLAIMABLE: now.non_reclaimable / 1024}
        return found

    def open(self, receivers: int) -> tuple[list[int], int]:
        """Let it open so many sockets; returns their ports, and a receive buffer's bytes."""
        answer = self._asked({"open": receivers})
        return answer["ports"], answer["receive_buffer_size"]

    def account(self) -> Account:
        """What it has received."""
        return Account(**self._asked("account"))

    def leave(self) -> tuple[Account, list[int]]:
        """Let it give its sockets away; returns its last account, and the descriptors."""
        self._send("leave")
        descriptors: list[int] = []
        while True:
            answer, some = self._answer()
            descriptors += some
            if answer:
                return Account(**answer), descriptors

    def take(self, descriptors: Sequence[int]) -> None:
        """Give it sockets to read from; they stay open here too."""
        for start in range(0, len(descriptors), DESCRIPTORS_AT_ONCE):
            some = descriptors[start : start + DESCRIPTORS_AT_ONCE]
            self._send({"take": len(some)}, some)
            self._answer()

    def _asked(self, order: object) -> Any:
        self._send(order)
        return self._answer()[0]

    def _send(self, order: object, descriptors: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], descriptors)
        except BrokenPipeError:
            raise _ended(self._pid) from None

    def _answer(self) -> tuple[Any, list[int]]:
        try:
            text, descriptors, _, _ = socket.recv_fds(self._control, MOST, DESCRIPTORS_AT_ONCE)
        except ConnectionResetError:  # it ended without having read the order
            raise _ended(self._pid) from None
        if not text:
            raise _ended(self._pid)
        return json.loads(text), descriptors


@contextlib.contextmanager
def started(setting: Setting, arm: str, loop: str) -> Iterator[Process]:
    """A fresh process, which is over in the end.

    Raises:
        CgroupError: If there can be no cgroup for it.
    """
    with contextlib.ExitStack() as stack:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        group = None
        if setting.cgroups:
            group = stack.enter_context(child_cgroup("memory", setting.parent))
        command = _command(arm, loop, theirs.fileno())
        with theirs:
            process = subprocess.Popen(
                group.joining(command) if group else command, pass_fds=[theirs.fileno()]
            )
        stack.callback(_end, process)
        stack.enter_context(ours)
        ours.settimeout(_PATIENCE)
        yield Process(process.pid, ours, group)


def _command(arm: str, loop: str, control: int) -> tuple[str, ...]:
    return module("memory_child", "--loop", loop, "--arm", arm, "--control", str(control))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that ends by itself, as its control socket is closed."""
    try:
        process.wait(_PATIENCE)
    finally:
        process.kill()
        process.wait()


def _rss_anon(pid: int) -> int:
    """KiB of anonymous memory that a process has resident: proc_pid_status(5)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0])
    raise _ended(pid)


def _ended(pid: int) -> ChildProcessError:
    return ChildProcessError(f"the measured process, {pid}, has ended")
