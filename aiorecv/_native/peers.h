/* What receive.c needs of peers.c; no part of the contract with Python. */
#pragma once
#include "aiorecv.h"

/* The number of the peer with this name, a new one if need be; the caller has seen to room. */
uint32_t aiorecv_number(struct aiorecv_peers *peers, const uint8_t *name, uint32_t size);
