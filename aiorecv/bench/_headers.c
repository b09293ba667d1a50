/* Each way is one function, written as a program would that has no other. */
#define _GNU_SOURCE
#include "_headers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { FIRST_ROOM = 4 };

/* A list that grows as entries are added, as one must whose length nobody knows beforehand. */
struct list {
    struct iovec *items;
    uint32_t count, room;
};

struct small_list {
    struct list list;
    struct iovec own[FIRST_ROOM];
};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static struct iovec *parts_of(const struct headers *headers, uint32_t message)
{
    return headers->parts + (size_t)message * headers->entries;
}

static void point(struct mmsghdr *header, struct iovec *iovecs, uint32_t count,
                  struct sockaddr_storage *name)
{
    memset(header, 0, sizeof(*header));
    header->msg_hdr.msg_iov = iovecs;
    header->msg_hdr.msg_iovlen = count;
    header->msg_hdr.msg_name = name;
    header->msg_hdr.msg_namelen = sizeof(*name);
}

/* The read itself. Without a descriptor the compiler still has to have every header in memory. */
static int call(struct headers *headers, struct mmsghdr *messages)
{
    int received;

    if (headers->fd < 0) {
        __asm__ volatile("" : : "r"(messages) : "memory");
        return (int)headers->messages;
    }
    received = recvmmsg(headers->fd, messages, headers->messages, MSG_DONTWAIT, NULL);
    if (received < 0)
        return -errno;
    headers->received += (uint32_t)received;
    for (int i = 0; i < received; i++)
        headers->bytes += messages[i].msg_len;
    return received;
}

static int read_once(struct headers *headers, struct sockaddr_storage *names)
{
    int received = call(headers, headers->kept);

    (void)names; /* the kept headers point to names already */
    for (int i = 0; i < received; i++)
        headers->kept[i].msg_hdr.msg_namelen = sizeof(struct sockaddr_storage);
    return received;
}

static int read_refilled(struct headers *headers, struct sockaddr_storage *names)
{
    for (uint32_t i = 0; i < headers->messages; i++) {
        struct iovec *iovecs = headers->iovecs + (size_t)i * headers->entries;
        const struct iovec *parts = parts_of(headers, i);

        for (uint32_t j = 0; j < headers->entries; j++)
            iovecs[j] = parts[j];
        point(&headers->kept[i], iovecs, headers->entries, &names[i]);
    }
    return call(headers, headers->kept);
}

/* Double the room; entries that lie in `own` are copied out of it. Returns 0 or -ENOMEM. */
static int grow(struct list *list, const struct iovec *own)
{
    uint32_t room = list->room ? 2 * list->room : FIRST_ROOM;
    struct iovec *old = list->items == own ? NULL : list->items;
    struct iovec *items = realloc(old, room * sizeof(*items));

    if (items == NULL)
        return -ENOMEM;
    if (old == NULL && list->count)
        memcpy(items, own, list->count * sizeof(*items));
    list->items = items;
    list->room = room;
    return 0;
}

static int add_all(struct list *list, const struct iovec *own, const struct iovec *parts,
                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list->count == list->room && grow(list, own))
            return -ENOMEM;
        list->items[list->count++] = parts[i];
    }
    return 0;
}

static int read_heap(struct headers *headers, struct sockaddr_storage *names)
{
    struct mmsghdr messages[HEADERS_MAX_MESSAGES];
    struct list lists[HEADERS_MAX_MESSAGES];
    uint32_t made = 0;
    int result = 0;

    for (; made < headers->messages && !result; made++) {
        struct list *list = &lists[made];

        *list = (struct list){NULL, 0, 0};
        result = add_all(list, NULL, parts_of(headers, made), headers->entries);
        point(&messages[made], list->items, list->count, &names[made]);
    }
    if (!result)
        result = call(headers, messages);
    for (uint32_t i = 0; i < made; i++)
        free(lists[i].items);
    return result;
}

static int read_small(struct headers *headers, struct sockaddr_storage *names)
{
    struct mmsghdr messages[HEADERS_MAX_MESSAGES];
    struct small_list lists[HEADERS_MAX_MESSAGES];
    uint32_t made = 0;
    int result = 0;

    for (; made < headers->messages && !result; made++) {
        struct list *list = &lists[made].list;

        *list = (struct list){lists[made].own, 0, FIRST_ROOM};
        result = add_all(list, lists[made].own, parts_of(headers, made), headers->entries);
        point(&messages[made], list->items, list->count, &names[made]);
    }
    if (!result)
        result = call(headers, messages);
    for (uint32_t i = 0; i < made; i++)
        if (lists[i].list.items != lists[i].own)
            free(lists[i].list.items);
    return result;
}

int64_t headers_read(struct headers *headers, int way, uint32_t reads)
{
    static int (*const ways[])(struct headers *, struct sockaddr_storage *) = {
        [HEADERS_ONCE] = read_once,
        [HEADERS_REFILLED] = read_refilled,
        [HEADERS_HEAP] = read_heap,
        [HEADERS_SMALL] = read_small,
    };
    struct sockaddr_storage names[HEADERS_MAX_MESSAGES];
    int64_t start;

    if (way < HEADERS_ONCE || way > HEADERS_SMALL)
        return -EINVAL;
    for (uint32_t i = 0; i < headers->messages; i++)
        point(&headers->kept[i], parts_of(headers, i), headers->entries, &names[i]);
    start = now_ns();
    for (uint32_t i = 0; i < reads; i++) {
        int received = ways[way](headers, names);

        if (received < 0 && received != -EINTR)
            return received;
    }
    return now_ns() - start;
}

struct headers *headers_new(int fd, uint32_t messages, uint32_t entries, uint32_t entry_size)
{
    size_t count = (size_t)messages * entries;
    struct headers *headers;

    if (messages == 0 || messages > HEADERS_MAX_MESSAGES || entries == 0 ||
        entries > HEADERS_MAX_ENTRIES || entry_size == 0) {
        errno = EINVAL;
        return NULL;
    }
    headers = calloc(1, sizeof(*headers));
    if (headers == NULL)
        return NULL;
    *headers = (struct headers){
        .fd = fd,
        .messages = messages,
        .entries = entries,
        .entry_size = entry_size,
        .memory = malloc(count * entry_size),
        .parts = calloc(count, sizeof(struct iovec)),
        .iovecs = calloc(count, sizeof(struct iovec)),
        .kept = calloc(messages, sizeof(struct mmsghdr)),
    };
    if (!headers->memory || !headers->parts || !headers->iovecs || !headers->kept) {
        headers_free(headers);
        errno = ENOMEM;
        return NULL;
    }
    memset(headers->memory, 0xff, count * entry_size);
    for (size_t i = 0; i < count; i++)
        headers->parts[i] = (struct iovec){headers->memory + i * entry_size, entry_size};
    return headers;
}

void headers_free(struct headers *headers)
{
    free(headers->memory);
    free(headers->parts);
    free(headers->iovecs);
    free(headers->kept);
    free(headers);
}

uint32_t headers_zeroed(const struct headers *headers, uint32_t size)
{
    size_t step = (size_t)headers->entries * headers->entry_size;
    uint32_t zeroed = 0;

    for (uint32_t i = 0; size <= step && i < headers->messages; i++) {
        uint8_t found = 0;

        for (size_t j = 0; j < size; j++)
            found |= headers->memory[i * step + j];
        zeroed += !found;
    }
    return zeroed;
}
