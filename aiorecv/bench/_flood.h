/* The flooder: a sender that keeps a socket busy. cffi parses this file. */
#pragma once
#include <stdint.h>

/* What is sent, how fast, and how far it has come. Zeroed, then filled in by the caller. */
struct flood {
    const int *fds;      /* connected datagram sockets, the caller's; they take turns */
    uint32_t flows;      /* how many there are */
    uint32_t size;       /* bytes of each datagram */
    uint32_t train;      /* datagrams a message; more than 1 where the sockets have UDP_SEGMENT */
    const uint8_t *body; /* bytes of a message, the caller's; only read */
    double rate;         /* datagrams a second, at most; 0: as fast as it goes */
    double credit;       /* datagrams that may leave now, where there is a rate */
    int64_t last_ns;     /* when the credit was counted */
    uint64_t sent;       /* datagrams the kernel took */
    uint64_t turns;      /* system calls so far */
};

/*
 * Send until `until_ns`, nanoseconds of CLOCK_MONOTONIC. The first 8 bytes of each message are the
 * number of its first datagram, from 0, in the host's byte order, if they fit in a datagram.
 * A refused one (nobody listens) or a full queue is tried again. Returns 0, or -errno.
 */
int flood_send(struct flood *flood, int64_t until_ns);
