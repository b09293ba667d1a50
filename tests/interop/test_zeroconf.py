"""zeroconf: one instance announces a service by multicast on ``lo``, another one finds it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator

import pytest
from zeroconf import IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

KIND = "_aiorecv._udp.local."

# Seconds until a service that is not seen fails the test; it takes two.
PATIENCE = 30.0


@pytest.fixture
async def announcer(transports) -> AsyncIterator[AsyncZeroconf]:
    async with on_loopback() as instance:
        yield instance


@pytest.fixture
async def seeker(transports) -> AsyncIterator[AsyncZeroconf]:
    async with on_loopback() as instance:
        yield instance


@pytest.fixture
def service() -> AsyncServiceInfo:
    """A service of a name that no other program on this machine announces."""
    name = uuid.uuid4().hex
    return AsyncServiceInfo(
        KIND,
        f"{name}.{KIND}",
        addresses=[socket.inet_aton("127.0.0.1")],
        port=9999,
        properties={"path": "/there"},
        server=f"{name}.local.",
    )


@contextlib.asynccontextmanager
async def on_loopback() -> AsyncIterator[AsyncZeroconf]:
    async with AsyncZeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only) as instance:
        await instance.zeroconf.async_wait_for_start()
        yield instance


async def test_a_service_is_found_looked_up_and_seen_to_leave(
    announcer, seeker, service, transports
):
    changes: asyncio.Queue[ServiceStateChange] = asyncio.Queue()

    def changed(
        zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        if name == service.name:
            changes.put_nowait(state_change)

    browser = AsyncServiceBrowser(seeker.zeroconf, KIND, handlers=[changed])
    async with browser, asyncio.timeout(PATIENCE):
        await (await announcer.async_register_service(service))
        appeared = await changes.get()
        found = AsyncServiceInfo(KIND, service.name)
        known = await found.async_request(seeker.zeroconf, timeout=10_000)
        await (await announcer.async_unregister_service(service))
        left = await changes.get()
        while left is ServiceStateChange.Updated:  # its announcements are repeated
            left = await changes.get()

    assert (appeared, left) == (ServiceStateChange.Added, ServiceStateChange.Removed)
    assert known
    assert (found.parsed_addresses(), found.port) == (["127.0.0.1"], 9999)
    assert found.properties == {b"path": b"/there"}
    assert len(transports) == 4  # each instance listens on one and answers on another
