"""Pictures: the medians of a run as bars, in SVG, for the documentation. Needs matplotlib.

The same run gives the same bytes: nothing in them depends on the time or on chance. Every bar has
its figure beside it, so that there are no axes; letters stay letters, and colours are read on light
pages as on dark ones. `texts` are what a picture says, whatever version of matplotlib drew it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from aiorecv.bench.report import Picture, Run, Series, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "#7a7a7a"  # contrast over 4 with white and with furo's dark ground
_STYLE: dict[Any, Any] = {  # matplotlib types the keys one by one
    "svg.hashsalt": "aiorecv",  # for names of elements, which are random otherwise
    "svg.fonttype": "none",  # letters are text, in the reader's own font
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _GREY,
    "text.parse_math": False,
}
_COLOURS = ("#3a7ebf", "#c9772b", "#4a9a62", "#a6639f", "#8a8450", "#5b8f9a")
_LINE_INCHES = 0.22
_WIDTH_INCHES = 7.5
# Parts of the width: where bars begin, and how long the longest is.
_LEFT, _LONGEST = 0.32, 0.5


def pictures(module: ModuleType, run: Run) -> Sequence[Picture]:
    """What a bench's module wants to be drawn; by default its first unit."""
    pictured = getattr(module, "pictured", None)
    if pictured is not None:
        chosen: Sequence[Picture] = pictured(run)
        return chosen
    unit = run.series[0].unit
    return [Picture(run.bench, [one for one in run.series if one.unit == unit])]


def draw(wanted: Sequence[Picture]) -> str:
    """One SVG of all pictures, one below the other."""
    import matplotlib
    from matplotlib.figure import Figure

    heights = [_lines(picture) for picture in wanted]
    with matplotlib.rc_context(_STYLE):
        canvas = Figure(figsize=(_WIDTH_INCHES, sum(heights) * _LINE_INCHES))
        top = 1.0
        for picture, lines in zip(wanted, heights, strict=True):
            height = lines / sum(heights)
            top -= height
            _draw(canvas.add_axes((0.0, top, 1.0, height)), picture, lines)
        written = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        canvas.savefig(written, format="svg", transparent=True, metadata=nothing)
    # matplotlib ends some lines with blanks.
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())


def texts(svg: str) -> list[str]:
    """All that a picture says, in order.

    Raises:
        ValueError: If it is no SVG.
    """
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise ValueError(f"no SVG: {error}") from None
    found = root.iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()).strip() for element in found]


def _groups(picture: Picture) -> dict[str, list[Series]]:
    groups: dict[str, list[Series]] = {}
    for one in picture.series:
        groups.setdefault(one.group, []).append(one)
    return groups


def _lines(picture: Picture) -> int:
    """The title, a line a group and a line a bar, and one to keep pictures apart."""
    return 2 + len(_groups(picture)) + len(picture.series)


def _draw(axes: Axes, picture: Picture, lines: int) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(lines, 0)
    first = picture.series[0]
    title = f"{picture.title}, {first.unit} ({first.better} is better)"
    axes.text(0.01, 0.5, title, weight="bold", va="center")
    groups = _groups(picture)
    arms = list(dict.fromkeys(one.arm for one in picture.series))
    longest = max(_end(one) for one in picture.series) or 1.0
    y = 1.5
    for group, members in groups.items():
        axes.text(0.01, y, group, va="center", style="italic")
        for one in members:
            y += 1
            # With one group, the names beside the bars are enough.
            number = arms.index(one.arm) if len(groups) > 1 else 0
            _bar(axes, y, one, _COLOURS[number % len(_COLOURS)], _LONGEST / longest)
        y += 1


def _bar(axes: Axes, y: float, one: Series, colour: str, scale: float) -> None:
    """The name of its arm, the bar, the interval of its median, and the figure."""
    axes.text(_LEFT - 0.01, y, one.arm, ha="right", va="center")
    axes.barh(y, one.median * scale, left=_LEFT, height=0.7, color=colour, alpha=0.5)
    said = figure(one.median)
    if one.interval is not None:
        ends = [_LEFT + end * scale for end in one.interval]
        axes.plot(ends, [y, y], color=colour, linewidth=1.5, solid_capstyle="butt")
        said += f" ± {one.spread:.0%}" if math.isfinite(one.spread) else ""
    axes.text(_LEFT + _end(one) * scale + 0.01, y, said, va="center")


def _end(one: Series) -> float:
    """Where the bar and its interval end."""
    return max(one.median, one.interval[1]) if one.interval else one.median
