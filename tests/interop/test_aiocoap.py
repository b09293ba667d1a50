"""aiocoap's server and client, both on transports that it asks the loop for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from aiocoap import Code, Context, Message, error, resource

# More than a datagram can hold: it goes in 98 blocks of 1024 bytes.
LARGE = bytes(range(256)) * 390 + b"the end"

# Seconds until what does not come fails a test; aiocoap itself goes on for 93.
PATIENCE = 20.0


class Store(resource.Resource):
    """Gives what was put last."""

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self.payload = payload

    async def render_get(self, request: Message) -> Message:
        return Message(payload=self.payload)

    async def render_put(self, request: Message) -> Message:
        self.payload = request.payload
        return Message(code=Code.CHANGED)


class Observed(Store, resource.ObservableResource):
    """A store whose observers are told of each change."""

    async def render_put(self, request: Message) -> Message:
        changed = await super().render_put(request)
        self.updated_state()
        return changed


@pytest.fixture(autouse=True)
def transports_of_the_loop(monkeypatch) -> None:
    """Let aiocoap ask the loop for endpoints: left alone it opens sockets of its own on Linux."""
    monkeypatch.setenv("AIOCOAP_CLIENT_TRANSPORT", "simple6")
    monkeypatch.setenv("AIOCOAP_SERVER_TRANSPORT", "simplesocketserver")


@pytest.fixture
async def uri(transports) -> AsyncIterator[str]:
    """Where a server of three resources is: ``small``, ``large`` and ``observed``."""
    site = resource.Site()
    site.add_resource(["small"], Store(b"hello"))
    site.add_resource(["large"], Store(LARGE))
    site.add_resource(["observed"], Observed(b"0"))
    context = await Context.create_server_context(site, bind=("127.0.0.1", 0))
    (transport,) = transports
    yield "coap://127.0.0.1:{}".format(transport.get_extra_info("sockname")[1])
    await context.shutdown()


@pytest.fixture
async def client(transports) -> AsyncIterator[Context]:
    context = await Context.create_client_context()
    yield context
    await context.shutdown()


async def test_get_gives_what_put_has_left(client, uri, transports):
    before = await get(client, f"{uri}/small")
    changed = await put(client, f"{uri}/small", b"changed")
    after = await get(client, f"{uri}/small")

    assert (before.code, before.payload) == (Code.CONTENT, b"hello")
    assert changed.code == Code.CHANGED
    assert after.payload == b"changed"
    assert len(transports) == 2  # the server's and the client's


async def test_a_missing_resource_is_not_found(client, uri):
    response = await get(client, f"{uri}/missing")

    assert response.code == Code.NOT_FOUND


async def test_a_large_resource_comes_in_blocks(client, uri):
    response = await get(client, f"{uri}/large")

    assert response.payload == LARGE


async def test_a_large_resource_goes_in_blocks(client, uri):
    changed = await put(client, f"{uri}/small", LARGE)
    response = await get(client, f"{uri}/small")

    assert changed.code == Code.CHANGED
    assert response.payload == LARGE


async def test_requests_at_the_same_time_are_answered_each(client, uri):
    uris = [f"{uri}/{name}" for name in ("small", "large", "observed")] * 8
    await get(client, uris[0])  # aiocoap leaves sockets unclosed if first requests come together

    responses = await asyncio.gather(*(get(client, each) for each in uris))

    assert [response.payload for response in responses] == [b"hello", LARGE, b"0"] * 8


async def test_an_observer_is_told_of_each_change(client, uri):
    request = client.request(Message(code=Code.GET, uri=f"{uri}/observed", observe=0))
    async with asyncio.timeout(PATIENCE):
        seen = [(await request.response).payload]
        notifications = aiter(request.observation)

        for number in range(1, 10):
            await put(client, f"{uri}/observed", b"%d" % number)
            seen.append((await anext(notifications)).payload)
    request.observation.cancel()

    assert seen == [b"%d" % number for number in range(10)]


async def test_a_client_learns_that_nobody_listens(client):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

    with pytest.raises(error.NetworkError) as raised:
        await get(client, f"coap://127.0.0.1:{port}/small")

    assert isinstance(raised.value.__cause__, ConnectionRefusedError)


async def get(client: Context, uri: str) -> Message:
    return await answer(client, Message(code=Code.GET, uri=uri))


async def put(client: Context, uri: str, payload: bytes) -> Message:
    return await answer(client, Message(code=Code.PUT, uri=uri, payload=payload))


async def answer(client: Context, request: Message) -> Message:
    async with asyncio.timeout(PATIENCE):
        return await client.request(request).response
