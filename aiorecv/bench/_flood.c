#define _GNU_SOURCE /* sendmmsg */
#include "_flood.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define SECOND_NS 1000000000
#define PAUSE_NS 100000 /* what a full queue is given to empty itself */
#define BATCH 64        /* one call costs little beside so many datagrams */
#define NUMBER_SIZE sizeof(uint64_t)

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void pause_ns(int64_t pause)
{
    struct timespec time = {.tv_sec = pause / SECOND_NS, .tv_nsec = pause % SECOND_NS};
    nanosleep(&time, NULL); /* a signal only makes it shorter: whoever paused looks again */
}

/* How many messages one call sends: flows that share a queue mix in it. */
static unsigned turn(const struct flood *flood)
{
    unsigned messages = BATCH / flood->train / flood->flows;

    return messages > 0 ? messages : 1;
}

/* How many messages may leave at `now`; at most 10 ms of the rate are made up for. */
static unsigned due(struct flood *flood, int64_t now)
{
    double most = flood->rate > flood->train * 100.0 ? flood->rate / 100 : flood->train;
    unsigned messages = turn(flood);

    if (flood->rate == 0)
        return messages;
    if (flood->last_ns != 0)
        flood->credit += (double)(now - flood->last_ns) * flood->rate / SECOND_NS;
    flood->last_ns = now;
    if (flood->credit > most)
        flood->credit = most;
    if (flood->credit < (double)messages * flood->train)
        messages = (unsigned)flood->credit / flood->train;
    return messages;
}

/* Send `count` messages of the flow whose turn it is. Returns datagrams that left, or -errno. */
static int send_batch(struct flood *flood, unsigned count)
{
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH][2];
    uint64_t numbers[BATCH];
    size_t head = flood->size < NUMBER_SIZE ? 0 : NUMBER_SIZE;
    int fd = flood->fds[flood->turns++ % flood->flows];
    int taken;

    memset(messages, 0, sizeof(messages[0]) * count);
    for (unsigned i = 0; i < count; i++) {
        numbers[i] = flood->sent + (uint64_t)i * flood->train;
        parts[i][0] = (struct iovec){.iov_base = &numbers[i], .iov_len = head};
        parts[i][1] = (struct iovec){.iov_base = (void *)flood->body,
                                     .iov_len = (size_t)flood->size * flood->train - head};
        messages[i].msg_hdr.msg_iov = parts[i];
        messages[i].msg_hdr.msg_iovlen = 2;
    }
    taken = sendmmsg(fd, messages, count, 0);
    return taken < 0 ? -errno : taken * (int)flood->train;
}

int flood_send(struct flood *flood, int64_t until_ns)
{
    for (int64_t now = now_ns(); now < until_ns; now = now_ns()) {
        unsigned count = due(flood, now);
        int taken;

        if (count == 0) {
            int64_t wait = (int64_t)((flood->train - flood->credit) * SECOND_NS / flood->rate) + 1;
            pause_ns(wait < until_ns - now ? wait : until_ns - now);
            continue;
        }
        taken = send_batch(flood, count);
        if (taken >= 0) {
            flood->sent += (uint64_t)taken;
            flood->credit -= taken;
        } else if (taken == -EAGAIN || taken == -ENOBUFS) {
            pause_ns(PAUSE_NS);
        } else if (taken != -EINTR && taken != -ECONNREFUSED) {
            return taken;
        }
    }
    return 0;
}
