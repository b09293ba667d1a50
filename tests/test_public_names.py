"""``aiorecv.__all__``, the docstrings and the reference pages name the same things."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

import aiorecv

DOCS = Path(__file__).parent.parent / "docs"
PUBLIC = {name: getattr(aiorecv, name) for name in aiorecv.__all__}
CLASSES = [value for value in PUBLIC.values() if inspect.isclass(value)]


def _members(cls: type) -> set[str]:
    """The public names of a class, without those that others of its kind have."""
    named = {*dir(cls), *getattr(cls, "__members__", ())}  # dir() leaves out a flag of 0
    # Those of any object or exception, and what is only inherited from asyncio.
    inherited = {name for name in named if _definer(cls, name).__module__.startswith("asyncio.")}
    return {name for name in named if not name.startswith("_")} - set(dir(Exception)) - inherited


def _definer(cls: type, name: str) -> type:
    """The class that has this member."""
    return next((base for base in cls.__mro__ if name in vars(base)), cls)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built without a warning."""
    out = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "html"]

    done = subprocess.run(
        [*command, "-d", out / "doctrees", DOCS, out / "html"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    return out / "html"


@pytest.fixture(scope="module")
def documented(pages) -> dict[str, str]:
    """The public names and members that the pages have an entry for, and where."""
    inventory = InventoryFile.loads((pages / "objects.inv").read_bytes(), uri="")
    entries = {
        name: item.uri
        for kind, items in inventory.data.items()
        if kind.startswith("py:")
        for name, item in items.items()
    }
    # Sphinx also lists each class by the private module it is written in, and special methods.
    return {
        name: uri
        for name, uri in entries.items()
        if "._" not in name or name == "aiorecv.__version__"
    }


def test_all_is_sorted_names_each_thing_once_and_nothing_else_is_public():
    modules = {name for name, value in vars(aiorecv).items() if inspect.ismodule(value)}
    visible = {name for name in vars(aiorecv) if not name.startswith("_")} - modules

    assert aiorecv.__all__ == sorted(set(aiorecv.__all__))
    assert visible == set(aiorecv.__all__) - {"__version__"}


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - {"Address", "__version__"}))
def test_every_public_name_has_a_docstring(name):
    assert inspect.getdoc(PUBLIC[name]), name


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_public_method_and_property_has_a_docstring(cls):
    members = {name: inspect.getattr_static(cls, name) for name in _members(cls)}
    told = {
        name: member.__doc__
        for name, member in members.items()
        if callable(member) or isinstance(member, property)
    }

    assert [name for name, doc in told.items() if not doc] == []


def test_the_reference_has_an_entry_for_every_public_name_and_for_no_other(documented):
    expected = {f"aiorecv.{name}" for name in aiorecv.__all__} | {
        f"aiorecv.{cls.__name__}.{member}" for cls in CLASSES for member in _members(cls)
    }

    assert documented.keys() == expected
    assert {uri.partition("/")[0] for uri in documented.values()} == {"reference"}


def test_the_diagram_is_drawn_into_its_page(pages):
    page = (pages / "explanation" / "receiving.html").read_text()

    drawn = page.partition('<svg class="diagram"')[2].partition("</svg>")[0]

    assert drawn.count("<rect") == 6
    assert "one recvmmsg" in drawn
