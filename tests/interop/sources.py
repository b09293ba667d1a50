"""Sources of libraries whose own tests are run, fetched by hash: wheels bring no tests."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

PINS = Path(__file__).with_name("sdists.txt")


def pins() -> dict[str, str]:
    """The version of each library in ``sdists.txt``, by its name."""
    lines = [line.split()[0] for line in PINS.read_text().splitlines() if "==" in line]
    return dict(line.split("==") for line in lines)


def fetch(directory: Path) -> Path:
    """Unpack each library's ``tests`` as the package ``NAME_tests`` into a directory.

    Renamed, since two packages ``tests`` cannot be imported in one process. Nothing is built.

    Raises:
        subprocess.CalledProcessError: pip found no source, or one of another hash.
    """
    downloads = directory / "downloads"
    subprocess.run(
        [
            *[sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"],
            *["--no-build-isolation", "--require-hashes", "-r", str(PINS), "-d", str(downloads)],
        ],
        check=True,
    )
    for name, version in pins().items():
        _unpack(downloads / f"{name}-{version}.tar.gz", f"{name}-{version}/tests", directory, name)
    return directory


def _unpack(archive: Path, prefix: str, directory: Path, name: str) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(
            directory,
            [member for member in tar.getmembers() if member.name.startswith(f"{prefix}/")],
            filter="data",
        )
    (directory / prefix).rename(directory / f"{name}_tests")
