/* Walking ancillary data; no part of the contract with Python. */
#pragma once
#include "aiorecv.h"

#include <stdbool.h>

/* One control message: where its data lies, and how many bytes of it there are. */
struct control {
    int level;
    int type;
    const uint8_t *data;
    uint32_t size;
};

/* A walk over the control messages of one message. */
struct controls {
    const uint8_t *next;
    uint32_t left;
};

/* Begin a walk over what message i of the slab's last read brought. */
struct controls aiorecv_controls(const struct aiorecv_slab *slab, uint32_t i);

/* Step to the next control message; false after the last whole one. */
bool aiorecv_next_control(struct controls *walk, struct control *control);

/* The control message's first bytes as an int; 0 if it has fewer. */
int32_t aiorecv_control_int(const struct control *control);

/* What decides how many packets a message is, and whether it is whole; 0: not told. */
struct told {
    uint32_t segment;     /* bytes a segment of a train (UDP_GRO) */
    uint32_t wire_length; /* of a frame before a filter cut it (PACKET_AUXDATA) */
};

struct told aiorecv_told(const struct aiorecv_slab *slab, uint32_t i);

/* Close the descriptors that message i carries. */
void aiorecv_close_passed(const struct aiorecv_slab *slab, uint32_t i);
