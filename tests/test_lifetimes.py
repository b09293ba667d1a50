"""Lifetimes: a slab is lent once, given back once, and never written while it is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import attrs
import pytest
import uvloop
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

import aiorecv
from aiorecv import PacketBatch
from aiorecv._slabs import Slab
from tests.helpers import LoopMemory, open_source, read_batch, send

SLOT = 128


def in_a_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


@attrs.define(eq=False)
class Held:
    """A batch of ours; its slab, until it was released, or dropped with its last reference."""

    batch: PacketBatch | None
    slab: Slab | None
    sent: list[bytes]

    @property
    def live(self) -> PacketBatch | None:
        return self.batch if self.slab is not None else None

    def let_go(self) -> None:
        self.batch = self.slab = None


@attrs.define(eq=False)
class Seen:
    """Views that were taken of a batch, and the bytes they have to show while they live."""

    views: list[memoryview]
    expected: list[bytes]
    slab: Slab | None

    def let_go(self) -> None:
        self.views = []
        self.slab = None


class Lifetimes(RuleBasedStateMachine):
    """Read, look, copy, release and drop in any order, also in other threads."""

    held = Bundle("held")
    seen = Bundle("seen")

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.memory = LoopMemory()
        self.source = self.stack.enter_context(open_source(SLOT, self.memory, gro=True))
        self.sender = self.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.sender.connect(self.source.sock.getsockname())
        self.number = 0
        self.batches: list[Held] = []
        self.looks: list[Seen] = []
        # Kept here so that a slab that is neither lent nor free does not vanish unseen.
        self.slabs: set[Slab] = set()

    def teardown(self) -> None:
        self.stack.close()
        things: list[Held | Seen] = [*self.batches, *self.looks]
        for thing in things:
            thing.let_go()
        gc.collect()
        free = self.memory.free(SLOT)
        assert set(free) == self.slabs == set(self.memory.pool.slabs)
        assert len(free) == len(self.slabs)
        assert not self.memory.pool.exported

    @rule(target=held, sizes=st.lists(st.integers(0, SLOT), min_size=1, max_size=9))
    def read(self, sizes: list[int]) -> Held:
        sent = []
        for size in sizes:
            self.number += 1
            sent.append((b"%d." % self.number * SLOT)[:size])
            self.sender.send(sent[-1])
        batch = read_batch(self.source, len(sizes), False)
        assert batch is not None
        assert batch._slab is not None
        held = Held(batch, batch._slab, sent)
        self.slabs.add(batch._slab)
        self.batches.append(held)
        return held

    @rule(target=seen, held=held, kind=st.sampled_from(["views", "buffer", "cast", "slice"]))
    def look(self, held: Held, kind: str) -> Seen:
        batch = held.live
        if batch is None:
            return Seen([], [], None)
        if kind == "views":
            return self.keep(Seen(batch.views(), held.sent, held.slab))
        view = batch.buffer
        if kind == "cast":
            view = view.cast("b")
        elif kind == "slice":
            view = view[1::2]
        return self.keep(Seen([view], [bytes(view)], held.slab))

    @rule(target=seen, held=held)
    def copy(self, held: Held) -> Seen:
        batch = held.live
        if batch is None:
            return Seen([], [], None)
        copied = batch.copy()
        views = [*copied.views(), copied.buffer]
        return self.keep(Seen(views, [*held.sent, b"".join(held.sent)], None))

    def keep(self, seen: Seen) -> Seen:
        self.looks.append(seen)
        return seen

    @rule(held=held)
    def release(self, held: Held) -> None:
        if held.batch is not None:
            held.batch.release()
            held.slab = None

    @rule(thing=st.one_of(consumes(held), consumes(seen)), elsewhere=st.booleans())
    def let_go(self, thing: Held | Seen, elsewhere: bool) -> None:
        in_a_thread(thing.let_go) if elsewhere else thing.let_go()

    @rule()
    def age(self) -> None:
        before = set(self.memory.free(SLOT))
        self.memory.pool.age()
        self.slabs -= before - set(self.memory.free(SLOT))

    @invariant()
    def packets_are_as_they_were_sent(self) -> None:
        for held in self.batches:
            if held.live is not None:
                assert list(held.live.payloads()) == held.sent

    @invariant()
    def what_is_looked_at_never_changes(self) -> None:
        for seen in self.looks:
            shown = [bytes(view) for view in seen.views]
            assert shown == seen.expected or not seen.views

    @invariant()
    def each_slab_is_lent_once_or_free_once(self) -> None:
        things: list[Held | Seen] = [*self.batches, *self.looks]
        lent = {thing.slab for thing in things if thing.slab is not None}
        free = self.memory.free(SLOT)
        assert len(free) == len(set(free))
        assert lent.isdisjoint(free)
        assert lent.union(free) == self.slabs
        assert self.source.held_bytes() == sum(slab.nbytes for slab in lent)


Lifetimes.TestCase.settings = settings(max_examples=50, deadline=None)
TestLifetimes = Lifetimes.TestCase


def test_free_slabs_are_equal_after_many_batches():
    memory = LoopMemory()
    with (
        open_source(SLOT, memory) as source,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.connect(source.sock.getsockname())

        def round_of_batches() -> None:
            for slots in (1, 2, 3, 8, 64):
                sender.send(b"x")
                with contextlib.ExitStack() as stack:
                    batch = read_batch(source, slots, False)
                    assert batch is not None
                    stack.enter_context(batch)
                    views = batch.views() if slots % 2 else []
                    assert len(views) == slots % 2
                del views, batch
                assert read_batch(source, slots, True) is None

        round_of_batches()
        before = sorted(map(id, memory.free(SLOT)))
        for _ in range(2000):
            round_of_batches()

        assert sorted(map(id, memory.free(SLOT))) == before
        assert len(before) == len(memory.pool.slabs) == 5


# --- of real receivers


async def test_buffer_bytes_is_the_memory_that_batches_and_views_hold(receiver):
    assert receiver.statistics().buffer_bytes == 0
    send(receiver, b"first", b"second")

    batch = await receiver.receive()
    slab = receiver.statistics().buffer_bytes
    assert slab == 2 * (65_536 + 576)  # slots are no whole pages apart
    view = batch.views()[0]
    kept = batch.copy()
    batch.release()
    assert receiver.statistics().buffer_bytes == slab

    assert bytes(view) == b"first"
    del view
    assert receiver.statistics().buffer_bytes == 0
    assert kept.payloads() == [b"first", b"second"]


async def test_buffer_bytes_are_each_receivers_own(receiver):
    async with aiorecv.open_udp(("127.0.0.1", 0)) as other:
        send(receiver, b"x")
        with await receiver.receive():
            assert receiver.statistics().buffer_bytes > 0
            assert other.statistics().buffer_bytes == 0


async def test_view_outlives_batch_receiver_and_what_comes_later(receiver):
    send(receiver, b"as it was")
    with await receiver.receive() as batch:
        view = batch.views()[0]
    del batch

    for _ in range(10):
        send(receiver, b"XXXXXXXXX")
        (await receiver.receive()).release()
    receiver.close()
    gc.collect()

    assert bytes(view) == b"as it was"


async def test_last_view_may_die_in_another_thread(receiver):
    send(receiver, b"x")
    with await receiver.receive() as batch:
        views = batch.views()
    del batch

    await asyncio.get_running_loop().run_in_executor(None, views.clear)

    assert receiver.statistics().buffer_bytes == 0


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("as_view", [False, True])
def test_batches_and_views_may_outlive_their_loop(loop_factory, as_view):
    async def receive_one() -> PacketBatch:
        async with aiorecv.open_udp(("127.0.0.1", 0)) as receiver:
            send(receiver, b"kept")
            return await receiver.receive()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        batch = runner.run(receive_one())
    views = batch.views() if as_view else []
    assert list(batch.payloads()) == [b"kept"]

    batch.release()

    assert [bytes(view) for view in views] == [b"kept"] * as_view


def test_views_that_live_at_the_end_of_the_program_do_no_harm():
    program = """
import asyncio, socket, aiorecv
async def main():
    receiver = await aiorecv.open_udp(("127.0.0.1", 0))
    receiver.socket.sendto(b"x", receiver.local_addr)
    batch = await receiver.receive()
    receiver.close()
    return batch, batch.views(), [batch]
kept = asyncio.run(main())
kept[2].append(kept)
print(bytes(kept[1][0]))
"""

    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )

    assert (ran.stdout, ran.stderr) == ("b'x'\n", "")


@attrs.frozen
class _Bound:
    """An address to send to."""

    local_addr: object


def test_a_batch_in_a_cycle_of_garbage_gives_back_memory_that_is_still_mapped():
    """The collector finalizes all of a cycle at once, the slab's mapping too if it were in it."""
    with open_source() as source:
        for number in range(50):
            send(_Bound(source.sock.getsockname()), b"packet %d" % number)
            batch = read_batch(source, 4, False)
            assert batch is not None
            assert batch.payloads() == (b"packet %d" % number,)
            cycle: list[object] = [batch]
            cycle.append(cycle)
            del batch, cycle
            gc.collect()

        assert len(source._memory.pool.slabs) == 1
