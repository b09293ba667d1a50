"""Print the frames that come in by an interface, a line each. Needs CAP_NET_RAW:

    sudo python examples/sniffer.py eth0 --filter "arp or udp port 53"

With --ring the kernel writes them into shared memory: cheaper in a flood, a millisecond later.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import ipaddress
import signal
from collections.abc import Iterator

import aiorecv
from aiorecv import Metadata

IPV4, IPV6 = 0x0800, 0x86DD


def line(packet: aiorecv.Packet) -> str:
    """When it came, by which VLAN, from whom to whom, and of how many bytes."""
    assert isinstance(packet.addr, tuple)  # of a frame it is
    interface, protocol = packet.addr[:2]
    when = datetime.datetime.fromtimestamp((packet.timestamp_ns or 0) / 1e9, datetime.UTC)
    vlan = "" if packet.vlan is None else f" vlan {packet.vlan[0] & 0xFFF}"
    source, destination = addresses(packet.data, protocol)
    return (
        f"{when:%H:%M:%S.%f} {interface}{vlan} {source} > {destination} "
        f"{protocol:#06x} {packet.length} bytes"
    )


def addresses(frame: bytes, protocol: int) -> tuple[str, str]:
    """Those of IP, if it is IP and whole enough, else those of Ethernet."""
    packet = frame[14:]
    if protocol == IPV4 and len(packet) >= 20:
        return str(ipaddress.IPv4Address(packet[12:16])), str(ipaddress.IPv4Address(packet[16:20]))
    if protocol == IPV6 and len(packet) >= 40:
        return str(ipaddress.IPv6Address(packet[8:24])), str(ipaddress.IPv6Address(packet[24:40]))
    return frame[6:12].hex(":"), frame[:6].hex(":")


def lines(batch: aiorecv.PacketBatch) -> Iterator[str]:
    return map(line, batch.packets())


async def sniff(interface: str, text: str | None, ring: bool, count: int | None) -> None:
    """Print until ``count`` frames have come, or until Ctrl-C or SIGTERM."""
    printed = 0
    async with aiorecv.open_packet(
        interface,
        filter=text,
        ring=aiorecv.RingConfig() if ring else None,
        metadata=Metadata.TIMESTAMP | Metadata.VLAN,
    ) as receiver:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, receiver.close)
        print("listening on", interface, flush=True)
        async for batch in receiver:
            for text_line in lines(batch):
                print(text_line, flush=True)
                printed += 1
                if printed == count:
                    receiver.close()
                    break
    print("dropped by the kernel:", receiver.statistics().kernel_drops)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("interface", help="such as eth0")
    parser.add_argument("--filter", help="what to print, in tcpdump's language")
    parser.add_argument("--ring", action="store_true", help="read a ring")
    parser.add_argument("--count", type=int, help="stop after so many frames")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    arguments = parser.parse_args()
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(sniff(arguments.interface, arguments.filter, arguments.ring, arguments.count))


if __name__ == "__main__":
    main()
