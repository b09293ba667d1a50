"""Packet rings: blocks of frames, byte-exact and in order, lent and given back."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import threading
from pathlib import Path

import pytest

import aiorecv
from aiorecv import Metadata, RingConfig
from aiorecv._native._core import lib
from tests.frames import (
    OURS,
    address,
    frame,
    new_wire,
    receive_all,
    send_as_one,
    set_up_again,
    tcp_frame,
)
from tests.helpers import descriptors
from tests.namespaces import remove, set_down
from tests.receiving import until_waiting

SMALL = RingConfig(block_size=1 << 17, blocks=8)


@pytest.fixture
def wire():
    """A socket whose frames come in by ``veth0``, in a network of their own."""
    with new_wire() as sock:
        yield sock


def open_ring(ring: RingConfig = RingConfig(), **options):  # noqa: B008 - it is frozen
    return aiorecv.open_packet("veth0", **{"protocol": OURS, "ring": ring, **options})


@pytest.fixture
async def receiver(wire):
    async with open_ring() as opened:
        yield opened


def numbered(count: int, start: int = 0, size: int = 46) -> list[bytes]:
    return [frame(number.to_bytes(4, "big").ljust(size)) for number in range(start, start + count)]


def send_all(wire, frames) -> None:
    for one in frames:
        wire.send(one)


async def take(receiver, count: int) -> list[bytes]:
    return [data for data, _ in await receive_all(receiver, count)]


@pytest.mark.parametrize("kind", ["equal", "mixed", "one", "two", "large"])
async def test_frames_come_as_they_were_sent_and_in_order(receiver, wire, kind):
    frames = {
        "equal": numbered(700),
        "mixed": [frame(bytes([number % 251]) * (46 + number % 900)) for number in range(400)],
        "one": numbered(1),
        "two": numbered(2),
        "large": numbered(60, size=1400),
    }[kind]
    send_all(wire, frames)

    received = await receive_all(receiver, len(frames))

    assert received == [(one, address()) for one in frames]


async def test_frames_of_many_senders_keep_their_addresses(receiver, wire):
    senders = [number % 97 for number in range(600)]
    send_all(wire, [frame(bytes(46), sender) for sender in senders])

    received = await receive_all(receiver, len(senders))

    assert [addr for _, addr in received] == [address(sender) for sender in senders]


async def test_more_senders_than_a_table_holds_split_a_block(wire):
    async with open_ring(RingConfig(block_size=4 << 20, block_timeout=0.2)) as receiver:
        senders = list(range(9_000))
        send_all(wire, [frame(bytes(46), sender) for sender in senders])

        received = await receive_all(receiver, len(senders))

        assert [addr for _, addr in received] == [address(sender) for sender in senders]
        send_all(wire, numbered(10))
        assert await take(receiver, 10) == numbered(10)


async def test_frames_that_gso_made_come_whole(wire):
    sent = [tcp_frame(63_000, source) for source in range(12)]
    async with open_ring(protocol=0x0800) as receiver:
        for one in sent:
            send_as_one(wire, one)

        received = await receive_all(receiver, len(sent))

    assert [data[:50] + bytes(2) + data[52:] for data, _ in received] == sent
    assert receiver.statistics().truncated == 0


async def test_only_what_comes_in_is_received(wire):
    async with open_ring(protocol=0x0003) as receiver:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as ours:
            ours.bind(("veth0", 0))
            ours.send(frame(b"going out".ljust(46)))
        wire.send(frame(b"coming in".ljust(46)))

        assert await take(receiver, 1) == [frame(b"coming in".ljust(46))]


async def test_a_batch_is_a_block_and_tells_all_that_a_batch_tells(wire):
    asked = Metadata.TIMESTAMP | Metadata.VLAN
    frames = [frame(bytes([number]) * (46 + number), number % 3) for number in range(50)]
    senders = [address(number % 3) for number in range(50)]
    async with open_ring(RingConfig(block_timeout=0.05), metadata=asked) as receiver:
        send_all(wire, frames)
        batch = await receiver.receive()

        for one in (batch, batch.copy()):
            assert len(one) == one.slots == 50
            assert (one.full, one.polled) == (False, True)
            assert one.nbytes == sum(map(len, frames))
            assert list(one) == list(zip(frames, senders, strict=True))
            assert list(one.payloads()) == frames
            assert list(one.addresses()) == senders
            assert one.views() == frames
            assert one[3] == (frames[3], senders[3])
            assert one[-1] == (frames[-1], senders[-1])
            assert one[10:12] == list(zip(frames, senders, strict=True))[10:12]
            with pytest.raises(IndexError):
                one[50]
            assert list(one.lengths) == list(map(len, frames))
            starts = zip(one.offsets, one.lengths, strict=True)
            assert [bytes(one.buffer[at : at + size]) for at, size in starts] == frames
            assert list(one.timestamps_ns) == sorted(one.timestamps_ns)
            packets = list(one.packets())
            assert [packet.data for packet in packets] == frames
            assert [packet.timestamp_ns for packet in packets] == list(one.timestamps_ns)
            assert {(packet.vlan, packet.truncated) for packet in packets} == {(None, False)}
            assert [packet.length for packet in packets] == list(map(len, frames))
        batch.release()
        batch.release()

        for touch in (batch.payloads, batch.addresses, batch.views, batch.packets, batch.copy):
            with pytest.raises(aiorecv.BatchReleasedError):
                touch()
        with pytest.raises(aiorecv.BatchReleasedError):
            iter(batch)
        assert (len(batch), batch.slots, batch.nbytes) == (50, 50, sum(map(len, frames)))


async def test_the_tag_of_a_vlan_is_told(wire):
    tagged = frame(b"\x60\x07\x88\xb5" + b"tagged".ljust(46), protocol=0x8100)
    async with open_ring(metadata=Metadata.VLAN, protocol=0x0003) as receiver:
        wire.send(tagged)
        packets = []
        while not packets:
            with await receiver.receive() as batch:
                packets = [packet for packet in batch.packets() if packet.vlan is not None]

    assert [(packet.data, packet.vlan) for packet in packets] == [
        (frame(b"tagged".ljust(46)), (0x6007, 0x8100))
    ]


async def test_a_block_that_is_full_says_so(wire):
    async with open_ring(RingConfig(block_size=1 << 17, block_timeout=1.0)) as receiver:
        frames = numbered(100, size=1400)
        send_all(wire, frames)

        with await receiver.receive() as batch:
            assert batch.full
            assert list(batch.payloads()) == frames[: len(batch)]
        assert receiver.statistics().full_reads == 1


async def test_a_lone_frame_waits_for_its_blocks_timer_alone(receiver, wire):
    waiting = asyncio.ensure_future(take(receiver, 1))
    await until_waiting(waiting)

    wire.send(numbered(1)[0])

    assert await waiting == numbered(1)
    statistics = receiver.statistics()
    assert (statistics.reads, statistics.polled_reads, statistics.packets) == (1, 1, 1)
    assert statistics.buffer_bytes == 32 << 18


async def test_iteration_gives_blocks_back_so_that_the_ring_goes_on_for_ever(wire):
    async with open_ring(SMALL) as receiver:
        frames = numbered(200, size=1000)
        for _ in range(20):  # many times round
            send_all(wire, frames)
            received: list[bytes] = []
            async for batch in receiver:
                received += batch.payloads()
                if len(received) == len(frames):
                    break
            assert received == frames

        statistics = receiver.statistics()
        assert statistics.packets == 20 * len(frames)
        assert (statistics.kernel_drops, statistics.ring_freezes) == (0, 0)


async def collect(receiver, seen: list[bytes]) -> None:
    async for batch in receiver:
        seen += batch.payloads()


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


def has_stopped(receiver) -> bool:
    """Whether the next block is one that is held, and so the receiver has nothing to do."""
    return bool(receiver._reader.source.ring.state() & lib.AIORECV_RING_STOPPED)


async def hold_three(receiver, wire) -> list[list[memoryview]]:
    """Views of three blocks of a hundred frames each."""
    views = []
    for start in (0, 100, 200):
        send_all(wire, numbered(100, start))
        count = 0
        while count < 100:
            with await receiver.receive() as batch:
                views.append(batch.views())
                count += len(batch)
    return views


async def test_blocks_that_are_held_stay_as_they_are_and_what_finds_no_room_is_counted(
    wire, caplog
):
    caplog.set_level(logging.WARNING, "aiorecv")
    async with open_ring(SMALL) as receiver:
        views = await hold_three(receiver, wire)
        seen: list[bytes] = []
        waiting = asyncio.ensure_future(collect(receiver, seen))
        frames = numbered(12_000, 1_000)
        for start in range(0, len(frames), 100):
            send_all(wire, frames[start : start + 100])
            await asyncio.sleep(0)
        await until(lambda: has_stopped(receiver) and receiver.statistics().ring_freezes)

        statistics = receiver.statistics()
        assert [bytes(view) for some in views for view in some] == numbered(300)
        assert len(seen) + statistics.kernel_drops == 12_000
        assert seen == sorted(set(seen) & set(frames))
        assert 0 < len(seen) < 12_000

        # It is left alone: neither polled nor looked at before a second is over.
        readiness = receiver._delivery._readiness
        await until(lambda: not readiness._registered)
        assert readiness._ring_timer.when() > asyncio.get_running_loop().time() + 0.1

        views.clear()
        more = numbered(500, 20_000)
        await until(lambda: not has_stopped(receiver))
        seen.clear()
        send_all(wire, more)
        await until(lambda: len(seen) >= len(more))
        assert seen == more
        waiting.cancel()
    assert "copy()" in caplog.text


async def test_a_ring_that_has_stopped_is_warned_about_while_it_is_waited_for(
    wire, caplog, monkeypatch
):
    monkeypatch.setattr("aiorecv._ring_readiness._LOOK_AT_DROPS", 0.01)
    caplog.set_level(logging.WARNING, "aiorecv")
    async with open_ring(SMALL) as receiver:
        views = await hold_three(receiver, wire)
        waiting = asyncio.ensure_future(collect(receiver, []))
        send_all(wire, numbered(12_000))

        await until(lambda: "copy()" in caplog.text)

        assert "of its blocks are held" in caplog.text
        waiting.cancel()
        del views


async def test_while_the_block_before_is_held_the_descriptor_is_not_polled(receiver, wire):
    send_all(wire, numbered(1))
    batch = await receiver.receive()
    waiting = asyncio.ensure_future(take(receiver, 1))
    await until_waiting(waiting)
    readiness = receiver._delivery._readiness
    assert not readiness._registered
    before = receiver.statistics().empty_reads

    await asyncio.sleep(0.05)

    assert receiver.statistics().empty_reads - before <= 1
    send_all(wire, numbered(1, 1))
    assert await waiting == numbered(1, 1)
    assert list(batch.payloads()) == numbered(1)
    batch.release()


async def test_polling_goes_on_when_a_view_dies_in_another_thread(receiver, wire, monkeypatch):
    monkeypatch.setattr("aiorecv._ring_readiness._LOOK_AFTER", 60.0)
    send_all(wire, numbered(1))
    with await receiver.receive() as batch:
        views = [batch.views()]
    waiting = asyncio.ensure_future(take(receiver, 1))
    await until_waiting(waiting)
    assert not receiver._delivery._readiness._registered

    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()

    await until(lambda: receiver._delivery._readiness._registered)
    send_all(wire, numbered(1, 1))
    assert await waiting == numbered(1, 1)


async def test_views_stay_right_after_close_and_the_socket_is_gone(wire):
    before = descriptors()
    receiver = await open_ring(SMALL)
    views = await hold_three(receiver, wire)
    kept = receiver._reader.source.ring
    assert len(mappings()) == 1

    receiver.close()

    assert mappings() == []
    await until(lambda: descriptors() == before and packet_sockets() == 1)  # the sender's
    assert [bytes(view) for some in views for view in some] == numbered(300)
    assert kept.held > 0
    views.clear()
    assert kept.held == 0


async def test_a_batch_is_readable_after_close(wire):
    receiver = await open_ring(SMALL)
    send_all(wire, numbered(10))
    batch = await receiver.receive()

    receiver.close()

    assert list(batch.payloads()) == numbered(10)[: len(batch)]
    batch.release()


@pytest.mark.parametrize("how", ["release", "close", "drop"])
async def test_a_forked_child_gives_no_block_of_its_parents_back(wire, how):
    async with open_ring(SMALL) as receiver:
        send_all(wire, numbered(5))
        batch = await receiver.receive()
        count = len(batch)
        ring = receiver._reader.source.ring

        child = os.fork()
        if child == 0:  # pragma: no cover - in the child
            if how == "close":
                receiver.close()
                os._exit(int(mappings() != []))
            if how == "release":
                batch.release()
            del batch
            gc.collect()
            os._exit(0)

        assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - it ends at once
        assert ring.held == 1
        assert ring.buffer[batch._block * (1 << 17) + 8] != b"\0"  # it is not the kernel's
        assert list(batch.payloads()) == numbered(5)[:count]
        batch.release()
        assert await take(receiver, 5 - count) == numbered(5)[count:]
        send_all(wire, numbered(5, 5))
        assert await take(receiver, 5) == numbered(5, 5)


async def test_a_dropped_ring_gives_its_memory_back(wire):
    receiver = await open_ring(SMALL)
    send_all(wire, numbered(10))
    batch = await receiver.receive()
    cycle = [batch, receiver]
    cycle.append(cycle)

    with pytest.warns(ResourceWarning, match="unclosed"):
        del receiver, batch, cycle
        gc.collect()

    assert mappings() == []


async def test_a_link_that_goes_down_is_reported_and_frames_come_again_when_it_is_up(
    receiver, wire
):
    send_all(wire, numbered(3))
    set_down("veth0")
    got = []
    with pytest.raises(OSError, match="down"):
        while True:
            with await receiver.receive() as batch:
                got += batch.payloads()
    set_up_again(wire)
    send_all(wire, numbered(3, 3))

    # What was in the block before comes first, before or behind the error.
    got += await take(receiver, 6 - len(got))
    assert got == numbered(6)
    assert receiver.statistics().errors == 1


async def test_who_never_waits_hears_of_a_link_that_goes_down(receiver, wire):
    set_down("veth0")

    with pytest.raises(OSError, match="down"):
        receiver.receive_nowait()

    assert receiver.receive_nowait() is None


async def test_a_ring_whose_interface_is_removed_ends_saying_so(receiver, wire):
    waiting = asyncio.ensure_future(receiver.receive())
    await until_waiting(waiting)
    remove("veth0")
    with pytest.raises(OSError, match="down"):
        await waiting

    with pytest.raises(OSError, match="'veth0' is gone"):
        await receiver.receive()


async def test_cancelled_waiters_lose_nothing(receiver, wire):
    received: list[bytes] = []
    for number in range(30):
        waiting = asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        wire.send(numbered(1, number)[0])
        if number % 3:
            await asyncio.sleep(0.001 * (number % 3))
        waiting.cancel()
        try:
            with await waiting as batch:
                received += batch.payloads()
        except asyncio.CancelledError:
            pass
    while len(received) < 30:
        with await receiver.receive() as batch:
            received += batch.payloads()

    assert received == numbered(30)


async def test_datagrams_come_one_by_one_and_a_break_leaves_the_rest(receiver, wire):
    send_all(wire, numbered(20))
    got = []
    async for data, _ in receiver.datagrams():
        got.append(data)
        if len(got) == 5:
            break

    assert got + await take(receiver, 15) == numbered(20)


async def test_a_ring_is_filtered_and_marks_what_a_program_has_cut(wire):
    keep_twenty = [(0x06, 0, 0, 20)]
    async with (
        open_ring(filter="ether proto 0x88b5", protocol=3) as by_text,
        open_ring(filter=keep_twenty) as by_program,
    ):
        wire.send(frame(bytes(46), protocol=0x88B6))
        wire.send(numbered(1)[0])

        assert await take(by_text, 1) == numbered(1)
        with await by_program.receive() as batch:
            (packet,) = batch.packets()

    assert (packet.data, packet.truncated, packet.length) == (numbered(1)[0][:20], True, 60)
    assert by_program.statistics().truncated == 1


async def test_a_ring_is_shared_by_fanout(wire):
    fanout = aiorecv.Fanout("round_robin")
    async with open_ring(fanout=fanout) as one:
        fanout = aiorecv.Fanout("round_robin", one.fanout_group)
        async with open_ring(fanout=fanout) as other:
            send_all(wire, numbered(100))
            got = await take(one, 50) + await take(other, 50)

    assert sorted(got) == numbered(100)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": aiorecv.FixedWindow(2)}, "window is not for rings"),
        ({"slot_size": 2048}, "slot_size is not for rings"),
        ({"metadata": Metadata.DROPS}, "TIMESTAMP and VLAN alone"),
        ({"metadata": Metadata.RAW | Metadata.VLAN}, "TIMESTAMP and VLAN alone"),
    ],
)
async def test_options_that_a_ring_has_not_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        open_ring(**options)


async def test_detach_is_refused(receiver):
    with pytest.raises(RuntimeError, match="close the receiver"):
        receiver.detach()

    assert receiver.fileno() != -1


async def test_a_ring_is_a_ring_config():
    with pytest.raises(TypeError, match="ring is a RingConfig"):
        aiorecv.open_packet("lo", ring=True)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"block_size": 1 << 16}, ValueError, "block_size=65536"),
        ({"block_size": 8 << 20}, ValueError, "block_size="),
        ({"block_size": (1 << 17) + 1}, ValueError, "whole pages"),
        ({"block_size": "1"}, TypeError, "block_size is a number of bytes"),
        ({"blocks": 1}, ValueError, "blocks=1: give from 2 to 4096"),
        ({"blocks": 5000}, ValueError, "blocks=5000"),
        ({"blocks": True}, TypeError, "blocks is a number of blocks"),
        ({"block_timeout": 0.0}, ValueError, "block_timeout=0.0"),
        ({"block_timeout": 0.0015}, ValueError, "whole milliseconds"),
        ({"block_timeout": 61}, ValueError, "block_timeout=61"),
        ({"block_timeout": "1"}, TypeError, "block_timeout is in seconds"),
    ],
)
def test_a_geometry_that_can_not_be_is_refused(arguments, error, said):
    with pytest.raises(error, match=said):
        RingConfig(**arguments)


@pytest.mark.parametrize("milliseconds", [1, 3, 7, 60_000])
def test_whole_milliseconds_are_taken(milliseconds):
    assert RingConfig(block_timeout=milliseconds / 1000).block_timeout == milliseconds / 1000


def mappings() -> list[str]:
    """What this process has mapped of packet sockets."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "socket:" in line]


def packet_sockets() -> int:
    """How many there are in this network."""
    return len(Path("/proc/thread-self/net/packet").read_text().splitlines()) - 1
