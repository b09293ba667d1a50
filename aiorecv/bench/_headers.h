/*
 * Ways to have the headers of a read ready: built once, or for every call. cffi parses this file.
 * Each way reads the same messages into the same memory; only what comes before a call differs.
 */
#pragma once
#include <stdint.h>

struct iovec;
struct mmsghdr;

enum {
    HEADERS_ONCE = 0,     /* built once; what the kernel has overwritten is armed again in place */
    HEADERS_REFILLED = 1, /* arrays that are kept, filled in again for every call */
    HEADERS_HEAP = 2,     /* a list a message for every call, grown from 4 entries by malloc */
    HEADERS_SMALL = 3,    /* the same, its first 4 entries on the stack */
    HEADERS_MAX_MESSAGES = 64,
    HEADERS_MAX_ENTRIES = 64,
};

/* A socket, the memory its messages go to, and what came. */
struct headers {
    int fd; /* -1: build, but make no system call */
    uint32_t messages;   /* a read */
    uint32_t entries;    /* a message */
    uint32_t entry_size; /* bytes */
    uint64_t received;   /* messages so far */
    uint64_t bytes;      /* of their payload */
    uint8_t *memory;     /* messages * entries * entry_size bytes, all ones at first */
    struct iovec *parts; /* where each entry lies: what lists are made of */
    struct iovec *iovecs;
    struct mmsghdr *kept;
};

/* Returns NULL with errno if a number is out of bounds, or without memory. */
struct headers *headers_new(int fd, uint32_t messages, uint32_t entries, uint32_t entry_size);
void headers_free(struct headers *headers);

/* Read `reads` times in one of the ways. Returns the nanoseconds it took, or -errno. */
int64_t headers_read(struct headers *headers, int way, uint32_t reads);

/* How many messages of a read have `size` zero bytes at their start. */
uint32_t headers_zeroed(const struct headers *headers, uint32_t size);
