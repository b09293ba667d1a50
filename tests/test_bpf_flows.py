"""Programs that judge all datagrams of a train alike, told from those that may not."""

from __future__ import annotations

import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aiorecv._bpf import Instruction
from aiorecv._bpf_flows import judges_flows
from aiorecv._pcap import RAW_IP, compile_text
from tests.bpf_machine import WrappedError, ip_view, run
from tests.test_bpf import many_misses, plain, programs


def _op(code: int, k: int = 0, jt: int = 0, jf: int = 0) -> Instruction:
    return Instruction(code, jt, jf, k)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "udp",
        "ip",
        "ip6",
        "udp port 53",
        "src host 192.0.2.7",
        "host 192.0.2.7 or host 2001:db8::7",
        "src net 192.0.2.0/24 and udp dst portrange 1000-2000",
        "not src net 2001:db8::/32 and not port 53",
        "src port 53 or src port 5353 or dst host 10.0.0.1",
    ],
)
def test_addresses_protocols_and_ports_are_the_same_in_all_of_a_train(text):
    assert judges_flows(compile_text(text, RAW_IP))


@pytest.mark.parametrize(
    "text",
    [
        "udp[8] = 0x61",
        "udp port 53 and udp[8:2] = 1",
        "udp[4:2] > 20",
        "len > 100",
        "greater 100",
        "ip[2:2] > 100",
        "ip[4:2] = 7",
        "ip[28] = 0x61",
        "ip6[44] = 1",
        "ip6[4:2] > 20",
        "udp port 53 and less 100",
    ],
)
def test_lengths_and_payloads_are_not(text):
    assert not judges_flows(compile_text(text, RAW_IP))


def test_what_reaches_beyond_the_program_is_not_sure():
    assert not judges_flows([Instruction(0x15, 200, 0, 0), Instruction(6, 0, 0, 1)])


_MSH, _PORT, _RETURN = _op(0xB1), _op(0x48, 2), _op(0x16)
_VERSION = [_op(0x30), _op(0x54, 0xF0)]


@pytest.mark.parametrize(
    ("program", "alike"),
    [
        # The port of an IPv4 packet, of any packet, and from where X no longer says.
        ([*_VERSION, _op(0x15, 0x40, jf=2), _MSH, _PORT, _RETURN], True),
        ([_MSH, _PORT, _RETURN], False),
        ([*_VERSION, _op(0x15, 0x40, jf=3), _MSH, _op(0x07), _PORT, _RETURN], False),
        ([*_VERSION, _op(0x15, 0x40, jf=3), _op(0x45, 1, jt=1), _MSH, _PORT, _RETURN], False),
        # A byte of an IPv6 address, which is of the payload in IPv4: both ways come there, or one.
        ([*_VERSION, _op(0x15, 0x60, jf=1), _op(0x87), _op(0x30, 30), _RETURN], False),
        ([*_VERSION, _op(0x15, 0x60, jf=2), _op(0x87), _op(0x30, 30), _RETURN], True),
        (
            [*_VERSION, _op(0x15, 0x40, jt=1), _op(0x05, 1), _op(0x87), _op(0x30, 30), _RETURN],
            False,
        ),
        # No version any more.
        ([*_VERSION, _op(0x04, 1), _op(0x15, 0x60, jf=1), _op(0x30, 30), _RETURN], False),
    ],
)
def test_what_is_known_is_what_every_way_there_says(program, alike):
    assert judges_flows(program) is alike


def _trains() -> st.SearchStrategy[list[bytes]]:
    """Two IP packets of one flow, different in all that GRO lets differ."""
    words = st.binary(min_size=12, max_size=12)
    return st.builds(
        _packets,
        st.sampled_from([4, 6]),
        st.sampled_from([5, 6, 15]),
        st.binary(min_size=100, max_size=100),
        st.lists(st.tuples(words, st.binary(max_size=30)), min_size=2, max_size=2),
    )


def _packets(
    version: int, words: int, common: bytes, different: list[tuple[bytes, bytes]]
) -> list[bytes]:
    found = []
    for other, payload in different:
        if version == 4:
            head = struct.pack("!BB", 0x40 | words, common[0]) + other[:4] + common[1:5]
            head += other[4:6] + common[5:13] + common[20 : 4 * words]
        else:
            head = b"\x60" + common[:3] + other[:2] + common[3:37]
        found.append(head + common[60:64] + other[6:10] + payload)
    return found


# Mostly of what a flow has in common.
_straight = st.one_of(
    plain([0x20], st.sampled_from([6, 8, 12, 16, 20, 24, 36, 40])),
    plain([0x28, 0x30], st.sampled_from([0, 6, 8, 9, 12, 18, 30, 40, 42, 43])),
    plain([0x40, 0x48, 0x50], st.sampled_from([0, 2])),
    plain([0xB1, 0x07, 0x87, 0x0C], st.just(0)),
    plain([0x00, 0x01, 0x04, 0x54], st.integers(0, 255)),
    plain([0x02, 0x03, 0x60, 0x61], st.integers(0, 3)),
)


@many_misses
@given(programs(_straight), _trains(), st.sampled_from([None, 0x40, 0x60]))
def test_what_is_said_to_judge_alike_does(program, train, version):
    if version is not None:
        program = [*_VERSION, _op(0x15, version, jf=len(program) - 1), *program]
    assume(judges_flows(program))

    try:
        one, other = (run(program, ip_view(packet), 0) for packet in train)
    except WrappedError:
        assume(False)

    assert one == other
