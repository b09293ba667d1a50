"""Count packets and bytes by sender, as a syslog or StatsD collector would start.

Run it, send UDP packets to the address that it prints, and stop it with Ctrl-C:

    python examples/collector.py --port 8125
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections import Counter

import aiorecv


class Totals:
    """What came from whom."""

    def __init__(self) -> None:
        self.packets: Counter[aiorecv.Address] = Counter()
        self.bytes: Counter[aiorecv.Address] = Counter()

    def add(self, batch: aiorecv.PacketBatch) -> None:
        """Count a batch; no payload is copied for that."""
        for addr, length in zip(batch.addresses(), batch.lengths, strict=True):
            self.packets[addr] += 1
            self.bytes[addr] += length

    def lines(self) -> list[str]:
        """One line a sender, the busiest first, then the sum of all."""
        by_sender = [
            f"{addr!r}: {packets} packets, {self.bytes[addr]} bytes"
            for addr, packets in self.packets.most_common()
        ]
        return [*by_sender, f"total: {self.packets.total()} packets, {self.bytes.total()} bytes"]


async def collect(host: str, port: int, count: int | None) -> None:
    """Count until ``count`` packets have come, or until Ctrl-C or SIGTERM."""
    totals = Totals()
    async with aiorecv.open_udp((host, port)) as receiver:
        # A closed receiver ends its loop, so the totals are printed then, too.
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, receiver.close)
        print("listening on", receiver.local_addr, flush=True)
        async for batch in receiver:
            totals.add(batch)
            if count is not None and totals.packets.total() >= count:
                break
    print("\n".join(totals.lines()))
    print("dropped by the kernel:", receiver.statistics().kernel_drops)


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
        runner.run(collect(arguments.host, arguments.port, arguments.count))


if __name__ == "__main__":
    main()
