# Types of the compiled module; _sink.h and _flood.h say what each thing means.

from typing import Any

class SinkStruct:
    fd: int
    slots: int
    bytes: int
    mapping_size: int

class FloodStruct:  # _flood.h
    sent: int

class Lib:
    # _sink.h
    SINK_SLOT_SIZE: int
    SINK_MAX_SLOTS: int
    SINK_MAX_PAYLOAD: int

    def sink_new(self, fd: int, slots: int) -> SinkStruct: ...
    def sink_free(self, sink: SinkStruct) -> None: ...
    def sink_drain(self, sink: SinkStruct) -> int: ...
    def sink_fill(self, fd: int, sizes: Any, count: int, segment: int) -> int: ...

    # _flood.h
    def flood_send(self, flood: FloodStruct, until_ns: int) -> int: ...

class Ffi:
    NULL: Any
    errno: int

    def new(self, declaration: str, initial: object = ...) -> Any: ...

lib: Lib
ffi: Ffi
