"""pysnmp's command responder and notification receiver, against its own manager and agent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from pysnmp.carrier.asyncio.dgram import udp
from pysnmp.entity import config
from pysnmp.entity.rfc3413 import cmdrsp, context, ntfrcv
from pysnmp.hlapi.v3arch.asyncio import (
    CommunityData,
    ContextData,
    NotificationType,
    ObjectIdentity,
    ObjectType,
    OctetString,
    SnmpEngine,
    UdpTransportTarget,
    get_cmd,
    send_notification,
)

READ_ALL = (1, 3, 6)
SYSTEM_DESCRIPTION = "1.3.6.1.2.1.1.1.0"
SYSTEM_NAME = "1.3.6.1.2.1.1.5.0"
COLD_START = "1.3.6.1.6.3.1.1.5.1"
PUBLIC = CommunityData("public", mpModel=1)

# Seconds until a trap that does not come fails the test.
PATIENCE = 10.0


@contextlib.contextmanager
def listening() -> Iterator[tuple[SnmpEngine, int]]:
    """An engine that hears a port of ``127.0.0.1`` and knows the community ``public``; the port."""
    engine = SnmpEngine()
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    config.add_transport(engine, udp.DOMAIN_NAME, udp.UdpTransport().open_server_mode(sock=sock))
    config.add_v1_system(engine, "area", "public")
    yield engine, port
    engine.close_dispatcher()


@pytest.fixture
async def manager(transports) -> AsyncIterator[SnmpEngine]:
    """An engine that asks and tells others."""
    engine = SnmpEngine()
    yield engine
    engine.close_dispatcher()


@pytest.fixture
async def agent(transports) -> AsyncIterator[int]:
    """The port of a command responder that lets everybody read everything."""
    with listening() as (engine, port):
        config.add_vacm_user(engine, 2, "area", "noAuthNoPriv", READ_ALL)
        cmdrsp.GetCommandResponder(engine, context.SnmpContext(engine))
        yield port


async def test_a_manager_gets_what_the_agent_has(manager, agent, transports):
    target = await UdpTransportTarget.create(("127.0.0.1", agent))
    asked = ObjectType(ObjectIdentity(SYSTEM_DESCRIPTION))

    failure, status, _, bindings = await get_cmd(manager, PUBLIC, target, ContextData(), asked)

    assert not failure
    assert not status
    ((name, value),) = bindings
    assert str(name) == SYSTEM_DESCRIPTION
    assert value.prettyPrint().startswith("PySNMP engine")
    assert len(transports) == 2  # the agent's and the manager's


async def test_a_manager_learns_what_the_agent_has_not(manager, agent):
    target = await UdpTransportTarget.create(("127.0.0.1", agent))
    asked = ObjectType(ObjectIdentity("1.3.6.1.4.1.99999.1.0"))

    failure, _, _, bindings = await get_cmd(manager, PUBLIC, target, ContextData(), asked)

    assert not failure
    ((_, value),) = bindings
    assert value.prettyPrint() == "No Such Object currently exists at this OID"


async def test_a_trap_arrives_whole(manager, transports):
    arrived = asyncio.get_running_loop().create_future()

    def notified(engine, reference, engine_id, context_name, bindings, told) -> None:
        arrived.set_result({str(name): value.prettyPrint() for name, value in bindings})

    with listening() as (receiver, port):
        ntfrcv.NotificationReceiver(receiver, notified)
        target = await UdpTransportTarget.create(("127.0.0.1", port))
        told = NotificationType(ObjectIdentity(COLD_START))
        told.add_varbinds((SYSTEM_NAME, OctetString("a name")))
        failure, *_ = await send_notification(manager, PUBLIC, target, ContextData(), "trap", told)
        bindings = await asyncio.wait_for(arrived, PATIENCE)

    assert not failure
    assert bindings[SYSTEM_NAME] == "a name"
    assert COLD_START in bindings.values()
    assert len(transports) == 2  # the receiver's and the manager's
