"""Marks: the places of a page that are written by a program, and whether they are up to date.

A place begins with a line ``<!-- NAME -->``, where words may follow the name, and ends with a line
``<!-- end of NAME -->``. Knows nothing of what is written there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

# Lines of their own, since prose may show a mark in backticks.
_PLACE = re.compile(
    r"^<!-- (?P<mark>(?P<name>[\w-]+)(?: [^\n]*)?) -->\n.*?^<!-- end of (?P=name) -->$",
    re.DOTALL | re.MULTILINE,
)
_ANY = re.compile(r"^<!-- .* -->$", re.MULTILINE)


def filled(page: str, text: Callable[[str], str]) -> str:
    """The page with ``text(mark)`` at every place; a mark is its name and the words behind it.

    Raises:
        ValueError: If the page has no place, or a mark that is no place's.
    """

    def written(place: re.Match[str]) -> str:
        mark, name = place["mark"], place["name"]
        return f"<!-- {mark} -->\n\n{text(mark)}\n<!-- end of {name} -->"

    places = len(_PLACE.findall(page))
    if not places or len(_ANY.findall(page)) != 2 * places:
        raise ValueError("the page needs the lines <!-- NAME --> and <!-- end of NAME -->")
    return _PLACE.sub(written, page)


def bring(
    path: Path, wanted: str, check: bool, same: Callable[[str, str], bool] = str.__eq__
) -> bool:
    """Write a file, unless it is as wanted; or only ``check`` that it is. Whether it now is."""
    if path.exists() and same(path.read_text(), wanted):
        return True
    if check:
        print(f"{path} does not show the recorded run", file=sys.stderr)
        return False
    path.write_text(wanted)
    return True
