"""Answer pings by a TUN device: every address behind it is there. Needs CAP_NET_ADMIN:

    sudo python examples/tun_echo.py tun7
    sudo ip addr add 192.0.2.1/24 dev tun7 && sudo ip link set tun7 up   # in another terminal
    ping 192.0.2.77

Stop it with Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import signal

import aiorecv

ICMP, ECHO_REQUEST, ECHO_REPLY = 1, 8, 0


def answer(packet: bytes) -> bytes | None:
    """The answer to an ICMP echo request in IPv4; None to anything else."""
    header = (packet[0] & 0xF) * 4 if packet else 0
    if len(packet) < header + 8 or packet[0] >> 4 != 4 or packet[9] != ICMP:
        return None
    if packet[header] != ECHO_REQUEST:
        return None
    # Exchanged addresses leave the sum of the header as it is; the request's type was 8 in it.
    reply = bytearray(packet)
    reply[12:16], reply[16:20] = packet[16:20], packet[12:16]
    reply[header] = ECHO_REPLY
    checksum = int.from_bytes(packet[header + 2 : header + 4], "big") + (ECHO_REQUEST << 8)
    reply[header + 2 : header + 4] = (checksum % 0xFFFF).to_bytes(2, "big")
    return bytes(reply)


async def echo(name: str) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    async with aiorecv.open_tun(name) as receiver:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, receiver.close)
        sender = aiorecv.Sender(receiver)
        print("device", receiver.local_addr, flush=True)
        async for batch in receiver:
            answers = map(answer, batch.payloads())
            await sender.send([(data, None) for data in answers if data is not None])
    print("answered:", sender.statistics().packets)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", help="of the device, such as tun7")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop")
    arguments = parser.parse_args()
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(echo(arguments.name))


if __name__ == "__main__":
    main()
