"""A machine for filter programs, as the kernel's: what a test holds rewritten programs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Load = Callable[[int, int], int | None]
NET_OFFSET = -0x100000
_WORD = 0xFFFFFFFF


class WrappedError(Exception):
    """An offset went beyond what a packet could have."""


def run(program: Sequence[tuple[int, int, int, int]], load: Load, length: int) -> int:
    """What ``program`` returns; ``load`` gives so many bytes from an offset, or None.

    Knows what the tests make: not every instruction.
    """
    a = x = at = 0
    memory = [0] * 16
    while True:
        code, jt, jf, k = program[at]
        at += 1
        kind, operand = code & 7, x if code & 8 else k
        if code in (0x20, 0x28, 0x30, 0x40, 0x48, 0x50):  # ld of the packet
            offset = k if code & 0xE0 == 0x20 else (x + k) & _WORD
            value = load(_signed(offset), {0: 4, 8: 2, 0x10: 1}[code & 0x18])
            if value is None:
                return 0
            a = value
        elif code == 0xB1:  # ldx 4 * (packet[k] & 15)
            value = load(_signed(k), 1)
            if value is None:
                return 0
            x = 4 * (value & 15)
        elif code in (0x00, 0x60, 0x80):
            a = {0x00: k, 0x60: memory[k & 15], 0x80: length}[code]
        elif code in (0x01, 0x61, 0x81):
            x = {0x01: k, 0x61: memory[k & 15], 0x81: length}[code]
        elif code in (0x02, 0x03):
            memory[k] = a if code == 0x02 else x
        elif kind == 4:
            a = _calculate(code & 0xF0, a, operand)
        elif code == 0x05:
            at += k
        elif kind == 5:
            tests = {0x10: a == operand, 0x20: a > operand, 0x30: a >= operand, 0x40: a & operand}
            at += jt if tests[code & 0xF0] else jf
        elif kind == 6:
            return a if code & 0x10 else k
        elif code in (0x07, 0x87):
            a, x = (a, a) if code == 0x07 else (x, x)
        else:
            raise AssertionError(f"unknown: {code:#x}")


def _calculate(operation: int, a: int, b: int) -> int:
    results = {0x00: a + b, 0x10: a - b, 0x40: a | b, 0x50: a & b, 0xA0: a ^ b}
    return results[operation] & _WORD


def _signed(offset: int) -> int:
    return offset - 2**32 if offset >= 2**31 else offset


def ip_view(packet: bytes) -> Load:
    """Loads as libpcap means them: from the IP header on."""

    def load(offset: int, size: int) -> int | None:
        if offset < 0:
            raise WrappedError
        data = packet[offset : offset + size]
        return int.from_bytes(data, "big") if len(data) == size else None

    return load


def udp_view(packet: bytes, header: int) -> Load:
    """Loads as a UDP socket's program has them: from the UDP header on, and what lies before by
    negative offsets, of which no more is in one piece than the headers."""

    def load(offset: int, size: int) -> int | None:
        data = packet[header:] if offset >= 0 else packet[: header + 8]
        if offset < 0:
            offset -= NET_OFFSET
        if not 0 <= offset <= len(data) - size:
            return None
        return int.from_bytes(data[offset : offset + size], "big")

    return load
