/* The CPU's own counters. cffi parses this file. */
#pragma once
#include <stdint.h>

/*
 * Open a counter of the CPU cycles that the calling thread spends, the kernel's included, by
 * perf_event_open(2). A read(2) of 8 bytes gives the count. Returns the descriptor, or -errno.
 */
int cycles_open(void);

/* Whether ticks() counts on this kind of CPU. */
int ticks_there(void);

/* The time stamp counter (x86: RDTSC), which runs at one pace, whoever runs; 0 elsewhere. */
uint64_t ticks(void);
