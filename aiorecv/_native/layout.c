/* Where the packets of a read lie, and packing them. */
#define _GNU_SOURCE
#include "ancillary.h"

#include <string.h>
#include <sys/socket.h>

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Fill in one message's packets, from entry `packet` on; returns the next free entry. */
static uint32_t lay_out_message(const struct aiorecv_slab *slab, uint32_t i, uint32_t segment,
                                const struct aiorecv_layout *layout, uint32_t packet)
{
    struct told told = aiorecv_told(slab, i);
    uint32_t left = slab->lengths[i];
    bool cut = slab->headers[i].msg_hdr.msg_flags & MSG_TRUNC || told.wire_length > left;
    uint32_t step = segment ? segment : left;
    uint32_t offset = i * slab->stride;
    struct aiorecv_details details = {0};

    if (layout->timestamps_ns)
        aiorecv_detail(slab, i, &details);
    do {
        uint32_t length = smaller(left, step);

        left -= length;
        layout->offsets[packet] = offset;
        layout->lengths[packet] = length;
        layout->wire_lengths[packet] = length;
        layout->truncated[packet] = cut && !left;
        if (layout->timestamps_ns)
            layout->timestamps_ns[packet] = details.timestamp_ns;
        offset += length;
        packet++;
    } while (left);
    if (cut && !segment) {
        /* Cut inside its first segment, a train tells that segment's length, not its own. */
        uint32_t wire = slab->headers[i].msg_len;

        wire = told.wire_length > wire ? told.wire_length : wire;
        layout->wire_lengths[packet - 1] = told.segment ? smaller(told.segment, wire) : wire;
    }
    return packet;
}

uint32_t aiorecv_lay_out(const struct aiorecv_slab *slab, int64_t read,
                         const struct aiorecv_layout *layout)
{
    uint32_t received = (uint32_t)read & AIORECV_RECEIVED_MASK;
    uint32_t packet = 0;

    for (uint32_t i = 0; i < received; i++)
        packet = lay_out_message(slab, i, read & AIORECV_TRAINS ? slab->segments[i] : 0, layout,
                                 packet);
    return packet;
}

void aiorecv_pack(const struct aiorecv_slab *slab, uint32_t received, uint8_t *to)
{
    const uint8_t *slot = slab->memory;

    for (uint32_t i = 0; i < received; i++, slot += slab->stride) {
        memcpy(to, slot, slab->lengths[i]);
        to += slab->lengths[i];
    }
}
