/* Each loop is as lean as its call allows; all are the same but for the call. */
#define _GNU_SOURCE /* struct mmsghdr */
#include "_calls.h"
#include "_sink.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

typedef int (*one_read)(struct calls *calls);

/* Account for one message of `size` bytes, or tell why there is none: 0 or -errno. */
static int took(struct calls *calls, ssize_t size)
{
    if (size < 0)
        return -errno;
    calls->packets += (uint64_t)size <= calls->packet_size
                          ? 1
                          : ((uint64_t)size + calls->packet_size - 1) / calls->packet_size;
    calls->bytes += (uint64_t)size;
    calls->last_bytes = (uint64_t)size;
    return 0;
}

static int by_recvmmsg(struct calls *calls)
{
    uint64_t before = calls->sink->bytes;
    int64_t packets = sink_drain(calls->sink);

    if (packets < 0)
        return (int)packets;
    calls->packets += (uint64_t)packets;
    calls->last_bytes = calls->sink->bytes - before;
    calls->bytes += calls->last_bytes;
    return 0;
}

static int by_recvmsg(struct calls *calls)
{
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
    struct sockaddr_storage name;
    struct iovec iovec = {.iov_base = calls->buffer, .iov_len = SINK_SLOT_SIZE};
    /* The kernel overwrites both lengths, so part of it has to be written anew in any case. */
    struct msghdr message = {.msg_name = &name,
                             .msg_namelen = sizeof(name),
                             .msg_iov = &iovec,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};

    return took(calls, recvmsg(calls->fd, &message, 0));
}

static int by_read(struct calls *calls)
{
    return took(calls, read(calls->fd, calls->buffer, SINK_SLOT_SIZE));
}

static int by_recvfrom(struct calls *calls)
{
    struct sockaddr_storage name;
    socklen_t size = sizeof(name);

    return took(calls, recvfrom(calls->fd, calls->buffer, SINK_SLOT_SIZE, 0,
                                (struct sockaddr *)&name, &size));
}

/* Wait until something is there: 0 or -errno. A signal only ends the wait early. */
static int wait_readable(const struct calls *calls)
{
    struct pollfd poll_fd = {.fd = calls->fd, .events = POLLIN};
    int ready = poll(&poll_fd, 1, calls->wait_ms);

    if (ready == 0)
        return -ETIMEDOUT;
    return ready > 0 || errno == EINTR ? 0 : -errno;
}

/* Inlined into each caller, and `read_one` with it: no call is made through a pointer. */
static inline int drain(struct calls *calls, uint64_t packets, one_read read_one)
{
    uint64_t end = calls->packets + packets;

    while (calls->packets < end) {
        int error = read_one(calls);

        if (error == 0) {
            calls->reads++;
            continue;
        }
        if (error == -EAGAIN) {
            calls->empty_reads++;
            error = wait_readable(calls);
        }
        if (error != 0 && error != -EINTR)
            return error;
    }
    return 0;
}

int calls_recvmmsg(struct calls *calls, uint64_t packets)
{
    return drain(calls, packets, by_recvmmsg);
}

int calls_recvmsg(struct calls *calls, uint64_t packets)
{
    return drain(calls, packets, by_recvmsg);
}

int calls_read(struct calls *calls, uint64_t packets)
{
    return drain(calls, packets, by_read);
}

int calls_recvfrom(struct calls *calls, uint64_t packets)
{
    return drain(calls, packets, by_recvfrom);
}

static uint64_t add_up(const uint8_t *bytes, uint64_t count)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < count; i++)
        sum += bytes[i];
    return sum;
}

uint64_t calls_content(const struct calls *calls)
{
    const struct mmsghdr *header;
    uint64_t left = calls->last_bytes;
    uint64_t sum = 0;

    if (calls->sink == NULL)
        return add_up(calls->buffer, left);
    for (header = calls->sink->headers; left > 0; header++) {
        sum += add_up(header->msg_hdr.msg_iov->iov_base, header->msg_len);
        left -= header->msg_len;
    }
    return sum;
}
