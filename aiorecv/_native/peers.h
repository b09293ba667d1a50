/* What receive.c needs of peers.c; no part of the contract with Python. */
#pragma once
#include "aiorecv.h"

#include <stdbool.h>
#include <string.h>

/* An IPv4 name has 16 bytes: a comparison of constant size is two instructions, not a call. */
static inline bool aiorecv_same_name(const uint8_t *a, const uint8_t *b, uint32_t size)
{
    return size == 16 ? memcmp(a, b, 16) == 0 : memcmp(a, b, size) == 0;
}

/* The number of the peer with this name, a new one if need be; the caller has seen to room. */
uint32_t aiorecv_number(struct aiorecv_peers *peers, const uint8_t *name, uint32_t size);
