/* What a descriptor is, and its error queue: calls made now and then, never for each read. */
#define _GNU_SOURCE
#include "aiorecv.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* An integer option; 0 where the socket does not have it. */
static int option(int fd, int level, int name)
{
    int value = 0;
    socklen_t size = sizeof(value);

    return getsockopt(fd, level, name, &value, &size) == 0 ? value : 0;
}

static bool is_ip(int fd)
{
    int domain = option(fd, SOL_SOCKET, SO_DOMAIN);

    return domain == AF_INET || domain == AF_INET6;
}

/* Whether errors are queued for the socket's user to take: ip(7), ipv6(7). */
static bool queues_errors(int fd)
{
    return option(fd, IPPROTO_IP, IP_RECVERR) || option(fd, IPPROTO_IPV6, IPV6_RECVERR);
}

int aiorecv_get_filter(int fd, uint8_t *program, uint32_t count)
{
    socklen_t length = count; /* of instructions, here alone: sk_get_filter in net/core/filter.c */

    if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, program, &length) != 0)
        return -errno;
    return (int)length;
}

int aiorecv_can_fail(int fd)
{
    struct sockaddr_storage name;
    socklen_t size = sizeof(name);

    if (getpeername(fd, (struct sockaddr *)&name, &size) == 0)
        return 1;
    /* Nothing happens to an unconnected datagram socket, unless it asks to be told. */
    if (option(fd, SOL_SOCKET, SO_TYPE) != SOCK_DGRAM)
        return 1;
    if (!is_ip(fd))
        return option(fd, SOL_SOCKET, SO_DOMAIN) != AF_UNIX;
    return queues_errors(fd);
}

int aiorecv_link(int fd)
{
    struct sockaddr_ll name;
    socklen_t size = sizeof(name);
    struct ifreq request;

    memset(&request, 0, sizeof(request));
    if (getsockname(fd, (struct sockaddr *)&name, &size) < 0 || name.sll_family != AF_PACKET ||
        name.sll_ifindex == 0)
        return 1;
    /* -1 once its interface was removed: packet_notifier in net/packet/af_packet.c. */
    request.ifr_ifindex = name.sll_ifindex;
    if (name.sll_ifindex < 0 || ioctl(fd, SIOCGIFNAME, &request) < 0 ||
        ioctl(fd, SIOCGIFFLAGS, &request) < 0)
        return -1;
    return (request.ifr_flags & IFF_UP) != 0;
}

int aiorecv_drain_errors(int fd)
{
    enum { MOST = 256 }; /* a bound: the network may add errors as fast as they are taken */
    uint8_t control[512];
    struct msghdr message;
    int drained = 0;

    /*
     * Not called where there can be nothing to take: a sandbox may forbid recvmsg, and AF_UNIX and
     * netlink sockets know no error queue, ignore the flag and would give up a packet.
     */
    if (!queues_errors(fd) && option(fd, SOL_SOCKET, SO_DOMAIN) != AF_PACKET)
        return 0;
    for (; drained < MOST; drained++) {
        memset(&message, 0, sizeof(message));
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            break;
    }
    return drained;
}

int aiorecv_hung_up(int fd)
{
    struct pollfd watched = {.fd = fd, .events = POLLRDHUP};
    int queued = 0;

    if (poll(&watched, 1, 0) != 1 || !(watched.revents & (POLLRDHUP | POLLHUP)))
        return 0;
    /* All that is queued, in bytes: unix(7). */
    return ioctl(fd, FIONREAD, &queued) == 0 && queued == 0;
}
