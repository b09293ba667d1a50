"""Fanout: every frame goes to one receiver of a group, and to just one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from itertools import chain

import pytest

import aiorecv
from aiorecv import Fanout
from tests.frames import OURS, frame, new_wire
from tests.namespaces import set_down

IPV4 = 0x0800


@pytest.fixture
def wire():
    """A socket whose frames come in by ``veth0``, in a network of their own."""
    with new_wire() as sock:
        yield sock


@contextlib.asynccontextmanager
async def opened(count: int, mode: str, protocol: int = OURS, **options):
    """So many receivers in a new group."""
    async with contextlib.AsyncExitStack() as stack:
        receivers: list[aiorecv.Receiver] = []
        for _ in range(count):
            group = receivers[0].fanout_group if receivers else None
            opening = aiorecv.open_packet(
                "veth0", protocol=protocol, fanout=Fanout(mode, group), **options
            )
            receivers.append(await stack.enter_async_context(opening))
        yield receivers


def taken(receiver) -> list[bytes]:
    """What is queued."""
    received = []
    while batch := receiver.receive_nowait():
        received += batch.payloads()
        batch.release()
    return received


@pytest.mark.parametrize("mode", ["hash", "round_robin", "cpu", "rollover"])
async def test_every_frame_goes_to_just_one_of_a_group(wire, mode):
    frames = [frame(number.to_bytes(4, "big").ljust(46), number) for number in range(200)]
    async with opened(3, mode) as receivers:
        for one in frames:
            wire.send(one)

        by_receiver = [taken(receiver) for receiver in receivers]

    assert sorted(chain.from_iterable(by_receiver)) == frames
    if mode == "round_robin":
        assert all(60 <= len(received) <= 70 for received in by_receiver)
    if mode in ("cpu", "rollover"):
        assert sum(map(bool, by_receiver)) <= 2


async def test_a_flow_stays_with_one_receiver(wire):
    async with opened(4, "hash", IPV4) as receivers:
        for flow in range(40):
            for _ in range(5):
                wire.send(_udp(port=1000 + flow))

        by_receiver = [taken(receiver) for receiver in receivers]

    assert sum(map(len, by_receiver)) == 200
    assert sum(map(bool, by_receiver)) > 1
    flows = [{data[34:36] for data in received} for received in by_receiver]
    assert sum(map(len, flows)) == 40


async def test_what_has_no_room_rolls_over_to_the_next(wire):
    async with opened(2, "rollover", receive_buffer_size=None) as receivers:
        for _ in range(600):
            wire.send(frame(bytes(46)))

        by_receiver = [len(taken(receiver)) for receiver in receivers]

    assert all(by_receiver)


async def test_new_groups_have_numbers_of_their_own(wire):
    async with opened(1, "hash") as (one,), opened(1, "round_robin") as (other,):
        assert one.fanout_group is not None
        assert other.fanout_group is not None
        assert one.fanout_group != other.fanout_group
        wire.send(frame(bytes(46)))
        assert len(taken(one)) == len(taken(other)) == 1


async def test_a_group_may_have_number_zero(wire):
    async with aiorecv.open_packet("veth0", fanout=Fanout(group=0)) as receiver:
        assert receiver.fanout_group == 0


async def test_without_fanout_there_is_no_group(wire):
    async with aiorecv.open_packet("veth0") as receiver:
        assert receiver.fanout_group is None


async def test_a_group_of_another_mode_is_refused(wire):
    async with opened(1, "hash") as (receiver,):
        with pytest.raises(OSError, match="another mode") as caught:
            await aiorecv.open_packet(
                "veth0", protocol=OURS, fanout=Fanout("cpu", receiver.fanout_group)
            )

    assert caught.value.errno == errno.EINVAL


async def test_no_frame_comes_twice_while_others_join(wire):
    """A socket is bound before it can join: what came in between would be received twice."""
    flooding, sent = True, 0

    def flood() -> None:
        nonlocal sent
        while flooding:
            wire.send(frame(sent.to_bytes(4, "big").ljust(46), sent % 65_536))
            sent += 1

    received: list[bytes] = []
    async with opened(1, "round_robin") as (first,):
        thread = threading.Thread(target=flood)
        thread.start()
        try:
            async with contextlib.AsyncExitStack() as stack:
                receivers = [first]
                for _ in range(10):
                    fanout = Fanout("round_robin", first.fanout_group)
                    opening = aiorecv.open_packet("veth0", protocol=OURS, fanout=fanout)
                    receivers.append(await stack.enter_async_context(opening))
                    for receiver in receivers:
                        received += taken(receiver)
                    await asyncio.sleep(0)
                flooding = False
                thread.join()
                for receiver in receivers:
                    received += taken(receiver)
                dropped = sum(receiver.statistics().kernel_drops for receiver in receivers)
        finally:
            flooding = False
            thread.join()

    assert len(received) + dropped == sent
    assert len(set(received)) == len(received)


async def test_a_group_on_a_link_that_is_down_is_made_or_refused_clearly(wire):
    set_down("veth0")

    with contextlib.suppress(OSError):
        async with aiorecv.open_packet("veth0", fanout=Fanout()) as receiver:
            assert receiver.fanout_group is not None
            return
    with pytest.raises(OSError, match="interface is down"):
        await aiorecv.open_packet("veth0", fanout=Fanout())


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"mode": "random"}, ValueError, "'hash', 'round_robin', 'cpu', 'rollover'"),
        ({"mode": 0}, ValueError, "mode=0"),
        ({"group": "a"}, TypeError, "group is a number"),
        ({"group": True}, TypeError, "group is a number"),
        ({"group": -1}, ValueError, "group=-1"),
        ({"group": 65_536}, ValueError, "group=65536"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, said):
    with pytest.raises(error, match=said):
        Fanout(**arguments)


async def test_fanout_is_a_fanout():
    with pytest.raises(TypeError, match="fanout is a Fanout"):
        aiorecv.open_packet("lo", fanout="hash")


def _udp(port: int) -> bytes:
    """A frame of IPv4 and UDP from this port."""
    udp = port.to_bytes(2, "big") + b"\x07\xd0\0\x08\0\0"
    ip = bytes.fromhex("4500001c00010000401100000a0000020a000001")
    return frame((ip + udp).ljust(46, b"\0"), protocol=IPV4)
