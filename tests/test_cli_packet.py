"""``aiorecv listen packet:INTERFACE``: frames, by recvmmsg and by a ring."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys

import pytest

from aiorecv.cli import main
from tests.frames import frame, new_wire
from tests.helpers import skip_without_libpcap
from tests.listening import listening
from tests.namespaces import add_address, set_up

BY = {"recvmmsg": [], "ring": ["--ring"]}


@pytest.fixture
def wire():
    """A socket whose frames come in by ``veth0``, in a network of their own."""
    with new_wire() as sock:
        yield sock


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("by", BY)
def test_frames_are_printed_as_json(wire, by, loop):
    sent = frame(bytes(range(200, 246)))
    with listening("packet:veth0", "--json", "--count", "1", *BY[by], "--loop", loop) as one:
        wire.send(sent)
        printed, summed_up = one.end()

    told = json.loads(printed)
    assert told["addr"] == ["veth0", 0x88B5, 1, 1, "02:00:00:00:00:01"]
    assert base64.b64decode(told["base64"]) == sent
    assert told["length"] == 60
    assert one.name.startswith("veth0/")
    assert summed_up.startswith("1 packet, 60 bytes in ")


@pytest.mark.parametrize("show", ["--json", "--hex", "--text"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_the_host_sends_by_a_tun_device_is_printed(wire, show, loop):
    with listening("tun:tun7", show, "--count", "1", "--loop", loop) as one:
        add_address("tun7", "192.0.2.1")
        set_up("tun7")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x" * 60, ("192.0.2.9", 9))
        printed, _ = one.end()

    assert one.name == "tun7"
    if show == "--json":
        told = json.loads(printed)
        assert told["addr"] is None
        printed = base64.b64decode(told["base64"]).decode(errors="replace")
    assert "xxxxxxxxxxxxxxxx" in printed


@pytest.mark.parametrize("by", BY)
def test_no_more_than_were_asked_for_are_printed(wire, by):
    with listening("packet:veth0", "--hex", "--count", "3", *BY[by]) as one:
        for number in range(10):
            wire.send(frame(bytes([number]) * 46))
        printed, _ = one.end()

    assert printed.count("veth0/02:00:00:00:00:01") == 3
    assert "|.............." in printed


@pytest.mark.parametrize("by", BY)
def test_only_what_the_filter_says_is_printed(wire, by):
    skip_without_libpcap()
    arguments = ("--filter", "ether proto 0x88b6", "--count", "1", *BY[by])
    with listening("packet:veth0", *arguments) as one:
        wire.send(frame(bytes(46)))
        wire.send(frame(b"wanted".ljust(50), protocol=0x88B6))
        printed, _ = one.end()

    assert "64 bytes" in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["udp://127.0.0.1:0", "--ring"], "--ring is for packet: targets"),
        (["tun:tun0", "--ring"], "--ring is for packet: targets"),
        (["tun:tun0", "--filter", "udp"], "--filter is for UDP and for packet: targets"),
        (["packet:" + "x" * 16], "from 1 to 15 bytes"),
        (["tun:" + "x" * 16], "from 1 to 15 bytes"),
    ],
)
def test_wrong_arguments_are_one_line(capsys, arguments, said):
    assert main(["listen", *arguments]) == 2

    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_packet_target_needs_a_name(capsys):
    with pytest.raises(SystemExit):
        main(["listen", "packet:"])

    assert "packet:INTERFACE" in capsys.readouterr().err


def test_an_unknown_interface_is_one_line(wire, capsys):
    assert main(["listen", "packet:nowhere"]) == 1

    assert "interface='nowhere'" in capsys.readouterr().err


def test_without_the_capability_it_is_named(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become an ordinary user")
    program = (
        "import os, sys, aiorecv.cli, aiorecv.cli.listen, uvloop\n"
        "os.seteuid(65534)\n"
        "status = aiorecv.cli.main(['listen', 'packet:lo'])\n"
        "os.seteuid(0)\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 1
    assert "CAP_NET_RAW" in done.stderr
    assert done.stderr.count("\n") == 1
