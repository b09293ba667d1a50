"""The ``aiorecv`` command: its arguments. Each subcommand is imported when it is asked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec

import aiorecv
from aiorecv.bench.flood import parse_seconds, parse_size
from aiorecv.cli.loops import add_loop_argument
from aiorecv.cli.target import FORMS, by_ring, filtered, parse_target

_RICH = "needs rich: pip install 'aiorecv[cli]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (the process's own if None); returns the exit status."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if "run" not in arguments:
        parser.print_help(sys.stderr)
        return 2
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        status = 130  # 128 + SIGINT, as a shell has it
    except BrokenPipeError:
        status = 0  # whoever read it has enough, such as head
    except argparse.ArgumentTypeError as error:
        print(f"aiorecv {arguments.command}: {error}", file=sys.stderr)
        status = 2
    except OSError as error:
        print(f"aiorecv {arguments.command}: {error.strerror or error}", file=sys.stderr)
        status = 1
    with suppress(OSError):
        # What stdout still holds can't be written; Python would try again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="aiorecv", description="Receive packets on asyncio in batches."
    )
    parser.add_argument("--version", action="version", version=f"aiorecv {aiorecv.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    _add_listen(commands)
    _add_info(commands)
    _add_demo(commands)
    _add_bench(commands)
    return parser


_Commands = argparse._SubParsersAction  # argparse has no public name for it


def _add_listen(commands: _Commands[argparse.ArgumentParser]) -> None:
    listen = commands.add_parser(
        "listen",
        help="receive packets from a socket, and print them",
        description="Receive packets until Ctrl-C, and print a line for each: when it came, from "
        "whom, how many bytes, and the first of them.",
    )
    listen.add_argument("target", type=parse_target, metavar="TARGET", help=FORMS)
    listen.add_argument(
        "--filter",
        metavar="TEXT",
        help="receive what this says, in tcpdump's language, such as 'src net 192.0.2.0/24'",
    )
    listen.add_argument(
        "--ring",
        action="store_true",
        help="have the kernel write frames into shared memory: cheaper, a millisecond later",
    )
    shown = listen.add_mutually_exclusive_group()
    for name, words in (
        ("stats", "follow packets, drops and CPU by the second, and print no packet"),
        ("hex", "print packets whole, in hexadecimal"),
        ("text", "print payloads as text, and nothing else"),
        ("json", "print a line of JSON for each packet"),
    ):
        shown.add_argument(f"--{name}", dest="show", action="store_const", const=name, help=words)
    listen.add_argument(
        "--count", type=_parse_count, metavar="N", help="stop after N packets (default: don't)"
    )
    add_loop_argument(listen)
    listen.set_defaults(run=_listen, show="line")


def _add_info(commands: _Commands[argparse.ArgumentParser]) -> None:
    info = commands.add_parser(
        "info",
        help="tell what this system allows, and what to do about the rest",
        description="Tell what this kernel and this installation allow, found out by trying, and "
        "what to do about the rest.",
    )
    info.add_argument("--json", action="store_true", help="as one JSON object")
    info.set_defaults(run=_info)


def _add_demo(commands: _Commands[argparse.ArgumentParser]) -> None:
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
    add_loop_argument(demo)
    demo.set_defaults(run=_demo)


def _add_bench(commands: _Commands[argparse.ArgumentParser]) -> None:
    # Its arguments are parsed by itself, as each bench is imported when it is asked for: here
    # nothing begins with the prefix of an option, -h included.
    bench = commands.add_parser(
        "bench",
        help="measure what receiving costs on this machine, and compare runs",
        add_help=False,
        prefix_chars="\0",
    )
    bench.add_argument("rest", nargs=argparse.REMAINDER)
    bench.set_defaults(run=_bench)


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of packets, 1 or more")
    return int(text)


def _listen(arguments: argparse.Namespace) -> int:
    if arguments.show == "stats" and sys.stdout.isatty() and not find_spec("rich"):
        print(f"aiorecv listen --stats on a terminal {_RICH}", file=sys.stderr)
        return 2
    from aiorecv.cli.listen import run

    target = arguments.target
    if arguments.filter is not None:
        target = filtered(target, arguments.filter)
    if arguments.ring:
        target = by_ring(target)
    return run(target, arguments.show, arguments.count, arguments.loop)


def _info(arguments: argparse.Namespace) -> int:
    from aiorecv.cli.info import run

    return run(arguments.json)


def _demo(arguments: argparse.Namespace) -> int:
    if not find_spec("rich"):
        print(f"aiorecv demo {_RICH}", file=sys.stderr)
        return 2
    from aiorecv.cli.demo import run

    return run(arguments.seconds, arguments.size, arguments.loop)


def _bench(arguments: argparse.Namespace) -> int:
    from aiorecv.cli.bench import run

    return run(arguments.rest)
