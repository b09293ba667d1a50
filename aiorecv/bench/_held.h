/* A drain whose slots are resident from start to end, as a pool of buffers held for life keeps
 * them, and access to the messages in it. cffi parses this file. */
#pragma once
#include <stdint.h>

struct sink;

/* Write zeroes over every slot, as a pool does that hands out clean buffers. */
void held_zero(struct sink *sink);

/*
 * The bytes of message `i` of the last sink_drain; 0 if it brought no such message, or if it was
 * asked before. Ask for all of them before the next drain.
 */
uint32_t held_size(struct sink *sink, uint32_t i);

/* Where message `i` is. */
const uint8_t *held_payload(const struct sink *sink, uint32_t i);

/* Send the first `size` bytes of message `i` back to its sender, an IPv4 one. 0, or -errno. */
int held_echo(const struct sink *sink, uint32_t i, uint32_t size);
