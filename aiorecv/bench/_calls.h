/*
 * One socket drained by each of the calls that can read it: recvmmsg, recvmsg, read, recvfrom.
 * cffi parses this file. No function calls Python or keeps state of its own.
 */
#pragma once
#include <stdint.h>

struct sink; /* _sink.h */

/* A socket to drain, and what has come. Zeroed, then the first five are filled in. */
struct calls {
    int fd;               /* non-blocking */
    int wait_ms;          /* the longest wait for packets that are not there yet */
    uint32_t packet_size; /* bytes of every packet: a longer message is a GRO train of them */
    uint8_t *buffer;      /* SINK_SLOT_SIZE bytes, the caller's */
    struct sink *sink;    /* of the same fd, for calls_recvmmsg alone */
    uint64_t packets;
    uint64_t bytes;
    uint64_t reads;       /* calls that brought something */
    uint64_t empty_reads; /* calls that found nothing; a poll follows each */
    uint64_t last_bytes;  /* bytes of the last read */
};

/*
 * Read until `packets` more have come, by one kind of call. All but read ask for the sender's
 * name, recvmsg for control data too. Returns 0, or -errno (-ETIMEDOUT: they did not come).
 */
int calls_recvmmsg(struct calls *calls, uint64_t packets);
int calls_recvmsg(struct calls *calls, uint64_t packets);
int calls_read(struct calls *calls, uint64_t packets);
int calls_recvfrom(struct calls *calls, uint64_t packets);

/* Add up the payload bytes' values of the last read: to check contents, and to touch them. */
uint64_t calls_content(const struct calls *calls);
