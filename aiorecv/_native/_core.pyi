# Types of the compiled module; aiorecv.h says what each thing means.

from collections.abc import Callable
from typing import Any

class PeerEntry:
    size: int
    name: Any

class PeersStruct:
    count: int
    entries: list[PeerEntry]

class SlabStruct:
    slots: int
    slot_size: int
    stride: int
    memory: Any
    lengths: Any
    peers: Any
    segments: Any
    packets: int
    controls: Any
    control: Any

class LayoutStruct:
    offsets: Any
    lengths: Any
    wire_lengths: Any
    truncated: Any
    timestamps_ns: Any

class DetailsStruct:
    cut: int
    timestamp_ns: int
    drops: int
    tos: int
    ttl: int
    interface: int
    vlan_tci: int
    vlan_tpid: int
    family: int
    destination: Any

class ReceiverStruct:
    fd: int
    flags: int
    portable: int
    pending_error: int
    keep_descriptors: int
    recvmsg: Any
    recvmmsg: Any
    peers: PeersStruct
    packets: int
    bytes: int
    trains: int
    reads: int
    polled_reads: int
    full_reads: int
    empty_reads: int
    truncated: int
    ancillary_truncated: int
    rearmed: int

class RingStruct:
    block_size: int
    blocks: int
    most: int
    next: int
    left: int
    closed: int
    block: int
    first: int
    count: int
    stride: int
    flags: int
    full: int
    bytes: int
    memory: Any
    held: Any
    headers: Any
    offsets: Any
    lengths: Any
    peers: Any

class OutboxStruct:
    data: Any
    lengths: Any
    names: Any

class SenderStruct:
    fd: int
    gso: int
    portable: int
    sendmmsg: Any
    sendmsg: Any
    peers: PeersStruct
    packets: int
    bytes: int
    calls: int
    gso_sends: int

class SourceStruct:
    family: int
    address: Any

class Lib:
    AIORECV_MAX_SENDS: int
    AIORECV_NO_NAME: int
    AIORECV_MAX_SLOTS: int
    AIORECV_MAX_SLOT_SIZE: int
    AIORECV_MAX_PEERS: int
    AIORECV_NAME_SIZE: int
    AIORECV_CONTROL_SIZE: int
    AIORECV_RECEIVED_MASK: int
    AIORECV_EQUAL: int
    AIORECV_ONE_PEER: int
    AIORECV_TRAINS: int
    AIORECV_SLOTS_SHIFT: int
    AIORECV_BYTES_SHIFT: int
    AIORECV_PEERS_FULL: int
    AIORECV_END_OF_FILE: int
    AIORECV_RING_READY: int
    AIORECV_RING_STOPPED: int
    AIORECV_RING_UNPOLLABLE: int
    AIORECV_SCM_RIGHTS: int
    AIORECV_SCM_PIDFD: int

    def aiorecv_slab_new(self, slots: int, slot_size: int) -> SlabStruct: ...
    def aiorecv_slab_free(self, slab: SlabStruct) -> None: ...
    def aiorecv_peers_new(self, seed: int) -> PeersStruct: ...
    def aiorecv_peers_free(self, peers: PeersStruct) -> None: ...
    def aiorecv_receiver_init(self, receiver: ReceiverStruct, fd: int) -> None: ...
    def aiorecv_receiver_read(self, receiver: ReceiverStruct) -> None: ...
    def aiorecv_receive(self, receiver: ReceiverStruct, slab: SlabStruct, slots: int) -> int: ...
    def aiorecv_lay_out(self, slab: SlabStruct, read: int, layout: LayoutStruct) -> int: ...
    def aiorecv_pack(self, slab: SlabStruct, received: int, to: Any) -> None: ...
    def aiorecv_detail(self, slab: SlabStruct, message: int, details: DetailsStruct) -> None: ...
    def aiorecv_outbox_new(self) -> OutboxStruct: ...
    def aiorecv_outbox_free(self, outbox: OutboxStruct) -> None: ...
    def aiorecv_sender_init(self, sender: SenderStruct, fd: int) -> None: ...
    def aiorecv_sender_write(self, sender: SenderStruct) -> None: ...
    def aiorecv_send(
        self, sender: SenderStruct, outbox: OutboxStruct, first: int, end: int, source: Any
    ) -> int: ...
    def aiorecv_send_one(self, sender: SenderStruct, data: Any, length: int, name: int) -> int: ...
    def aiorecv_drain_errors(self, fd: int) -> int: ...
    def aiorecv_hung_up(self, fd: int) -> int: ...
    def aiorecv_get_filter(self, fd: int, program: Any, count: int) -> int: ...
    def aiorecv_can_fail(self, fd: int) -> int: ...
    def aiorecv_link(self, fd: int) -> int: ...
    def aiorecv_ring_new(
        self, fd: int, block_size: int, blocks: int, timeout: int
    ) -> RingStruct: ...
    def aiorecv_ring_close(self, ring: RingStruct) -> None: ...
    def aiorecv_ring_free(self, ring: RingStruct) -> None: ...
    def aiorecv_ring_read(self, receiver: ReceiverStruct, ring: RingStruct, polled: int) -> int: ...
    def aiorecv_ring_hold(self, ring: RingStruct, block: int) -> None: ...
    def aiorecv_ring_give(self, ring: RingStruct, block: int) -> None: ...
    def aiorecv_ring_state(self, ring: RingStruct) -> int: ...
    def aiorecv_ring_lay_out(
        self, ring: RingStruct, block: int, first: int, count: int, layout: LayoutStruct
    ) -> None: ...
    def aiorecv_ring_detail(
        self, ring: RingStruct, block: int, packet: int, details: DetailsStruct
    ) -> None: ...
    def aiorecv_ring_pack(
        self, ring: RingStruct, block: int, first: int, count: int, to: Any
    ) -> None: ...

class Ffi:
    NULL: Any
    errno: int

    def new(self, declaration: str, initial: object = ...) -> Any: ...
    def new_allocator(
        self, *, should_clear_after_alloc: bool = True
    ) -> Callable[[str, object], Any]: ...
    def cast(self, declaration: str, value: object) -> Any: ...
    def gc(self, cdata: Any, destructor: Callable[[Any], object] | None, size: int = 0) -> Any: ...
    def memmove(self, to: Any, data: Any, size: int) -> None: ...
    def from_buffer(self, declaration: str, buffer: object) -> Any: ...
    def buffer(self, cdata: Any, size: int = -1) -> Any: ...
    def unpack(self, cdata: Any, length: int) -> list[int]: ...

lib: Lib
ffi: Ffi
