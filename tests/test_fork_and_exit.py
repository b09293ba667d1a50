"""A forked child harms nothing, and an interpreter that ends is in peace."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])

START = """
import asyncio, gc, os, socket, sys, warnings
import uvloop
import aiorecv

new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[sys.argv[1]]

def send(receiver, *packets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for data in packets:
            sock.sendto(data, receiver.local_addr)
"""

# A parent that waits, has waited, and holds a batch; then a child does something with its copies.
FORK = """
import traceback

async def fork(child):
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("127.0.0.1", 0))
    # Connected: on uvloop it is watched through an epoll descriptor of its own.
    receivers = [
        await aiorecv.open_udp(("127.0.0.1", 0)),
        await aiorecv.open_udp(("127.0.0.1", 0), remote_addr=peer.getsockname()),
    ]
    for receiver in receivers:
        task = asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    del task, receiver
    send(receivers[0], b"in hand")
    batch = receivers[0].receive_nowait()

    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(receivers, batch)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    assert batch.payloads() == (b"in hand",)
    batch.release()
    for receiver in receivers:
        for number in range(3):
            task = asyncio.ensure_future(receiver.receive())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not task.done()
            peer.sendto(b"%d" % number, receiver.local_addr)
            with await asyncio.wait_for(task, 10) as got:
                assert got.payloads() == (b"%d" % number,)
        receiver.close()
    peer.close()

def run(child):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(fork(child))
"""

READING = """
def child(receivers, batch):
    for receiver in receivers:
        for read in (
            receiver.receive_nowait,
            lambda: receiver.receive().send(None),
            lambda: aiter(receiver).__anext__().send(None),
            lambda: aiter(receiver.datagrams()).__anext__().send(None),
            receiver.detach,
        ):
            try:
                read()
            except RuntimeError:
                pass
            else:
                raise AssertionError(read)
"""

CLOSING = """
def child(receivers, batch):
    batch.release()
    for receiver in receivers:
        fd = receiver.fileno()
        receiver.close()
        receiver.close()
        try:
            os.fstat(fd)
        except OSError:
            pass
        else:
            raise AssertionError("still open")
        receiver.statistics()
"""

DROPPING = """
def child(receivers, batch):
    del batch
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        receivers.clear()
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning] * 2, caught
"""

# What a program may have open when it ends; each leaves something in a global.
ENDS = {
    "its loop ran out": """
async def main():
    global receiver
    receiver = await aiorecv.open_udp(("127.0.0.1", 0))
    send(receiver, b"never read")

with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(main())
""",
    "its loop is open": """
async def main():
    global receiver, waiting
    receiver = await aiorecv.open_udp(("127.0.0.1", 0))
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)  # it starts, and waits

loop = new_loop()
loop.run_until_complete(main())
""",
    "batches and views are alive": """
async def main():
    global receiver, batch, views, other, iterator
    receiver = await aiorecv.open_udp(("127.0.0.1", 0))
    send(receiver, *[b"alive"] * 3)
    batch = receiver.receive_nowait()
    send(receiver, *[b"other"] * 3)
    other = receiver.receive_nowait()
    views = batch.views()
    iterator = iter(other)
    batch.release()

with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(main())
assert bytes(views[0]) == b"alive"
""",
    "it was closed, its batch is alive": """
async def main():
    global batch, view
    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        send(receiver, b"alive")
        batch = await receiver.receive()
        (view,) = batch.views()

with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(main())
""",
    "exit is called in its loop": """
async def main():
    global receiver
    receiver = await aiorecv.open_udp(("127.0.0.1", 0))
    send(receiver, b"last")
    async for batch in receiver:
        sys.exit()

with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(main())
""",
    "it is in a cycle": """
async def main():
    receiver = await aiorecv.open_udp(("127.0.0.1", 0))
    cycle = [receiver]
    cycle.append(cycle)

gc.disable()
with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(main())
""",
}


def run(
    loop: str, code: str, *options: str, arguments: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", code, loop, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@LOOPS
@pytest.mark.parametrize("child", [READING, CLOSING, DROPPING], ids=["read", "close", "drop"])
def test_a_forked_child_can_not_read_and_harms_nothing(loop, child):
    done = run(loop, START + FORK + child + "\nrun(child)\n", "-W", "error")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@LOOPS
@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS.keys())
def test_an_interpreter_that_ends_with_a_receiver_open_says_no_more_than_that(loop, code):
    done = run(loop, START + code, "-W", "default")

    assert (done.returncode, done.stdout) == (0, "")
    said = [line for line in done.stderr.splitlines() if "ResourceWarning" in line]
    about_ours = [line for line in said if "unclosed <aiorecv.Receiver" in line]
    assert len(about_ours) <= 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@LOOPS
@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS.keys())
def test_an_interpreter_without_warnings_ends_in_silence(loop, code):
    if "waiting" in code:
        code += "\nwaiting.cancel()\nloop.run_until_complete(asyncio.wait([waiting]))\n"

    done = run(loop, START + code)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# A parent between two runs of its loop, in which a task waits; its child closes, and runs the loop.
FORK_WHILE_WAITING = """
import traceback

path = sys.argv[2]

async def wait():
    receiver = await aiorecv.open_unix(path)
    task = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)
    return receiver, task

async def result(task):
    with await asyncio.wait_for(task, 10) as batch:
        return batch.payloads()

def child():
    receiver.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", path)
    try:
        runner.run(result(task))
    except OSError as error:
        assert "closed under its receiver" in str(error), error
    else:
        raise AssertionError("read in a forked child")

with asyncio.Runner(loop_factory=new_loop) as runner:
    receiver, task = runner.run(wait())
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    assert os.path.exists(path)
    assert runner.run(result(task)) == (b"x",)
    receiver.close()
    assert not os.path.exists(path)
"""


def test_a_child_that_runs_the_loop_after_closing_leaves_its_parents_file(tmp_path):
    # On asyncio alone, whose epoll descriptor parent and child share.
    path = str(tmp_path / "socket")

    done = run("asyncio", START + FORK_WHILE_WAITING, "-W", "error", arguments=(path,))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
