/*
 * The C reference loops: what a receiver can reach on this machine, and what fills its queue.
 * cffi parses this file, the C includes it, _sink.pyi types it. No function calls Python or keeps
 * state of its own, so cffi may release the GIL around it.
 */
#pragma once
#include <stdint.h>

struct mmsghdr;

enum {
    SINK_SLOT_SIZE = 65536, /* a whole GRO train, or any UDP datagram, fits */
    SINK_MAX_SLOTS = 1024,  /* Linux cuts vlen to UIO_MAXIOV, 1024 (net/socket.c) */
    SINK_MAX_PAYLOAD = 65507 /* the most one IPv4 datagram, or one GSO send, carries */
};

/* A drain: one socket, its slots and headers, and what came. */
struct sink {
    int fd;
    uint32_t slots;
    uint64_t bytes;         /* payload bytes of all packets so far */
    uint64_t mapping_size;
    struct mmsghdr *headers;
};

/* Make a drain of `fd` with up to SINK_MAX_SLOTS slots, or return NULL with errno. */
struct sink *sink_new(int fd, uint32_t slots);
void sink_free(struct sink *sink);

/*
 * One recvmmsg without blocking, with the senders' names. Returns how many packets came (a GRO
 * train counts as its segments), or -errno (-EAGAIN: none). Re-arms the headers that were used.
 */
int64_t sink_drain(struct sink *sink);

/*
 * Send `count` datagrams of sizes[i] zero bytes each on `fd`, connected and blocking, up to 64 a
 * system call. With a `segment` each is a train: one UDP GSO send that the kernel cuts into
 * segments of so many bytes. Returns the bytes sent, or -errno.
 */
int64_t sink_fill(int fd, const uint32_t *sizes, uint32_t count, uint16_t segment);
