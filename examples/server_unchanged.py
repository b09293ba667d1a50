"""Answer each packet with its text in capitals: an asyncio server that knows nothing of aiorecv.

Only the runner, in main(), is told to make loops whose endpoints are aiorecv's. The same server,
changed more, is in server_one_line.py and server_batches.py. Run it, send UDP packets to the
address that it prints, and stop it with Ctrl-C:

    python examples/server_unchanged.py --port 8125
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any, cast

import aiorecv


class Capitals(asyncio.DatagramProtocol):
    """Answers, and counts its answers."""

    def __init__(self) -> None:
        self.answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data.upper(), addr)
        self.answered += 1


async def serve(host: str, port: int) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    transport, protocol = await loop.create_datagram_endpoint(Capitals, local_addr=(host, port))
    print("listening on", transport.get_extra_info("sockname"), flush=True)
    await stopped.wait()
    transport.close()
    print("answered:", protocol.answered, "by", type(transport).__name__)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port; 0 lets the kernel choose")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    arguments = parser.parse_args()
    base = None
    if arguments.uvloop:
        import uvloop

        base = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=aiorecv.loop_factory(base)) as runner:
        runner.run(serve(arguments.host, arguments.port))


if __name__ == "__main__":
    main()
