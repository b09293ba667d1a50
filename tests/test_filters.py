"""``filter=`` on sockets that are no packet sockets: what gets through, and what is refused."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import threading

import pytest

import aiorecv
from aiorecv import _pcap
from aiorecv._filters import attach, attached
from tests.helpers import UDP_GRO, UDP_SEGMENT, descriptors

LOCAL = ("127.0.0.1", 0)
ACCEPT_ALL, REFUSE_ALL = [(6, 0, 0, 0xFFFFFFFF)], [(6, 0, 0, 0)]
# Accepts datagrams that begin with "a": their first byte lies behind the UDP header.
BEGINS_WITH_A = [(0x30, 0, 0, 8), (0x15, 0, 1, 0x61), (6, 0, 0, 1), (6, 0, 0, 0)]


@pytest.fixture
def no_libpcap(monkeypatch):
    monkeypatch.setattr(_pcap, "find_library", lambda: ["libnothing-at-all.so"])
    _pcap._library.cache_clear()
    yield
    _pcap._library.cache_clear()


def queued(receiver: aiorecv.Receiver) -> list[bytes]:
    """The payloads that are there: over loopback, all that was sent."""
    found: list[bytes] = []
    while batch := receiver.receive_nowait():
        with batch:
            found += batch.payloads()
    return found


@contextlib.contextmanager
def sending_to(addr, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect(addr[: 2 if family == socket.AF_INET else 4])
        yield sock


SENT = [b"", b"abc", b"xyz", b"a" * 100, b"a" * 50_000, b"b" * 50_000]


@pytest.mark.parametrize(
    ("text", "accepts"),
    [
        ("", lambda data: True),
        ("udp", lambda data: True),
        ("ip and src host 127.0.0.1 and dst net 127.0.0.0/8", lambda data: True),
        ("tcp", lambda data: False),
        ("ip6", lambda data: False),
        ("host 192.0.2.1", lambda data: False),
        ("udp[8] = 0x61", lambda data: data[:1] == b"a"),
        ("udp[10:2] = 0x6161", lambda data: data[2:4] == b"aa"),
        ("ip[28:4] = 0x61616161", lambda data: data[:4] == b"aaaa"),
        ("udp[49999 + 8] = 0x61", lambda data: data[49_999:] == b"a"),
        ("udp[udp[4:2] - 1] = 0x61", lambda data: data[-1:] == b"a"),
        ("len = 31", lambda data: len(data) == 3),
        ("len <= 28", lambda data: not data),
        ("greater 128", lambda data: len(data) >= 100),
        ("less 128", lambda data: len(data) <= 100),
        ("udp[4:2] = 11 and len = 31", lambda data: len(data) == 3),
    ],
)
async def test_only_what_the_text_says_is_received(text, accepts):
    async with aiorecv.open_udp(LOCAL, filter=text) as receiver:
        with sending_to(receiver.local_addr) as sock:
            for data in SENT:
                sock.send(data)

        assert queued(receiver) == [data for data in SENT if accepts(data)]


async def test_ports_are_told_apart():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(LOCAL)
        port = one.getsockname()[1]
        for text, hears in (
            (f"udp src port {port}", [b"one"]),
            (f"not src port {port}", [b"two"]),
            (f"src portrange {port}-{port}", [b"one"]),
            (f"dst port {port}", []),
        ):
            async with aiorecv.open_udp(LOCAL, filter=text) as receiver:
                one.sendto(b"one", receiver.local_addr)
                with sending_to(receiver.local_addr) as two:
                    two.send(b"two")

                assert queued(receiver) == hears


@pytest.mark.parametrize(
    ("text", "accepts"),
    [
        ("ip6 and src host ::1", SENT),
        ("ip6 host ::2", []),
        ("ip", []),
        ("ip6[48:4] = 0x61616161", [b"a" * 100, b"a" * 50_000]),
        ("len = 51", [b"abc", b"xyz"]),
        ("greater 148", SENT[3:]),
    ],
)
async def test_ipv6_too(text, accepts):
    async with aiorecv.open_udp(("::1", 0), filter=text) as receiver:
        with sending_to(receiver.local_addr, socket.AF_INET6) as sock:
            for data in SENT:
                sock.send(data)

        assert queued(receiver) == accepts


@pytest.mark.parametrize(
    ("text", "accepts"),
    [
        ("ip", [b"over IPv4"]),
        ("ip6", [b"over IPv6!"]),
        ("len = 37 or len = 58", [b"over IPv4", b"over IPv6!"]),
        ("udp[17] = 0x21 or ip6[57] = 0x21", [b"over IPv6!"]),
    ],
)
async def test_a_dual_stack_socket_judges_each_by_its_own_header(text, accepts):
    async with aiorecv.open_udp(("::", 0), filter=text) as receiver:
        port = receiver.socket.getsockname()[1]
        with sending_to(("127.0.0.1", port)) as sock:
            sock.send(b"over IPv4")
        with sending_to(("::1", port, 0, 0), socket.AF_INET6) as sock:
            sock.send(b"over IPv6!")

        assert queued(receiver) == accepts


@pytest.mark.parametrize("text", ["udp[8:4] = 0x61626364", "len = 36", "udp dst port {port}"])
async def test_options_in_the_ip_header_move_nothing(text):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(LOCAL)
        port = probe.getsockname()[1]
    text = text.format(port=port)
    async with aiorecv.open_udp(("127.0.0.1", port), filter=text) as receiver:
        with sending_to(receiver.local_addr) as sock:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01\x01\x01\x01")
            sock.send(b"abcd")

        assert queued(receiver) == [b"abcd"]


async def test_instructions_are_given_the_datagram_from_its_udp_header_on_and_cut_nothing():
    async with aiorecv.open_udp(LOCAL, filter=BEGINS_WITH_A) as receiver:
        with sending_to(receiver.local_addr) as sock:
            for data in SENT:
                sock.send(data)

        assert queued(receiver) == [data for data in SENT if data[:1] == b"a"]
        assert receiver.statistics().truncated == 0


async def test_with_a_filter_each_datagram_of_a_train_is_judged():
    async with aiorecv.open_udp(LOCAL, filter="udp[8] = 0x61") as receiver:
        with sending_to(receiver.local_addr) as sock:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 2)
            sock.send(b"a1b2a3")

        assert queued(receiver) == [b"a1", b"a3"]


@pytest.mark.parametrize("text", ["src net 127.0.0.0/8 and not port 53", "udp[8] = 0x61"])
async def test_trains_are_received_where_the_filter_judges_all_of_one_alike(text, monkeypatch):
    monkeypatch.delenv("AIORECV_GRO", raising=False)
    async with aiorecv.open_udp(LOCAL, filter=text) as receiver:
        with sending_to(receiver.local_addr) as sock:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 2)
            sock.send(b"a1a2a3")

        assert queued(receiver) == [b"a1", b"a2", b"a3"]
        assert receiver.statistics().trains == ("udp" not in text)


async def test_gro_insisted_upon_a_train_is_judged_by_its_first_datagram(monkeypatch):
    monkeypatch.delenv("AIORECV_GRO", raising=False)
    async with aiorecv.open_udp(LOCAL, filter="udp[8] = 0x61", gro=True) as receiver:
        with sending_to(receiver.local_addr) as sock:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 2)
            sock.send(b"a1b2a3")
            sock.send(b"b1a2a3")

        assert queued(receiver) == [b"a1", b"b2", b"a3"]


async def test_not_one_datagram_gets_past_while_opening():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(LOCAL)
        addr = probe.getsockname()
    stop = threading.Event()

    def flood() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while not stop.is_set():
                for data in (b"bad", b"good"):
                    sock.sendto(data, addr)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        for _ in range(30):
            async with aiorecv.open_udp(addr, filter="udp[8:4] = 0x676f6f64") as receiver:
                with await receiver.receive() as batch:
                    assert set(batch.payloads()) == {b"good"}
    finally:
        stop.set()
        thread.join()


async def test_what_is_refused_is_counted_as_dropped_by_the_kernel_but_not_warned_of(caplog):
    async with aiorecv.open_udp(LOCAL, filter=REFUSE_ALL) as receiver:
        with sending_to(receiver.local_addr) as sock:
            for _ in range(5):
                sock.send(b"no")

        assert receiver.receive_nowait() is None
        assert receiver.statistics().kernel_drops == 5

    assert caplog.records == []


async def test_from_socket_filters_what_comes_from_then_on(bound, bound_sender):
    bound_sender.send(b"before")

    receiver = aiorecv.from_socket(bound, filter="udp[8] = 0x61")
    for data in (b"b", b"a"):
        bound_sender.send(data)

    assert queued(receiver) == [b"before", b"a"]
    assert receiver.detach() is bound
    assert attached(bound) == []
    bound_sender.send(b"b")
    assert bound.recv(10) == b"b"


async def test_detach_puts_the_filter_back_that_was_there_and_gro(bound, monkeypatch):
    monkeypatch.delenv("AIORECV_GRO", raising=False)
    before = [*BEGINS_WITH_A[:2], (6, 0, 0, 77), (6, 0, 0, 0)]
    attach(bound, before)
    bound.setsockopt(socket.IPPROTO_UDP, UDP_GRO, True)

    receiver = aiorecv.from_socket(bound, filter="udp[8] = 0x61")

    assert len(attached(bound)) > 4
    assert not bound.getsockopt(socket.IPPROTO_UDP, UDP_GRO)
    receiver.detach()
    assert attached(bound) == before
    assert bound.getsockopt(socket.IPPROTO_UDP, UDP_GRO)


async def test_a_refused_filter_leaves_the_socket_as_it_was(bound):
    attach(bound, ACCEPT_ALL)

    for wrong in ("udp and", [(6, 0, 0, 1), (0, 0, 0, 0)]):
        with pytest.raises(ValueError, match="filter"):
            aiorecv.from_socket(bound, filter=wrong)

        assert attached(bound) == ACCEPT_ALL
        aiorecv.from_socket(bound).detach()


async def test_a_locked_filter_can_not_be_replaced(bound):
    attach(bound, ACCEPT_ALL)
    bound.setsockopt(socket.SOL_SOCKET, 44, True)  # SO_LOCK_FILTER

    with pytest.raises(PermissionError, match="SO_LOCK_FILTER"):
        aiorecv.from_socket(bound, filter="udp")


async def test_a_program_that_can_not_be_put_back_is_not_taken_away(bound):
    if os.geteuid() != 0:
        pytest.skip("needs root, to load an eBPF program")
    program = _load_accepting_program()
    try:
        bound.setsockopt(socket.SOL_SOCKET, 50, program)  # SO_ATTACH_BPF

        with pytest.raises(ValueError, match="eBPF program already"):
            aiorecv.from_socket(bound, filter="udp")
    finally:
        os.close(program)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
async def test_instructions_suit_any_socket_and_cut_nothing(kind):
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    begins_with_a = [(0x30, 0, 0, 0), *BEGINS_WITH_A[1:]]
    with theirs:
        receiver = aiorecv.from_socket(ours, filter=begins_with_a)
        for data in (b"abc", b"bcd", b"a" * 1000):
            theirs.send(data)

        assert queued(receiver) == [b"abc", b"a" * 1000]
        receiver.close()


async def test_a_text_is_refused_where_it_has_no_meaning():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs, pytest.raises(ValueError, match="give instructions"):
        aiorecv.from_socket(ours, filter="udp")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("udp and", "syntax error"),
        ("port 70000", "70000"),
        ("ether host 02:00:00:00:00:01", "[Ee]thernet"),
        ("vlan 7", "VLAN"),
        ("udp\0", "NUL"),
        ("udp \ud800", "UTF-8"),
    ],
)
async def test_a_text_that_does_not_compile_is_refused_with_the_reason(text, reason):
    before = descriptors()

    with pytest.raises(ValueError, match=reason) as raised:
        await aiorecv.open_udp(LOCAL, filter=text)

    assert repr(text) in str(raised.value)
    assert descriptors() == before


@pytest.mark.parametrize(
    "program", [[(0, 0, 0, 0)], [(0xFFFF, 0, 0, 0), *ACCEPT_ALL], [(0x60, 0, 0, 3), *ACCEPT_ALL]]
)
async def test_instructions_that_the_kernel_refuses_are_a_value_error(program):
    before = descriptors()

    with pytest.raises(ValueError, match="the kernel refuses the program"):
        await aiorecv.open_udp(LOCAL, filter=program)

    assert descriptors() == before


@pytest.mark.parametrize("wrong", [3, b"udp", {(6, 0, 0, 1)}, iter(ACCEPT_ALL), bytearray(8)])
async def test_what_is_no_filter_is_a_type_error_at_the_call(wrong, bound):
    with pytest.raises(TypeError, match="filter is a text"):
        aiorecv.open_udp(LOCAL, filter=wrong)
    with pytest.raises(TypeError, match="filter is a text"):
        aiorecv.open_packet("lo", filter=wrong)
    with pytest.raises(TypeError, match="filter is a text"):
        aiorecv.from_socket(bound, filter=wrong)


async def test_wrong_instructions_are_refused_at_the_call():
    with pytest.raises(ValueError, match=r"filter\[0\].*jt"):
        aiorecv.open_udp(LOCAL, filter=[(6, 256, 0, 0)])


async def test_without_libpcap_the_error_names_the_package(no_libpcap):
    with pytest.raises(OSError, match=r"libpcap0\.8 .* or libpcap") as raised:
        await aiorecv.open_udp(LOCAL, filter="udp")

    assert raised.value.errno == errno.ENOENT


async def test_without_libpcap_instructions_do_as_well(no_libpcap):
    async with aiorecv.open_udp(LOCAL, filter=BEGINS_WITH_A) as receiver:
        assert attached(receiver.socket) != []


def test_a_program_that_the_kernel_has_no_room_for_names_the_limit():
    class Crowded(socket.socket):
        def setsockopt(self, *_):
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with (
        Crowded(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        pytest.raises(OSError, match=r"net\.core\.optmem_max") as raised,
    ):
        attach(sock, ACCEPT_ALL)

    assert raised.value.errno == errno.ENOMEM


def _load_accepting_program() -> int:
    """The descriptor of an eBPF program that accepts everything: bpf(2), linux/bpf.h."""
    code = struct.pack("=BBhi", 0xB7, 0, 0, -1) + struct.pack("=BBhi", 0x95, 0, 0, 0)
    instructions = ctypes.create_string_buffer(code)
    licence = ctypes.create_string_buffer(b"GPL")
    request = ctypes.create_string_buffer(
        struct.pack("@IIQQ", 1, 2, ctypes.addressof(instructions), ctypes.addressof(licence)), 128
    )
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    descriptor: int = libc.syscall(number, 5, request, 128)  # BPF_PROG_LOAD
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    return descriptor
