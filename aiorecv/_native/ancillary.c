/* Ancillary data: what came with a message besides its bytes. */
#define _GNU_SOURCE
#include "ancillary.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_GRO
#define UDP_GRO 104 /* linux/udp.h; older C libraries lack it */
#endif

/* asm-generic/socket.h; 64-bit systems send the first, 32-bit ones with 64-bit time the second. */
enum { TIMESTAMPNS_OLD = 35, TIMESTAMPNS_NEW = 64, RXQ_OVFL = 40 };

struct controls aiorecv_controls(const struct aiorecv_slab *slab, uint32_t i)
{
    struct controls walk = {slab->control + (size_t)i * AIORECV_CONTROL_SIZE, slab->controls[i]};

    return walk;
}

/*
 * Headers are copied out: the walk trusts neither their alignment nor, where the kernel cut the
 * data, their length.
 */
bool aiorecv_next_control(struct controls *walk, struct control *control)
{
    struct cmsghdr header;
    uint32_t whole;

    if (walk->left < sizeof(header))
        return false;
    memcpy(&header, walk->next, sizeof(header));
    if (header.cmsg_len < sizeof(header) || header.cmsg_len > walk->left)
        return false;
    control->level = header.cmsg_level;
    control->type = header.cmsg_type;
    control->data = walk->next + CMSG_LEN(0);
    control->size = (uint32_t)(header.cmsg_len - CMSG_LEN(0));
    whole = (uint32_t)CMSG_ALIGN(header.cmsg_len);
    whole = whole < walk->left ? whole : walk->left;
    walk->next += whole;
    walk->left -= whole;
    return true;
}

int32_t aiorecv_control_int(const struct control *control)
{
    int32_t value = 0;

    if (control->size >= sizeof(value))
        memcpy(&value, control->data, sizeof(value));
    return value;
}

void aiorecv_close_passed(const struct aiorecv_slab *slab, uint32_t i)
{
    struct controls walk = aiorecv_controls(slab, i);
    struct control control;

    while (aiorecv_next_control(&walk, &control)) {
        if (control.level != SOL_SOCKET ||
            (control.type != AIORECV_SCM_RIGHTS && control.type != AIORECV_SCM_PIDFD))
            continue;
        for (; control.size >= sizeof(int32_t); control.size -= (uint32_t)sizeof(int32_t)) {
            close(aiorecv_control_int(&control));
            control.data += sizeof(int32_t);
        }
    }
}

static uint64_t nanoseconds(const struct control *control)
{
    int64_t time[2]; /* seconds and nanoseconds, whatever the size of time_t */
    struct timespec old;

    if (control->type == TIMESTAMPNS_NEW && control->size >= sizeof(time)) {
        memcpy(time, control->data, sizeof(time));
        return (uint64_t)time[0] * 1000000000u + (uint64_t)time[1];
    }
    if (control->type == TIMESTAMPNS_OLD && control->size >= sizeof(old)) {
        memcpy(&old, control->data, sizeof(old));
        return (uint64_t)old.tv_sec * 1000000000u + (uint64_t)old.tv_nsec;
    }
    return 0;
}

/* What PACKET_AUXDATA tells of a frame; false if the message is of another kind. */
static bool auxdata_of(const struct control *control, struct tpacket_auxdata *told)
{
    if (control->level != SOL_PACKET || control->type != PACKET_AUXDATA ||
        control->size < sizeof(*told))
        return false;
    memcpy(told, control->data, sizeof(*told));
    return true;
}

struct told aiorecv_told(const struct aiorecv_slab *slab, uint32_t i)
{
    struct controls walk = aiorecv_controls(slab, i);
    struct told told = {0, 0};
    struct control control;
    struct tpacket_auxdata auxdata;

    while (aiorecv_next_control(&walk, &control)) {
        /* An int, though the size fits 16 bits. */
        if (control.level == IPPROTO_UDP && control.type == UDP_GRO &&
            control.size >= sizeof(int32_t)) {
            int32_t size = aiorecv_control_int(&control);

            told.segment = size > 0 ? (uint32_t)size : 0;
            break;
        }
        if (auxdata_of(&control, &auxdata)) {
            told.wire_length = auxdata.tp_len;
            break;
        }
    }
    return told;
}

static void of_packet(const struct control *control, struct aiorecv_details *details)
{
    struct tpacket_auxdata told;

    if (!auxdata_of(control, &told) || !(told.tp_status & TP_STATUS_VLAN_VALID))
        return;
    details->vlan_tci = told.tp_vlan_tci;
    /* Linux before 3.14 tells of 802.1Q tags alone. */
    details->vlan_tpid =
        told.tp_status & TP_STATUS_VLAN_TPID_VALID ? told.tp_vlan_tpid : ETH_P_8021Q;
}

static void of_socket(const struct control *control, struct aiorecv_details *details)
{
    if (control->type == RXQ_OVFL)
        details->drops = (uint32_t)aiorecv_control_int(control);
    else if (control->type == TIMESTAMPNS_OLD || control->type == TIMESTAMPNS_NEW)
        details->timestamp_ns = nanoseconds(control);
}

static void of_ipv4(const struct control *control, struct aiorecv_details *details)
{
    struct in_pktinfo info;

    if (control->type == IP_TOS && control->size >= 1)
        details->tos = control->data[0];
    else if (control->type == IP_TTL && control->size >= sizeof(int32_t))
        details->ttl = aiorecv_control_int(control);
    else if (control->type == IP_PKTINFO && control->size >= sizeof(info) &&
             details->family != AF_INET6) {
        /* On an IPv6 socket its own form, with the address mapped, is the one that counts. */
        memcpy(&info, control->data, sizeof(info));
        details->family = AF_INET;
        details->interface = (uint32_t)info.ipi_ifindex;
        memcpy(details->destination, &info.ipi_addr, sizeof(info.ipi_addr));
    }
}

static void of_ipv6(const struct control *control, struct aiorecv_details *details)
{
    struct in6_pktinfo info;

    if (control->type == IPV6_TCLASS && control->size >= sizeof(int32_t))
        details->tos = aiorecv_control_int(control);
    else if (control->type == IPV6_HOPLIMIT && control->size >= sizeof(int32_t))
        details->ttl = aiorecv_control_int(control);
    else if (control->type == IPV6_PKTINFO && control->size >= sizeof(info)) {
        memcpy(&info, control->data, sizeof(info));
        details->family = AF_INET6;
        details->interface = (uint32_t)info.ipi6_ifindex;
        memcpy(details->destination, &info.ipi6_addr, sizeof(info.ipi6_addr));
    }
}

void aiorecv_detail(const struct aiorecv_slab *slab, uint32_t message,
                    struct aiorecv_details *details)
{
    struct controls walk = aiorecv_controls(slab, message);
    struct control control;

    memset(details, 0, sizeof(*details));
    details->tos = details->ttl = details->vlan_tci = details->vlan_tpid = -1;
    details->cut = slab->headers[message].msg_hdr.msg_flags & MSG_CTRUNC;
    while (aiorecv_next_control(&walk, &control)) {
        if (control.level == SOL_SOCKET)
            of_socket(&control, details);
        else if (control.level == IPPROTO_IP)
            of_ipv4(&control, details);
        else if (control.level == IPPROTO_IPV6)
            of_ipv6(&control, details);
        else if (control.level == SOL_PACKET)
            of_packet(&control, details);
    }
}
