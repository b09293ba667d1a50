"""Every Python program in the README and in ``docs/`` runs, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers import skip_without_libpcap

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
]
# asyncio.run() makes the policy's loop; a page's own choice of a loop goes first.
PRELUDES = {
    "asyncio": "",
    "uvloop": "import asyncio, uvloop\nasyncio.set_event_loop_policy(uvloop.EventLoopPolicy())\n",
}

_FENCED = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Program(NamedTuple):
    """A fenced ``python`` block, and what the ``text`` block right after it says it prints."""

    place: str
    code: str
    output: str | None


def _blocks(page: Path) -> list[tuple[int, str, str]]:
    """The fenced blocks of a page: line, language, text."""
    text = page.read_text()
    return [
        (text.count("\n", 0, block.start()) + 1, block[1], block[2])
        for block in _FENCED.finditer(text)
    ]


def _programs() -> list[Program]:
    programs = []
    for page in PAGES:
        blocks = _blocks(page)
        for (line, language, code), following in zip(blocks, [*blocks[1:], None], strict=True):
            if language == "python":
                output = following[2] if following and following[1] == "text" else None
                programs.append(Program(f"{page.relative_to(ROOT)}:{line}", code, output))
    return programs


@pytest.mark.parametrize("loop", PRELUDES)
@pytest.mark.parametrize("program", _programs(), ids=lambda program: program.place)
def test_a_program_on_a_page_runs_and_prints_what_the_page_says(program, loop):
    if "filter=" in program.code:
        skip_without_libpcap()
    command = [sys.executable, "-W", "error", "-c", PRELUDES[loop] + program.code]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (program.output or "")


def test_the_readme_starts_with_two_commands_of_one_line_each():
    first, second = _blocks(ROOT / "README.md")[:2]

    assert first[1:] == (
        "console",
        "python3 -m venv .venv && .venv/bin/pip install -q '.[cli,uvloop]'"
        " && .venv/bin/aiorecv demo\n",
    )
    assert second[1:] == (
        "console",
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]' && .venv/bin/pytest\n",
    )


def test_the_test_suite_of_a_page_runs_on_our_endpoints(tmp_path):
    blocks = [
        code
        for _, language, code in _blocks(ROOT / "docs/howto/servers.md")
        if language == "python"
    ]
    (hook,) = (code for code in blocks if "def pytest_asyncio_loop_factories" in code)
    (test,) = (code for code in blocks if "async def test_" in code)
    (tmp_path / "conftest.py").write_text(hook)
    (tmp_path / "test_endpoint.py").write_text(test)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = error\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path]

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "1 passed" in done.stdout
