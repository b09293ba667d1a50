"""Receive packets on asyncio in batches: one ``recvmmsg``, no packet memory while idle."""

from aiorecv._addresses import Address
from aiorecv._batch import PacketBatch
from aiorecv._endpoint import create_datagram_endpoint
from aiorecv._errors import (
    AiorecvError,
    BatchReleasedError,
    ReceiverBusyError,
    ReceiverClosedError,
)
from aiorecv._fanout import Fanout
from aiorecv._loop import loop_factory
from aiorecv._open import from_socket, open_udp, open_unix
from aiorecv._open_fd import from_fd, open_tun
from aiorecv._open_packet import open_packet
from aiorecv._packet import Metadata, Packet
from aiorecv._receiver import Receiver
from aiorecv._ring import RingConfig
from aiorecv._sender import Sender
from aiorecv._statistics import ReceiverStatistics, SenderStatistics
from aiorecv._transport import BatchProtocol, DatagramTransport
from aiorecv._version import __version__
from aiorecv._window import AdaptiveWindow, FixedWindow, PeakWindow, WindowPolicy

__all__ = [
    "AdaptiveWindow",
    "Address",
    "AiorecvError",
    "BatchProtocol",
    "BatchReleasedError",
    "DatagramTransport",
    "Fanout",
    "FixedWindow",
    "Metadata",
    "Packet",
    "PacketBatch",
    "PeakWindow",
    "Receiver",
    "ReceiverBusyError",
    "ReceiverClosedError",
    "ReceiverStatistics",
    "RingConfig",
    "Sender",
    "SenderStatistics",
    "WindowPolicy",
    "__version__",
    "create_datagram_endpoint",
    "from_fd",
    "from_socket",
    "loop_factory",
    "open_packet",
    "open_tun",
    "open_udp",
    "open_unix",
]
