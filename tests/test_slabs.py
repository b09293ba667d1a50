"""The pool of slabs: sizes, order, and how free memory goes back to the system."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import weakref

import pytest

import aiorecv
from aiorecv._slabs import SlabPool
from tests.helpers import LoopMemory, little_memory, open_source, read_batch, send

SLOT = 128


@pytest.mark.parametrize(
    ("slots", "rounded"), [(1, 1), (2, 2), (3, 4), (5, 8), (64, 64), (65, 128), (1024, 1024)]
)
def test_slab_has_the_windows_slots_rounded_up_to_a_power_of_two(slots, rounded):
    pool = SlabPool(lambda: None)

    slab = pool.make(slots, SLOT)

    assert (slab.core.slots, slab.nbytes) == (rounded, rounded * SLOT)
    slab.give()
    assert pool.stacks(SLOT)[rounded] == [slab]
    assert pool.stacks(SLOT)[slots] is pool.stacks(SLOT)[rounded]
    assert pool.stacks(2 * SLOT)[slots] == []


@pytest.mark.parametrize(("slots", "slot_size"), [(1, 0), (1, (1 << 20) + 1)])
def test_slab_out_of_bounds_is_an_error_and_no_memory(slots, slot_size):
    pool = SlabPool(lambda: None)

    with pytest.raises(OSError, match="no memory for 1 slots"):
        pool.make(slots, slot_size)

    assert len(pool.slabs) == 0


def test_memory_that_is_short_is_an_error_and_leaves_the_pool_as_it_was():
    pool = SlabPool(lambda: None)

    with little_memory(16 << 20):
        with pytest.raises(OSError, match="no memory for 1024 slots") as raised:
            pool.make(1024, 65_536)
        pool.make(1, 65_536).give()

    assert raised.value.errno == errno.ENOMEM
    assert len(pool.slabs) == 1


def test_slab_that_was_used_last_is_lent_first():
    memory = LoopMemory()
    first, second = memory.pool.make(1, SLOT), memory.pool.make(1, SLOT)
    first.give()
    second.give()

    with open_source(SLOT, memory) as source:
        assert read_batch(source, 1, False) is None

    assert memory.pool.stacks(SLOT)[1] == [first, second]
    assert second.stamp == memory.pool.now


def test_ageing_frees_what_missed_a_round_and_nothing_else():
    pool = SlabPool(lambda: None)
    stack = pool.stacks(SLOT)[1]
    idle, busy = pool.make(1, SLOT), pool.make(1, SLOT)
    idle.give()
    busy.give()
    del idle

    assert pool.age()
    assert len(stack) == 2

    stack.pop().give()
    assert pool.age()
    assert stack == [busy]

    assert not pool.age()
    assert stack == []
    del busy
    gc.collect()
    assert len(pool.slabs) == 0


def test_pool_tells_once_that_it_is_warm_until_it_has_cooled():
    told = []
    pool = SlabPool(lambda: told.append(pool.now))

    for _ in range(2):
        for slab in [pool.make(1, SLOT), pool.make(64, SLOT)]:
            slab.give()
        del slab
        while pool.age():
            pass

    assert told == [0, 2]


async def test_idle_memory_goes_back_to_the_system(receiver):
    send(receiver, b"x")
    (await receiver.receive()).release()
    pool = receiver._reader.source._memory.pool
    slabs = weakref.WeakSet(pool.slabs)
    assert len(slabs) == 1

    while pool.slabs:
        await asyncio.sleep(0.05)

    assert not slabs  # which unmaps them
    assert not pool.warm


@pytest.mark.parametrize("packets", [1, 2])
async def test_an_idle_endpoint_keeps_no_slab_either(packets):
    done = asyncio.Event()

    class Noting(asyncio.DatagramProtocol):
        left = packets

        def datagram_received(self, data, addr):
            self.left -= 1
            if not self.left:
                done.set()

    transport, _ = await aiorecv.create_datagram_endpoint(Noting, local_addr=("127.0.0.1", 0))
    pool = transport._reader.source._memory.pool
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(packets):
            sock.sendto(b"x", transport.get_extra_info("sockname"))
    await done.wait()
    slabs = weakref.WeakSet(pool.slabs)
    assert slabs

    while pool.slabs:
        await asyncio.sleep(0.05)

    assert not slabs  # which unmaps them
    transport.close()
    await asyncio.sleep(0)
