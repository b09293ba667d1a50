#define _GNU_SOURCE /* struct mmsghdr */
#include "_held.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "_sink.h"

static const struct iovec *slot(const struct sink *sink, uint32_t i)
{
    return sink->headers[i].msg_hdr.msg_iov;
}

void held_zero(struct sink *sink)
{
    for (uint32_t i = 0; i < sink->slots; i++)
        memset(slot(sink, i)->iov_base, 0, slot(sink, i)->iov_len);
}

uint32_t held_size(struct sink *sink, uint32_t i)
{
    uint32_t size = sink->headers[i].msg_len;

    sink->headers[i].msg_len = 0; /* the kernel writes it for the messages that come, only */
    return size;
}

const uint8_t *held_payload(const struct sink *sink, uint32_t i)
{
    return slot(sink, i)->iov_base;
}

int held_echo(const struct sink *sink, uint32_t i, uint32_t size)
{
    const struct sockaddr *name = sink->headers[i].msg_hdr.msg_name;
    ssize_t sent;

    do {
        sent = sendto(sink->fd, held_payload(sink, i), size, MSG_DONTWAIT, name,
                      sizeof(struct sockaddr_in));
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}
