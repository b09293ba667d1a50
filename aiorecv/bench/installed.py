"""What an installed package takes on the disk, and what it requires, by the installer's records."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import aiorecv


def requirements(name: str) -> list[str]:
    """The packages that a package needs, and those that they need; extras are left out."""
    found: dict[str, None] = {name: None}
    ahead = _required(distribution(name))
    while ahead:
        required = ahead.pop(0)
        if required in found:
            continue
        try:
            ahead += _required(distribution(required))
        except PackageNotFoundError:  # for another system or interpreter
            continue
        found[required] = None
    return list(found)[1:]


def is_editable(name: str) -> bool:
    """Whether a package's modules are somewhere else than its installer has recorded."""
    # Not by .files: of a source tree that is on the path, setuptools lists the sources there.
    return f"\n{name}/__init__.py," not in f"\n{distribution(name).read_text('RECORD')}"


def installed_size(name: str) -> int:
    """Bytes of a distribution's files; of an editable one, those in its package's directory.

    Compiled Python files don't count: they come and go.
    """
    if name == "aiorecv" and is_editable(name):
        paths = Path(aiorecv.__file__).parent.rglob("*")
    else:
        paths = (Path(str(path.locate())) for path in distribution(name).files or ())
    return sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())


def _required(of: Distribution) -> list[str]:
    lines = [line for line in of.requires or () if "extra ==" not in line]
    return [re.split(r"[^\w.-]", line)[0] for line in lines]
