/*
 * Functions in the place of the C library's, which count and pass on. Imported as usual, this
 * library comes after the C library, and nobody calls them.
 */
#define _GNU_SOURCE
#include "_allocations.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t counted, counted_below;
static const char *directory; /* of the libraries that are counted by themselves */
/* dlsym may itself allocate, before there is anybody to pass on to. */
static _Alignas(16) unsigned char early[4096];
static size_t early_used;

static void *take_early(size_t size)
{
    unsigned char *taken = early + early_used;

    size = (size + 15) & ~(size_t)15;
    if (size > sizeof(early) - early_used)
        return NULL;
    early_used += size;
    return taken;
}

static int is_early(const void *memory)
{
    const unsigned char *byte = memory;

    return byte >= early && byte < early + sizeof(early);
}

/* The next definition of `name`; *searching is set while the look-up lasts. */
static void *next_of(const char *name, int *searching)
{
    void *found;

    *searching = 1;
    found = dlsym(RTLD_NEXT, name);
    *searching = 0;
    return found;
}

static int searching;

/* Whoever the return address lies in has made the call. */
static void note(const void *caller)
{
    Dl_info found;

    counted++;
    if (directory && dladdr(caller, &found) && found.dli_fname &&
        strncmp(found.dli_fname, directory, strlen(directory)) == 0)
        counted_below++;
}

void *malloc(size_t size)
{
    static void *(*next)(size_t);

    if (next == NULL && searching)
        return take_early(size);
    if (next == NULL)
        *(void **)&next = next_of("malloc", &searching);
    note(__builtin_return_address(0));
    return next(size);
}

void *calloc(size_t count, size_t size)
{
    static void *(*next)(size_t, size_t);

    if (next == NULL && searching)
        return take_early(count * size); /* zeroed, as nothing of it is given back */
    if (next == NULL)
        *(void **)&next = next_of("calloc", &searching);
    note(__builtin_return_address(0));
    return next(count, size);
}

void *realloc(void *memory, size_t size)
{
    static void *(*next)(void *, size_t);

    if (next == NULL)
        *(void **)&next = next_of("realloc", &searching);
    note(__builtin_return_address(0));
    return next(memory, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    static int (*next)(void **, size_t, size_t);

    if (next == NULL)
        *(void **)&next = next_of("posix_memalign", &searching);
    note(__builtin_return_address(0));
    return next(memory, alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    static void *(*next)(size_t, size_t);

    if (next == NULL)
        *(void **)&next = next_of("aligned_alloc", &searching);
    note(__builtin_return_address(0));
    return next(alignment, size);
}

void free(void *memory)
{
    static void (*next)(void *);

    if (memory == NULL || is_early(memory))
        return;
    if (next == NULL)
        *(void **)&next = next_of("free", &searching);
    next(memory);
}

uint64_t allocations_counted(void)
{
    return counted;
}

void allocations_watch(const char *below)
{
    directory = below;
}

uint64_t allocations_below(void)
{
    return counted_below;
}

int allocations_are_counted(void)
{
    void *(*volatile call)(size_t) = malloc; /* so that the compiler leaves the call in */
    uint64_t before = counted;

    free(call(1));
    return counted != before;
}
