/* The send path: one sendmmsg for many packets, equal ones to one peer as one UDP GSO message. */
#define _GNU_SOURCE
#include "aiorecv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103 /* linux/udp.h; older C libraries lack it */
#endif

enum {
    /* What fits behind the headers of an IPv6 packet without extensions, and so of an IPv4 one. */
    MOST_BYTES = 65535 - 40 - 8,
    /* Destination and segment size: 40 and 24 bytes where a long has 8. */
    CONTROL_SIZE = CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(uint16_t)),
    /* Never wait; a peer that is gone is an error, not a signal. */
    FLAGS = MSG_DONTWAIT | MSG_NOSIGNAL
};

/* A message's control buffer; the union aligns it for the headers that are written into it. */
union control {
    struct cmsghdr header;
    uint8_t bytes[CONTROL_SIZE];
};

struct aiorecv_headers {
    struct mmsghdr messages[AIORECV_MAX_SENDS];
    struct iovec iovecs[AIORECV_MAX_SENDS];
    union control controls[AIORECV_MAX_SENDS];
};

static int system_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
    return sendmmsg(fd, messages, count, flags);
}

struct aiorecv_outbox *aiorecv_outbox_new(void)
{
    /* Zeroed, so that padding is: musl's kernels insist on it. */
    struct aiorecv_outbox *outbox = calloc(1, sizeof(*outbox));

    if (!outbox)
        return NULL;
    outbox->headers = calloc(1, sizeof(*outbox->headers));
    if (!outbox->headers) {
        free(outbox);
        return NULL;
    }
    for (uint32_t i = 0; i < AIORECV_MAX_SENDS; i++)
        outbox->headers->messages[i].msg_hdr.msg_control = outbox->headers->controls[i].bytes;
    return outbox;
}

void aiorecv_outbox_free(struct aiorecv_outbox *outbox)
{
    free(outbox->headers);
    free(outbox);
}

void aiorecv_sender_init(struct aiorecv_sender *sender, int fd)
{
    memset(sender, 0, sizeof(*sender));
    sender->fd = fd;
    sender->sendmmsg = system_sendmmsg;
    sender->sendmsg = sendmsg;
}

/* How many packets from `start` on go as one message: the last may be shorter than the others. */
static uint32_t run(const struct aiorecv_outbox *outbox, uint32_t start, uint32_t end)
{
    const uint32_t *lengths = outbox->lengths, *names = outbox->names;
    uint32_t next = start + 1, bytes = lengths[start];

    /* An empty datagram is a packet, but no segment. */
    while (next < end && names[next] == names[start] && lengths[next] &&
           lengths[next] <= lengths[start] && bytes + lengths[next] <= MOST_BYTES) {
        bytes += lengths[next++];
        if (lengths[next - 1] < lengths[start])
            break;
    }
    return next - start;
}

/* Append a control message to a header whose buffer has room for it. */
static void append(struct msghdr *message, int level, int type, const void *data, size_t size)
{
    /* The buffer is aligned for cmsghdr, and CMSG_SPACE keeps it so. */
    struct cmsghdr *header =
        (struct cmsghdr *)(void *)((uint8_t *)message->msg_control + message->msg_controllen);

    header->cmsg_level = level;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(header), data, size);
    message->msg_controllen += CMSG_SPACE(size);
}

static void append_source(struct msghdr *message, const struct aiorecv_source *source)
{
    if (source->family == AF_INET) {
        struct in_pktinfo info = {0};

        memcpy(&info.ipi_spec_dst, source->address, sizeof(info.ipi_spec_dst));
        append(message, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
    } else {
        struct in6_pktinfo info = {0};

        memcpy(&info.ipi6_addr, source->address, sizeof(info.ipi6_addr));
        append(message, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof(info));
    }
}

static void set_name(const struct aiorecv_sender *sender, struct msghdr *message, uint32_t name)
{
    struct aiorecv_peer *peer = name == AIORECV_NO_NAME ? NULL : &sender->peers->entries[name];

    message->msg_name = peer ? peer->name : NULL;
    message->msg_namelen = peer ? peer->size : 0;
}

/* Point headers at the packets from `first` to before `end`; returns how many messages they are. */
static uint32_t arrange(const struct aiorecv_sender *sender, struct aiorecv_outbox *outbox,
                        uint32_t first, uint32_t end, bool gso,
                        const struct aiorecv_source *source)
{
    struct aiorecv_headers *headers = outbox->headers;
    uint32_t count = 0;

    for (uint32_t start = first, packets; start < end; start += packets) {
        struct msghdr *message = &headers->messages[count++].msg_hdr;

        packets = gso ? run(outbox, start, end) : 1;
        for (uint32_t i = start; i < start + packets; i++) {
            /* The kernel only reads them: iovec has no const form. */
            headers->iovecs[i].iov_base = (void *)(uintptr_t)outbox->data[i];
            headers->iovecs[i].iov_len = outbox->lengths[i];
        }
        message->msg_iov = &headers->iovecs[start];
        message->msg_iovlen = packets;
        message->msg_controllen = 0;
        set_name(sender, message, outbox->names[start]);
        if (source)
            append_source(message, source);
        if (packets > 1) {
            uint16_t size = (uint16_t)outbox->lengths[start]; /* a run has at most MOST_BYTES */

            append(message, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size));
        }
    }
    return count;
}

