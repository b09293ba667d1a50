/* Packet rings, TPACKET_V3: memory that is shared with the kernel, and given back. packet(7). */
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

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
    uint32_t most = block_size / AIORECV_LEAST_ROOM;
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
            move(aiorecv_block(ring, i), ring->block_size);
        else
            munmap(aiorecv_block(ring, i), ring->block_size);
    }
}

void aiorecv_ring_free(struct aiorecv_ring *ring)
{
    aiorecv_ring_close(ring);
    for (uint32_t i = 0; i < ring->blocks; i++) {
        if (ring->held[i])
            munmap(aiorecv_block(ring, i), ring->block_size);
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
        munmap(aiorecv_block(ring, block), ring->block_size);
    else
        aiorecv_block_give(ring, block);
}

int aiorecv_ring_state(const struct aiorecv_ring *ring)
{
    uint32_t before = (ring->next ? ring->next : ring->blocks) - 1;
    bool held = ring->held[ring->next] && !ring->left;
    bool ready = !held && aiorecv_block_status(ring, ring->next) & TP_STATUS_USER;

    return (ready ? AIORECV_RING_READY : 0) | (held ? AIORECV_RING_STOPPED : 0) |
           (ring->held[before] ? AIORECV_RING_UNPOLLABLE : 0);
}
