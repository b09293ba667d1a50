"""Destinations: what is made of the addresses that packets are sent to."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiorecv
from aiorecv._destinations import Destinations, encode
from aiorecv._native._core import ffi, lib
from tests.helpers import little_memory, open_source, read_batch, sockaddr
from tests.namespaces import add_veth, new_network, set_down
from tests.seam import Message, Seam, Step

PORTS = st.integers(0, 65_535)
WORDS = st.integers(0, 2**32 - 1)
IPV4 = st.ip_addresses(v=4).map(str)
IPV6 = st.ip_addresses(v=6).map(str)


def netlink(pid: int, groups: int) -> bytes:
    return struct.pack("=HxxII", socket.AF_NETLINK, pid, groups)


def unix(path: bytes) -> bytes:
    return struct.pack("=H", socket.AF_UNIX) + path


NAMES = st.one_of(
    st.builds(sockaddr, IPV4, PORTS),
    st.builds(sockaddr, IPV6, PORTS, WORDS, WORDS),
    st.builds(netlink, WORDS, WORDS),
    st.binary(max_size=107).map(lambda name: unix(b"\0" + name)),
    st.binary(min_size=1, max_size=107).filter(lambda path: b"\0" not in path).map(unix),
)


def addresses(*names: bytes) -> list[aiorecv.Address]:
    """What a receiver makes of these names."""
    with open_source(64) as source, Seam(source.core, 64) as seam:
        seam.play(Step([Message(b"x", name) for name in names]))
        batch = read_batch(source, len(names), False)
        assert batch is not None
        return list(batch.addresses())


def name_of(table: Destinations, number: int) -> bytes:
    entry = table.core.entries[number]
    return bytes(ffi.buffer(entry.name, entry.size))


@given(name=NAMES)
def test_an_answer_goes_to_the_very_name_that_asked(name):
    (family,) = struct.unpack_from("=H", name)
    (addr,) = addresses(name)

    assert encode(addr, family) == name


@pytest.mark.parametrize(
    ("addr", "family", "same"),
    [
        (("", 9), socket.AF_INET, sockaddr("0.0.0.0", 9)),
        (("<broadcast>", 9), socket.AF_INET, sockaddr("255.255.255.255", 9)),
        (("127.1", 9), socket.AF_INET, sockaddr("127.0.0.1", 9)),
        (("", 9), socket.AF_INET6, sockaddr("::", 9)),
        (("::1", 9), socket.AF_INET6, sockaddr("::1", 9)),
        (("::1", 9, 5), socket.AF_INET6, sockaddr("::1", 9, 5)),
        (("fe80::1", 9, 0, 7), socket.AF_INET6, sockaddr("fe80::1", 9, 0, 7)),
        (("fe80::1%lo", 9), socket.AF_INET6, sockaddr("fe80::1", 9, 0, 1)),
        (("fe80::1%lo", 9, 5), socket.AF_INET6, sockaddr("fe80::1", 9, 5, 1)),
        (("192.0.2.1", 9), socket.AF_INET6, sockaddr("::ffff:192.0.2.1", 9)),
        ("/tmp/é", socket.AF_UNIX, unix("/tmp/é".encode())),
        (b"\0a\0b", socket.AF_UNIX, unix(b"\0a\0b")),
        (None, socket.AF_NETLINK, netlink(0, 0)),
    ],
)
def test_forms_that_the_socket_module_takes_are_taken(addr, family, same):
    assert encode(addr, family) == same


@pytest.mark.parametrize(
    ("addr", "family"),
    [
        (("localhost", 9), socket.AF_INET),
        (("localhost", 9), socket.AF_INET6),
        (("::1", 9), socket.AF_INET),
        (("127.0.0.1\0.example", 9), socket.AF_INET),
        (("\udcff", 9), socket.AF_INET),
        (("fe80::1%nowhere", 9), socket.AF_INET6),
    ],
)
def test_a_host_that_is_no_number_is_refused_with_the_remedy(addr, family):
    with pytest.raises(ValueError, match=r"loop\.getaddrinfo\(\) looks a host name up"):
        encode(addr, family)


@pytest.mark.parametrize(
    ("addr", "family", "error", "said"),
    [
        (("127.0.0.1", 65_536), socket.AF_INET, ValueError, "from 0 to 65535"),
        (("127.0.0.1", -1), socket.AF_INET, ValueError, "from 0 to 65535"),
        (("::1", 9, 2**32), socket.AF_INET6, ValueError, "32 bits"),
        (("::1", 9, 0, -1), socket.AF_INET6, ValueError, "32 bits"),
        ((-1, 0), socket.AF_NETLINK, ValueError, "32 bits"),
        ("x" * 109, socket.AF_UNIX, ValueError, "at most 108 bytes"),
        (None, socket.AF_INET, ValueError, "say to whom"),
        (None, socket.AF_UNIX, ValueError, "say to whom"),
        (("127.0.0.1",), socket.AF_INET, TypeError, r"tuple \(host, port\)"),
        (("127.0.0.1", 9, 0, 0), socket.AF_INET, TypeError, r"tuple \(host, port\)"),
        ("127.0.0.1", socket.AF_INET, TypeError, r"tuple \(host, port\)"),
        ((b"127.0.0.1", 9), socket.AF_INET, TypeError, "host: str"),
        (("127.0.0.1", "9"), socket.AF_INET, TypeError, "port: int"),
        (("pid", 0), socket.AF_NETLINK, TypeError, "pid: int"),
        ((1,), socket.AF_NETLINK, TypeError, "no address of AF_NETLINK"),
        (9, socket.AF_UNIX, TypeError, "no address of AF_UNIX"),
    ],
)
def test_what_is_no_address_is_refused_and_said_why(addr, family, error, said):
    with pytest.raises(error, match=said):
        encode(addr, family)


def test_an_address_that_can_not_be_hashed_is_a_type_error_that_names_it():
    with pytest.raises(TypeError, match=r"not \['127.0.0.1', 9\]"):
        Destinations(socket.AF_INET).number(["127.0.0.1", 9])


def test_an_address_keeps_its_number_and_others_have_their_own():
    table = Destinations(socket.AF_INET)

    first, second, again = table.all([("127.0.0.1", 1), ("127.0.0.1", 2), ("127.0.0.1", 1)])

    assert first == again == table.number(("127.0.0.1", 1)) != second
    assert name_of(table, second) == sockaddr("127.0.0.1", 2)


def test_more_addresses_than_the_table_holds_have_right_names_in_every_send():
    table = Destinations(socket.AF_INET)
    chunk = lib.AIORECV_MAX_SENDS - 1  # so that one of them would cross the table's end
    peers = [(f"10.0.{number // 250}.1", 1 + number) for number in range(10_000)]
    most = 0

    for start in range(0, len(peers), chunk):
        part = peers[start : start + chunk]
        numbers = table.all(part)
        most = max(most, len(table.numbers))
        assert [name_of(table, number) for number in numbers] == [sockaddr(*p) for p in part]

    assert most <= lib.AIORECV_MAX_PEERS


def test_no_memory_for_a_table_is_told():
    with little_memory(64 << 10), pytest.raises(OSError, match="no memory for addr") as raised:
        Destinations(socket.AF_INET)

    assert raised.value.errno == errno.ENOMEM


def rename(interface: str, name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("@16s16s8x", interface.encode(), name.encode())
        fcntl.ioctl(sock, 0x8923, request)  # SIOCSIFNAME


def test_a_scope_by_name_is_that_of_whoever_has_the_name_now():
    table = Destinations(socket.AF_INET6)
    with new_network():
        add_veth("one", "two")
        index = socket.if_nametoindex("two")
        before = table.number(("fe80::1%one", 9))
        assert name_of(table, before) != sockaddr("fe80::1", 9, 0, index)
        for interface, name in (("one", "three"), ("two", "one")):
            set_down(interface)
            rename(interface, name)

        after = table.number(("fe80::1%one", 9))
        again = table.number(("fe80::1%one", 9))

    assert name_of(table, after) == sockaddr("fe80::1", 9, 0, index)
    assert again == after
