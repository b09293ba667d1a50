"""The flooder's trains and flows: what is sent, from whom, and that it is counted."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator

import pytest

from aiorecv.bench.flood import flood, longest_train, main


@pytest.fixture
def sink() -> Iterator[socket.socket]:
    """A bound socket with room for thousands of datagrams, which it gets one by one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        yield sock


def drain(sink: socket.socket) -> list[tuple[bytes, object]]:
    got = []
    while True:
        try:
            got.append(sink.recvfrom(65_536))
        except BlockingIOError:
            return got


def test_a_train_arrives_as_its_datagrams_the_first_one_numbered(sink):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
        source.connect(sink.getsockname())
        sent = flood(source, seconds=0.2, size=100, rate=5000, train=10)

    got = [data for data, _ in drain(sink)]
    assert sent == len(got) > 0
    assert sent % 10 == 0
    assert {len(data) for data in got} == {100}
    numbers = [int.from_bytes(data[:8], sys.byteorder) for data in got]
    assert numbers[::10] == list(range(0, sent, 10))
    assert not any(number for at, number in enumerate(numbers) if at % 10)


@pytest.mark.parametrize("train", [1, 44])
def test_the_rate_counts_datagrams_not_trains(sink, train):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
        source.connect(sink.getsockname())
        sent = flood(source, seconds=0.2, size=1472, rate=1000, train=train)

    assert 0 < sent <= train + 1000 * 0.2


@pytest.mark.parametrize("train", [1, 3])
def test_flows_take_turns(sink, capsys, train):
    host, port = sink.getsockname()
    options = ["--seconds", "0.2", "--size", "64", "--rate", "5000", "--flows", "4"]

    assert main(["--to", f"{host}:{port}", *options, "--train", str(train)]) == 0

    got = drain(sink)
    assert json.loads(capsys.readouterr().out)["sent"] == len(got)
    assert len({addr for _, addr in got}) == 4


@pytest.mark.parametrize(("size", "most"), [(1, 128), (511, 128), (1472, 44), (65_507, 1)])
def test_the_longest_train_is_what_the_kernel_takes(sink, size, most):
    assert longest_train(size) == most

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
        source.connect(sink.getsockname())
        assert flood(source, seconds=0.05, size=size, rate=1, train=most) <= most


def test_a_longer_train_is_refused_with_a_remedy(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--to", "127.0.0.1:9", "--size", "1472", "--train", "45"])

    assert exit_.value.code == 2
    assert "at most 44 datagrams" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--train", "--flows"])
@pytest.mark.parametrize("value", ["0", "1025", "many"])
def test_a_wrong_number_is_refused_with_a_remedy(capsys, option, value):
    with pytest.raises(SystemExit) as exit_:
        main(["--to", "127.0.0.1:9", option, value])

    assert exit_.value.code == 2
    assert "give a number from 1 to 1024" in capsys.readouterr().err
