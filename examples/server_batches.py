"""Answer each packet with its text in capitals: a server written for batches.

A batch is read by one system call, and its answers leave by few. The same server as an asyncio
protocol is in server_one_line.py and server_unchanged.py. Run it, send UDP packets to the address
that it prints, and stop it with Ctrl-C:

    python examples/server_batches.py --port 8125
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal

import aiorecv


async def serve(host: str, port: int) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    async with aiorecv.open_udp((host, port)) as receiver:
        # What can't be sent is counted below; it must not end the server.
        sender = aiorecv.Sender(receiver, on_error=lambda error: None)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, receiver.close)
        print("listening on", receiver.local_addr, flush=True)
        # A closed receiver ends the loop; one that is closed while answers wait ends their wait.
        with contextlib.suppress(aiorecv.ReceiverClosedError):
            async for batch in receiver:
                await sender.send([(data.upper(), addr) for data, addr in batch])
    sent = sender.statistics()
    print("answered:", sent.packets, "refused:", sent.errors)
    print("dropped by the kernel:", receiver.statistics().kernel_drops)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port; 0 lets the kernel choose")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    arguments = parser.parse_args()
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(arguments.host, arguments.port))


if __name__ == "__main__":
    main()
