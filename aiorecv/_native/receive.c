/* The receive path: one recvmmsg, decoded into the slab's flat arrays. */
#define _GNU_SOURCE
#include "ancillary.h"
#include "peers.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* What the decoder has found in one read. */
struct findings {
    uint64_t bytes;
    uint32_t unequal;   /* not 0: lengths differ */
    uint32_t strangers; /* not 0: peers differ */
    uint32_t odd;       /* not 0: some message has ancillary data or was cut */
};

#ifndef AIORECV_NO_RECVMMSG
static int system_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
                           struct timespec *timeout)
{
    return recvmmsg(fd, messages, count, flags, timeout);
}
#endif

void aiorecv_receiver_init(struct aiorecv_receiver *receiver, int fd)
{
    memset(receiver, 0, sizeof(*receiver));
    receiver->fd = fd;
    receiver->recvmsg = recvmsg;
#ifdef AIORECV_NO_RECVMMSG
    receiver->portable = 1;
#else
    receiver->recvmmsg = system_recvmmsg;
#endif
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/*
 * The lean pass: lengths and peers of all messages, re-arming each header while it is hot. The
 * kernel overwrites msg_namelen and msg_controllen; msg_flags and msg_len are its output and stay
 * as the read's record. The slab's fields are read once: a store through one of its pointers
 * might change them, for all that the compiler knows.
 */
static struct findings decode(struct aiorecv_peers *peers, struct aiorecv_slab *slab,
                              uint32_t received)
{
    struct mmsghdr *header = slab->headers;
    const struct aiorecv_peer *entry = slab->names;
    uint32_t *lengths = slab->lengths, *numbers = slab->peers, *controls = slab->controls;
    const uint32_t slot_size = slab->slot_size;
    struct findings found = {0, 0, 0, 0};
    uint32_t size = 0, peer = 0;

    for (uint32_t i = 0; i < received; i++, header++, entry++) {
        struct msghdr *message = &header->msg_hdr;
        /* With MSG_TRUNC msg_len is the length on the wire, which may exceed the slot. */
        uint32_t length = smaller(header->msg_len, slot_size);
        uint32_t name_size = smaller(message->msg_namelen, AIORECV_NAME_SIZE);

        if (i == 0 || name_size != size || !aiorecv_same_name(entry->name, entry[-1].name, size)) {
            peer = aiorecv_number(peers, entry->name, name_size);
            size = name_size;
        }
        lengths[i] = length;
        numbers[i] = peer;
        controls[i] = smaller((uint32_t)message->msg_controllen, AIORECV_CONTROL_SIZE);
        found.bytes += length;
        found.unequal |= length ^ lengths[0];
        found.strangers |= peer ^ numbers[0];
        found.odd |= controls[i] | (uint32_t)(message->msg_flags & (MSG_TRUNC | MSG_CTRUNC));
        message->msg_namelen = AIORECV_NAME_SIZE;
        message->msg_controllen = AIORECV_CONTROL_SIZE;
    }
    return found;
}

/* How many packets a message of `length` bytes is. */
static uint32_t packets_in(uint32_t length, uint32_t segment)
{
    return segment ? (length + segment - 1) / segment : 1;
}

/* The rich pass: trains, and what was cut. A cut train keeps its whole segments. */
static void decode_odd(struct aiorecv_receiver *receiver, struct aiorecv_slab *slab,
                       uint32_t received, struct findings *found)
{
    slab->packets = 0;
    for (uint32_t i = 0; i < received; i++) {
        int flags = slab->headers[i].msg_hdr.msg_flags;
        uint32_t length = slab->lengths[i];
        struct told told = aiorecv_told(slab, i);
        uint32_t segment = told.segment;

        if (flags & MSG_TRUNC || told.wire_length > length) {
            receiver->truncated++;
            if (segment && segment < length) {
                slab->lengths[i] = length - length % segment;
                found->bytes -= length % segment;
            }
        }
        if (flags & MSG_CTRUNC)
            receiver->ancillary_truncated++;
        if (!receiver->keep_descriptors)
            aiorecv_close_passed(slab, i);
        /* A train of one segment is a plain datagram, an empty datagram never a train. */
        slab->segments[i] = segment < length ? segment : 0;
        receiver->trains += slab->segments[i] != 0;
        slab->packets += packets_in(slab->lengths[i], slab->segments[i]);
    }
}

/* What recvmmsg does, by recvmsg: an error after some packets is kept for the next call. */
static int receive_one_by_one(struct aiorecv_receiver *receiver, struct mmsghdr *messages,
                              uint32_t slots, int flags)
{
    uint32_t received = 0;

    if (receiver->pending_error) {
        errno = receiver->pending_error;
        receiver->pending_error = 0;
        return -1;
    }
    while (received < slots) {
        ssize_t length = receiver->recvmsg(receiver->fd, &messages[received].msg_hdr, flags);

        if (length >= 0) {
            messages[received++].msg_len = (uint32_t)length;
        } else if (errno != EINTR) {
            if (received && errno != EAGAIN)
                receiver->pending_error = errno;
            break;
        }
    }
    return received ? (int)received : -1;
}

static int receive_once(struct aiorecv_receiver *receiver, struct mmsghdr *messages,
                        uint32_t slots)
{
    int flags = receiver->flags | MSG_DONTWAIT | MSG_TRUNC;

    if (!receiver->portable) {
        /* NULL timeout: Linux looks at it only after a packet came, so it can't be kept. */
        int received = receiver->recvmmsg(receiver->fd, messages, slots, flags, NULL);

        if (received >= 0 || (errno != ENOSYS && errno != EPERM))
            return received;
        receiver->portable = 1;
    }
    return receive_one_by_one(receiver, messages, slots, flags);
}

static int64_t receive_messages(struct aiorecv_receiver *receiver, struct aiorecv_slab *slab,
                                uint32_t slots)
{
    int received;

    do {
        received = receive_once(receiver, slab->headers, slots);
    } while (received < 0 && errno == EINTR);
    if (received < 0)
        return -(int64_t)errno;
    return received ? (int64_t)smaller((uint32_t)received, slots) : -EAGAIN;
}

static void count(struct aiorecv_receiver *receiver, uint32_t packets, uint64_t bytes, bool full,
                  bool polled)
{
    receiver->packets += packets;
    receiver->bytes += bytes;
    receiver->reads++;
    receiver->polled_reads += polled;
    receiver->full_reads += full;
}

int64_t aiorecv_receive(struct aiorecv_receiver *receiver, struct aiorecv_slab *slab,
                        int32_t slots)
{
    bool polled = slots < 0;
    uint32_t wanted = polled ? 0u - (uint32_t)slots : (uint32_t)slots;
    uint64_t trains = receiver->trains;
    int64_t received, code;
    struct findings found;

    if (wanted == 0 || wanted > slab->slots)
        return -EINVAL;
    if (receiver->peers->count + wanted > AIORECV_MAX_PEERS)
        return -AIORECV_PEERS_FULL;
    received = receive_messages(receiver, slab, wanted);
    if (received < 0) {
        receiver->empty_reads += received == -EAGAIN;
        return received;
    }
    found = decode(receiver->peers, slab, (uint32_t)received);
    receiver->rearmed += (uint64_t)received;
    if (found.odd)
        decode_odd(receiver, slab, (uint32_t)received, &found);
    code = received | (int64_t)wanted << AIORECV_SLOTS_SHIFT |
           (int64_t)found.bytes << AIORECV_BYTES_SHIFT;
    if (!found.strangers)
        code |= AIORECV_ONE_PEER;
    if (receiver->trains != trains)
        code |= AIORECV_TRAINS;
    else if (!found.unequal)
        code |= AIORECV_EQUAL;
    count(receiver, code & AIORECV_TRAINS ? slab->packets : (uint32_t)received, found.bytes,
          received == wanted, polled);
    return code;
}
