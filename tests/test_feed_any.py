"""Whatever callbacks do at whichever packets, each packet comes once, in order, until a close."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiorecv
from tests.endpoints import LOOPS, Noting, NotingBatches, name_of, opened, queue_train

ACTS = st.sampled_from(
    ["pause", "pause and resume", "pause, go on later", "raise", "protocol", "batches", "close"]
)


class Scripted:
    """An endpoint whose protocols, at a packet of a number, do what a script says."""

    def __init__(self, script: dict[int, list[str]], handler_acts: bool) -> None:
        self.script = script
        self.handler_acts = handler_acts
        self.got: list[bytes] = []
        self.transport: aiorecv.DatagramTransport = None
        self.closed_at: int | None = None
        self.waiting: list[str] = []

    def make(self, batches: bool):
        outer = self

        class Datagrams(Noting):
            def datagram_received(self, data, addr):
                assert self is outer.transport.get_protocol()
                outer.came(data)

        class Batches(NotingBatches):
            def batch_received(self, batch):
                assert self is outer.transport.get_protocol()
                if len(batch):
                    payloads = list(batch.payloads())
                    outer.got += payloads[:-1]
                    outer.came(payloads[-1])
                    # Still in hand, whatever was done meanwhile.
                    assert list(batch.payloads()) == payloads

        return (Batches if batches else Datagrams)()

    def came(self, data: bytes) -> None:
        assert self.closed_at is None
        assert self.transport.is_reading()
        self.got.append(data)
        acts = self.script.get(len(self.got) - 1, [])
        if self.handler_acts and "raise" in acts:
            self.waiting = acts
            raise LookupError
        self.act(acts)
        if "raise" in acts:
            raise LookupError

    def handle(self, _loop, context) -> None:
        assert isinstance(context["exception"], LookupError), context
        acts, self.waiting = self.waiting, []
        self.act(acts)

    def act(self, acts: list[str]) -> None:
        transport = self.transport
        for act in acts:
            if act.startswith("pause"):
                transport.pause_reading()
            if act == "pause and resume":
                transport.resume_reading()
            elif act == "pause, go on later":
                asyncio.get_running_loop().call_soon(transport.resume_reading)
            elif act == "protocol":
                transport.set_protocol(self.make(batches=False))
            elif act == "batches":
                transport.set_protocol(self.make(batches=True))
            elif act == "close" and self.closed_at is None:
                transport.close()
                self.closed_at = len(self.got)


@pytest.mark.parametrize("new_loop", LOOPS)
@given(
    count=st.integers(1, 100),
    script=st.dictionaries(st.integers(0, 99), st.lists(ACTS, min_size=1, max_size=4)),
    slots=st.sampled_from([1, 2, 7, 64]),
    how=st.sampled_from(["equal", "mixed", "peers", "trains"]),
    batches=st.booleans(),
    handler_acts=st.booleans(),
    turn_limit=st.sampled_from([0.001, 1e-9]),
)
def test_each_packet_comes_once_and_in_order_until_a_close(
    new_loop, count, script, slots, how, batches, handler_acts, turn_limit
):
    scripted = Scripted(script, handler_acts)
    sent = [b"%03d" % number for number in range(count)]
    if how == "mixed":
        sent = [data * (1 + number * 7 % 5) for number, data in enumerate(sent)]

    async def run() -> int:
        window = aiorecv.FixedWindow(slots)
        transport, _ = await opened(
            lambda: scripted.make(batches), window=window, turn_limit=turn_limit
        )
        scripted.transport = transport
        send(transport, sent, how)
        idle = held = 0
        while len(scripted.got) < count and scripted.closed_at is None and idle < 50:
            before = len(scripted.got)
            await asyncio.sleep(0)
            if not transport.is_reading() and not transport.is_closing():
                held = max(held, transport.statistics().buffer_bytes)
                transport.resume_reading()
            idle = idle + 1 if len(scripted.got) == before else 0
        for _ in range(3):
            await asyncio.sleep(0)
        return held + transport.statistics().buffer_bytes

    with new_loop() as loop:
        loop.set_exception_handler(scripted.handle)
        held = loop.run_until_complete(run())

    assert scripted.got == sent[: scripted.closed_at]
    assert held == 0


def send(transport, packets: list[bytes], how: str) -> None:
    if how == "trains":
        for start in range(0, len(packets), 40):
            queue_train(transport, *packets[start : start + 40])
        return
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for number, data in enumerate(packets):
        socks[number % 3 if how == "peers" else 0].sendto(data, name_of(transport))
    for sock in socks:
        sock.close()
