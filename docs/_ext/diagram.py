"""A ``diagram`` directive: boxes on a grid and arrows, written as text, drawn as inline SVG.

A line ``name column,row: text | more text`` is a box, and ``name -> name: label`` an arrow
between two boxes of the same row or column. It needs no program beside Sphinx, and takes its
colours from the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTH, HEIGHT = 190, 60
PITCH_X, PITCH_Y = 310, 130
MARGIN = 6
LINE = 18

_BOX = re.compile(r"(\w+) (\d+),(\d+): (.+)")
_ARROW = re.compile(r"(\w+) -> (\w+): (.+)")

_HEAD = (
    '<svg class="diagram" role="img" aria-label="{title}" viewBox="0 0 {width} {height}" '
    'style="max-width: {width}px; width: 100%" font-family="sans-serif" font-size="14" '
    'fill="currentColor" stroke="none" text-anchor="middle" xmlns="http://www.w3.org/2000/svg">'
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
    'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>'
)


@dataclass(frozen=True)
class Box:
    """A box, by its centre."""

    x: int
    y: int
    texts: list[str]

    def draw(self) -> str:
        left, top = self.x - WIDTH // 2, self.y - HEIGHT // 2
        first = self.y + 5 - LINE * (len(self.texts) - 1) // 2
        weights = ["bold"] + ["normal"] * (len(self.texts) - 1)
        lines = [
            f'<text x="{self.x}" y="{first + LINE * number}" font-weight="{weight}">'
            f"{escape(text)}</text>"
            for number, (text, weight) in enumerate(zip(self.texts, weights, strict=True))
        ]
        frame = (
            f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
            'fill="none" stroke="currentColor"/>'
        )
        return frame + "".join(lines)


def _arrow(start: Box, end: Box, label: str) -> str:
    right, down = _sign(end.x - start.x), _sign(end.y - start.y)
    if (right == 0) == (down == 0):
        raise ValueError(f"the arrow {label!r} is neither horizontal nor vertical")
    x1, y1 = start.x + right * WIDTH // 2, start.y + down * HEIGHT // 2
    x2, y2 = end.x - right * WIDTH // 2, end.y - down * HEIGHT // 2
    x, y = (x1 + x2) // 2, (y1 + y2) // 2
    place = f'x="{x}" y="{y - 8}"' if right else f'x="{x + 8}" y="{y + 4}" text-anchor="start"'
    return (
        f'<path d="M{x1} {y1} {x2} {y2}" stroke="currentColor" marker-end="url(#tip)"/>'
        f"<text {place}>{escape(label)}</text>"
    )


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def draw(title: str, lines: list[str]) -> str:
    """The SVG of a diagram's text.

    Raises:
        ValueError: If a line is neither a box nor an arrow, or an arrow is askew.
    """
    boxes: dict[str, Box] = {}
    arrows: list[str] = []
    for line in filter(None, lines):
        if box := _BOX.fullmatch(line):
            x = MARGIN + WIDTH // 2 + int(box[2]) * PITCH_X
            y = MARGIN + HEIGHT // 2 + int(box[3]) * PITCH_Y
            boxes[box[1]] = Box(x, y, box[4].split(" | "))
        elif arrow := _ARROW.fullmatch(line):
            arrows.append(_arrow(boxes[arrow[1]], boxes[arrow[2]], arrow[3]))
        else:
            raise ValueError(f"neither a box nor an arrow: {line!r}")
    width = max(box.x for box in boxes.values()) + WIDTH // 2 + MARGIN
    height = max(box.y for box in boxes.values()) + HEIGHT // 2 + MARGIN
    head = _HEAD.format(title=escape(title), width=width, height=height)
    return head + "".join([box.draw() for box in boxes.values()] + arrows) + "</svg>"


class Diagram(SphinxDirective):
    """``diagram``, with a title and the lines of the diagram."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            svg = draw(self.arguments[0], list(self.content))
        except (KeyError, ValueError) as error:
            raise self.error(f"diagram: {error}") from None
        return [nodes.raw("", svg, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("diagram", Diagram)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
