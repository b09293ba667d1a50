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
from tests.test_bpf import programs


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


_VERSION = [Instruction(0x30, 0, 0, 0), Instruction(0x54, 0, 0, 0xF0)]


@given(programs(), _trains(), st.booleans())
def test_what_is_said_to_judge_alike_does(program, train, by_version):
    if by_version:
        program = [*_VERSION, Instruction(0x15, 0, len(program) - 1, 0x60), *program]
    assume(judges_flows(program))

    try:
        one, other = (run(program, ip_view(packet), 0) for packet in train)
    except WrappedError:
        assume(False)

    assert one == other
