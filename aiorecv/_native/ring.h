/* Blocks of a ring, for ring.c and ring_walk.c; no part of the contract with Python. */
#pragma once
#include "aiorecv.h"

#include <linux/if_packet.h>
#include <stddef.h>

enum { AIORECV_LEAST_ROOM = 80 }; /* bytes a packet takes at least: header, address, padding */

static inline uint8_t *aiorecv_block(const struct aiorecv_ring *ring, uint32_t block)
{
    return ring->memory + (size_t)block * ring->block_size;
}

/* A block starts at a page, so the descriptor at its start is aligned. */
static inline struct tpacket_block_desc *aiorecv_block_head(const struct aiorecv_ring *ring, uint32_t block)
{
    return (struct tpacket_block_desc *)(void *)aiorecv_block(ring, block);
}

/* The status is the lock: acquire sees all that the kernel wrote before it set it, release lets the
 * kernel see that we are done. */
static inline uint32_t aiorecv_block_status(const struct aiorecv_ring *ring, uint32_t block)
{
    return __atomic_load_n(&aiorecv_block_head(ring, block)->hdr.bh1.block_status, __ATOMIC_ACQUIRE);
}

static inline void aiorecv_block_give(const struct aiorecv_ring *ring, uint32_t block)
{
    __atomic_store_n(&aiorecv_block_head(ring, block)->hdr.bh1.block_status, TP_STATUS_KERNEL,
                     __ATOMIC_RELEASE);
}
