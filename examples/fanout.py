"""Count the frames of an interface in several processes, which share them. Needs CAP_NET_RAW:

    sudo python examples/fanout.py eth0 --processes 4

Each frame goes to one of them, and all frames of a flow to the same one. Stop it with Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

import aiorecv


async def count(interface: str, group: int | None, others: int, loop_arguments: list[str]) -> None:
    """Count until Ctrl-C or SIGTERM; the first process starts the others and ends them too."""
    fanout = aiorecv.Fanout("hash", group)
    frames = 0
    async with aiorecv.open_packet(interface, fanout=fanout) as receiver:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, receiver.close)
        print(f"process {os.getpid()} is in group {receiver.fanout_group}", flush=True)
        joining = ["--group", str(receiver.fanout_group), *loop_arguments]
        processes = [
            await asyncio.create_subprocess_exec(sys.executable, __file__, interface, *joining)
            for _ in range(others)
        ]
        async for batch in receiver:
            frames += len(batch)
    drops = receiver.statistics().kernel_drops
    print(f"process {os.getpid()}: {frames} frames, {drops} dropped", flush=True)
    for process in processes:
        process.terminate()
        await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("interface", help="such as eth0")
    parser.add_argument("--processes", type=int, default=1, help="how many share the frames")
    parser.add_argument("--group", type=int, help="the group to join; by itself a new one")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    arguments = parser.parse_args()
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    loop_arguments = ["--uvloop"] if arguments.uvloop else []
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(
            count(arguments.interface, arguments.group, arguments.processes - 1, loop_arguments)
        )


if __name__ == "__main__":
    main()
