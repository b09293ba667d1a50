"""The ``aiorecv`` command: its arguments. Each subcommand is imported when it is asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec

import aiorecv
from aiorecv.bench.flood import parse_seconds, parse_size


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (the process's own if None); returns the exit status."""
    parser = _make_parser()
    arguments = parser.parse_args(argv)
    if "run" not in arguments:
        parser.print_help(sys.stderr)
        return 2
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as a shell has it
    return status


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aiorecv", description="Receive packets on asyncio in batches."
    )
    parser.add_argument("--version", action="version", version=f"aiorecv {aiorecv.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="flood loopback, and compare who receives how much of it",
        description="Flood loopback with datagrams, and receive them with aiorecv, then with the "
        "datagram protocols of asyncio and of uvloop.",
    )
    demo.add_argument(
        "--seconds", type=parse_seconds, default=5.0, help="for each receiver (default: 5)"
    )
    demo.add_argument(
        "--size", type=parse_size, default=64, help="bytes of each datagram (default: 64)"
    )
    demo.add_argument(
        "--loop",
        type=_parse_loop,
        default="uvloop" if find_spec("uvloop") else "asyncio",
        metavar="{uvloop,asyncio}",
        help="what aiorecv runs on (default: uvloop if it is installed)",
    )
    demo.set_defaults(run=_demo)
    return parser


def _parse_loop(text: str) -> str:
    if text not in ("uvloop", "asyncio"):
        raise argparse.ArgumentTypeError(f"{text!r}: give uvloop or asyncio")
    if text == "uvloop" and not find_spec("uvloop"):
        raise argparse.ArgumentTypeError("not installed: pip install 'aiorecv[uvloop]'")
    return text


def _demo(arguments: argparse.Namespace) -> int:
    if not find_spec("rich"):
        print("aiorecv demo needs rich: pip install 'aiorecv[cli]'", file=sys.stderr)
        return 2
    from aiorecv.cli.demo import run

    return run(arguments.seconds, arguments.size, arguments.loop)
