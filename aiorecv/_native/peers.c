/* Peers: numbers for the names that messages came from, kept across reads. */
#define _GNU_SOURCE
#include "peers.h"

#include <string.h>
#include <sys/mman.h>

enum { INDEX_SIZE = 2 * AIORECV_MAX_PEERS };

/* Entries and index are touched as peers come; the mapping itself costs no memory. */
static uint64_t mapping_size(void)
{
    return sizeof(struct aiorecv_peers) + INDEX_SIZE * sizeof(uint16_t) +
           AIORECV_MAX_PEERS * sizeof(struct aiorecv_peer);
}

struct aiorecv_peers *aiorecv_peers_new(uint64_t seed)
{
    uint8_t *base = mmap(NULL, mapping_size(), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct aiorecv_peers *peers;

    if (base == MAP_FAILED)
        return NULL;
    /* A page's start is aligned for the struct; both arrays follow at multiples of 4. */
    peers = (struct aiorecv_peers *)(void *)base;
    peers->seed = seed;
    peers->index = (uint16_t *)(void *)(base + sizeof(*peers));
    peers->entries = (struct aiorecv_peer *)(void *)(peers->index + INDEX_SIZE);
    return peers;
}

void aiorecv_peers_free(struct aiorecv_peers *peers)
{
    munmap(peers, mapping_size());
}

/* A multiply and a shift a word; the seed is secret, so no sender can aim at one bucket. */
static uint64_t hash(uint64_t seed, const uint8_t *name, uint32_t size)
{
    uint64_t state = seed ^ size;

    while (size) {
        uint64_t word = 0;
        uint32_t step = size < sizeof(word) ? size : (uint32_t)sizeof(word);

        memcpy(&word, name, step);
        state = (state ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        state ^= state >> 32;
        name += step;
        size -= step;
    }
    return state * UINT64_C(0xd6e8feb86659fd93) >> 32;
}

uint32_t aiorecv_number(struct aiorecv_peers *peers, const uint8_t *name, uint32_t size)
{
    /* The index is twice as large as the table can grow: a free place always ends the search. */
    uint32_t place = (uint32_t)hash(peers->seed, name, size) % INDEX_SIZE;
    struct aiorecv_peer *entry;

    for (; peers->index[place]; place = (place + 1) % INDEX_SIZE) {
        entry = &peers->entries[peers->index[place] - 1];
        if (entry->size == size && aiorecv_same_name(entry->name, name, size))
            return peers->index[place] - 1u;
    }
    entry = &peers->entries[peers->count];
    entry->size = size;
    memcpy(entry->name, name, size);
    peers->index[place] = (uint16_t)++peers->count;
    return peers->count - 1;
}
