"""The examples that read frames work on real traffic, on both loops."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frames import frame, new_wire
from tests.helpers import skip_without_libpcap
from tests.namespaces import add_address, set_up

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_arguments(request) -> list[str]:
    return ["--uvloop"] if request.param == "uvloop" else []


@pytest.fixture
def wire():
    """A socket whose frames come in by ``veth0``, in a network of their own."""
    with new_wire() as sock:
        yield sock


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def udp(flow: int) -> bytes:
    """A frame of IPv4 and UDP."""
    ip = bytes.fromhex("4500001c00010000401100000a0000020a000001")
    return frame((ip + flow.to_bytes(2, "big") + b"\0\x35\0\x08\0\0").ljust(46), protocol=0x0800)


@pytest.mark.parametrize("ring", [[], ["--ring"]], ids=["recvmmsg", "ring"])
def test_the_sniffer_prints_what_its_filter_lets_in(wire, loop_arguments, ring):
    skip_without_libpcap()
    text = "udp port 53 or vlan 7"
    arguments = ["veth0", "--filter", text, "--count", "2", *ring, *loop_arguments]
    process = start("sniffer.py", *arguments)
    assert process.stdout.readline() == "listening on veth0\n"

    wire.send(frame(b"of no interest".ljust(46)))
    wire.send(udp(1000))
    wire.send(frame(b"\x20\x07\x88\xb5" + bytes(46), protocol=0x8100))

    first, second, last = finish(process)
    time = r"[0-9:]{8}\.[0-9]{6}"
    assert re.fullmatch(f"{time} veth0 10.0.0.2 > 10.0.0.1 0x0800 60 bytes", first)
    assert re.fullmatch(
        f"{time} veth0 vlan 7 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff 0x88b5 60 bytes", second
    )
    assert last == "dropped by the kernel: 0"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sniffer_says_what_was_dropped(wire, loop_arguments, number):
    process = start("sniffer.py", "veth0", *loop_arguments)
    process.stdout.readline()

    process.send_signal(number)

    assert finish(process)[-1] == "dropped by the kernel: 0"


def test_several_processes_share_the_frames_and_none_is_counted_twice(wire, loop_arguments):
    process = start("fanout.py", "veth0", "--processes", "3", *loop_arguments)
    groups = {process.stdout.readline().rpartition(" ")[2] for _ in range(3)}
    assert len(groups) == 1

    for flow in range(300):
        wire.send(udp(1000 + flow))
    process.send_signal(signal.SIGTERM)

    ended = "\n".join(finish(process))
    counts = list(map(int, re.findall(r": ([0-9]+) frames, 0 dropped", ended)))
    assert len(counts) == 3
    assert sum(counts) == 300
    assert sum(map(bool, counts)) > 1


def checksum(data: bytes) -> int:
    """That of the internet, RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(0xFFFF - total)


def test_the_tun_example_answers_pings(wire, loop_arguments):
    process = start("tun_echo.py", "tun7", *loop_arguments)
    assert process.stdout.readline() == "device tun7\n"
    add_address("tun7", "192.0.2.1")
    set_up("tun7")

    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
        sock.settimeout(20)
        for number in range(50):
            body = struct.pack("!HH", 7, number) + bytes([number, 255 - number]) * 20
            request = struct.pack("!BBH", 8, 0, checksum(b"\x08\0\0\0" + body)) + body
            sock.sendto(request, ("192.0.2.77", 0))

            data, addr = sock.recvfrom(2048)

            assert addr[0] == "192.0.2.77"
            assert data[24:] == body
            assert data[20] == 0
            assert checksum(data[20:]) == 0
    process.send_signal(signal.SIGTERM)
    assert finish(process) == ["answered: 50"]
