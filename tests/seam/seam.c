/* The scripted recvmmsg. Tests read in one thread, so its scripts may be a global. */
#define _GNU_SOURCE
#include "seam.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

static struct seam_script *scripts[SEAM_DESCRIPTORS];

int seam_play(int fd, struct seam_script *script)
{
    if (fd < 0 || fd >= SEAM_DESCRIPTORS)
        return -1;
    scripts[fd] = script;
    return 0;
}

static void put(void *room, size_t room_size, const void *data, size_t size)
{
    if (size)
        memcpy(room, data, size < room_size ? size : room_size);
}

static void fill(struct mmsghdr *header, const struct seam_message *message)
{
    struct msghdr *m = &header->msg_hdr;

    put(m->msg_iov->iov_base, m->msg_iov->iov_len, message->payload, message->payload_size);
    put(m->msg_name, m->msg_namelen, message->name, message->name_size);
    put(m->msg_control, m->msg_controllen, message->control, message->control_size);
    header->msg_len = message->length;
    m->msg_namelen = message->told_name_size;
    m->msg_controllen = message->told_controllen;
    m->msg_flags = message->flags;
}

static int is_armed(const struct seam_script *script, const struct msghdr *m)
{
    return m->msg_name && m->msg_namelen == script->name_size && m->msg_control &&
           m->msg_controllen == script->control_size && m->msg_iovlen == 1 &&
           m->msg_iov->iov_len == script->slot_size;
}

static void note(struct seam_script *script, const struct mmsghdr *messages, unsigned int vlen,
                 int flags, const struct timespec *timeout)
{
    struct seam_call call = {vlen, flags, timeout != NULL, 0};

    for (unsigned int i = 0; i < vlen; i++)
        call.unarmed += !is_armed(script, &messages[i].msg_hdr);
    if (script->call_count < script->call_limit)
        script->calls[script->call_count] = call;
    script->call_count++;
}

int seam_recvmmsg(int fd, struct mmsghdr *messages, unsigned int vlen, int flags,
                  struct timespec *timeout)
{
    struct seam_script *script = scripts[fd];
    const struct seam_step *step;

    if (!script)
        return recvmmsg(fd, messages, vlen, flags, timeout);
    note(script, messages, vlen, flags, timeout);
    if (script->next_step >= script->step_count)
        return recvmmsg(fd, messages, vlen, flags, timeout);
    step = &script->steps[script->next_step++];
    if (step->result == SEAM_REAL)
        return recvmmsg(fd, messages, vlen, flags, timeout);
    for (uint32_t i = 0; i < step->count && i < vlen && (int)i < step->result; i++)
        fill(&messages[i], &step->messages[i]);
    errno = step->error;
    return step->result;
}
