"""The thinnest path through all rooms."""

import asyncio


async def test_packets_sent_before_the_first_pass_all_arrive_in_order(receiver, sender):
    sent = [b"%d" % number for number in range(1000)]
    for data in sent:
        sender.send(data)

    got = []
    async for batch in receiver:
        got += batch.payloads()
        assert set(batch.addresses()) == {sender.getsockname()}
        if len(got) == len(sent):
            break

    assert got == sent
    assert receiver.statistics().kernel_drops == 0


async def test_a_waiting_task_gets_what_comes_later(receiver, sender):
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)

    sender.send(b"late")

    with await waiting as batch:
        assert batch[:] == [(b"late", sender.getsockname())]
        assert batch.polled
