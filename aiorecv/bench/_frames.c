#define _GNU_SOURCE /* sendmmsg */
#include "_frames.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 64, FRAME_SIZE = 2048 };

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t frames_flood(int fd, const uint8_t *frame, uint32_t size, int64_t until_ns)
{
    struct iovec part = {.iov_base = (void *)frame, .iov_len = size}; /* only read */
    struct mmsghdr messages[BATCH];
    int64_t sent = 0;

    memset(messages, 0, sizeof(messages));
    for (int i = 0; i < BATCH; i++) {
        messages[i].msg_hdr.msg_iov = &part;
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    while (now_ns() < until_ns) {
        int taken = sendmmsg(fd, messages, BATCH, 0);

        if (taken >= 0)
            sent += taken;
        else if (errno != EINTR && errno != ENOBUFS && errno != EAGAIN)
            return -errno;
    }
    return sent;
}

int frames_ring_open(struct frames_ring *ring, int fd, uint32_t timeout)
{
    int version = TPACKET_V3;
    struct tpacket_req3 request;
    void *memory;

    memset(&request, 0, sizeof(request));
    request.tp_block_size = ring->block_size;
    request.tp_block_nr = ring->blocks;
    request.tp_frame_size = FRAME_SIZE;
    request.tp_frame_nr = ring->block_size / FRAME_SIZE * ring->blocks;
    request.tp_retire_blk_tov = timeout;
    if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request)) < 0)
        return -errno;
    memory = mmap(NULL, (size_t)ring->block_size * ring->blocks, PROT_READ | PROT_WRITE,
                  MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    ring->memory = memory;
    return 0;
}

void frames_ring_close(struct frames_ring *ring)
{
    munmap(ring->memory, (size_t)ring->block_size * ring->blocks);
}

int64_t frames_ring_drain(struct frames_ring *ring)
{
    uint64_t before = ring->packets;

    for (;;) {
        uint8_t *block = ring->memory + (size_t)ring->next * ring->block_size;
        struct tpacket_hdr_v1 *head = &((struct tpacket_block_desc *)(void *)block)->hdr.bh1;
        uint32_t at;

        if (!(__atomic_load_n(&head->block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            return (int64_t)(ring->packets - before);
        at = head->offset_to_first_pkt;
        for (uint32_t i = 0; i < head->num_pkts; i++) {
            /* The kernel aligns frames to 8 bytes. */
            const struct tpacket3_hdr *frame = (const struct tpacket3_hdr *)(void *)(block + at);

            ring->bytes += frame->tp_snaplen;
            at += frame->tp_next_offset;
        }
        ring->packets += head->num_pkts;
        __atomic_store_n(&head->block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        ring->next = (ring->next + 1) % ring->blocks;
    }
}
