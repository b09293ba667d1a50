"""Without ``recvmmsg`` a loop of ``recvmsg`` gives the same answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shlex
import socket
import subprocess
import sysconfig
from pathlib import Path

import attrs
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

import aiorecv
import aiorecv._native
from tests.faults import OK, PATHS, Faults, core_of, take_path
from tests.helpers import UDP_SEGMENT
from tests.receiving import Clock, queued, until_waiting

NATIVE = Path(aiorecv._native.__file__).parent
COMPILER = shlex.split(sysconfig.get_config_var("CC"))[0]


def taken(receiver) -> list[bytes]:
    """Everything that is queued."""
    packets: list[bytes] = []
    while (batch := receiver.receive_nowait()) is not None:
        with batch:
            packets += batch.payloads()
    return packets


async def test_the_environment_asks_for_it(monkeypatch):
    monkeypatch.setenv("AIORECV_PORTABLE", "1")
    async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
        sent = queued(receiver, *[b"%d" % number for number in range(10)])

        with Faults(receiver, "recvmmsg") as faults:
            assert taken(receiver) == sent
        assert faults.calls == 0


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM])
async def test_a_refused_recvmmsg_is_not_called_again(receiver, refusal):
    take_path(receiver, "recvmmsg")
    sent = queued(receiver, *[b"%d" % number for number in range(10)])

    with Faults(receiver, "recvmmsg", then=refusal) as faults:
        assert taken(receiver) == sent
        task = asyncio.ensure_future(receiver.receive())
        await until_waiting(task)
        queued(receiver, b"later")
        with await task as batch:
            assert batch.payloads() == (b"later",)
        assert faults.calls == 1
    assert receiver.statistics().errors == 0


@pytest.mark.parametrize("path", PATHS)
async def test_an_interrupted_call_is_made_again(receiver, path):
    take_path(receiver, path)
    sent = queued(receiver, b"one", b"two")

    with Faults(receiver, path, errno.EINTR, errno.EINTR) as faults:
        assert receiver.receive_nowait().payloads() == sent
        assert faults.calls > 2
    assert receiver.statistics().errors == 0


async def test_a_call_interrupted_between_packets_is_made_again(receiver):
    take_path(receiver, "recvmsg")
    sent = queued(receiver, b"one", b"two")

    with Faults(receiver, "recvmsg", OK, errno.EINTR):
        assert receiver.receive_nowait().payloads() == sent


@pytest.mark.parametrize("path", PATHS)
async def test_an_error_behind_packets_comes_after_them(receiver, path):
    take_path(receiver, path)
    window = receiver.statistics().window_slots
    queued(receiver, *[b"x"] * (window - 1))
    succeed = 1 if path == "recvmmsg" else window - 1

    with Faults(receiver, path, *[OK] * succeed, errno.ENOBUFS):
        with receiver.receive_nowait() as batch:
            assert len(batch) == window - 1
        with pytest.raises(OSError, match="No buffer space"):
            receiver.receive_nowait()
        queued(receiver, b"next")
        assert receiver.receive_nowait().payloads() == (b"next",)
    assert receiver.statistics().errors == 1


async def test_an_error_behind_packets_wakes_who_waits_for_the_next(receiver, monkeypatch):
    Clock(monkeypatch)  # which stands still: the reader comes back at once
    take_path(receiver, "recvmsg")
    queued(receiver, b"x")

    with Faults(receiver, "recvmsg", OK, errno.ENOBUFS):
        (await receiver.receive()).release()
        with pytest.raises(OSError, match="No buffer space"):
            await asyncio.wait_for(receiver.receive(), 10)


def test_the_c_compiles_without_recvmmsg(tmp_path):
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-DAIORECV_NO_RECVMMSG"]
    sources = sorted(NATIVE.glob("*.c"))
    ours = [source for source in sources if not source.name.startswith("_")]
    assert ours

    for source in ours:
        made = tmp_path / f"{source.stem}.o"
        subprocess.run([COMPILER, *strict, "-c", str(source), "-o", str(made)], check=True)
        # Its name in a string table would be a reference to be linked.
        assert b"recvmmsg\0" not in made.read_bytes()


# Bytes sent: short, cut by a small slot, empty.
SIZES = st.integers(min_value=0, max_value=150)
BURSTS = st.lists(SIZES, min_size=1, max_size=20).map(lambda sizes: ("burst", sizes))
TRAINS = st.tuples(
    st.just("train"), st.tuples(st.integers(1, 50), st.integers(min_value=1, max_value=1000))
)
PLAIN = st.sampled_from([("refused", None), ("now", None), ("receive", None)])


class Side:
    """A receiver on one path, and the peer it is connected to."""

    def __init__(self, receiver, peer: socket.socket, path: str) -> None:
        take_path(receiver, path)
        self.receiver = receiver
        self._peer = peer
        self._addr = peer.getsockname()

    async def do(self, action: str, argument) -> object:
        """Do one thing, and return what a user sees of it."""
        if action == "burst":
            for number, size in enumerate(argument):
                self._send(bytes([number]) * size)
            return None
        if action == "train":
            segment, size = argument
            self._peer.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, segment)
            self._send(bytes(min(size, 60 * segment)))
            self._peer.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)
            return None
        if action == "refused":
            self._peer.close()
            with contextlib.suppress(ConnectionRefusedError):  # takes an error that waits there
                self.receiver.socket.send(b"nobody hears this")
            self._peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._peer.bind(self._addr)
            return None
        try:
            if action == "now":
                return self._shown(self.receiver.receive_nowait())
            self._send(b"there is something")
            return self._shown(await self.receiver.receive())
        except ConnectionRefusedError as error:
            return error.errno

    def statistics(self) -> dict[str, object]:
        """All of them, but for what may differ."""
        told = attrs.asdict(self.receiver.statistics())
        del told["empty_reads"]
        told["last_error"] = str(told["last_error"])
        return told

    def close(self) -> None:
        self._peer.close()
        self.receiver.close()

    def _send(self, data: bytes) -> None:
        self._peer.sendto(data, self.receiver.local_addr)

    def _shown(self, batch) -> object:
        if batch is None:
            return None
        with batch:
            assert set(batch.addresses()) == {self._addr}
            packets = [(packet.data, packet.truncated, packet.length) for packet in batch.packets()]
            return packets, batch.polled, batch.full, batch.slots


async def open_side(path: str, slot_size: int | None) -> Side:
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("127.0.0.1", 0))
    receiver = await aiorecv.open_udp(
        remote_addr=peer.getsockname(),
        slot_size=slot_size,
        window=aiorecv.AdaptiveWindow(maximum=8, shrink_after=2),
    )
    return Side(receiver, peer, path)


async def compare(actions, slot_size: int | None) -> None:
    with contextlib.ExitStack() as stack:
        sides = [await open_side(path, slot_size) for path in PATHS]
        for side in sides:
            stack.callback(side.close)
        clock = Clock(stack.enter_context(pytest.MonkeyPatch.context()))
        for action, argument in actions:
            clock.now += 0.01  # what depends on time is the same on both sides
            first, second = [await side.do(action, argument) for side in sides]
            assert first == second
            assert sides[0].statistics() == sides[1].statistics()
        assert [core_of(side.receiver).portable for side in sides] == [False, True]


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("slot_size", [None, 100])
@settings(max_examples=60, deadline=None)
@given(actions=st.lists(PLAIN | BURSTS | TRAINS, max_size=15))
def test_both_ways_give_the_same_packets_errors_statistics_and_windows(
    loop_factory, slot_size, actions
):
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(compare(actions, slot_size))
