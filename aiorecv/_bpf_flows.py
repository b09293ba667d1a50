"""Whether a filter program looks at nothing but what all datagrams of a train have in common.

Then a train (GRO) may be judged as one datagram. Numbers in, an answer out.
"""

from __future__ import annotations

from typing import NamedTuple

from aiorecv._bpf import Program

# What GRO wants to be equal, as far as it is useful here, in bytes of the IP packet: the version,
# fragment and protocol fields, addresses and ports. Not lengths, identification and checksums.
# Source: inet_gro_receive and ipv6_gro_receive in Linux, udp_gro_receive for the ports.
_EQUAL = {
    4: {0, *range(6, 10), *range(12, 20)},
    6: {0, *range(6, 44)},
}
_BOTH = frozenset(_EQUAL)
_PORTS = range(4)  # behind the IP header

_SIZES = {0: 4, 0x08: 2, 0x10: 1}
_LD_ABS_B, _AND_K, _JEQ_K, _MSH = 0x30, 0x54, 0x15, 0xB1


class _Known(NamedTuple):
    """What is sure before an instruction."""

    versions: frozenset[int] = _BOTH
    accumulator: str = ""
    """``first``: the first byte of the packet; ``version``: the upper half of that."""
    index_is_header: bool = False
    """X is the length of an IPv4 header."""


def judges_flows(program: Program) -> bool:
    """Whether ``program``, given a packet from its IP header on, judges all of a flow alike.

    False if that is not sure.
    """
    known: list[_Known | None] = [_Known(), *[None] * len(program)]
    for index, (code, jt, jf, k) in enumerate(program):
        here = known[index]
        if here is None:  # nothing leads here
            continue
        if not _looks_at_flow(here, code, k):
            return False
        if code & 0x07 == 0x05:
            ways = _branches(here, code, jt, jf, k)
        elif code & 0x07 == 0x06:
            ways = []
        else:
            ways = [(0, _after(here, code, k))]
        for jump, then in ways:
            target = index + 1 + jump
            if target >= len(program):
                return False
            known[target] = _both(known[target], then)
    return True


def _looks_at_flow(here: _Known, code: int, k: int) -> bool:
    kind, mode = code & 0x07, code & 0xE0
    if kind in (0, 1) and mode == 0x80:  # len
        return False
    if kind == 1:
        return mode != 0xA0 or k == 0
    if kind != 0 or mode not in (0x20, 0x40):
        return True
    wanted = range(k, k + _SIZES[code & 0x18])
    if mode == 0x40:
        ports = here.index_is_header and here.versions == {4}
        return ports and set(wanted) <= set(_PORTS)
    return all(set(wanted) <= _EQUAL[version] for version in here.versions)


def _branches(here: _Known, code: int, jt: int, jf: int, k: int) -> list[tuple[int, _Known]]:
    if code == 0x05:
        return [(k, here)]
    version = k >> 4
    if here.accumulator == "version" and code == _JEQ_K and k in (0x40, 0x60):
        yes = here._replace(versions=here.versions & {version})
        no = here._replace(versions=here.versions - {version})
        return [(jump, way) for jump, way in ((jt, yes), (jf, no)) if way.versions]
    return [(jt, here), (jf, here)]


def _after(here: _Known, code: int, k: int) -> _Known:
    if code == _LD_ABS_B and k == 0:
        return here._replace(accumulator="first")
    if code == _AND_K and k == 0xF0 and here.accumulator == "first":
        return here._replace(accumulator="version")
    if code == _MSH:
        return here._replace(index_is_header=True)
    kind = code & 0x07
    if kind in (2, 3):  # st, stx
        return here
    if code == 0x07 or kind == 1:  # tax, ldx
        return here._replace(index_is_header=False)
    return here._replace(accumulator="")


def _both(one: _Known | None, other: _Known) -> _Known:
    """What is sure, whichever way was taken."""
    if one is None:
        return other
    return _Known(
        one.versions | other.versions,
        one.accumulator if one.accumulator == other.accumulator else "",
        one.index_is_header and other.index_is_header,
    )
