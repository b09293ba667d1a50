"""Pages: figures in the documentation, written from recorded runs, so that none is typed by hand.

``python -m aiorecv.bench.pages PAGE FIGURES`` rewrites what stands between a page's marks. Between
``<!-- NAME -->`` and ``<!-- end of NAME -->`` come the command, the tables and the picture of the
run ``FIGURES/NAME.json``; the picture is drawn to ``FIGURES/NAME.svg``. A mark ``<!-- compare
RUN.json OPTIONS -->``, which ends at ``<!-- end of compare -->``, asks for what ``aiorecv bench
compare`` prints of runs in FIGURES. With ``--check`` it only tells whether all of that is there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from aiorecv.bench import compare
from aiorecv.bench.marks import bring, filled
from aiorecv.bench.pictures import draw, pictures, texts
from aiorecv.bench.report import Run, Table


def main(argv: Sequence[str] | None = None) -> int:
    """Write a page and its pictures, or check them: 1 if they show something else."""
    parser = argparse.ArgumentParser("python -m aiorecv.bench.pages", description=__doc__)
    parser.add_argument("page", type=Path, help="the page with the marks")
    parser.add_argument("figures", type=Path, help="the directory of recorded runs and pictures")
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    filling = Filling(arguments.page, arguments.figures)
    try:
        page = filled(arguments.page.read_text(), filling.text)
        right = [bring(arguments.page, page, arguments.check)]
        for path, svg in filling.pictures.items():
            right.append(bring(path, svg, arguments.check, _same_picture))
    except (OSError, ValueError) as error:
        print(f"{arguments.page}: {error}", file=sys.stderr)
        return 1
    return int(not all(right))


@attrs.define(eq=False)
class Filling:
    """What a page's marks ask for, and the pictures that go with it."""

    page: Path
    figures: Path
    pictures: dict[Path, str] = attrs.field(factory=dict, init=False)
    """What was drawn, by the place it belongs."""

    def text(self, mark: str) -> str:
        """What stands between one mark and its end."""
        name, *words = shlex.split(mark)
        return self._compared(words) if name == "compare" else self._run(name)

    def _compared(self, words: Sequence[str]) -> str:
        # Runs are named as they are in the directory, and shown as they are typed from here.
        typed = [str(self.figures / word) if word.endswith(".json") else word for word in words]
        parser = argparse.ArgumentParser("compare", exit_on_error=False)
        compare.add_arguments(parser)
        try:
            tables = compare.compare(parser.parse_args(typed))
        except argparse.ArgumentError as error:
            raise ValueError(f"compare {shlex.join(words)}: {error}") from None
        command = shlex.join(["aiorecv", "bench", "compare", *typed])
        return "\n".join([_console(command), *map(_told, tables)])

    def _run(self, name: str) -> str:
        run = Run.load(self.figures / f"{name}.json")
        module = importlib.import_module(f"aiorecv.bench.{run.bench}")
        wanted = pictures(module, run)
        picture = self.figures / f"{name}.svg"
        self.pictures[picture] = draw(wanted)
        address = os.path.relpath(picture, self.page.parent)
        titles = "; ".join(one.title for one in wanted)
        parts = [_console(run.command), *map(_told, module.tables(run))]
        return "\n".join([*parts, f"![{titles}]({address})\n", f"{_machine(run.machine)}\n"])


def _console(command: str) -> str:
    return f"```console\n{command}\n```\n"


def _told(table: Table) -> str:
    return f"**{table.title}**\n\n{table.markdown()}"


def _machine(machine: Any) -> str:
    packages = [f"{name} {version}" for name, version in machine["packages"].items() if version]
    python = f"Python {machine['python']}"
    return (
        f"{machine['cpus']} CPUs ({machine['cpu'] or machine['machine']}), Linux "
        f"{machine['kernel']}, {', '.join([python, *packages])}."
    )


def _same_picture(is_there: str, wanted: str) -> bool:
    # By what they say: another version of matplotlib writes other bytes.
    try:
        return texts(is_there) == texts(wanted)
    except ValueError:
        return False


if __name__ == "__main__":
    raise SystemExit(main())
