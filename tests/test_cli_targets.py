"""``aiorecv listen``: the targets it opens, and those it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
from collections.abc import Iterator

import pytest

from aiorecv.cli import main
from aiorecv.cli.target import FORMS
from tests.listening import AIORECV, listening, send, sending
from tests.namespaces import add_address, add_veth, new_network

GROUP = "239.7.7.1"


@pytest.fixture
def path(tmp_path_factory) -> Iterator[str]:
    """A path short enough for a socket."""
    with contextlib.chdir(tmp_path_factory.mktemp("unix")):
        yield "socket"


def test_a_dual_stack_socket_hears_both_families():
    with listening("udp://[::]:0", "--text") as one:
        assert one.name.startswith("[::]:")
        port = one.address[1]
        send(b"four", to=("127.0.0.1", port))
        first = one.line()
        with sending(b"six", to=("::1", port), family=socket.AF_INET6):
            second = one.line()

    assert [first, second] == ["four", "six"]


def test_a_name_is_resolved():
    with listening("udp://localhost:0", "--text") as one:
        family = socket.AF_INET6 if "[" in one.name else socket.AF_INET
        with sending(b"hello", to=one.address, family=family):
            assert one.line() == "hello"


def test_a_unix_socket_is_heard_and_its_file_removed(path):
    with listening(f"unix:{path}") as one, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        assert one.name == path
        sock.sendto(b"from nobody", path)
        lines = [one.line()]  # the kernel looks for the sender's name when it is received
        sock.bind("peer")
        sock.sendto(b"from a path", path)
        lines.append(one.line())
        one.stop()
        one.end()

    assert re.fullmatch(r".*  -  11 bytes  from nobody", lines[0])
    assert re.fullmatch(r".*  peer  11 bytes  from a path", lines[1])
    assert not os.path.exists(path)
    assert one.process.returncode == 0


def test_an_abstract_name_starts_with_an_at():
    name = f"aiorecv test {os.getpid()}"
    with (
        listening(f"unix:@{name}", "--json") as one,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
    ):
        assert one.name == f"@{name}"
        sock.sendto(b"1", f"\0{name}")
        senders = [json.loads(one.line())["addr"]]
        sock.bind(f"\0{name} peer")
        sock.sendto(b"2", f"\0{name}")
        senders.append(json.loads(one.line())["addr"])

    assert senders == [None, f"@{name} peer"]


def test_a_socket_file_left_behind_is_replaced(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
    assert os.path.exists(path)

    with listening(f"unix:{path}", "--text") as one:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"hello", path)
        assert one.line() == "hello"


@pytest.mark.parametrize("use", ["datagrams", "stream", "connected"])
def test_the_socket_of_a_running_program_is_left_alone(path, capfd, use):
    kind = socket.SOCK_STREAM if use == "stream" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_UNIX, kind) as sock, socket.socket(socket.AF_UNIX, kind) as other:
        sock.bind(path)
        if use == "stream":
            sock.listen()
        if use == "connected":
            other.bind("other")
            sock.connect("other")
        before = os.stat(path)

        done = subprocess.run(
            (*AIORECV, f"unix:{path}"), capture_output=True, text=True, timeout=60, check=False
        )

        assert os.path.samestat(os.stat(path), before)
    assert done.returncode == 1
    assert done.stderr == (
        "aiorecv listen: path='socket' can't be bound: another program receives there\n"
    )


@contextlib.contextmanager
def speaker(group: str, interface: str) -> Iterator[socket.socket]:
    """A socket that sends to groups by that interface."""
    index = socket.if_nametoindex(interface)
    if ":" in group:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            yield sock
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            request = struct.pack("@8xi", index)  # struct ip_mreqn
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
            yield sock


@pytest.mark.parametrize("interface", ["lo", "127.0.0.1", "index"])
def test_a_group_is_joined_and_what_is_sent_to_the_host_kept_out(interface):
    if interface == "index":
        interface = str(socket.if_nametoindex("lo"))
    with (
        listening(f"udp://{GROUP}:0?interface={interface}", "--text") as one,
        speaker(GROUP, "lo") as sock,
    ):
        port = one.address[1]
        sock.sendto(b"to the host", ("127.0.0.1", port))
        sock.sendto(b"to another group", ("239.7.7.2", port))
        sock.sendto(b"to the group", (GROUP, port))
        heard = one.line()

    assert one.name == f"{GROUP}:{port}"
    assert heard == "to the group"


def test_two_programs_hear_the_same_group():
    with listening(f"udp://{GROUP}:0?interface=lo", "--text") as first:
        target = f"udp://{GROUP}:{first.address[1]}?interface=lo"
        with listening(target, "--text") as second, speaker(GROUP, "lo") as sock:
            sock.sendto(b"hello", first.address)
            heard = first.line(), second.line()

    assert heard == ("hello", "hello")


def test_only_the_sources_named_are_heard():
    target = f"udp://{GROUP}:0?interface=lo&source=127.0.0.2&source=127.0.0.3"
    with listening(target, "--text") as one:
        for host in ("127.0.0.1", "127.0.0.2", "127.0.0.4", "127.0.0.3"):
            with speaker(GROUP, "lo") as sock:
                sock.bind((host, 0))
                sock.sendto(host.encode(), one.address)
        heard = [one.line() for _ in range(2)]

    assert heard == ["127.0.0.2", "127.0.0.3"]


@pytest.mark.parametrize(
    ("target", "group"),
    [
        ("udp://[ff15::7]:0?interface=mc0", "ff15::7"),
        ("udp://[ff02::7]:0?interface=mc0", "ff02::7"),
        ("udp://[ff02::7]:0?interface={index}", "ff02::7"),
        ("udp://[ff02::7%mc0]:0", "ff02::7"),
        ("udp://[ff02::7%25mc0]:0", "ff02::7"),
    ],
)
def test_an_ipv6_group_is_joined_by_its_interface(target, group):
    with new_network():
        add_veth("mc0", "mc1")
        add_address("mc0", "fd00::1")
        target = target.format(index=socket.if_nametoindex("mc0"))

        with listening(target, "--text") as one, speaker(group, "mc0") as sock:
            sock.sendto(b"hello", (group, one.address[1]))
            heard = one.line()

    assert heard == "hello"


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("udp://192.0.2.77:9", "local_addr=('192.0.2.77', 9) can't be bound: "),
        ("udp://name.invalid:9", "local_addr=('name.invalid', 9) does not resolve: "),
        ("udp://[fe80::1%nowhere]:9", "interface='nowhere': no interface has that name"),
        ("udp://[ff02::7]:9?interface=nowhere", "interface='nowhere': no interface has that name"),
        (f"udp://{GROUP}:0?interface=nowhere", "interface='nowhere': no interface has that name"),
        (f"udp://{GROUP}:0?interface=99999999999", "interface='99999999999': no interface has"),
        ("unix:nowhere/socket", "path='nowhere/socket' can't be bound: No such file or directory"),
        (f"unix:{'x' * 200}", f"path='{'x' * 200}' can't be bound: AF_UNIX path too long"),
    ],
)
def test_what_can_not_be_opened_is_told_in_one_line(capsys, target, complaint):
    assert main(["listen", target]) == 1

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"aiorecv listen: {complaint}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "target",
    [
        "",
        "9999",
        "127.0.0.1:9999",
        "tcp://127.0.0.1:9999",
        "udp:127.0.0.1:9999",
        "udp://127.0.0.1",
        "udp://:9999",
        "udp://127.0.0.1:65536",
        "udp://127.0.0.1:+5",
        "udp://::1:9999",
        "udp://[::1:9999",
        "udp://[127.0.0.1]:9999",
        "udp://127.0.0.1:9999/path",
        "udp://user@127.0.0.1:9999",
        "udp://a..b:9999",
        "udp://127.0.0.1:9999?interface=lo",
        "udp://239.1.2.3:5000?device=lo",
        "udp://239.1.2.3:5000?interface",
        "udp://239.1.2.3:5000?interface=lo&interface=eth0",
        "udp://239.1.2.3:5000?source=name",
        "udp://239.1.2.3:5000?source=::1",
        "udp://[ff02::7]:5000",
        "unix:",
        "unix:@",
    ],
)
def test_a_target_of_no_known_form_is_refused_by_naming_the_forms(capsys, target):
    with pytest.raises(SystemExit) as exit_:
        main(["listen", target])

    assert exit_.value.code == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert complaint.startswith(f"aiorecv listen: error: argument TARGET: {target!r}: ")
    assert complaint.endswith(FORMS)
