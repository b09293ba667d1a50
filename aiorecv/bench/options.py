"""Options that several benches have: what their values may be, and what is said of wrong ones."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A parser of numbers from ``least`` to ``most``, for argparse."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: give a number from {least} to {most}")
        return int(text)

    return parse


parse_count = whole_number(1, 1 << 20)
"""A parser of how many there shall be: at least one."""


def parse_pin(text: str) -> list[int]:
    """The CPUs of a receiver and of its sender, for argparse: ``0,1``, or ``0`` for both."""
    allowed = os.sched_getaffinity(0)
    found = [int(part) if part.isdecimal() else -1 for part in text.split(",")]
    if len(found) > 2 or not allowed.issuperset(found):
        here = ", ".join(map(str, sorted(allowed)))
        raise argparse.ArgumentTypeError(
            f"{text!r}: give one or two CPUs, as 0,1; this process may use {here}"
        )
    return [found[0], found[-1]]
