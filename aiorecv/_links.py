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
_SIOCGIFNAME, _SIOCGIFHWADDR, _SIOCGIFINDEX = 0x8910, 0x8927, 0x8933
_IFREQ = struct.Struct("@16si20x")
_HARDWARE = struct.Struct("@16xH22x")


def link_name(sock: socket.socket, index: int) -> str:
    """The name of an interface, or "" if there is none with this index: as ``recvfrom`` has it."""
    try:
        answer = fcntl.ioctl(sock.fileno(), _SIOCGIFNAME, _IFREQ.pack(b"", index))
    except OSError:
        return ""
    return os.fsdecode(answer[:16].partition(b"\0")[0])


def check_link_name(name: object) -> None:
    """Raise if no interface can have that name."""
    if not isinstance(name, str):
        raise TypeError(f"interface is a name, a str, not {name!r}")
    if not 1 <= len(os.fsencode(name)) <= 15 or "\0" in name:
        raise ValueError(f"interface={name!r}: a name has from 1 to 15 bytes")


def link_index(sock: socket.socket, name: str) -> int:
    """The index of an interface; raises OSError (ENODEV) if none has that name."""
    try:
        answer = fcntl.ioctl(sock.fileno(), _SIOCGIFINDEX, _IFREQ.pack(os.fsencode(name), 0))
    except OSError:
        raise OSError(errno.ENODEV, f"interface={name!r}: no interface has that name") from None
    return int(_IFREQ.unpack(answer)[1])


def link_hardware(sock: socket.socket, name: str) -> int:
    """What kind of interface it is, ARPHRD_... in C."""
    answer = fcntl.ioctl(sock.fileno(), _SIOCGIFHWADDR, _IFREQ.pack(os.fsencode(name), 0))
    return int(_HARDWARE.unpack(answer)[0])
