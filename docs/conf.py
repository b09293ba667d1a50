"""How the documentation is built: Sphinx, with MyST for its pages and furo for its looks."""

from __future__ import annotations

import builtins
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring

import aiorecv

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "aiorecv"
author = "the aiorecv authors"
release = version = aiorecv.__version__

extensions = ["diagram", "myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"aiorecv {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_type_aliases = {"Address": "aiorecv.Address", "Pair": "tuple[bytes, aiorecv.Address]"}

# Python's own names have no pages here.
nitpick_ignore_regex = [(r"py:.*", r"(_?asyncio|collections|enum|socket|typing)\..*")]
nitpick_ignore = [
    ("py:class", "socket"),
    ("py:class", "aiorecv._endpoint._Protocol"),  # a type variable: what the factory makes
    ("py:class", "aiorecv._open.Opening"),  # its docstring tells what an opener returns
]


def _read_google_style(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Sections such as Args; said to be a function's, as "text: text" is no type elsewhere."""
    lines[:] = GoogleDocstring(lines, what="function", name=name).lines()


def _show_signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str,
) -> tuple[str | None, str]:
    """No constructor for what the library alone makes, and aliases by their plain names."""
    if name in _MADE_BY_THE_LIBRARY:
        return "", ""
    alias = r"TypeAliasForwardRef\('(.*?)'\)"
    return signature and re.sub(alias, r"\1", signature), re.sub(alias, r"\1", returns or "")


_MADE_BY_THE_LIBRARY = frozenset(
    f"aiorecv.{name}"
    for name in (
        "DatagramTransport",
        "Packet",
        "PacketBatch",
        "Receiver",
        "ReceiverStatistics",
        "SenderStatistics",
        "WindowPolicy",
    )
)


def _leave_builtins_alone(app: Sphinx, doctree: nodes.document) -> None:
    """No links from Python's own types: ``bytes`` would lead to the field of some statistics."""
    for reference in list(doctree.findall(addnodes.pending_xref)):
        if reference.get("reftarget") in vars(builtins):
            reference.replace_self(reference.children)


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", _read_google_style)
    app.connect("autodoc-process-signature", _show_signature)
    app.connect("doctree-read", _leave_builtins_alone)
