/* Descriptors that are no sockets: a packet a read(2), and a packet a writev(2). */
#define _GNU_SOURCE
#include "aiorecv.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* In recvmsg's place: no name, no ancillary data. */
static ssize_t read_packet(int fd, struct msghdr *message, int flags)
{
    const struct iovec *slot = message->msg_iov;
    /*
     * A byte more than the slot tells a packet that was cut. It lies between this slot and the next
     * one, or in that, whose packet is read later; behind the last one a slab has it to spare. Not
     * readv, which calls a device that knows read alone once for each part, for a packet each.
     */
    ssize_t length = read(fd, slot->iov_base, slot->iov_len + 1);

    (void)flags;
    if (length == 0)
        errno = AIORECV_END_OF_FILE;
    if (length <= 0)
        return -1;
    message->msg_flags = (size_t)length > slot->iov_len ? MSG_TRUNC : 0;
    message->msg_namelen = 0;
    message->msg_controllen = 0;
    return length;
}

void aiorecv_receiver_read(struct aiorecv_receiver *receiver)
{
    receiver->portable = 1;
    receiver->recvmsg = read_packet;
}

/* In sendmsg's place. */
static ssize_t write_packet(int fd, const struct msghdr *message, int flags)
{
    (void)flags;
    return writev(fd, message->msg_iov, (int)message->msg_iovlen);
}

void aiorecv_sender_write(struct aiorecv_sender *sender)
{
    sender->portable = 1;
    sender->sendmsg = write_packet;
}
