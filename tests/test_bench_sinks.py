"""The sinks of ``aiorecv bench sink``, one by one: counts, contents, errors; and who sends."""

import contextlib
import os
import select
import socket

import attrs
import pytest

from aiorecv.bench import loop_sinks, sink_rounds, sinks
from aiorecv.bench._sink import ffi, lib
from aiorecv.bench.bars import loops
from aiorecv.bench.counters import Counter, Stopwatch
from aiorecv.bench.drains import CountError
from aiorecv.bench.feeders import Feeder, Pins, flooders
from aiorecv.bench.queues import Queue
from tests.benches import SINK_PLAN as PLAN


def recvmmsg(sock, stopwatch, packet_size):
    return sinks.RecvmmsgSink(sock, stopwatch, packet_size, slots=32)


CALLS = {
    "recvMmsg": recvmmsg,
    "recvmsg": sinks.RecvmsgSink,
    "read": sinks.ReadSink,
    "recvfrom": sinks.RecvfromSink,
}

USERS = [
    loop_sinks.BatchesSink,
    loop_sinks.PairsSink,
    loop_sinks.NowaitSink,
    loop_sinks.ProtocolSink,
]


def counter(read=lambda: 0):
    return Stopwatch(Counter("CPU cycles", "", read))


def test_the_sender_runs_on_its_own_cpu_and_the_sink_comes_back(bound):
    cpus = sorted(os.sched_getaffinity(0))
    pins = Pins(cpus[0], cpus[-1])

    try:
        pins.settle()
        with pins.sending():
            sending = os.sched_getaffinity(0)
        draining = os.sched_getaffinity(0)
        with flooders(bound.getsockname(), size=8, flows=1, pins=pins) as ids:
            flooding = os.sched_getaffinity(*ids)
            assert select.select([bound], [], [], 10)[0]
    finally:
        os.sched_setaffinity(0, cpus)

    assert (sending, draining, flooding) == ({cpus[-1]}, {cpus[0]}, {cpus[-1]})


def _sample(make, loop, plan=PLAN):
    arm = next(arm for arm in sink_rounds.arms(plan) if arm.name.startswith("read"))
    return sink_rounds.sample(
        attrs.evolve(arm, make=make, loop=loop), plan, Counter(None, "", lambda: 0)
    )


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("make", [*CALLS.values(), *USERS], ids=lambda make: make.__name__)
def test_a_row_refuses_lost_and_cut_packets(make, loop, monkeypatch):
    factory = loops(loop)[loop]
    monkeypatch.setattr(sinks, "_WAIT_MS", 50)
    monkeypatch.setattr(sink_rounds, "_PATIENCE", 0.05)

    assert _sample(make, factory).nbytes == 150 * 64

    with monkeypatch.context() as patch:
        patch.setattr(Feeder, "fill", lambda self: None)
        with pytest.raises(CountError, match="never came"):
            _sample(make, factory)
    shorter = attrs.evolve(PLAN, size=63)
    monkeypatch.setattr(sink_rounds, "_check_bytes", _against(shorter))
    with pytest.raises(CountError, match="150 packets had 9600 bytes, not 9450"):
        _sample(make, factory)


def _against(plan):
    check = sink_rounds._check_bytes
    return lambda taken, _: check(taken, plan)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("connect", [False, True])
def test_a_sink_is_connected_only_if_asked(connect, live):
    peers = []

    class Peers(sinks.ReadSink):
        async def __aenter__(self):
            with contextlib.suppress(OSError):
                peers.append(self._sock.getpeername())
            return await super().__aenter__()

    plan = attrs.evolve(PLAN, connect=connect, live=live)
    assert _sample(Peers, loops("asyncio")["asyncio"], plan).packets == 150
    assert len(peers) == connect


