"""``aiorecv listen --filter``, and what ``aiorecv info`` says of libpcap."""

from __future__ import annotations

import pytest

from aiorecv.cli import main, probes
from tests.helpers import skip_without_libpcap
from tests.listening import ANYWHERE, listening, send


@pytest.fixture
def libpcap() -> None:
    skip_without_libpcap()


@pytest.mark.usefixtures("libpcap")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_only_what_the_filter_says_is_printed(loop):
    arguments = ("--filter", "udp[8] = 0x61", "--text", "--count", "2", "--loop", loop)
    with listening(ANYWHERE, *arguments) as one:
        send(b"no", b"a yes", b"nor this", b"also", to=one.address)
        printed, _ = one.end()

    assert printed == "a yes\nalso\n"


@pytest.mark.usefixtures("libpcap")
def test_a_text_that_does_not_compile_is_a_wrong_argument(capsys):
    assert main(["listen", ANYWHERE, "--filter", "udp and"]) == 2

    said = capsys.readouterr().err
    assert said.startswith("aiorecv listen: filter='udp and' does not compile: ")
    assert said.count("\n") == 1


def test_a_path_has_no_filter(capsys, tmp_path):
    assert main(["listen", f"unix:{tmp_path}/socket", "--filter", "udp"]) == 2

    assert (
        capsys.readouterr().err == "aiorecv listen: --filter is for UDP and for packet: targets\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("libpcap")
def test_libpcap_is_told_of_by_its_version():
    (finding,) = [one for one in probes.probe() if one.name == "libpcap"]

    assert finding.ok is True
    assert finding.found.startswith("libpcap version ")


def test_where_libpcap_is_missing_the_advice_names_its_packages(monkeypatch):
    def missing(*_: object, **__: object) -> None:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)

    finding = probes._libpcap()

    assert finding.ok is False
    assert "libpcap0.8 (Debian, Ubuntu) or libpcap" in finding.advice
