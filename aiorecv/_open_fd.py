"""Opening what is no socket: TUN and TAP devices, and descriptors that exist already."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from typing import Unpack

from aiorecv._delivery import Delivery
from aiorecv._descriptors import Descriptor, check_descriptor, check_read_options
from aiorecv._engine import start_read_engine
from aiorecv._open import Opening, make_receiver
from aiorecv._options import ReceiveKeywords, ReceiveOptions, takes_receive_options
from aiorecv._receiver import Receiver
from aiorecv._threads import in_thread

_DEVICE = "/dev/net/tun"
# linux/if_tun.h and linux/if.h.
_TUNSETIFF, _TUNGETIFF = 0x400454CA, 0x800454D2
_DEVICE_NUMBER = os.makedev(10, 200)  # Documentation/admin-guide/devices.txt
_MODES = {"tun": 0x0001, "tap": 0x0002}  # IFF_TUN, IFF_TAP
_IFF_NO_PI = 0x1000
_IFREQ = struct.Struct("@16sH22x")


@takes_receive_options()
def open_tun(
    name: str | None = None, *, mode: str = "tun", **options: Unpack[ReceiveKeywords]
) -> Opening:
    """Open a TUN or TAP device and receive what the host sends by it; ``await`` it or use
    ``async with``.

    Packets have no header before them (IFF_NO_PI). What is sent by a ``Sender`` on the receiver
    arrives at the host. The interface is ``receiver.local_addr``; switching it on and giving it
    addresses is the caller's, and one that was not made persistent goes away at ``close()``.

    Args:
        name: The interface's name: one that exists is attached to, another is made. ``"vpn%d"``
            lets the kernel choose the number; None is ``"tun%d"`` or ``"tap%d"``.
        mode: ``"tun"``: IP packets; ``"tap"``: Ethernet frames.

    The receive options are those of ``open_udp``, without GRO and metadata. Slots are of 262,144
    bytes; of a packet that was cut, ``Packet.length`` is one more than a slot has.

    Raises:
        TypeError: At once, if an argument is of the wrong kind.
        ValueError: At once, if an argument is out of bounds.
        PermissionError: When awaited: without CAP_NET_ADMIN.
        OSError: When awaited: EBUSY if somebody has the device, ENOENT without the module.

    Source: Documentation/networking/tuntap.rst of the kernel.
    """
    receive = ReceiveOptions(**options)
    check_read_options(receive)
    if not isinstance(mode, str):
        raise TypeError(f"mode is 'tun' or 'tap', not {mode!r}")
    if mode not in _MODES:
        raise ValueError(f"mode={mode!r}: give 'tun' or 'tap'")
    wanted = f"{mode}%d" if name is None else name
    _check_name(wanted)

    async def open_() -> Receiver:
        made = await in_thread(lambda: _make(wanted, mode), Descriptor.close)
        try:
            return _read_receiver(made, receive)
        except BaseException:
            made.close()
            raise

    return Opening(open_)


@takes_receive_options()
def from_fd(fd: int, **options: Unpack[ReceiveKeywords]) -> Receiver:
    """Receive from a descriptor that gives a packet a ``read``; the receiver owns it from then on.

    Packet pipes (``os.pipe2(os.O_DIRECT)``), TUN devices, character devices. Addresses are None,
    but for ``local_addr`` of a TUN device, which is its name; the end of file ends iteration. A
    socket's descriptor is received from as by ``from_socket``. The receive options are those of
    ``open_tun``.

    The descriptor is made non-blocking, for all who share it (as after ``fork`` or ``dup``).
    ``detach()`` gives its number back, and undoes that. If this raises, it stays the caller's.

    Raises:
        TypeError: If ``fd`` is no int, or an option is of the wrong kind.
        ValueError: If it can't be waited for, as files can't, or not be read; or an option is out
            of bounds.
        OSError: If it is closed.
        RuntimeError: Without a running loop.
    """
    receive = ReceiveOptions(**options)
    if check_descriptor(fd):
        return _from_socket(fd, receive)
    check_read_options(receive)
    receiver = _read_receiver(Descriptor(fd, _device_name(fd)), receive)
    os.set_blocking(fd, False)
    return receiver


def _from_socket(fd: int, options: ReceiveOptions) -> Receiver:
    sock = socket.socket(fileno=fd)
    try:
        return make_receiver(sock, options, ours=False)
    except BaseException:
        sock.detach()
        raise


def _read_receiver(descriptor: Descriptor, options: ReceiveOptions) -> Receiver:
    engine = start_read_engine(descriptor, options)
    delivery = Delivery(engine.loop, engine.reader, engine.readiness, engine.turn_limit)
    return Receiver(engine.loop, engine.reader, delivery, engine.options)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name is an interface's, a str, or None, not {name!r}")
    if not 1 <= len(os.fsencode(name)) <= 15 or "\0" in name or "/" in name:
        raise ValueError(f"name={name!r}: a name has from 1 to 15 bytes, none of them a slash")


def _make(name: str, mode: str) -> Descriptor:
    try:
        fd = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _explained(error, name) from None
    try:
        request = _IFREQ.pack(os.fsencode(name), _MODES[mode] | _IFF_NO_PI)
        answer = fcntl.ioctl(fd, _TUNSETIFF, request)
    except OSError as error:
        os.close(fd)
        raise _explained(error, name) from None
    except BaseException:
        os.close(fd)
        raise
    return Descriptor(fd, os.fsdecode(answer[:16].partition(b"\0")[0]))


def _device_name(fd: int) -> str | None:
    """The interface's name, if ``fd`` is a TUN or TAP device that has one."""
    if os.fstat(fd).st_rdev != _DEVICE_NUMBER:
        return None
    try:
        answer = fcntl.ioctl(fd, _TUNGETIFF, _IFREQ.pack(b"", 0))
    except OSError:  # not attached yet
        return None
    return os.fsdecode(answer[:16].partition(b"\0")[0])


def _explained(error: OSError, name: str) -> OSError:
    reasons = {
        errno.EPERM: "a TUN device needs the capability CAP_NET_ADMIN, or one made for this user",
        errno.EACCES: f"{_DEVICE} is not open to this user: CAP_NET_ADMIN alone is not enough",
        errno.EBUSY: "another program has this device",
        errno.ENOENT: f"there is no {_DEVICE}: load its module by `modprobe tun`",
        errno.ENODEV: "the kernel has no TUN devices: load their module by `modprobe tun`",
        errno.ENXIO: "the kernel has no TUN devices: load their module by `modprobe tun`",
        errno.EINVAL: "an interface of another kind has this name, or it is no valid one",
    }
    said = reasons.get(error.errno or 0, error.strerror)
    return OSError(error.errno, f"name={name!r}: {said}")
