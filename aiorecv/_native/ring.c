/* Packet rings, TPACKET_V3: blocks that the kernel fills and the program gives back. packet(7). */
#define _GNU_SOURCE
#include "peers.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
    LEAST_ROOM = 80, /* bytes that a packet takes in a block at least: header, address, padding */
    NAME_HEAD = offsetof(struct sockaddr_ll, sll_addr)
};

/* One packet in a block: where its header and its bytes lie. */
struct frame {
    const struct tpacket3_hdr *header;
    const struct sockaddr_ll *name;
    uint32_t offset;
};

static uint8_t *block_at(const struct aiorecv_ring *ring, uint32_t block)
{
    return ring->memory + (size_t)block * ring->block_size;
}

/* A block starts at a page, so the descriptor at its start is aligned. */
static struct tpacket_block_desc *descriptor(const struct aiorecv_ring *ring, uint32_t block)
{
    return (struct tpacket_block_desc *)(void *)block_at(ring, block);
}

/* The status is the lock: acquire sees all that the kernel wrote before it set it, release lets the
 * kernel see that we are done. */
static uint32_t status_of(const struct aiorecv_ring *ring, uint32_t block)
{
    return __atomic_load_n(&descriptor(ring, block)->hdr.bh1.block_status, __ATOMIC_ACQUIRE);
}

static void give_to_kernel(const struct aiorecv_ring *ring, uint32_t block)
{
    __atomic_store_n(&descriptor(ring, block)->hdr.bh1.block_status, TP_STATUS_KERNEL,
                     __ATOMIC_RELEASE);
}

static int set_up(int fd, uint32_t block_size, uint32_t blocks, uint32_t timeout)
{
    enum { FRAME_SIZE = 2048 }; /* only its fitting matters: V3 packs frames of any size */
    int version = TPACKET_V3;
    struct tpacket_req3 request;

    memset(&request, 0, sizeof(request));
    request.tp_block_size = block_size;
    request.tp_block_nr = blocks;
    request.tp_frame_size = FRAME_SIZE;
    request.tp_frame_nr = block_size / FRAME_SIZE * blocks;
    request.tp_retire_blk_tov = timeout;
    if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) < 0)
        return -1;
    return setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request));
}

static uint64_t table_size(uint32_t blocks, uint32_t most)
{
    return sizeof(struct aiorecv_ring) + (uint64_t)blocks * (1 + 4ull * most) * sizeof(uint32_t);
}

struct aiorecv_ring *aiorecv_ring_new(int fd, uint32_t block_size, uint32_t blocks,
                                      uint32_t timeout)
{
    uint32_t most = block_size / LEAST_ROOM;
    size_t entries = (size_t)blocks * most, size = (size_t)block_size * blocks;
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    struct aiorecv_ring *ring;
    void *memory;

    if (fd >= 0 && set_up(fd, block_size, blocks, timeout) < 0)
        return NULL;
    /* Its pages are touched as packets come: the mapping itself costs no memory. */
    ring = mmap(NULL, table_size(blocks, most), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ring == MAP_FAILED)
        return NULL;
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) {
        int why = errno;

        munmap(ring, table_size(blocks, most));
        errno = why;
        return NULL;
    }
    ring->block_size = block_size;
    ring->blocks = blocks;
    ring->most = most;
    ring->memory = memory;
    ring->held = (uint32_t *)(void *)(ring + 1); /* the struct's size is a multiple of 8 */
    ring->headers = ring->held + blocks;
    ring->offsets = ring->headers + entries;
    ring->lengths = ring->offsets + entries;
    ring->peers = ring->lengths + entries;
    return ring;
}

/*
 * Replace a block by a copy at the same address: views go on, and the socket is no longer mapped.
 * mremap does that in one step; where there is no memory for the copy, the block stays.
 */
static void move(uint8_t *block, size_t size)
{
    void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED)
        return;
    memcpy(copy, block, size);
    if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, block) == MAP_FAILED)
        munmap(copy, size);
}

void aiorecv_ring_close(struct aiorecv_ring *ring)
{
    if (ring->closed)
        return;
    ring->closed = 1;
    for (uint32_t i = 0; i < ring->blocks; i++) {
        if (ring->held[i])
            move(block_at(ring, i), ring->block_size);
        else
            munmap(block_at(ring, i), ring->block_size);
    }
}

