"""Multicast: joining and leaving, by group, interface and source."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import aiorecv
from tests.namespaces import add_address, add_veth, new_network


class Place(NamedTuple):
    """Where multicast is sent and received: addresses of one interface, and groups."""

    everywhere: str
    interface: str
    addresses: tuple[str, str]
    group: str
    other: str

    @property
    def number(self) -> int:
        return socket.if_nametoindex(self.interface)


IPV4 = Place("0.0.0.0", "lo", ("127.0.0.1", "127.0.0.2"), "239.7.0.1", "239.7.0.2")
IPV6 = Place("::", "mc0", ("fd00::1", "fd00::2"), "ff15::7:1", "ff15::7:2")


@pytest.fixture
def network() -> Iterator[None]:
    """A network with an interface that has two addresses of each family."""
    with new_network():
        add_veth("mc0", "mc1")
        for address in (*IPV6.addresses, "10.7.0.1"):
            add_address("mc0", address)
        add_address("mc0", "10.7.0.2", label="mc0:1")
        yield


@pytest.fixture(params=[IPV4, IPV6], ids=["ipv4", "ipv6"])
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = request.param
    # There is no way to an IPv6 group by lo.
    if chosen is IPV6:
        request.getfixturevalue("network")
    return chosen


def member(place: Place, group: str) -> socket.socket:
    """Somebody else on this host who has joined a group."""
    family = socket.AF_INET6 if ":" in group else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    packed = socket.inet_pton(family, group)
    if family == socket.AF_INET6:
        request = packed + place.number.to_bytes(4, "little")
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
    else:
        request = packed + socket.inet_aton(place.addresses[0])
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    return sock


def send(data: bytes, receiver: aiorecv.Receiver, place: Place, to: str, source: int = 0) -> None:
    """Send one packet, by the interface of ``place``; it is queued when this returns."""
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((place.addresses[source], 0))
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, place.number)
        else:
            interface = socket.inet_aton(place.addresses[0])
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
        sock.sendto(data, (to, receiver.socket.getsockname()[1]))


async def heard(receiver: aiorecv.Receiver, place: Place) -> list[bytes]:
    """What has come until now."""
    send(b"end", receiver, place, place.addresses[0])
    found: list[bytes] = []
    while b"end" not in found:
        with await receiver.receive() as batch:
            found += batch.payloads()
    return found[:-1]


@pytest.mark.parametrize("way", ["name", "index", "address", "second address"])
async def test_a_group_is_joined_by_the_name_index_or_address_of_an_interface(place, way):
    interface = {
        "name": place.interface,
        "index": place.number,
        "address": place.addresses[0],
        # Of lo any address will do, but it has only one.
        "second address": place.addresses[0 if place is IPV4 else 1],
    }[way]
    async with aiorecv.open_udp((place.everywhere, 0)) as receiver:
        receiver.join_multicast(place.group, interface)

        send(b"x", receiver, place, place.group)

        assert await heard(receiver, place) == [b"x"]


async def test_a_group_is_joined_by_an_address_that_an_alias_has(network):
    place = IPV4._replace(interface="mc0", addresses=("10.7.0.2", "10.7.0.1"))
    async with aiorecv.open_udp(("0.0.0.0", 0)) as receiver:
        receiver.join_multicast(place.group, "10.7.0.2")

        send(b"x", receiver, place, place.group)

        assert await heard(receiver, place) == [b"x"]


async def test_an_ipv4_group_is_heard_on_a_dual_stack_socket():
    async with aiorecv.open_udp(("::", 0)) as receiver:
        receiver.join_multicast(IPV4.group, "lo")

        send(b"x", receiver, IPV4, IPV4.group)

        with await receiver.receive() as batch:
            ((data, addr),) = batch
        assert isinstance(addr, tuple)
        assert (data, addr[0]) == (b"x", "::ffff:127.0.0.1")


@pytest.mark.parametrize("zone", ["mc0", "index"])
async def test_a_group_may_say_its_interface_itself(network, zone):
    name = f"ff02::7:3%{IPV6.number if zone == 'index' else zone}"
    async with aiorecv.open_udp(("::", 0)) as receiver:
        receiver.join_multicast(name)

        send(b"x", receiver, IPV6, "ff02::7:3")

        assert await heard(receiver, IPV6) == [b"x"]


async def test_without_an_interface_routes_choose_one(network):
    async with aiorecv.open_udp(("::", 0)) as receiver:
        receiver.join_multicast(IPV6.group)

        send(b"x", receiver, IPV6, IPV6.group)

        assert await heard(receiver, IPV6) == [b"x"]
        with pytest.raises(OSError, match="give interface=") as raised:
            receiver.join_multicast(IPV4.group)
        assert raised.value.errno == errno.ENODEV


async def test_groups_that_others_have_joined_are_kept_out(place):
    async with aiorecv.open_udp((place.everywhere, 0)) as receiver:
        with member(place, place.other):
            send(b"before", receiver, place, place.other)
            receiver.join_multicast(place.group, place.interface)

            send(b"others", receiver, place, place.other)
            send(b"ours", receiver, place, place.group)

            # Only "before" shows that somebody's group is heard where none is joined.
            assert await heard(receiver, place) == [b"before", b"ours"]


@pytest.mark.parametrize(("ours", "others"), [(IPV4, IPV6), (IPV6, IPV4)], ids=["ipv4", "ipv6"])
async def test_a_dual_stack_socket_keeps_out_groups_of_the_other_family(network, ours, others):
    async with aiorecv.open_udp(("::", 0)) as receiver:
        receiver.join_multicast(ours.group, ours.interface)

        with member(others, others.group):
            send(b"others", receiver, others, others.group)
            send(b"ours", receiver, ours, ours.group)

            assert await heard(receiver, ours) == [b"ours"]


async def test_a_group_is_heard_by_the_interface_it_was_joined_on_alone(network):
    wire = IPV4._replace(interface="mc0", addresses=("10.7.0.1", "10.7.0.2"))
    async with aiorecv.open_udp(("0.0.0.0", 0)) as receiver:
        receiver.join_multicast(wire.group, "mc0")

        with member(IPV4, IPV4.group):
            send(b"by lo", receiver, IPV4, IPV4.group)
            send(b"by mc0", receiver, wire, wire.group)

            assert await heard(receiver, wire) == [b"by mc0"]


async def test_a_group_that_was_left_is_not_heard(place):
    async with aiorecv.open_udp((place.everywhere, 0)) as receiver:
        receiver.join_multicast(place.group, place.interface)
        receiver.join_multicast(place.other, place.interface)
        receiver.leave_multicast(place.group, place.interface)

        with member(place, place.group):
            send(b"left", receiver, place, place.group)
            send(b"joined", receiver, place, place.other)

            assert await heard(receiver, place) == [b"joined"]


async def test_only_the_sources_that_were_joined_are_heard(place):
    first, second = place.addresses
    async with aiorecv.open_udp((place.everywhere, 0)) as receiver:
        receiver.join_multicast(place.group, place.interface, source=second)
        send(b"a stranger", receiver, place, place.group, source=0)
        send(b"second", receiver, place, place.group, source=1)

        receiver.join_multicast(place.group, place.interface, first)
        send(b"first", receiver, place, place.group, source=0)

        receiver.leave_multicast(place.group, place.interface, second)
        send(b"no more", receiver, place, place.group, source=1)
        send(b"first again", receiver, place, place.group, source=0)

        assert await heard(receiver, place) == [b"second", b"first", b"first again"]


def _limit(name: str) -> int:
    return int(Path("/proc/sys/net", name).read_text())


async def test_the_limit_of_groups_is_an_error_that_names_its_sysctl():
    limit = _limit("ipv4/igmp_max_memberships")
    async with aiorecv.open_udp(("0.0.0.0", 0)) as receiver:
        for number in range(limit):
            receiver.join_multicast(f"239.8.{number // 250}.{1 + number % 250}", "lo")

        with pytest.raises(OSError, match=r"net\.ipv4\.igmp_max_memberships") as raised:
            receiver.join_multicast("239.9.0.1", "lo")

    assert raised.value.errno == errno.ENOBUFS
    assert "239.9.0.1" in str(raised.value)


@pytest.mark.parametrize(
    ("place", "sysctl"),
    [(IPV4, "ipv4/igmp_max_msf"), (IPV6, "ipv6/mld_max_msf")],
    ids=["ipv4", "ipv6"],
    indirect=["place"],
)
async def test_the_limit_of_sources_is_an_error_that_names_its_sysctl(place, sysctl):
    limit = _limit(sysctl) if place is IPV4 else 64  # of the host, and not shown in a namespace
    source = "10.8.0.{}" if place is IPV4 else "fd08::{}"
    async with aiorecv.open_udp((place.everywhere, 0)) as receiver:
        for number in range(1, 1 + limit):
            receiver.join_multicast(place.group, place.interface, source.format(number))

        with pytest.raises(OSError, match=sysctl.rpartition("/")[2]) as raised:
            receiver.join_multicast(place.group, place.interface, source.format(limit + 1))

    assert raised.value.errno == errno.ENOBUFS


async def test_joining_twice_and_leaving_what_was_not_joined_are_errors(place):
    async with aiorecv.open_udp((place.everywhere, 0)) as receiver:
        receiver.join_multicast(place.group, place.interface)

        with pytest.raises(OSError, match=place.group) as twice:
            receiver.join_multicast(place.group, place.interface)
        with pytest.raises(OSError, match=place.other) as never:
            receiver.leave_multicast(place.other, place.interface)

    assert (twice.value.errno, never.value.errno) == (errno.EADDRINUSE, errno.EADDRNOTAVAIL)


@pytest.mark.parametrize("interface", ["nosuch0", "192.0.2.99", "2001:db8::99", 99_999])
async def test_an_interface_that_is_not_there_is_an_error_that_names_it(receiver, interface):
    with pytest.raises(OSError, match=f"interface='?{interface}") as raised:
        receiver.join_multicast(IPV4.group, interface)

    assert raised.value.errno == errno.ENODEV


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((0xEF070001,), TypeError, "group is an address"),
        (("example.org",), ValueError, "group='example.org' is no IPv4 or IPv6 address"),
        (("192.0.2.1",), ValueError, "group='192.0.2.1' is no multicast address"),
        (("fe80::1",), ValueError, "group='fe80::1' is no multicast address"),
        ((IPV4.group, 1.0), TypeError, "interface is a name"),
        ((IPV4.group, True), TypeError, "interface is a name"),
        ((IPV4.group, -1), ValueError, "interface=-1"),
        ((IPV4.group, "lo", 5), TypeError, "source is an address"),
        ((IPV4.group, "lo", "nobody"), ValueError, "source='nobody'"),
        ((IPV4.group, "lo", "::1"), ValueError, "two families"),
    ],
)
async def test_wrong_arguments_are_told(receiver, arguments, error, said):
    with pytest.raises(error, match=said):
        receiver.join_multicast(*arguments)
    with pytest.raises(error, match=said):
        receiver.leave_multicast(*arguments)


async def test_a_closed_receiver_joins_and_leaves_nothing(receiver):
    receiver.close()

    with pytest.raises(aiorecv.ReceiverClosedError):
        receiver.join_multicast(IPV4.group, "lo")
    with pytest.raises(aiorecv.ReceiverClosedError):
        receiver.leave_multicast(IPV4.group, "lo")


async def test_detach_lets_groups_of_others_in_again():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("", 0))
        receiver = aiorecv.from_socket(sock)
        receiver.join_multicast("239.7.7.7", "lo")
        assert not sock.getsockopt(socket.IPPROTO_IP, 49)  # IP_MULTICAST_ALL

        receiver.detach()

        assert sock.getsockopt(socket.IPPROTO_IP, 49)
