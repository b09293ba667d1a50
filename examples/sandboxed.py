"""Receive under a seccomp filter that lets ``recvmmsg`` through only as a receiver calls it.

A receiver offers the kernel never more slots than its window's ``maximum``, never blocks in the
call and gives it no timeout; and it reads by no other call. So a sandbox can say exactly that.
Needs pyseccomp, and libseccomp on the machine:

    python examples/sandboxed.py
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import socket

import pyseccomp as seccomp

import aiorecv

MAXIMUM = 16
SHRINK_AFTER = 8


def lock_down(maximum: int) -> None:
    """Narrow the receiving calls of this process, for good.

    ``recvmmsg`` fails with EACCES unless ``vlen <= maximum``, MSG_DONTWAIT is among the flags and
    the timeout is NULL. ``recvmsg`` kills the process. All other calls stay as they are; a real
    sandbox would list those it needs.
    """
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    refuse = seccomp.ERRNO(errno.EACCES)
    vlen, flags, timeout = 2, 3, 4
    dont_wait = int(socket.MSG_DONTWAIT)
    rules.add_rule(refuse, "recvmmsg", seccomp.Arg(vlen, seccomp.GT, maximum))
    rules.add_rule(refuse, "recvmmsg", seccomp.Arg(flags, seccomp.MASKED_EQ, dont_wait, 0))
    rules.add_rule(refuse, "recvmmsg", seccomp.Arg(timeout, seccomp.NE, 0))
    rules.add_rule(seccomp.KILL_PROCESS, "recvmsg")
    rules.load()


async def receive(receiver: aiorecv.Receiver, packets: int) -> None:
    """Send ``packets`` to the receiver at once, and read them all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(packets):
            sender.sendto(b"%d" % number, receiver.socket.getsockname())
    got: list[bytes] = []
    while len(got) < packets:
        with await receiver.receive() as batch:
            got += batch.payloads()
    assert got == [b"%d" % number for number in range(packets)]


async def main() -> None:
    lock_down(MAXIMUM)

    window = aiorecv.AdaptiveWindow(initial=2, maximum=MAXIMUM, shrink_after=SHRINK_AFTER)
    async with aiorecv.open_udp(("127.0.0.1", 0), window=window) as receiver:
        await receive(receiver, 200)
        print("after a burst:", window.slots, "slots")
        for _ in range(SHRINK_AFTER):
            await receive(receiver, 1)
        print("after single packets:", window.slots, "slots")
        await receive(receiver, 200)
        print("after a second burst:", window.slots, "slots")

    wide = aiorecv.FixedWindow(MAXIMUM + 1)
    async with aiorecv.open_udp(("127.0.0.1", 0), window=wide) as receiver:
        try:
            await receive(receiver, 1)
        except OSError as error:
            print(wide.slots, "slots:", errno.errorcode[error.errno or 0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    factory = None
    if parser.parse_args().uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
