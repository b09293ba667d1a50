"""One suite on loops of one kind, with the loop's own transport and with ours, side by side."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import attrs

EXCUSED = Path(__file__).with_name("excused.toml")
ROOT = Path(__file__).parents[2]


@attrs.frozen
class Outcomes:
    """What came of the tests of one run, as ``tests.interop.child`` tells it."""

    tests: Mapping[str, str]
    """``passed``, ``skipped`` or a traceback, by the test's id."""

    transports: Mapping[str, int]
    """How many datagram transports were ``made``, and how many of them are ``ours``."""

    loss: Mapping[str, int]
    """How many packets our send path was handed in a test of loss: ``sent`` and ``lost``."""

    @property
    def passed(self) -> set[str]:
        """The ids of the tests that passed."""
        return {test for test, outcome in self.tests.items() if outcome == "passed"}

    @property
    def failed(self) -> set[str]:
        """The ids of the tests that ran and did not pass."""
        return {
            test for test, outcome in self.tests.items() if outcome not in ("passed", "skipped")
        }


@attrs.frozen
class Comparison:
    """The same tests with the loop's own transport and with ours."""

    stock: Outcomes
    ours: Outcomes
    excused: Mapping[str, str]
    """Why a test may fail with ours alone, by its id."""

    def problems(self) -> list[str]:
        """What must not be: a failure that is ours alone, and an excuse for none; empty if well."""
        ours_alone = self.stock.passed - self.ours.passed
        ours = self.ours.tests
        alone = [
            f"{test} passes with the loop's own transport, with ours not:\n{ours.get(test)}"
            for test in sorted(ours_alone - self.excused.keys())
        ]
        stale = [
            f"{test} is excused in {EXCUSED.name}, but does not fail with our transport alone"
            for test in sorted(self.excused.keys() - ours_alone)
        ]
        return alone + stale


def compare(suite: str, base: str, sources: Path) -> Comparison:
    """Run a suite of ``child.SUITES`` on loops of a base of ``loops.BASES``, both ways.

    Raises:
        subprocess.CalledProcessError: A run broke down.
        subprocess.TimeoutExpired: A run hangs.
    """
    stock, ours = (_run(suite, base, transport, sources) for transport in ("stock", "ours"))
    return Comparison(stock, ours, excused(suite, base))


def excused(suite: str, base: str) -> dict[str, str]:
    """Why tests of a suite may fail with our transport alone, by id, on loops of one base."""
    return {
        test: entry["reason"]
        for entry in tomllib.loads(EXCUSED.read_text())["excused"]
        if entry["suite"] == suite and base in entry["loops"]
        for test in entry["tests"]
    }


def _run(suite: str, base: str, transport: str, sources: Path) -> Outcomes:
    command = [sys.executable, "-m", "tests.interop.child", suite, base, transport, str(sources)]
    # What goes wrong is told by its standard error; a run takes some 20 seconds.
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=300)
    return Outcomes(**json.loads(ran.stdout))
