/*
 * A count of what a process allocates. It counts only where this library is preloaded
 * (LD_PRELOAD), so that its malloc comes before the C library's. cffi parses this file.
 */
#pragma once
#include <stdint.h>

/* Calls of malloc, calloc, realloc and the aligned ones so far; those of free are not counted. */
uint64_t allocations_counted(void);

/*
 * From now on count the calls that libraries in a directory make by themselves too: the path they
 * were loaded by starts with `directory`, which has to stay there. Returns them so far.
 */
void allocations_watch(const char *directory);
uint64_t allocations_below(void);

/* Whether they are counted. */
int allocations_are_counted(void);
