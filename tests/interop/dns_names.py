"""The names that the DNS tests ask for, numbered, and what there is at each."""

from __future__ import annotations

import ipaddress

NAMES = 10_000
ORIGIN = "example.test."


def name_of(number: int) -> str:
    return f"host{number}.{ORIGIN}"


def exists(number: int) -> bool:
    """Whether there is such a host: each tenth is missing."""
    return number % 10 != 9


def address_of(number: int) -> str:
    return str(ipaddress.IPv4Address("10.0.0.0") + number)