void aiorecv_ring_free(struct aiorecv_ring *ring)
{
    aiorecv_ring_close(ring);
    for (uint32_t i = 0; i < ring->blocks; i++) {
        if (ring->held[i])
            munmap(block_at(ring, i), ring->block_size);
    }
    munmap(ring, table_size(ring->blocks, ring->most));
}

void aiorecv_ring_hold(struct aiorecv_ring *ring, uint32_t block)
{
    ring->held[block]++;
}

void aiorecv_ring_give(struct aiorecv_ring *ring, uint32_t block)
{
    /* What is left of a block that came in parts has still to be read. */
    if (--ring->held[block] || (block == ring->next && ring->left && !ring->closed))
        return;
    if (ring->closed)
        munmap(block_at(ring, block), ring->block_size);
    else
        give_to_kernel(ring, block);
}

int aiorecv_ring_state(const struct aiorecv_ring *ring)
{
    uint32_t before = (ring->next ? ring->next : ring->blocks) - 1;
    bool held = ring->held[ring->next] && !ring->left;
    bool ready = !held && status_of(ring, ring->next) & TP_STATUS_USER;

    return (ready ? AIORECV_RING_READY : 0) | (held ? AIORECV_RING_STOPPED : 0) |
           (ring->held[before] ? AIORECV_RING_UNPOLLABLE : 0);
}

/* The packet at `at`, or false if it does not lie in the block: then nothing behind it can. */
static bool frame_at(const struct aiorecv_ring *ring, const uint8_t *block, uint32_t at,
                     struct frame *frame)
{
    enum { HEAD = TPACKET_ALIGN(sizeof(struct tpacket3_hdr)) + sizeof(struct sockaddr_ll) };
    uint32_t room = ring->block_size - at;

    /* The kernel aligns packets to 8 bytes, so the structs are. */
    if (at % 8 || at > ring->block_size || room < HEAD)
        return false;
    frame->header = (const struct tpacket3_hdr *)(const void *)(block + at);
    frame->name = (const struct sockaddr_ll *)(const void *)(
        block + at + TPACKET_ALIGN(sizeof(struct tpacket3_hdr)));
    frame->offset = at + frame->header->tp_mac;
    return frame->header->tp_mac <= room && frame->header->tp_snaplen <= room - frame->header->tp_mac;
}

/* Only as many bytes of the address count as it has: those behind are not written. */
static uint32_t name_size(const struct sockaddr_ll *name)
{
    return NAME_HEAD + (name->sll_halen < sizeof(name->sll_addr) ? name->sll_halen
                                                                 : (uint32_t)sizeof(name->sll_addr));
}

/* What a walk has found: not 0 where frames differ. */
struct differences {
    uint32_t shapes; /* lengths, or distances */
    uint32_t peers;
};

/* Compare a frame with the one before it, whose header is at `last`. */
static void compare(struct aiorecv_ring *ring, size_t entry, uint32_t last,
                    struct differences *found)
{
    uint32_t stride = ring->headers[entry] - last;
    uint32_t start = ring->offsets[entry] - ring->headers[entry];

    if (ring->count == 2)
        ring->stride = stride;
    found->shapes |= ring->lengths[entry] ^ ring->lengths[entry - 1];
    found->shapes |= (stride ^ ring->stride) | (stride < ring->lengths[entry]);
    found->shapes |= start ^ (ring->offsets[entry - 1] - last);
    found->peers |= ring->peers[entry] ^ ring->peers[entry - 1];
}

/* Walk on in the next block, until its end or until the table of peers is full. */
static void walk(struct aiorecv_receiver *receiver, struct aiorecv_ring *ring)
{
    const uint8_t *block = block_at(ring, ring->next);
    size_t entry = (size_t)ring->next * ring->most + ring->first;
    uint32_t at = ring->at, size = 0, peer = 0, last = 0;
    struct differences found = {0, 0};
    const uint8_t *name = NULL;
    struct frame frame;

    for (; ring->left && receiver->peers->count < AIORECV_MAX_PEERS; entry++, ring->left--) {
        if (!frame_at(ring, block, at, &frame)) {
            ring->left = 0;
            break;
        }
        if (!name || name_size(frame.name) != size || memcmp(name, frame.name, size) != 0) {
            name = (const uint8_t *)frame.name;
            size = name_size(frame.name);
            peer = aiorecv_number(receiver->peers, name, size);
        }
        ring->headers[entry] = at;
        ring->offsets[entry] = frame.offset;
        ring->lengths[entry] = frame.header->tp_snaplen;
        ring->peers[entry] = peer;
        if (ring->count++)
            compare(ring, entry, last, &found);
        if (!frame.header->tp_next_offset)
            ring->left = 1; /* the last one, whatever the block says */
        ring->bytes += frame.header->tp_snaplen;
        receiver->truncated += frame.header->tp_snaplen < frame.header->tp_len;
        last = at;
        at += frame.header->tp_next_offset;
    }
    ring->at = at;
    ring->flags = (found.shapes ? 0 : AIORECV_EQUAL) | (found.peers ? 0 : AIORECV_ONE_PEER);
}

