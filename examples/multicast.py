"""Print what is sent to a multicast group, as a market data or telemetry reader would start.

Run it, send UDP packets to the group, and stop it with Ctrl-C:

    python examples/multicast.py 239.1.2.3 --port 5000 --interface eth0
"""

from __future__ import annotations

import argparse
import asyncio
import signal

import aiorecv


async def listen(arguments: argparse.Namespace) -> None:
    """Print packets until ``--count`` of them have come, or until Ctrl-C or SIGTERM."""
    everywhere = "::" if ":" in arguments.group else "0.0.0.0"
    # Every program that gives reuse_port=True gets every packet of a group.
    async with aiorecv.open_udp((everywhere, arguments.port), reuse_port=True) as receiver:
        for source in arguments.source or [None]:
            receiver.join_multicast(arguments.group, arguments.interface, source)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, receiver.close)
        print("listening on", receiver.local_addr, flush=True)
        heard = 0
        async for data, addr in receiver.datagrams():
            print(f"{addr!r}: {data!r}", flush=True)
            heard += 1
            if heard == arguments.count:
                break
    print("packets:", heard)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("group", help="address of the group, IPv4 or IPv6")
    parser.add_argument("--port", type=int, default=0, help="port; 0 lets the kernel choose")
    parser.add_argument("--interface", help="its name or address; by itself, as routes say")
    parser.add_argument("--source", action="append", help="hear this sender only; may be repeated")
    parser.add_argument("--count", type=int, help="stop after so many packets")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    arguments = parser.parse_args()
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(listen(arguments))


if __name__ == "__main__":
    main()
