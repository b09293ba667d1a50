"""Filter programs: checked, and rewritten so that they judge the same from another place."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from aiorecv._bpf import ALL, MAX_INSTRUCTIONS, Instruction, check_instructions, moved_to_udp, uncut
from aiorecv._filters import attach
from tests.bpf_machine import WrappedError, ip_view, run, udp_view

ACCEPT, REFUSE = Instruction(0x06, 0, 0, 100), Instruction(0x06, 0, 0, 0)
RETURN_A = Instruction(0x16, 0, 0, 0)

# Some programs are no programs to the kernel, or look where no packet can be.
many_misses = settings(suppress_health_check=[HealthCheck.filter_too_much])

_offsets = st.one_of(st.integers(0, 70), st.integers(0, 1100))
_numbers = st.one_of(st.integers(0, 70), st.integers(0, 2**32 - 1))
_words = st.integers(0, 13)


def plain(codes: list[int], k: st.SearchStrategy[int]) -> st.SearchStrategy[Instruction]:
    return st.builds(Instruction, st.sampled_from(codes), st.just(0), st.just(0), k)


_straight = st.one_of(
    plain([0x20, 0x28, 0x30, 0x40, 0x48, 0x50], _offsets),
    plain([0x80, 0x07, 0x87, 0x0C, 0x1C], st.just(0)),
    plain([0xB1], st.just(0)),
    plain([0x00, 0x01, 0x04, 0x14, 0x44, 0x54, 0xA4], _numbers),
    plain([0x54], st.just(0xFF)),
    plain([0x02, 0x03, 0x60, 0x61], _words),
)


@st.composite
def programs(
    draw: st.DrawFn, straight: st.SearchStrategy[Instruction] = _straight
) -> list[Instruction]:
    """Any that ends, with jumps to places ahead."""
    length = draw(st.integers(0, 60))
    program = [draw(straight) for _ in range(length)]
    for index in draw(st.lists(st.integers(0, max(0, length - 1)), max_size=8)):
        if length:
            ahead = st.integers(0, length - 1 - index)
            code = draw(st.sampled_from([0x05, 0x15, 0x25, 0x35, 0x45, 0x1D, 0x3D]))
            if code == 0x05:
                program[index] = Instruction(code, 0, 0, draw(ahead))
            else:
                program[index] = Instruction(code, draw(ahead), draw(ahead), draw(_numbers))
    return [*program, draw(st.sampled_from([ACCEPT, RETURN_A, REFUSE]))]


@st.composite
def datagrams(draw: st.DrawFn) -> tuple[bytes, int]:
    """An IP packet with a UDP datagram in it, and the length of its IP header."""
    payload = draw(st.binary(max_size=60)) + bytes(draw(st.sampled_from([0, 1000])))
    udp = draw(st.binary(min_size=8, max_size=8)) + payload
    if draw(st.booleans()):
        header = struct.pack("!IHBB", 0x60000000, len(udp), 17, 64) + draw(
            st.binary(min_size=32, max_size=32)
        )
    else:
        size = draw(st.sampled_from([20, 24, 60]))
        head = struct.pack("!BBH", 0x40 | size // 4, 0, size + len(udp))
        header = head + draw(st.binary(min_size=size - 4, max_size=size - 4))
    return header + udp, len(header)


@many_misses
@given(programs(), datagrams())
def test_a_moved_program_judges_a_datagram_as_it_judged_the_ip_packet(program, datagram):
    packet, header = datagram
    try:
        expected = run(program, ip_view(packet), len(packet))
    except WrappedError:
        assume(False)

    moved = moved_to_udp(program)

    assert run(moved, udp_view(packet, header), len(packet) - header) == expected


@given(programs(), datagrams())
def test_an_uncut_program_accepts_the_same_and_cuts_nothing(program, datagram):
    packet, header = datagram
    view, length = udp_view(packet, header), len(packet) - header

    returned = run(uncut(program), view, length)

    assert returned == (ALL if run(program, view, length) else 0)


@many_misses
@given(programs())
def test_what_the_kernel_takes_it_takes_rewritten(program):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            attach(sock, program)
        except ValueError:  # it reads memory that it has not written
            assume(False)

        attach(sock, uncut(moved_to_udp(program)))


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize(("loads", "others"), [(1, 0), *((20, n) for n in range(8, 24)), (200, 9)])
def test_jumps_still_lead_where_they_did_when_that_is_far_away(taken, loads, others):
    load, other = Instruction(0x40, 0, 0, 0), Instruction(0x07, 0, 0, 0)  # a dozen, and one
    skipped = [*[load] * loads, *[other] * others]
    skip = Instruction(0x15, len(skipped), len(skipped) + 1, 0 if taken else 1)
    program = [skip, *skipped, Instruction(0x06, 0, 0, 11), Instruction(0x06, 0, 0, 22)]

    moved = moved_to_udp(program)

    assert len(moved) > loads * 12 + others
    assert max(max(one.jt, one.jf) for one in moved) <= 0xFF
    packet = struct.pack("!BBH", 0x45, 0, 28) + bytes(24)
    assert run(moved, udp_view(packet, 20), 8) == (11 if taken else 22)


def test_a_program_that_becomes_too_long_is_refused():
    with pytest.raises(ValueError, match=r"filter needs \d+ instructions of 4096"):
        moved_to_udp([*[Instruction(0x40, 0, 0, 0)] * 400, ACCEPT])


def test_a_program_without_memory_to_spare_is_refused():
    program = [Instruction(0x02, 0, 0, word) for word in range(15)]

    with pytest.raises(ValueError, match="too complicated"):
        moved_to_udp([*program, ACCEPT])


@pytest.mark.parametrize("jump", [(0x05, 0, 0, 0xFFFFFFFE), (0x05, 0, 0, 9), (0x15, 9, 0, 0)])
def test_jumps_back_or_out_of_the_program_are_refused(jump):
    with pytest.raises(ValueError, match="jumps from instruction 0 back, or out"):
        uncut([Instruction(*jump), ACCEPT])


@pytest.mark.parametrize("code", [0xB1, 0x81])
def test_loads_that_can_not_be_moved_are_refused(code):
    with pytest.raises(ValueError, match="can't be moved"):
        moved_to_udp([Instruction(code, 0, 0, 30), ACCEPT])


def test_what_the_kernel_knows_of_a_packet_is_left_where_it_is():
    mark = Instruction(0x20, 0, 0, 0xFFFFF014)

    assert moved_to_udp([mark, ACCEPT]) == [mark, ACCEPT]


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ([], ValueError, "filter has 0 instructions: give from 1 to 4096"),
        ([(6, 0, 0, 1)] * (MAX_INSTRUCTIONS + 1), ValueError, "filter has 4097"),
        ([3], TypeError, r"filter\[0\]=3"),
        ([(6, 0, 0, 1), (6, 0, 0)], TypeError, r"filter\[1\]"),
        ([(6, 0, 0, 1.0)], TypeError, "k is an int"),
        ([(True, 0, 0, 1)], TypeError, "code is an int"),
        ([(0x10000, 0, 0, 1)], ValueError, "code is from 0 to 0xffff"),
        ([(6, 256, 0, 1)], ValueError, "jt is from 0 to 0xff"),
        ([(6, 0, -1, 1)], ValueError, "jf is from 0 to 0xff"),
        ([(6, 0, 0, 2**32)], ValueError, "k is from 0 to 0xffffffff"),
    ],
)
def test_what_is_no_program_is_refused(wrong, error, said):
    with pytest.raises(error, match=said):
        check_instructions(wrong)
