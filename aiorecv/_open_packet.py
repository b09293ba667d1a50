"""Opening AF_PACKET sockets: from arguments to a receiver of frames."""

from __future__ import annotations

import errno
import socket
from typing import Unpack

from aiorecv._links import link_index
from aiorecv._open import Opening, make_receiver
from aiorecv._options import (
    ReceiveKeywords,
    ReceiveOptions,
    check_buffer_size,
    takes_receive_options,
)
from aiorecv._receiver import Receiver
from aiorecv._sockets import raise_receive_buffer
from aiorecv._threads import in_thread

_ETH_P_ALL = 0x0003
# linux/if_packet.h; the socket module has neither.
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23


@takes_receive_options()
def open_packet(
    interface: str,
    *,
    protocol: int = _ETH_P_ALL,
    receive_buffer_size: int | None = 4 << 20,
    **options: Unpack[ReceiveKeywords],
) -> Opening:
    """Open an AF_PACKET socket and receive the frames that come in by an interface.

    Args:
        interface: Its name.
        protocol: The Ethernet protocol to receive (ETH_P_IP is 0x0800); 0x0003: all.
        receive_buffer_size: As in ``open_udp``, as are the receive options, but for GRO.

    Raises:
        TypeError: At once, if an argument is of the wrong kind.
        ValueError: At once, if an argument is out of bounds.
        PermissionError: When awaited: without CAP_NET_RAW.
        OSError: When awaited: what the kernel says; ENODEV without such an interface.
    """
    receive = ReceiveOptions(**options)
    check_buffer_size(receive_buffer_size)

    def make() -> socket.socket:
        sock = _new_socket()
        try:
            link_index(sock, interface)  # a clear error, if there is none
            sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, True)
            raise_receive_buffer(sock, receive_buffer_size)
            # Not before: what other interfaces receive would be queued until then.
            sock.bind((interface, protocol))
            return sock
        except BaseException:
            sock.close()
            raise

    async def open_() -> Receiver:
        sock = await in_thread(make, socket.socket.close)
        try:
            return make_receiver(sock, receive, ours=True)
        except BaseException:
            sock.close()
            raise

    return Opening(open_)


def _new_socket() -> socket.socket:
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except PermissionError:
        raise PermissionError(
            errno.EPERM,
            "packet sockets need the capability CAP_NET_RAW: run as root, or give it to the "
            "interpreter by setcap cap_net_raw=ep",
        ) from None
