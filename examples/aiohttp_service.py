"""Count UDP packets inside an aiohttp application, which tells the counts over HTTP.

The endpoint opens with the application and closes with it. Run it, send UDP packets to the address
that it prints, fetch the page that it names, and stop it with Ctrl-C:

    python examples/aiohttp_service.py --port 8125 --http-port 8080
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator

from aiohttp import web

import aiorecv


class Collector(aiorecv.BatchProtocol):
    """Counts packets by sender."""

    def __init__(self) -> None:
        self.senders: Counter[str] = Counter()
        self.closed = asyncio.get_running_loop().create_future()

    def batch_received(self, batch: aiorecv.PacketBatch) -> None:
        self.senders.update(str(addr) for addr in batch.addresses())

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


ADDRESS = web.AppKey("ADDRESS", tuple[str, int])
TRANSPORT = web.AppKey("TRANSPORT", aiorecv.DatagramTransport)
COLLECTOR = web.AppKey("COLLECTOR", Collector)


async def collecting(app: web.Application) -> AsyncIterator[None]:
    """Open the endpoint before the first request, and close it after the last."""
    transport, collector = await aiorecv.create_datagram_endpoint(
        Collector, local_addr=app[ADDRESS]
    )
    app[TRANSPORT] = transport
    app[COLLECTOR] = collector
    yield
    transport.close()
    await collector.closed


async def counters(request: web.Request) -> web.Response:
    """What the endpoint has seen, and who sent it."""
    seen = request.app[TRANSPORT].statistics()
    names = ("packets", "bytes", "truncated", "kernel_drops")
    counts = {name: getattr(seen, name) for name in names}
    return web.json_response({**counts, "senders": request.app[COLLECTOR].senders})


def application(host: str, port: int) -> web.Application:
    """The application, for any runner."""
    app = web.Application()
    app[ADDRESS] = (host, port)
    app.cleanup_ctx.append(collecting)
    app.router.add_get("/counters", counters)
    return app


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    app = application(arguments.host, arguments.port)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, arguments.host, arguments.http_port)
        await site.start()
        host, port = runner.addresses[0][:2]
        print("listening on", app[TRANSPORT].get_extra_info("sockname"), flush=True)
        print(f"counters at http://{host}:{port}/counters", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()
    print("packets:", app[TRANSPORT].statistics().packets)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="UDP port; 0 lets the kernel choose")
    parser.add_argument("--http-port", type=int, default=0, help="TCP port; 0 as above")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    arguments = parser.parse_args()
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(arguments))


if __name__ == "__main__":
    main()
