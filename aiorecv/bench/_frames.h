/* Frames: a flood of one, and the reference loop over a packet ring. cffi parses this file. */
#pragma once
#include <stdint.h>

/* A packet ring, TPACKET_V3, and what came. */
struct frames_ring {
    uint32_t block_size;
    uint32_t blocks;
    uint32_t next; /* the block to walk next */
    uint64_t packets;
    uint64_t bytes;
    uint8_t *memory;
};

/*
 * Send a frame over and over on `fd`, a packet socket that is bound, until `until_ns` of
 * CLOCK_MONOTONIC. Returns how many the kernel took, or -errno.
 */
int64_t frames_flood(int fd, const uint8_t *frame, uint32_t size, int64_t until_ns);

/* Make a ring for `fd`, a packet socket that is not bound yet. Returns 0 or -errno. */
int frames_ring_open(struct frames_ring *ring, int fd, uint32_t timeout);
void frames_ring_close(struct frames_ring *ring);

/* Walk all blocks that are ready, reading each frame's header. Returns how many frames came. */
int64_t frames_ring_drain(struct frames_ring *ring);
