#define _GNU_SOURCE /* syscall */
#include "_cycles.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
#define HAS_TICKS 1
#define TICKS() __rdtsc()
#else
#define HAS_TICKS 0
#define TICKS() 0
#endif

int cycles_open(void)
{
    /* Pinned: rather no count than one that was scaled up because others shared the counter. */
    struct perf_event_attr attributes = {.type = PERF_TYPE_HARDWARE,
                                         .size = sizeof(attributes),
                                         .config = PERF_COUNT_HW_CPU_CYCLES,
                                         .pinned = 1};
    long fd = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

    return fd < 0 ? -errno : (int)fd;
}

int ticks_there(void)
{
    return HAS_TICKS;
}

uint64_t ticks(void)
{
    return TICKS();
}