/* What sendmmsg does, by sendmsg. */
static int send_one_by_one(struct aiorecv_sender *sender, struct mmsghdr *messages,
                           uint32_t count)
{
    uint32_t sent = 0;

    while (sent < count) {
        sender->calls++;
        if (sender->sendmsg(sender->fd, &messages[sent].msg_hdr, FLAGS) >= 0)
            sent++;
        else if (errno != EINTR)
            break;
    }
    return sent ? (int)sent : -1;
}

static int send_messages(struct aiorecv_sender *sender, struct mmsghdr *messages, uint32_t count)
{
    int sent;

    if (sender->portable)
        return send_one_by_one(sender, messages, count);
    do {
        sender->calls++;
        sent = sender->sendmmsg(sender->fd, messages, count, FLAGS);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == ENOSYS || errno == EPERM)) {
        /* The call is missing or forbidden; or a firewall refuses the packet, by either call. */
        sent = send_one_by_one(sender, messages, count);
        sender->portable = sent > 0;
    }
    return sent;
}

static uint32_t count_sent(struct aiorecv_sender *sender, const struct aiorecv_outbox *outbox,
                           uint32_t first, uint32_t messages)
{
    uint32_t end = first;

    for (uint32_t i = 0; i < messages; i++) {
        uint32_t packets = (uint32_t)outbox->headers->messages[i].msg_hdr.msg_iovlen;

        sender->gso_sends += packets > 1;
        end += packets;
    }
    for (uint32_t i = first; i < end; i++)
        sender->bytes += outbox->lengths[i];
    sender->packets += end - first;
    return end - first;
}

int aiorecv_send(struct aiorecv_sender *sender, struct aiorecv_outbox *outbox, uint32_t first,
                 uint32_t end, const struct aiorecv_source *source)
{
    struct mmsghdr *messages = outbox->headers->messages;
    bool gso = sender->gso;
    int refused = 0;

    if (first >= end || end > AIORECV_MAX_SENDS)
        return -EINVAL;
    for (;;) {
        uint32_t count = arrange(sender, outbox, first, end, gso, source);
        int sent = send_messages(sender, messages, count);

        if (sent > 0) {
            /* What a run could not do, its packets can by themselves: it was GSO, not they. */
            if (refused == EIO || refused == EINVAL)
                sender->gso = 0;
            return (int)count_sent(sender, outbox, first, (uint32_t)sent);
        }
        if (sent == 0)
            return -EAGAIN;
        /* EMSGSIZE: segments of this run are larger than its path takes; the next may fit. */
        refused = errno;
        if (messages->msg_hdr.msg_iovlen == 1 ||
            (refused != EIO && refused != EINVAL && refused != EMSGSIZE))
            return -refused;
        end = first + (uint32_t)messages->msg_hdr.msg_iovlen;
        gso = false;
    }
}

int aiorecv_send_one(struct aiorecv_sender *sender, const uint8_t *data, size_t length,
                     uint32_t name)
{
    /* The kernel only reads the packet: iovec has no const form. */
    struct iovec iovec = {(void *)(uintptr_t)data, length};
    struct msghdr message = {.msg_iov = &iovec, .msg_iovlen = 1};

    set_name(sender, &message, name);
    for (;;) {
        sender->calls++;
        if (sender->sendmsg(sender->fd, &message, FLAGS) >= 0)
            break;
        if (errno != EINTR)
            return -errno;
    }
    sender->packets++;
    sender->bytes += length;
    return 0;
}
