"""``aiorecv bench``: its benches by name, how a run is shown, and where it is kept."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aiorecv.bench.drains import CountError
from aiorecv.bench.report import ReportError, Run

BENCHES = ("sink", "dispatchers", "memory", "bulk", "headers", "startup", "window")
"""Modules of ``aiorecv.bench``, with ``SUMMARY``, ``add_arguments``, ``measure`` and ``tables``."""

COMPARE = "compare"
"""The one that measures nothing; its module has ``compare`` in the place of ``measure``."""

_DESCRIPTION = "Measure, on this machine, and compare what was measured."


def run(argv: Sequence[str]) -> int:
    """Do what ``argv``, all that follows ``aiorecv bench``, asks for; returns the exit status."""
    parser = _make_parser(argv)
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(argv)
    name = arguments.bench
    for package in ("rich", "scipy") if name == COMPARE else ("rich",):
        if not find_spec(package):
            remedy = f"needs {package}: pip install 'aiorecv[bench]'"
            print(f"aiorecv bench {name} {remedy}", file=sys.stderr)
            return 2
    try:
        if name == COMPARE:
            _show(arguments.module.compare(arguments))
        else:
            _measure(arguments, shlex.join(["aiorecv", "bench", *argv]))
    except (CountError, ReportError) as error:
        print(f"aiorecv bench {name}: {error}", file=sys.stderr)
        return 1
    return 0


def _measure(arguments: argparse.Namespace, command: str) -> None:
    """Run a bench; its samples are kept before they are shown, as they took a while."""
    measured: Run = arguments.module.measure(arguments, command)
    if arguments.json is not None:
        measured.save(arguments.json)
    _show(arguments.module.tables(measured))


def _show(tables: Any) -> None:
    from aiorecv.cli.tables import show

    show(tables)


def _make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The command line of the bench that ``argv`` names; of all, if it names none."""
    parser = argparse.ArgumentParser("aiorecv bench", description=_DESCRIPTION)
    commands = parser.add_subparsers(title="benches", metavar="BENCH", dest="bench")
    known = (*BENCHES, COMPARE)
    for name in argv[:1] if argv and argv[0] in known else known:
        module = importlib.import_module(f"aiorecv.bench.{name}")
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        if name != COMPARE:
            command.add_argument(
                "--json", type=_parse_new, metavar="FILE", help="keep all samples there"
            )
        command.set_defaults(module=module)
    return parser


def _parse_new(text: str) -> Path:
    """A file to write in the end: that it can't be is said before anything is measured."""
    path = Path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.strerror}") from None
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r}: can't be written")
    return path
