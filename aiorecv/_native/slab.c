/* Slabs: one mapping that holds headers, decoded arrays and packet memory. */
#define _GNU_SOURCE
#include "aiorecv.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* A build with ASan tells of an overrun of an array: what lies between two of them is forbidden. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { GAP = 64 };
#else
enum { GAP = 0 };
#define ASAN_POISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#endif

/*
 * Slots whole pages apart would all begin in a few sets of each cache, which hold some 8 lines: the
 * packets of a large read would push each other out before anybody reads them. Nine lines more
 * spread 112 packets of an Ethernet frame's size over a second-level cache of 512 KiB.
 */
static uint32_t stride_of(uint32_t slot_size)
{
    enum { PAGE = 4096, COLOUR = 9 * 64 };

    return slot_size % PAGE ? slot_size : slot_size + COLOUR;
}

/* What is left of a mapping, or of the plan of one. */
struct rest {
    uint8_t *next;
    bool mapped;
};

/* Where the next array starts: each gets a cache line's alignment, which suits every type here. */
static uint8_t *take(struct rest *rest, uint64_t size)
{
    uint8_t *taken = rest->next;
    uint64_t step = ((size + 63) & ~(uint64_t)63) + GAP;

    rest->next += step;
    if (rest->mapped)
        ASAN_POISON_MEMORY_REGION(taken + size, step - size);
    return taken;
}

/* Point slab's arrays into the mapping at `base`; with a NULL base, tell the size in bytes. */
static uint64_t place(struct aiorecv_slab *slab, uint8_t *base, uint64_t slots,
                      struct iovec **iovecs)
{
    struct rest rest = {base, base != NULL};

    take(&rest, sizeof(*slab));
    slab->headers = (struct mmsghdr *)take(&rest, slots * sizeof(struct mmsghdr));
    *iovecs = (struct iovec *)take(&rest, slots * sizeof(struct iovec));
    slab->lengths = (uint32_t *)take(&rest, slots * sizeof(uint32_t));
    slab->peers = (uint32_t *)take(&rest, slots * sizeof(uint32_t));
    slab->segments = (uint32_t *)take(&rest, slots * sizeof(uint32_t));
    slab->controls = (uint32_t *)take(&rest, slots * sizeof(uint32_t));
    slab->names = (struct aiorecv_peer *)take(&rest, slots * sizeof(struct aiorecv_peer));
    slab->control = take(&rest, slots * AIORECV_CONTROL_SIZE);
    return (uint64_t)(rest.next - base);
}

/* Build every header once; after this a read only re-arms what the kernel has overwritten. */
static void arm(struct aiorecv_slab *slab, struct iovec *iovecs)
{
    for (uint32_t i = 0; i < slab->slots; i++) {
        struct msghdr *message = &slab->headers[i].msg_hdr;

        iovecs[i].iov_base = slab->memory + (size_t)i * slab->stride;
        iovecs[i].iov_len = slab->slot_size;
        message->msg_iov = &iovecs[i];
        message->msg_iovlen = 1;
        message->msg_name = slab->names[i].name;
        message->msg_namelen = AIORECV_NAME_SIZE;
        message->msg_control = slab->control + (size_t)i * AIORECV_CONTROL_SIZE;
        message->msg_controllen = AIORECV_CONTROL_SIZE;
    }
}

struct aiorecv_slab *aiorecv_slab_new(uint32_t slots, uint32_t slot_size)
{
    struct aiorecv_slab plan;
    struct aiorecv_slab *slab;
    struct iovec *iovecs;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t header_size, mapping_size;
    uint8_t *base;

    if (slots == 0 || slots > AIORECV_MAX_SLOTS || slot_size == 0 ||
        slot_size > AIORECV_MAX_SLOT_SIZE) {
        errno = EINVAL;
        return NULL;
    }
    memset(&plan, 0, sizeof(plan));
    header_size = (place(&plan, NULL, slots, &iovecs) + page - 1) & ~(page - 1);
    /* A byte to spare, since a read asks for one more than a slot has: see read.c. */
    mapping_size = header_size + (uint64_t)slots * stride_of(slot_size) + 1;
    /* Anonymous pages come zeroed, so msghdr's padding is zero too: musl's kernels insist on it. */
    base = mmap(NULL, mapping_size, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    /* A huge page would make one small packet hold 2 MiB. Best effort: old kernels lack it. */
    (void)madvise(base, mapping_size, MADV_NOHUGEPAGE);
    /* mmap aligns to a page, so the struct at its start is aligned. */
    slab = (struct aiorecv_slab *)(void *)base;
    slab->slots = slots;
    slab->slot_size = slot_size;
    slab->stride = stride_of(slot_size);
    slab->mapping_size = mapping_size;
    slab->memory = base + header_size;
    place(slab, base, slots, &iovecs);
    arm(slab, iovecs);
    return slab;
}

void aiorecv_slab_free(struct aiorecv_slab *slab)
{
    ASAN_UNPOISON_MEMORY_REGION(slab, slab->mapping_size);
    munmap(slab, slab->mapping_size);
}
