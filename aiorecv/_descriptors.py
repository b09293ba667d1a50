"""Descriptors that are no sockets, in a socket's place. In the options' room."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat

from aiorecv._options import ReceiveOptions
from aiorecv._packet import Metadata

# A packet of a TUN device has at most 65,535 bytes and a header; others may be longer.
READ_SLOT_SIZE = 262_144


class Descriptor:
    """An open descriptor, with what a receiver asks of a socket: its number, its name, its end."""

    __slots__ = ("_fd", "_name")

    def __init__(self, fd: int, name: str | None = None) -> None:
        self._fd = fd
        self._name = name

    def __repr__(self) -> str:
        name = "" if self._name is None else f" of {self._name}"
        return f"<descriptor {self._fd}{name}>"

    def fileno(self) -> int:
        """Its number; -1 once closed."""
        return self._fd

    def getsockname(self) -> str | None:
        """The interface's name, of a TUN device."""
        return self._name

    def getpeername(self) -> None:
        """It has no peer."""

    def detach(self) -> int:
        """Its number, which is the caller's to close from then on."""
        fd, self._fd = self._fd, -1
        return fd

    def close(self) -> None:
        """Close it. Safe to repeat."""
        fd = self.detach()
        if fd != -1:
            os.close(fd)


def check_descriptor(fd: int) -> bool:
    """Whether ``fd`` is a socket; raises if it neither is one nor gives packets by ``read``.

    Raises:
        TypeError: If it is no int.
        ValueError: If it can't be waited for, as files and directories can't, or not be read.
        OSError: If it is closed.
    """
    if not isinstance(fd, int) or isinstance(fd, bool):
        raise TypeError(f"fd is the number of a descriptor, an int, not {fd!r}")
    if not 0 <= fd < 2**31:
        raise OSError(errno.EBADF, f"fd={fd} is no open descriptor")
    try:
        mode = os.fstat(fd).st_mode
    except OSError as error:
        raise OSError(error.errno, f"fd={fd}: {error.strerror}") from None
    if stat.S_ISSOCK(mode):
        return True
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
        raise ValueError(f"fd={fd} is open for writing alone: nothing can be received")
    with select.epoll() as epoll:
        try:
            epoll.register(fd, select.EPOLLIN)
        except PermissionError:
            raise ValueError(
                f"fd={fd} can't be waited for, as a file on a disk can't: give a descriptor that "
                "epoll takes and that gives a packet a read, such as a packet pipe"
            ) from None
    return False


def check_read_options(options: ReceiveOptions) -> None:
    """Raise if the options ask for what only sockets have."""
    if options.gro:
        raise ValueError("gro=True: only UDP sockets have it, leave gro out")
    if options.metadata is not Metadata.NONE:
        raise ValueError(f"metadata={options.metadata}: a descriptor tells of nothing but bytes")