/* Begin with the next block, unless the one before came in parts. */
static void begin(struct aiorecv_ring *ring)
{
    const struct tpacket_hdr_v1 *head = &descriptor(ring, ring->next)->hdr.bh1;

    ring->first += ring->count;
    ring->count = ring->stride = 0;
    ring->bytes = 0;
    if (ring->left)
        return;
    ring->first = 0;
    ring->at = head->offset_to_first_pkt;
    ring->left = head->num_pkts < ring->most ? head->num_pkts : ring->most;
}

int aiorecv_ring_read(struct aiorecv_receiver *receiver, struct aiorecv_ring *ring, int polled)
{
    uint32_t status = status_of(ring, ring->next);

    if (receiver->peers->count == AIORECV_MAX_PEERS)
        return -AIORECV_PEERS_FULL;
    if ((ring->held[ring->next] && !ring->left) || !(status & TP_STATUS_USER)) {
        receiver->empty_reads++;
        return -EAGAIN;
    }
    begin(ring);
    walk(receiver, ring);
    ring->block = ring->next;
    ring->full = !(status & TP_STATUS_BLK_TMO);
    if (!ring->left)
        ring->next = (ring->next + 1) % ring->blocks;
    if (!ring->count) { /* nothing that can be trusted */
        if (!ring->held[ring->block])
            give_to_kernel(ring, ring->block);
        return -EAGAIN;
    }
    ring->held[ring->block]++;
    receiver->packets += ring->count;
    receiver->bytes += ring->bytes;
    receiver->reads++;
    receiver->polled_reads += polled != 0;
    receiver->full_reads += ring->full != 0;
    return (int)ring->count;
}

static const struct tpacket3_hdr *header_of(const struct aiorecv_ring *ring, uint32_t block,
                                            uint32_t packet)
{
    uint32_t at = ring->headers[(size_t)block * ring->most + packet];

    return (const struct tpacket3_hdr *)(const void *)(block_at(ring, block) + at);
}

static uint64_t nanoseconds(const struct tpacket3_hdr *header)
{
    return header->tp_sec * UINT64_C(1000000000) + header->tp_nsec;
}

void aiorecv_ring_lay_out(const struct aiorecv_ring *ring, uint32_t block, uint32_t first,
                          uint32_t count, const struct aiorecv_layout *layout)
{
    size_t entry = (size_t)block * ring->most + first;

    for (uint32_t i = 0; i < count; i++, entry++) {
        const struct tpacket3_hdr *header = header_of(ring, block, first + i);

        layout->offsets[i] = ring->offsets[entry];
        layout->lengths[i] = ring->lengths[entry];
        layout->wire_lengths[i] = header->tp_len;
        layout->truncated[i] = header->tp_snaplen < header->tp_len;
        if (layout->timestamps_ns)
            layout->timestamps_ns[i] = nanoseconds(header);
    }
}

void aiorecv_ring_detail(const struct aiorecv_ring *ring, uint32_t block, uint32_t packet,
                         struct aiorecv_details *details)
{
    const struct tpacket3_hdr *header = header_of(ring, block, packet);

    memset(details, 0, sizeof(*details));
    details->tos = details->ttl = details->vlan_tci = details->vlan_tpid = -1;
    details->timestamp_ns = nanoseconds(header);
    if (header->tp_status & TP_STATUS_VLAN_VALID) {
        details->vlan_tci = (int32_t)header->hv1.tp_vlan_tci;
        details->vlan_tpid = header->tp_status & TP_STATUS_VLAN_TPID_VALID
                                 ? header->hv1.tp_vlan_tpid
                                 : ETH_P_8021Q;
    }
}

void aiorecv_ring_pack(const struct aiorecv_ring *ring, uint32_t block, uint32_t first,
                       uint32_t count, uint8_t *to)
{
    size_t entry = (size_t)block * ring->most + first;

    for (; count; count--, entry++) {
        memcpy(to, block_at(ring, block) + ring->offsets[entry], ring->lengths[entry]);
        to += ring->lengths[entry];
    }
}
