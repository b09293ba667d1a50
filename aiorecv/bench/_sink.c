/* The drain is as lean as C can be: it is the measure. The filler only has to be quick. */
#define _GNU_SOURCE
#include "_sink.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103 /* linux/udp.h; older C libraries lack both */
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { FILL_MESSAGES = 64 };

/* Room for one message: its name, and the one control message that UDP_GRO adds. */
struct slot {
    struct iovec iovec;
    struct sockaddr_storage name;
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
};

static void arm(struct msghdr *message)
{
    message->msg_namelen = sizeof(struct sockaddr_storage);
    message->msg_controllen = CMSG_SPACE(sizeof(int));
}

struct sink *sink_new(int fd, uint32_t slots)
{
    uint64_t header_size = sizeof(struct sink) + slots * sizeof(struct mmsghdr);
    uint64_t slot_start = (header_size + 63) & ~(uint64_t)63;
    uint64_t memory_start = (slot_start + slots * sizeof(struct slot) + 4095) & ~(uint64_t)4095;
    uint64_t mapping_size = memory_start + (uint64_t)slots * SINK_SLOT_SIZE;
    struct sink *sink;
    struct slot *slot;
    uint8_t *base;

    if (slots == 0 || slots > SINK_MAX_SLOTS) {
        errno = EINVAL;
        return NULL;
    }
    base = mmap(NULL, mapping_size, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    /* All three starts are aligned for their types: a page, 8 and 64 bytes. */
    sink = (struct sink *)(void *)base;
    sink->fd = fd;
    sink->slots = slots;
    sink->mapping_size = mapping_size;
    sink->headers = (struct mmsghdr *)(void *)(base + sizeof(*sink));
    slot = (struct slot *)(void *)(base + slot_start);
    for (uint32_t i = 0; i < slots; i++) {
        struct msghdr *message = &sink->headers[i].msg_hdr;

        slot[i].iovec.iov_base = base + memory_start + (uint64_t)i * SINK_SLOT_SIZE;
        slot[i].iovec.iov_len = SINK_SLOT_SIZE;
        message->msg_iov = &slot[i].iovec;
        message->msg_iovlen = 1;
        message->msg_name = &slot[i].name;
        message->msg_control = slot[i].control;
        arm(message);
    }
    return sink;
}

void sink_free(struct sink *sink)
{
    munmap(sink, sink->mapping_size);
}

/* How many packets a message is: the kernel's control message tells a train's segment size. */
static uint32_t packets_in(const struct mmsghdr *header)
{
    const struct cmsghdr *control = header->msg_hdr.msg_control;
    int32_t segment;

    if (header->msg_hdr.msg_controllen < CMSG_LEN(sizeof(segment)) ||
        control->cmsg_level != IPPROTO_UDP || control->cmsg_type != UDP_GRO)
        return 1;
    memcpy(&segment, CMSG_DATA(control), sizeof(segment));
    if (segment <= 0 || header->msg_len == 0)
        return 1;
    return (header->msg_len + (uint32_t)segment - 1) / (uint32_t)segment;
}

int64_t sink_drain(struct sink *sink)
{
    uint64_t bytes = 0;
    int64_t packets = 0;
    int received;

    do {
        received = recvmmsg(sink->fd, sink->headers, sink->slots, MSG_DONTWAIT, NULL);
    } while (received < 0 && errno == EINTR);
    if (received < 0)
        return -(int64_t)errno;
    for (int i = 0; i < received; i++) {
        packets += packets_in(&sink->headers[i]);
        bytes += sink->headers[i].msg_len;
        arm(&sink->headers[i].msg_hdr);
    }
    sink->bytes += bytes;
    return packets;
}

/* Send all of `count` messages: the kernel may take fewer at a time. Returns 0 or -errno. */
static int send_all(int fd, struct mmsghdr *headers, uint32_t count)
{
    while (count) {
        int sent = sendmmsg(fd, headers, count, 0);

        if (sent < 0 && errno != EINTR)
            return -errno;
        if (sent > 0) {
            headers += sent;
            count -= (uint32_t)sent;
        }
    }
    return 0;
}

/* The control message that makes a send a train. */
static void ask_segments(struct cmsghdr *control, uint16_t segment)
{
    control->cmsg_level = IPPROTO_UDP;
    control->cmsg_type = UDP_SEGMENT;
    control->cmsg_len = CMSG_LEN(sizeof(segment));
    memcpy(CMSG_DATA(control), &segment, sizeof(segment));
}

int64_t sink_fill(int fd, const uint32_t *sizes, uint32_t count, uint16_t segment)
{
    static const uint8_t payload[SINK_MAX_PAYLOAD];
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(segment))] = {0};
    struct mmsghdr headers[FILL_MESSAGES];
    struct iovec iovecs[FILL_MESSAGES];
    int64_t bytes = 0;

    ask_segments((struct cmsghdr *)(void *)control, segment);
    memset(headers, 0, sizeof(headers));
    for (uint32_t done = 0; done < count;) {
        uint32_t some = count - done < FILL_MESSAGES ? count - done : FILL_MESSAGES;
        int error;

        for (uint32_t i = 0; i < some; i++) {
            if (sizes[done + i] > SINK_MAX_PAYLOAD)
                return -EMSGSIZE;
            iovecs[i].iov_base = (void *)payload;
            iovecs[i].iov_len = sizes[done + i];
            headers[i].msg_hdr.msg_iov = &iovecs[i];
            headers[i].msg_hdr.msg_iovlen = 1;
            headers[i].msg_hdr.msg_control = segment ? control : NULL;
            headers[i].msg_hdr.msg_controllen = segment ? sizeof(control) : 0;
            bytes += sizes[done + i];
        }
        error = send_all(fd, headers, some);
        if (error)
            return error;
        done += some;
    }
    return bytes;
}
