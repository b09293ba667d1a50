"""Filter programs in the kernel's classic instructions (BPF): checked, and rewritten for a socket.

Numbers in, numbers out: touches no socket.

Source: Documentation/networking/filter.rst and uapi/linux/filter.h in Linux.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS
ALL = 0xFFFFFFFF  # bytes: what a program returns that cuts nothing

# Classes, sizes and modes of an instruction's code.
_CLASS, _LD, _LDX, _ST, _STX, _JMP, _RET = 0x07, 0, 1, 2, 3, 5, 6
_SIZE, _HALF, _BYTE = 0x18, 0x08, 0x10
_SIZES = {0: 4, _HALF: 2, _BYTE: 1}  # bytes
_MODE, _ABS, _IND, _MEM, _LEN, _MSH = 0xE0, 0x20, 0x40, 0x60, 0x80, 0xA0
_LDX_IMM, _LD_IMM, _LDX_LEN = _LDX, _LD, _LDX | _LEN
_RET_K, _RET_A = 0x06, 0x16
_JA, _JEQ_K, _JGT_K, _JGE_X, _JSET_K = 0x05, 0x15, 0x25, 0x3D, 0x45
_ADD_K, _SUB_X = 0x04, 0x1C
_TAX, _TXA = 0x07, 0x87
_MEMORY_WORDS = 16  # BPF_MEMWORDS

# Loads from here on are of the IP header on, or of what the kernel knows of the packet: filter.h.
_NET_OFFSET = 0x100000000 - 0x100000  # SKF_NET_OFF
# An IPv4 header and a UDP header; the kernel has as much in one piece, where such loads can reach.
_CONNECTED = 28


class Instruction(NamedTuple):
    """One instruction, ``struct sock_filter``."""

    code: int
    jt: int
    jf: int
    k: int


Program = list[Instruction]

_BOUNDS = Instruction(0xFFFF, 0xFF, 0xFF, 0xFFFFFFFF)


def check_instructions(given: Sequence[object]) -> Program:
    """``given`` as a program.

    Raises:
        TypeError: If something in it is no instruction.
        ValueError: If a number is out of bounds, or there are too few or too many instructions.
    """
    if not 1 <= len(given) <= MAX_INSTRUCTIONS:
        raise ValueError(f"filter has {len(given)} instructions: give from 1 to {MAX_INSTRUCTIONS}")
    return [_check_instruction(index, one) for index, one in enumerate(given)]


def _check_instruction(index: int, given: object) -> Instruction:
    where = f"filter[{index}]={given!r}"
    if not isinstance(given, tuple | list) or len(given) != 4:
        raise TypeError(f"{where}: an instruction is a tuple (code, jt, jf, k)")
    for name, value, most in zip(Instruction._fields, given, _BOUNDS, strict=True):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{where}: {name} is an int")
        if not 0 <= value <= most:
            raise ValueError(f"{where}: {name} is from 0 to {most:#x}")
    return Instruction(*given)


def uncut(program: Program) -> Program:
    """A program that accepts the same packets, and cuts none.

    Outside packet sockets nobody is told that a program has cut a packet.
    """
    return _join(program, [_uncut(one) for one in program])


def _uncut(one: Instruction) -> Program:
    if one.code == _RET_K:
        return [_op(_RET_K, ALL if one.k else 0)]
    if one.code == _RET_A:
        return [Instruction(_JEQ_K, 0, 1, 0), _op(_RET_K, 0), _op(_RET_K, ALL)]
    return [one]


def moved_to_udp(program: Program) -> Program:
    """A program for UDP sockets that judges as ``program`` does when given the packet from its IP
    header on.

    On UDP sockets a program is given the packet from its UDP header on. What lies before that can
    be had by offsets of its own, SKF_NET_OFF and up, but these reach no further than the packet is
    in one piece, which a large one is not. So a load chooses, by the length of the IP header,
    which ``len`` and the header itself tell.

    Raises:
        ValueError: If that can't be done.
    """
    used = {one.k for one in program if _uses_memory(one)}
    free = [word for word in range(_MEMORY_WORDS) if word not in used]
    if len(free) < 2:
        raise ValueError("filter is too complicated: it leaves no memory to judge by")
    mover = _Mover(*free[:2])
    blocks = [mover.move(one) for one in program]
    if mover.has_measured:
        program = [_op(_LD_IMM, 0), *program]
        blocks.insert(0, mover.measure())
    return _join(program, blocks)


class _Mover:
    """Moves loads. ``header`` and ``saved`` are words of memory that the program has no use for."""

    def __init__(self, header: int, saved: int) -> None:
        self._header = header
        self._saved = saved
        self.has_measured = False

    def measure(self) -> Program:
        """Put the length of the IP header into memory."""
        return [
            *_TOTAL_LENGTH,
            _op(_LDX_LEN),
            _op(_SUB_X),
            _op(_ST, self._header),
            _op(_LDX_IMM, 0),  # a program starts with both registers 0
            _op(_LD_IMM, 0),
        ]

    def move(self, one: Instruction) -> Program:
        """What stands in the place of one instruction."""
        kind, mode = one.code & _CLASS, one.code & _MODE
        if kind == _LD and mode == _ABS:
            return self._absolute(one)
        if kind == _LD and mode == _IND:
            return self._indirect(one)
        if kind == _LD and mode == _LEN:
            return list(_TOTAL_LENGTH)
        if kind == _LDX and mode == _MSH and one.k < _CONNECTED:
            return [one._replace(k=one.k + _NET_OFFSET)]
        if kind == _LDX and mode in (_MSH, _LEN):
            raise ValueError(f"filter compiles to {one}, which can't be moved")
        return [one]

    def _absolute(self, one: Instruction) -> Program:
        if one.k >= _NET_OFFSET:  # what the kernel knows of the packet
            return [one]
        early = one._replace(k=one.k + _NET_OFFSET)
        if one.k + _SIZES[one.code & _SIZE] <= _CONNECTED:
            return [early]
        self.has_measured = True
        return [
            _op(_LD | _MEM, self._header),
            Instruction(_JGT_K, 0, 2, one.k),
            early,
            _op(_JA, 7),
            _op(_STX, self._saved),
            _op(_TAX),
            _op(_LD_IMM, one.k),
            _op(_SUB_X),
            _op(_TAX),
            _op(_at_x(one)),
            _op(_LDX | _MEM, self._saved),
        ]

    def _indirect(self, one: Instruction) -> Program:
        self.has_measured = True
        return [
            _op(_STX, self._saved),
            _op(_TXA),
            _op(_ADD_K, one.k),
            _op(_LDX | _MEM, self._header),
            Instruction(_JGE_X, 3, 0, 0),
            _op(_TAX),
            _op(_at_x(one), _NET_OFFSET),
            _op(_JA, 3),
            _op(_SUB_X),
            _op(_TAX),
            _op(_at_x(one)),
            _op(_LDX | _MEM, self._saved),
        ]


def _op(code: int, k: int = 0) -> Instruction:
    return Instruction(code, 0, 0, k)


def _at_x(load: Instruction) -> int:
    """The code that loads as much as ``load`` does, from where X says."""
    return _LD | _IND | load.code & _SIZE


# The length of the IP packet, by its header: of IPv6, which the second bit of the version tells,
# without the 40 bytes of the fixed part.
_TOTAL_LENGTH = (
    _op(_LD | _ABS | _BYTE, _NET_OFFSET),
    Instruction(_JSET_K, 0, 3, 0x20),
    _op(_LD | _ABS | _HALF, _NET_OFFSET + 4),
    _op(_ADD_K, 40),
    _op(_JA, 1),
    _op(_LD | _ABS | _HALF, _NET_OFFSET + 2),
)


def _uses_memory(one: Instruction) -> bool:
    kind = one.code & _CLASS
    return kind in (_ST, _STX) or (kind in (_LD, _LDX) and one.code & _MODE == _MEM)


def _join(program: Program, blocks: list[Program]) -> Program:
    """A program of ``blocks``, of which each stands in the place of one instruction.

    A block ends at its end or by a return. Conditional jumps reach 255 instructions; those whose
    targets have gone further away than that are helped by unconditional ones.

    Raises:
        ValueError: If it becomes too long, or jumps backwards or out of itself.
    """
    far: set[int] = set()
    while True:
        sizes = [3 if index in far else len(block) for index, block in enumerate(blocks)]
        starts = [0, *accumulate(sizes)]
        if starts[-1] > MAX_INSTRUCTIONS:
            raise ValueError(f"filter needs {starts[-1]} instructions of {MAX_INSTRUCTIONS}")
        joined: Program = []
        too_far = set()
        for index, (one, block) in enumerate(zip(program, blocks, strict=True)):
            if one.code & _CLASS != _JMP:
                joined += block
                continue
            ways = [_target(starts, index, jump) - starts[index] - 1 for jump in _jumps(one)]
            if one.code != _JA and index not in far and max(ways) > 0xFF:
                too_far.add(index)
            joined += _jump(one, ways, index in far)
        if not too_far:
            return joined
        far |= too_far


def _jumps(one: Instruction) -> tuple[int, ...]:
    return (one.k,) if one.code == _JA else (one.jt, one.jf)


def _target(starts: list[int], index: int, jump: int) -> int:
    target = index + 1 + jump
    if target >= len(starts) - 1:
        raise ValueError(f"filter jumps from instruction {index} back, or out of the program")
    return starts[target]


def _jump(one: Instruction, ways: list[int], far: bool) -> Program:
    if one.code == _JA:
        return [one._replace(k=ways[0])]
    if far:
        return [one._replace(jt=0, jf=1), _op(_JA, ways[0] - 1), _op(_JA, ways[1] - 2)]
    return [one._replace(jt=ways[0], jf=ways[1])]
