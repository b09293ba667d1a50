"""TUN and TAP devices: packets byte by byte, both ways, and devices that go down or away."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import subprocess
import sys

import pytest

import aiorecv
from tests.namespaces import add_address, new_network, remove, set_down, set_up


@pytest.fixture
def network():
    with new_network():
        yield


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("address", "peer", "first", "headers"),
    [("10.9.0.1", "10.9.0.2", b"\x45", 28), ("fd00:9::1", "fd00:9::2", b"\x60", 48)],
)
async def test_packets_go_both_ways_whole_and_in_order(network, address, peer, first, headers):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    async with aiorecv.open_tun("vpn0") as receiver:
        assert receiver.local_addr == "vpn0"
        set_up("vpn0")
        add_address("vpn0", address)
        sent = [bytes([n]) * (n * 11 % 1200) for n in range(100)]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
            sock.connect((peer, 9999))
            for data in sent:
                sock.send(data)

            whole = []
            while len(whole) < 100:
                with await receiver.receive() as batch:
                    assert set(batch.addresses()) == {None}
                    # Others go the same way: the kernel's own, and those that wait for a route.
                    whole += [
                        data
                        for data in batch.payloads()
                        if is_udp(data) and data[headers - 6 : headers - 4] == b"\x27\x0f"
                    ]
            assert [data[headers:] for data in whole] == sent
            assert {data[:1] for data in whole} == {first}

            await aiorecv.Sender(receiver).send([(turned(data), None) for data in whole])
            sock.settimeout(10)
            assert [sock.recv(2000) for _ in sent] == sent


def is_udp(packet: bytes) -> bool:
    return packet[9 if packet[0] >> 4 == 4 else 6] == socket.IPPROTO_UDP


def turned(packet: bytes) -> bytes:
    """The same packet, back to its sender: a checksum is a sum, whatever the order."""
    at, size = (12, 4) if packet[0] >> 4 == 4 else (8, 16)
    source, target = packet[at : at + size], packet[at + size : at + 2 * size]
    ports = at + 2 * size
    return (
        packet[:at]
        + target
        + source
        + packet[ports + 2 : ports + 4]
        + packet[ports : ports + 2]
        + packet[ports + 4 :]
    )


async def test_a_tap_device_gives_frames(network):
    async with aiorecv.open_tun(mode="tap") as receiver:
        assert receiver.local_addr == "tap0"
        set_up("tap0")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind(("tap0", 0))
            frame = bytes(6) + b"\x02" + bytes(5) + b"\x88\xb5" + b"payload"
            sock.send(frame)

            found = []
            while frame not in found:
                with await receiver.receive() as batch:
                    found += batch.payloads()


async def test_the_kernel_chooses_a_number(network):
    async with aiorecv.open_tun() as one, aiorecv.open_tun() as two, aiorecv.open_tun("v%d") as v:
        assert [r.local_addr for r in (one, two, v)] == ["tun0", "tun1", "v0"]


async def test_a_device_that_goes_down_is_heard_again_when_it_is_up(network):
    async with aiorecv.open_tun("vpn0") as receiver:
        set_up("vpn0")
        add_address("vpn0", "10.9.0.1")
        sender = aiorecv.Sender(receiver)
        waiting = asyncio.ensure_future(first_udp(receiver))
        await asyncio.sleep(0)
        set_down("vpn0")
        with pytest.raises(OSError, match=r".") as raised:
            sender.send_nowait([(b"\x45" + bytes(19), None)])
        set_up("vpn0")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"again", ("10.9.0.2", 9))

        assert (await asyncio.wait_for(waiting, 10))[28:] == b"again"
        assert raised.value.errno == errno.EIO
        assert (sender.statistics().errors, receiver.statistics().errors) == (1, 0)


async def first_udp(receiver: aiorecv.Receiver) -> bytes:
    async for batch in receiver:
        for data in batch.payloads():
            if is_udp(data):
                return data
    raise AssertionError("ended")


async def test_a_device_that_is_removed_ends_its_receiver(network):
    async with aiorecv.open_tun("vpn0") as receiver:
        set_up("vpn0")
        waiting = asyncio.ensure_future(first_udp(receiver))
        await asyncio.sleep(0)
        remove("vpn0")

        with pytest.raises(OSError, match="'vpn0' is gone") as raised:
            await asyncio.wait_for(waiting, 10)

        assert raised.value.errno == errno.ENODEV
        assert receiver.fileno() == -1


async def test_a_device_that_another_has_opened_tells_its_name_and_closes_without_waiting(network):
    made = await aiorecv.open_tun("vpn0")
    fd = made.detach()
    async with aiorecv.from_fd(fd) as receiver:
        assert receiver.local_addr == "vpn0"
        set_up("vpn0")
        add_address("vpn0", "192.0.2.1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"through", ("192.0.2.2", 9999))

        assert (await first_udp(receiver)).endswith(b"through")


async def test_a_device_that_is_not_attached_yet_has_no_name(network):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="gone"):
            await aiorecv.from_fd(fd).receive()
    except BaseException:
        os.close(fd)
        raise


async def test_closing_inside_the_loop_body_ends_the_loop_and_the_batch_stays(network):
    async with aiorecv.open_tun("vpn0") as receiver:
        set_up("vpn0")
        add_address("vpn0", "192.0.2.1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _ in range(5):
                sock.sendto(b"through", ("192.0.2.2", 9999))
        batches = 0
        async for batch in receiver:
            receiver.close()
            batches += 1
            assert all(data for data, _ in batch)

    assert batches == 1


async def test_a_dropped_receiver_warns_and_closes_its_device(network):
    receiver = await aiorecv.open_tun("vpn0")

    with pytest.warns(ResourceWarning, match="unclosed"):
        del receiver
        gc.collect()

    async with asyncio.timeout(20):
        while any(name == "vpn0" for _, name in socket.if_nameindex()):
            await asyncio.sleep(0.005)


def test_without_the_capability_the_error_names_it():
    if os.geteuid() != 0:
        pytest.skip("needs root, to become an ordinary user")
    program = (
        "import asyncio, os, aiorecv\n"
        "os.seteuid(65534)\n"
        "async def main():\n"
        "    await aiorecv.open_tun('vpn0')\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "except PermissionError as error:\n"
        "    print(error)\n"
        "os.seteuid(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "CAP_NET_ADMIN" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["", "a/b", "sixteen-bytes-xx", "nul\0"])
def test_a_name_that_no_interface_can_have_is_refused(name):
    with pytest.raises(ValueError, match="name="):
        aiorecv.open_tun(name)


def test_other_wrong_arguments_are_refused_at_the_call():
    with pytest.raises(ValueError, match="mode="):
        aiorecv.open_tun(mode="tune")
    with pytest.raises(TypeError, match="mode"):
        aiorecv.open_tun(mode=1)
    with pytest.raises(TypeError, match="name"):
        aiorecv.open_tun(1)
    with pytest.raises(ValueError, match="gro"):
        aiorecv.open_tun(gro=True)
    with pytest.raises(ValueError, match="metadata"):
        aiorecv.open_tun(metadata=aiorecv.Metadata.DROPS)


async def test_a_device_that_somebody_has_is_busy_and_nothing_leaks(network):
    async with aiorecv.open_tun("vpn0"):
        before = open_descriptors()

        with pytest.raises(OSError, match="another program has this device") as raised:
            await aiorecv.open_tun("vpn0")

        assert raised.value.errno == errno.EBUSY
        assert open_descriptors() == before


async def test_a_sender_on_a_device_takes_no_address(network):
    async with aiorecv.open_tun("vpn0") as receiver:
        sender = aiorecv.Sender(receiver)

        with pytest.raises(ValueError, match="give None"):
            sender.send_nowait([(b"x", ("10.0.0.1", 9))])
        with pytest.raises(ValueError, match="source"):
            sender.send_nowait([(b"x", None)], source="10.0.0.1")
