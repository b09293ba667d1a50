"""Print what the kernel tells of each packet: when it came, where to, by what, and marked how.

Run it, send UDP packets to the address that it prints, and stop it with Ctrl-C:

    python examples/metadata.py --port 9999
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import time

import aiorecv
from aiorecv import Metadata

ASKED = Metadata.TIMESTAMP | Metadata.DESTINATION | Metadata.TOS | Metadata.TTL | Metadata.DROPS


def line(packet: aiorecv.Packet) -> str:
    """One packet, told in a line; what the kernel did not tell is None."""
    interface = packet.interface and socket.if_indextoname(packet.interface)
    tos = packet.tos or 0
    return (
        f"{packet.addr!r} to {packet.destination} by {interface}: {packet.length} bytes, "
        f"ttl {packet.ttl}, dscp {tos >> 2}, ecn {tos & 3}, drops {packet.drops}"
    )


async def listen(host: str, port: int, count: int | None) -> None:
    """Print packets until ``count`` of them have come, or until Ctrl-C or SIGTERM."""
    longest_ns = heard = 0
    async with aiorecv.open_udp((host, port), metadata=ASKED) as receiver:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, receiver.close)
        print("listening on", receiver.local_addr, flush=True)
        async for batch in receiver:
            # Kernel times are of the clock of time.time_ns.
            longest_ns = max(longest_ns, time.time_ns() - min(batch.timestamps_ns))
            for packet in batch.packets():
                print(line(packet), flush=True)
            heard += len(batch)
            if count is not None and heard >= count:
                break
    print(f"packets: {heard}; the longest wait in the kernel: {longest_ns / 1e6:.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port; 0 lets the kernel choose")
    parser.add_argument("--count", type=int, help="stop after so many packets")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    arguments = parser.parse_args()
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(listen(arguments.host, arguments.port, arguments.count))


if __name__ == "__main__":
    main()
