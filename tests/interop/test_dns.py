"""An authoritative server made of dnspython's messages and zones, against its own resolver."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import dns.asyncresolver
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.zone
import pytest

from tests.interop.dns_names import NAMES, ORIGIN, address_of, exists, name_of

ZONE = f"""\
$ORIGIN {ORIGIN}
$TTL 300
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
ns A 127.0.0.1
long TXT {" ".join(f'"{number:0200}"' for number in range(18))}
"""


class Authority(asyncio.DatagramProtocol):
    """Answers from one zone, and counts what it was asked."""

    def __init__(self, zone: dns.zone.Zone) -> None:
        self.zone = zone
        self.asked = 0

    def connection_made(self, transport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked += 1
        query = dns.message.from_wire(data)
        self.transport.sendto(self.answer(query).to_wire(), addr)

    def answer(self, query: dns.message.Message) -> dns.message.Message:
        reply = dns.message.make_response(query, our_payload=4096)
        reply.flags |= dns.flags.AA
        (question,) = query.question
        found = self.zone.get_rrset(question.name, question.rdtype)
        if found is not None:
            reply.answer.append(found)
            return reply
        if self.zone.get_node(question.name) is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        reply.authority.append(self.zone.find_rrset(ORIGIN, dns.rdatatype.SOA))
        return reply


@pytest.fixture(scope="module")
def zone() -> dns.zone.Zone:
    hosts = (f"host{n} A {address_of(n)}\n" for n in range(NAMES) if exists(n))
    return dns.zone.from_text(ZONE + "".join(hosts), relativize=False)


@pytest.fixture
async def authority(transports, zone) -> AsyncIterator[Authority]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: Authority(zone), local_addr=("127.0.0.1", 0)
    )
    yield protocol
    transport.close()


@pytest.fixture
def resolver(authority) -> dns.asyncresolver.Resolver:
    """A resolver that asks the authority, on the same loop: its endpoints are ours too."""
    made = dns.asyncresolver.Resolver(configure=False)
    made.nameservers = ["127.0.0.1"]
    made.port = port_of(authority)
    made.use_edns(0, payload=4096)
    made.lifetime = 30.0
    return made


async def test_ten_thousand_queries_are_answered_each_once_and_right(authority):
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tests.interop.dns_client", str(port_of(authority))],
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()

    assert process.returncode == 0
    assert json.loads(printed) == {"answers": 9_000, "denials": 1_000}
    assert authority.asked == NAMES


async def test_a_resolver_finds_an_answer_longer_than_512_bytes(resolver, transports):
    answer = await resolver.resolve(f"long.{ORIGIN}", "TXT")

    (record,) = answer
    assert [int(text) for text in record.strings] == list(range(18))
    assert len(transports) == 2  # the server's and the resolver's


async def test_a_resolver_learns_what_there_is_not(resolver):
    with pytest.raises(dns.resolver.NXDOMAIN):
        await resolver.resolve(name_of(9), "A")
    with pytest.raises(dns.resolver.NoAnswer):
        await resolver.resolve(name_of(8), "AAAA")


def port_of(authority: Authority) -> int:
    _, port = authority.transport.get_extra_info("sockname")
    return int(port)
