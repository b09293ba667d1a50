/*
 * A recvmmsg that plays a script: what a test puts into struct aiorecv_receiver in the place of
 * the system's. cffi parses this file, seam.c includes it.
 */
#pragma once
#include <stdint.h>

struct mmsghdr;
struct timespec;

enum {
    SEAM_DESCRIPTORS = 1024, /* scripts are kept by descriptor, below this */
    SEAM_REAL = -1000        /* as a step's result: ask the kernel */
};

/* One message, as the kernel would write it. */
struct seam_message {
    const uint8_t *payload; /* payload_size bytes, as far as they fit the slot */
    uint32_t payload_size;
    const uint8_t *name; /* name_size bytes, as far as they fit */
    uint32_t name_size;
    const uint8_t *control; /* control_size bytes, as far as they fit */
    uint32_t control_size;
    uint32_t length;          /* msg_len */
    uint32_t told_name_size;  /* msg_namelen */
    uint64_t told_controllen; /* msg_controllen */
    int flags;                /* msg_flags */
};

/*
 * What one call does: fills `result` headers as far as there are messages and room, and returns
 * `result`; or -1 with errno `error`.
 */
struct seam_step {
    struct seam_message *messages;
    uint32_t count;
    int result;
    int error;
};

/* What one call was asked. */
struct seam_call {
    uint32_t vlen;
    int flags;
    int timed;        /* not 0: it had a timeout */
    uint32_t unarmed; /* headers of the first vlen that were not ready for a message */
};

/* One descriptor's steps, and a record of the calls; past the last step the kernel is asked. */
struct seam_script {
    struct seam_step *steps;
    uint32_t step_count;
    uint32_t next_step;
    struct seam_call *calls;
    uint32_t call_limit;
    uint32_t call_count; /* may exceed call_limit, then the last were not recorded */
    uint32_t slot_size;  /* what an armed header offers */
    uint32_t name_size;
    uint32_t control_size;
};

/* Play `script` to whoever reads fd; NULL: to nobody. Returns 0, or -1 for too large an fd. */
int seam_play(int fd, struct seam_script *script);

/* What to put in the place of recvmmsg. */
int seam_recvmmsg(int fd, struct mmsghdr *messages, unsigned int vlen, int flags,
                  struct timespec *timeout);
