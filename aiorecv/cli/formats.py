"""Formats: one packet as ``aiorecv listen`` prints it."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType

from aiorecv import Address, Packet

_PREVIEW = 48  # bytes of a packet that its line shows
_ROW = 16  # bytes a line of a hexdump


def format_address(addr: Address) -> str:
    """A sender in one word: ``host:port``, ``[host]:port``, a path, ``@name``, or ``-``.

    Of a frame: ``interface/hardware address``.
    """
    if not addr:
        return "-"  # an AF_UNIX socket without a name
    if isinstance(addr, tuple):
        if len(addr) == 5:
            return f"{addr[0]}/{addr[4].hex(':')}"
        host, port = addr[:2]
        if len(addr) == 2:
            return f"{host}:{port}"
        zone = f"%{addr[3]}" if addr[3] else ""
        return f"[{host}{zone}]:{port}"
    return _printable(_unix_name(addr))


def format_line(packet: Packet) -> str:
    """When, from whom, how long, and how it begins."""
    start = packet.data[:_PREVIEW]
    more = "..." if len(packet.data) > _PREVIEW else ""
    return f"{_head(packet)}  {_printable(_decode(start))}{more}".rstrip()


def format_hex(packet: Packet) -> str:
    """When, from whom, how long, then all bytes in hexadecimal and as ASCII."""
    lines = [_head(packet)]
    for offset in range(0, len(packet.data), _ROW):
        row = packet.data[offset : offset + _ROW]
        digits = f"{row[:8].hex(' ')}  {row[8:].hex(' ')}"
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{offset:08x}  {digits:<48}  |{shown}|")
    return "\n".join(lines)


def format_text(packet: Packet) -> str:
    """The payload alone, as UTF-8: what a terminal could take for a command is escaped."""
    text = _decode(packet.data)
    return _printable(text.removesuffix("\n").removesuffix("\r"), keep="\n\t")


def format_json(packet: Packet) -> str:
    """A JSON object in one line; the payload as ``text`` if it is UTF-8, else as ``base64``."""
    addr = packet.addr
    fields = {
        "time": round(_time_ns(packet) / 1e9, 6),
        "addr": _json_address(addr),
        "length": packet.length,
        "truncated": packet.truncated,
    }
    try:
        fields["text"] = packet.data.decode()
    except UnicodeDecodeError:
        fields["base64"] = base64.b64encode(packet.data).decode()
    return json.dumps(fields)


def count(number: int, thing: str) -> str:
    """So many things, in words."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


FORMATS: Mapping[str, Callable[[Packet], str]] = MappingProxyType(
    {"line": format_line, "hex": format_hex, "text": format_text, "json": format_json}
)
"""By the names of the options."""


def _head(packet: Packet) -> str:
    seconds, rest = divmod(_time_ns(packet), 1_000_000_000)
    clock = f"{datetime.fromtimestamp(seconds):%H:%M:%S}.{rest // 1000:06d}"
    length = count(packet.length, "byte")
    if packet.truncated:
        length = f"{len(packet.data):,} of {length}"
    return f"{clock}  {format_address(packet.addr)}  {length}"


def _time_ns(packet: Packet) -> int:
    return packet.timestamp_ns or time.time_ns()


def _json_address(addr: Address) -> object:
    if isinstance(addr, tuple):  # hardware addresses are bytes
        return [part.hex(":") if isinstance(part, bytes) else part for part in addr]
    return None if addr is None else _unix_name(addr)


def _unix_name(addr: str | bytes) -> str:
    name = os.fsdecode(addr)
    return "@" + name[1:] if name.startswith("\0") else name


def _decode(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _printable(text: str, keep: str = "") -> str:
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in keep
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
