"""``aiorecv info``: what the probes found, as a table, as plain lines or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec

import attrs

from aiorecv.cli.probes import Finding, probe

_MARKS = {True: "yes", False: "no", None: ""}


def run(as_json: bool) -> int:
    """Probe and print. Returns the exit status."""
    findings = list(probe())
    if as_json:
        details = attrs.filters.exclude("name")
        by_name = {
            finding.name.replace(" ", "_"): attrs.asdict(finding, filter=details)
            for finding in findings
        }
        print(json.dumps(by_name, indent=2))
    elif sys.stdout.isatty() and find_spec("rich"):
        _print_table(findings)
    else:
        for finding in findings:
            print(_to_line(finding))
    return 0


def _to_line(finding: Finding) -> str:
    words = [finding.name, _MARKS[finding.ok], finding.found, finding.advice]
    return ": ".join(word for word in words if word)


def _print_table(findings: Sequence[Finding]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "", "found", "what to do"):
        table.add_column(heading)
    colours = {True: "green", False: "red", None: ""}
    for finding in findings:
        # Text, since brackets would be rich's markup.
        mark = Text(_MARKS[finding.ok], colours[finding.ok])
        table.add_row(finding.name, mark, Text(finding.found), Text(finding.advice))
    Console(highlight=False).print(table)
