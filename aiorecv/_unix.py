"""AF_UNIX datagram sockets: names and their files. Part of the openers' room."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable


def make_unix_socket(path: str | bytes) -> tuple[socket.socket, Callable[[], None] | None]:
    """A socket bound to ``path``, and what removes its file again, if it has one.

    Raises:
        OSError: What the kernel says of ``path``.
    """
    remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        sock.bind(path)
        return sock, None if _is_abstract(path) else _remover(path)
    except OSError as error:
        sock.close()
        # Python's own complaint, of a path that is too long, has no number.
        said = error.strerror or error
        raise OSError(error.errno, f"path={path!r} can't be bound: {said}") from None
    except BaseException:
        sock.close()
        raise


def remove_stale(path: str | bytes) -> None:
    """Remove the socket file that a program which ended has left there; asyncio does the same."""
    if _is_abstract(path):
        return
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)


def _is_abstract(path: str | bytes) -> bool:
    return path[:1] in ("\0", b"\0")


def _remover(path: str | bytes) -> Callable[[], None]:
    made = os.stat(path)

    def remove() -> None:
        with contextlib.suppress(OSError):
            # Somebody may have put another one there since.
            if os.path.samestat(os.stat(path), made):
                os.unlink(path)

    return remove
