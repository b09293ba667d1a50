"""Opening AF_PACKET sockets: from arguments to a receiver of frames."""

from __future__ import annotations

import errno
import socket
import struct
from typing import TypeAlias, Unpack

import attrs

from aiorecv._bpf import Program
from aiorecv._fanout import Fanout, join_fanout
from aiorecv._filters import REJECT_ALL, FilterLike, attach, detach, parse_filter
from aiorecv._links import check_link_name, link_hardware, link_index
from aiorecv._open import Opening, make_receiver
from aiorecv._options import (
    ReceiveKeywords,
    ReceiveOptions,
    check_buffer_size,
    takes_receive_options,
)
from aiorecv._packet import Metadata
from aiorecv._receiver import Receiver
from aiorecv._ring import Ring, RingConfig
from aiorecv._sockets import raise_receive_buffer
from aiorecv._threads import in_thread, start_thread
from aiorecv._window import FixedWindow

_Made: TypeAlias = tuple[socket.socket, Ring | None, int | None]

_ETH_P_ALL = 0x0003
# linux/socket.h and linux/if_packet.h; the socket module has none of them.
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP, _PACKET_IGNORE_OUTGOING = 1, 23
_PACKET_MR_PROMISC = 1
_MREQ = struct.Struct("@iHH8x")  # index, type, length of the address, address


@takes_receive_options()
def open_packet(
    interface: str,
    *,
    protocol: int = _ETH_P_ALL,
    ring: RingConfig | None = None,
    filter: FilterLike = None,  # noqa: A002  # the word for it
    fanout: Fanout | None = None,
    promiscuous: bool = False,
    receive_buffer_size: int | None = 4 << 20,
    **options: Unpack[ReceiveKeywords],
) -> Opening:
    """Open an AF_PACKET socket and receive the frames that come in by an interface.

    Frames are whole, from their link-layer header on, but for a VLAN tag, which the kernel takes
    off: ``Metadata.VLAN`` tells of it. Those that this host sends are left out. On an interface
    that is down this waits until it is up.

    Args:
        interface: The name of the interface.
        protocol: The protocol to receive, as in an Ethernet header (ETH_P_IP is 0x0800); 0x0003,
            ETH_P_ALL: every one.
        ring: Read a ring of blocks that the kernel writes, a block a batch: far cheaper in a flood,
            but a lone frame waits for its block's timer. Without ``window`` and ``slot_size``; its
            memory is the kernel's.
        filter: Which frames the kernel is to queue: a text in tcpdump's language, such as
            ``"arp or udp port 53"``, compiled by libpcap; or BPF instructions
            ``(code, jt, jf, k)``, which may cut a frame: it is marked then, and its length told.
            A text that names ``vlan`` needs an interface that is up.
        fanout: Share the frames with other receivers: each gets some of them, as this says.
        promiscuous: Have the interface receive frames to others, too, while this is open.
        receive_buffer_size: As in ``open_udp``, as are the receive options, but for GRO. Slots are
            of 65,664 bytes, which hold the largest frame.

    Raises:
        TypeError: At once, if an argument is of the wrong kind.
        ValueError: At once, if an argument is out of bounds; when awaited, if ``filter`` does not
            compile, or the kernel refuses it.
        PermissionError: When awaited: without CAP_NET_RAW.
        OSError: When awaited: what the kernel says; ENODEV without such an interface; ENOENT if
            libpcap is needed, and not installed.

    Source: packet(7).
    """
    receive = ReceiveOptions(**options)
    check_buffer_size(receive_buffer_size)
    check_link_name(interface)
    _check_protocol(protocol)
    if not (fanout is None or isinstance(fanout, Fanout)):
        raise TypeError(f"fanout is a Fanout, or None, not {fanout!r}")
    if ring is not None:
        receive = _of_ring(ring, receive)
    wanted = parse_filter(filter)
    if not isinstance(promiscuous, bool):
        raise TypeError(f"promiscuous is True or False, not {promiscuous!r}")

    def make() -> _Made:
        sock = _new_socket()
        try:
            index = link_index(sock, interface)
            program: Program = []
            if wanted is not None:
                program = wanted.for_frames(link_hardware(sock, interface), interface)
                attach(sock, program)
            sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, True)
            raise_receive_buffer(sock, receive_buffer_size)
            if promiscuous:
                request = _MREQ.pack(index, _PACKET_MR_PROMISC, 0)
                sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, request)
            memory = None if ring is None else Ring(sock.fileno(), ring)
            return sock, memory, _bind(sock, (interface, protocol), fanout, program)
        except BaseException:
            sock.close()
            raise

    async def open_() -> Receiver:
        sock, memory, group = made = await in_thread(make, _undo)
        try:
            return make_receiver(sock, receive, wanted, ours=True, fanout_group=group, ring=memory)
        except BaseException:
            _undo(made)
            raise

    return Opening(open_)


def _undo(made: _Made) -> None:
    sock, memory, _ = made
    if memory is not None:
        memory.close()
    start_thread(sock.close)


def _of_ring(ring: object, options: ReceiveOptions) -> ReceiveOptions:
    """The options of a receiver that reads a ring."""
    if not isinstance(ring, RingConfig):
        raise TypeError(f"ring is a RingConfig, or None, not {ring!r}")
    for name in ("window", "slot_size"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} is not for rings: a read is a block, see RingConfig")
    untold = options.metadata & ~(Metadata.TIMESTAMP | Metadata.VLAN)
    if untold:
        raise ValueError(f"metadata={untold}: a ring tells of TIMESTAMP and VLAN alone")
    return attrs.evolve(options, window=FixedWindow(1))


def _bind(
    sock: socket.socket, address: tuple[str, int], fanout: Fanout | None, program: Program
) -> int | None:
    """Let frames in, no sooner, or those of other interfaces would be queued before.

    ``program`` is the filter that ``sock`` has, empty if it has none. Returns the number of the
    fanout group.
    """
    if fanout is None:
        sock.bind(address)
        return None
    # Only what is bound can join, and what came in between would be received twice.
    attach(sock, REJECT_ALL)
    sock.bind(address)
    group = join_fanout(sock, fanout)
    if program:
        attach(sock, program)
    else:
        detach(sock)
    return group


def _new_socket() -> socket.socket:
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except PermissionError:
        raise PermissionError(
            errno.EPERM,
            "packet sockets need the capability CAP_NET_RAW: run as root, or give it to the "
            "program by setcap or systemd's AmbientCapabilities",
        ) from None


def _check_protocol(protocol: object) -> None:
    if not isinstance(protocol, int) or isinstance(protocol, bool):
        raise TypeError(f"protocol is a number, such as 0x0800 for IPv4, not {protocol!r}")
    if not 1 <= protocol <= 0xFFFF:
        raise ValueError(f"protocol={protocol:#x}: give from 0x0001 to 0xffff; 0x0003 is every one")
