"""Samples of ``bench bulk``: what is sent under which condition, and one flood from start to end.

Receiver and sender are fresh processes; they are started, followed and ended here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import attrs

from aiorecv.bench.bulk_child import HOST, Account
from aiorecv.bench.cgroups import Cgroup, CgroupError, child_cgroup
from aiorecv.bench.drains import CountError
from aiorecv.bench.flood import longest_train
from aiorecv.bench.processes import module

SIZE = 1472
"""Payload bytes of each packet: with the headers of IPv4 and UDP 1,500, Ethernet's MTU."""

TRAIN = longest_train(SIZE)
"""Packets of a train."""

# How much longer the flood lasts than it is measured, in seconds: the clock starts with the first
# batch, and a receiver that its quota holds back looks at it late.
_MARGIN = 0.3


@attrs.frozen
class Traffic:
    """What is sent, and whether the receiver wants it whole."""

    name: str
    train: int
    """Packets a send; more than 1 by UDP GSO."""
    gro: bool
    """False: the kernel splits trains before the receiver has them."""


TRAFFIC = (
    Traffic("default", TRAIN, True),
    Traffic("gro-off", TRAIN, False),
    Traffic("mtu", 1, True),
)
QUOTAS = ("none", "1", "0.25")
FLOWS = (1, 4)


@attrs.frozen
class Condition:
    """What both arms meet."""

    traffic: Traffic
    quota: str
    """CPUs that the receiver may use, or ``none``."""
    flows: int
    """Sockets of the sender."""

    @property
    def name(self) -> str:
        """How it is chosen, such as ``mtu/0.25/4``."""
        return f"{self.traffic.name}/{self.quota}/{self.flows}"

    @property
    def title(self) -> str:
        """How it is shown."""
        quota = "no CPU quota" if self.quota == "none" else f"{self.quota} CPU"
        return f"{self.traffic.name}, {quota}, {self.flows} flow{'s' if self.flows > 1 else ''}"


CONDITIONS = tuple(
    Condition(traffic, quota, flows) for traffic in TRAFFIC for quota in QUOTAS for flows in FLOWS
)


@attrs.frozen
class Setting:
    """What all samples have in common."""

    seconds: float
    """How long each is."""
    pin: Sequence[int] | None
    """The CPUs of the receiver and of its sender; None: the kernel's choice."""
    parent: Path | None
    """The cgroup below which quotas are set; None: this process's own."""

    def cpu(self, number: int) -> int | None:
        """The receiver's CPU, 0, or the sender's, 1."""
        return None if self.pin is None else self.pin[number]


def why_no_quota(parent: Path | None) -> str | None:
    """Why no CPU quota can be set here, found out by trying; None if one can."""
    try:
        with _quota("1", parent) as group:
            assert group is not None
            subprocess.run(group.joining(("true",)), check=True, capture_output=True)
    except CgroupError as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return str(error.stderr, errors="replace").strip()
    return None


def take(setting: Setting, condition: Condition, arm: str, loop: str) -> Account:
    """One sample: a fresh receiver under a flood.

    Raises:
        CountError: If what came is not what was sent.
        ChildProcessError: If a process failed; it has said why on stderr.
    """
    options = ["--loop", loop, "--arm", arm, "--seconds", str(setting.seconds)]
    options += [] if condition.traffic.gro else ["--no-gro"]
    with contextlib.ExitStack() as stack:
        start = stack.enter_context
        group = start(_quota(condition.quota, setting.parent))
        receiver = start(_process("bulk_child", *options, cpu=setting.cpu(0)))
        port = json.loads(_first_line(receiver))["port"]
        if group is not None:  # only now: under a quota it would take seconds to start
            group.add(receiver.pid)
        flood = start(_flood(condition, port, setting))
        account = _follow(_output(receiver))
        sent = json.loads(_first_line(flood))["sent"]
        for process in (receiver, flood):
            if process.wait() != 0:
                raise ChildProcessError("the receiver or the flood failed")
    check(account, sent)
    return account


def check(account: Account, sent: int) -> None:
    """Compare an account with itself, and with the packets that were sent.

    Raises:
        CountError: If they don't agree.
    """
    if account.packets == 0:
        raise CountError("nothing came after the first batch: give it more --seconds")
    if account.bytes != account.packets * SIZE:
        raise CountError(f"{account.packets} packets of {SIZE} bytes have {account.bytes} bytes")
    if account.packets + account.drops > sent:
        raise CountError(
            f"{account.packets} packets came, {account.drops} were dropped, {sent} were sent"
        )


def lost(account: Account, train: int) -> float:
    """Packets that the kernel dropped, as a part of those that came to the socket.

    Where trains are received whole, they are dropped whole: ``train`` packets each.
    """
    dropped = account.drops * (train if account.trains else 1)
    return dropped / (account.packets + dropped)


def gigabits(nbytes: int, seconds: float) -> float:
    """Gbit/s."""
    return nbytes * 8 / seconds / 1e9


@contextlib.contextmanager
def _quota(cpus: str, parent: Path | None) -> Iterator[Cgroup | None]:
    """A cgroup for so many CPUs; None for no quota."""
    if cpus == "none":
        yield None
        return
    with child_cgroup("cpu", parent) as group:
        group.limit_cpus(float(cpus))
        yield group


def _flood(
    condition: Condition, port: int, setting: Setting
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    options = ["--to", f"{HOST}:{port}", "--seconds", str(setting.seconds + _MARGIN)]
    options += ["--size", str(SIZE), "--train", str(condition.traffic.train)]
    options += ["--flows", str(condition.flows)]
    return _process("flood", *options, cpu=setting.cpu(1))


@contextlib.contextmanager
def _process(name: str, *options: str, cpu: int | None) -> Iterator[subprocess.Popen[str]]:
    """A module of the benches, run in a process of its own, on one CPU; it ends with the block.

    It is in a process group of its own: Ctrl-C is for us, who end it.
    """
    command = module(name, *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        try:
            if cpu is not None:
                os.sched_setaffinity(process.pid, {cpu})
            yield process
        finally:
            process.kill()


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None  # it is a pipe
    return process.stdout


def _first_line(process: subprocess.Popen[str]) -> str:
    line = _output(process).readline()
    if not line:
        raise ChildProcessError("the receiver or the flood failed")
    return line


def _follow(lines: IO[str]) -> Account:
    """Show each interval as it comes, as iperf3 does; returns the last account, of all of them."""
    account = Account(0.0, 0.0, 0, 0, 0, 0, 0, 0)
    for line in lines:
        before, account = account, Account(**json.loads(line))
        seconds = account.seconds - before.seconds
        nbytes = account.bytes - before.bytes
        batches = account.batches - before.batches
        print(
            f"  {before.seconds:6.2f}-{account.seconds:<6.2f} sec  {nbytes / 2**30:6.3f} GiB  "
            f"{gigabits(nbytes, seconds):6.3f} Gbit/s  "
            f"{(account.cpu - before.cpu) / seconds:4.0%} CPU  "
            f"{account.drops - before.drops} drops  "
            f"{(account.packets - before.packets) / max(batches, 1):.1f} packets a batch",
            file=sys.stderr,
            flush=True,
        )
    return account