async def test_drops_are_those_of_the_stretch(bound, bound_sender, monkeypatch):
    drops = iter((2**32 - 1, 6))
    monkeypatch.setattr(sinks, "socket_drops", lambda sock: next(drops))

    async with sinks.ReadSink(bound, counter(), 64) as drain:
        bound_sender.send(bytes(64))
        taken = await drain.take(1)

    assert taken.drops == 7


def test_packets_of_strangers_are_noticed(monkeypatch):
    fill = Feeder.fill

    def twice(feeder):
        fill(feeder)
        fill(feeder)

    monkeypatch.setattr(Feeder, "fill", twice)

    with pytest.raises(CountError, match="of 150 packets came, 0 were dropped"):
        _sample(loop_sinks.BatchesSink, loops("asyncio")["asyncio"])


def test_a_sender_that_does_not_start_is_an_error(bound, monkeypatch):
    monkeypatch.setattr(sink_rounds, "_PATIENCE", 0.01)

    with pytest.raises(CountError, match="no packet came"):
        sink_rounds._first_sender(bound)


@pytest.mark.parametrize("name", CALLS)
async def test_c_counts_calls_that_find_nothing(name, bound, bound_sender, monkeypatch):
    monkeypatch.setattr(sinks, "_WAIT_MS", 20)

    async with CALLS[name](bound, counter(), 64) as drain:
        bound_sender.send(bytes(64))
        with pytest.raises(CountError, match="never came"):
            await drain.take(2)
        counts = drain._counts()

    assert counts == sinks.Counts(packets=1, nbytes=64, reads=1, empty_reads=1)


@pytest.mark.parametrize("name", CALLS)
async def test_c_reports_what_the_kernel_says(name, bound, bound_sender):
    async with CALLS[name](bound, counter(), 64) as drain:
        bound.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            await drain._drain(1)


async def test_a_batch_out_of_bounds_is_an_error(bound):
    with pytest.raises(OSError, match="Invalid argument"):
        await sinks.RecvmmsgSink(bound, counter(), 64, slots=0).__aenter__()


@pytest.mark.parametrize("make", [*CALLS.values(), *USERS], ids=lambda make: make.__name__)
async def test_contents_are_added_up(make, bound):
    with Feeder(Queue(20, (100, 100)), bound.getsockname(), None) as feeder:
        async with make(bound, counter(), 100) as drain:
            packets, content = feeder.fill_patterned()

            assert packets == 20
            assert await drain.check(packets) == content > 0


def test_trains_are_patterned_as_packets_are(bound):
    bound.setsockopt(socket.IPPROTO_UDP, 104, True)  # UDP_GRO, linux/udp.h
    with Feeder(Queue(40, (3000, 3000), train=True), bound.getsockname(), None) as feeder:
        packets, content = feeder.fill_patterned()

    came = [bound.recv(65_536) for _ in range(2)]
    assert [len(data) for data in came] == [21 * 3000, 19 * 3000]
    assert (packets, content) == (40, sum(map(sum, came)))


def test_a_queue_has_no_more_than_the_buffer_holds():
    large = attrs.evolve(PLAN, count=10**6, size=65_507)

    assert attrs.evolve(large, size=64).queue(8 << 20).packets == 1024
    assert attrs.evolve(large, size=64, gro=True).queue(8 << 20).packets == 2048
    assert large.queue(8 << 20).packets == 62
    assert large.queue(1).packets == 1
    assert PLAN.queue(8 << 20).packets == 150


def test_a_train_counts_as_its_packets(bound, bound_sender):
    bound.setsockopt(socket.IPPROTO_UDP, 104, True)
    buffer = ffi.new("uint8_t[]", lib.SINK_SLOT_SIZE)
    state = ffi.new("struct calls *", {"fd": bound.fileno(), "packet_size": 100, "buffer": buffer})

    lib.sink_fill(bound_sender.fileno(), ffi.new("uint32_t[]", [250]), 1, 100)

    assert lib.calls_recvmsg(state, 3) == 0
    assert (state.packets, state.bytes, state.reads) == (3, 250, 1)
