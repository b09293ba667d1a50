"""Links: interfaces as a socket sees them. In the options' room.

Asked of the socket itself, since a thread may be in another network namespace than it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct

# linux/sockios.h, netdevice(7).
_SIOCGIFNAME, _SIOCGIFINDEX = 0x8910, 0x8933
_IFREQ = struct.Struct("@16si20x")


def link_name(sock: socket.socket, index: int) -> str:
    """The name of an interface, or "" if there is none with this index: as ``recvfrom`` has it."""
    try:
        answer = fcntl.ioctl(sock.fileno(), _SIOCGIFNAME, _IFREQ.pack(b"", index))
    except OSError:
        return ""
    return os.fsdecode(answer[:16].partition(b"\0")[0])


def link_index(sock: socket.socket, name: str) -> int:
    """The index of an interface.

    Raises:
        ValueError: If no interface can have that name.
        OSError: ENODEV, if none has it.
    """
    encoded = os.fsencode(name)
    if not 1 <= len(encoded) <= 15 or b"\0" in encoded:
        raise ValueError(f"interface={name!r}: a name has from 1 to 15 bytes")
    try:
        answer = fcntl.ioctl(sock.fileno(), _SIOCGIFINDEX, _IFREQ.pack(encoded, 0))
    except OSError:
        raise OSError(errno.ENODEV, f"interface={name!r}: no interface has that name") from None
    return int(_IFREQ.unpack(answer)[1])
