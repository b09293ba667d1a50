"""Network namespaces for tests, which ordinary users can't make: theirs are skipped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from aiorecv.bench import networks
from aiorecv.bench.networks import add_address, add_veth, remove, rename, set_down, set_up

__all__ = ["add_address", "add_veth", "new_network", "remove", "rename", "set_down", "set_up"]


@contextlib.contextmanager
def new_network() -> Iterator[None]:
    """The calling thread is in a network namespace of its own, in which ``lo`` is up."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a network namespace")
    with networks.new_network():
        yield
