/* The walk over a ring's blocks: where the packets lie, and what the kernel tells of them. */
#define _GNU_SOURCE
#include "peers.h"
#include "ring.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

enum { NAME_HEAD = offsetof(struct sockaddr_ll, sll_addr) };

/* One packet in a block: where its header and its bytes lie. */
struct frame {
    const struct tpacket3_hdr *header;
    const struct sockaddr_ll *name;
    uint32_t offset;
};

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
    const uint8_t *block = aiorecv_block(ring, ring->next);
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
    const struct tpacket_hdr_v1 *head = &aiorecv_block_head(ring, ring->next)->hdr.bh1;

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
    uint32_t status = aiorecv_block_status(ring, ring->next);

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
            aiorecv_block_give(ring, ring->block);
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

    return (const struct tpacket3_hdr *)(const void *)(aiorecv_block(ring, block) + at);
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
        memcpy(to, aiorecv_block(ring, block) + ring->offsets[entry], ring->lengths[entry]);
        to += ring->lengths[entry];
    }
}
