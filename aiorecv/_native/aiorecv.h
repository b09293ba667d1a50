/*
 * The contract between C and Python: cffi parses this file, the C includes it, and _core.pyi
 * types it. No function calls Python, keeps state of its own or allocates on the receive path;
 * each works on what it is handed, so cffi may release the GIL around it.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>

struct mmsghdr;
struct msghdr;
struct timespec;

enum {
    AIORECV_MAX_SLOTS = 1024,   /* Linux cuts vlen to UIO_MAXIOV, 1024 (net/socket.c) */
    AIORECV_MAX_SLOT_SIZE = 1 << 20, /* so that a read's bytes fit its number, offsets 32 bits */
    AIORECV_NAME_SIZE = 124,    /* the longest name is sockaddr_un, 110 bytes */
    AIORECV_CONTROL_SIZE = 256, /* every option of ours at once on a dual-stack socket: 200 */
    AIORECV_MAX_PEERS = 4096,   /* names a table numbers before it is replaced */

    /* A read in one number: slots filled, how they were, slots asked for, bytes. */
    AIORECV_RECEIVED_MASK = 0x7ff,
    AIORECV_EQUAL = 1 << 11,    /* all messages have one length */
    AIORECV_ONE_PEER = 1 << 12, /* all messages have one name */
    AIORECV_TRAINS = 1 << 13,   /* some message is a GRO train: see segments and packets */
    AIORECV_SLOTS_SHIFT = 14,
    AIORECV_BYTES_SHIFT = 25,

    AIORECV_MAX_SENDS = 64,            /* packets of one send; UDP_MAX_SEGMENTS is no less */
    AIORECV_NO_NAME = AIORECV_MAX_PEERS, /* the socket is connected */

    AIORECV_SCM_RIGHTS = 1,
    AIORECV_SCM_PIDFD = 4,

    AIORECV_RING_READY = 1,      /* a block can be read */
    AIORECV_RING_STOPPED = 2,    /* the next one is still held: nothing comes before it is given */
    AIORECV_RING_UNPOLLABLE = 4, /* the one before it is: poll(2) would call the socket readable */

    AIORECV_PEERS_FULL = 10000, /* as -errno: nothing was read, the table has to be replaced */
    AIORECV_END_OF_FILE = 10001 /* as -errno: nothing comes any more */
};

/* A peer's name as the kernel wrote it. */
struct aiorecv_peer {
    uint32_t size; /* bytes of name; 0: the peer has none */
    uint8_t name[AIORECV_NAME_SIZE];
};

/* The distinct names that a loop has seen, numbered in the order of their arrival. */
struct aiorecv_peers {
    uint64_t seed; /* keeps hash collisions from being made on purpose */
    uint32_t count;
    struct aiorecv_peer *entries; /* AIORECV_MAX_PEERS */
    uint16_t *index;              /* open addressing, 2 * AIORECV_MAX_PEERS; number + 1 */
};

/* Slots for the messages of one read, and what was decoded from it. One mapping holds all of it. */
struct aiorecv_slab {
    uint32_t slots;
    uint32_t slot_size;    /* bytes of packet memory a slot */
    uint32_t stride;       /* bytes from one slot's start to the next one's */
    uint64_t mapping_size; /* bytes, headers included */
    uint8_t *memory;       /* slots * stride bytes */
    uint32_t *lengths;     /* bytes delivered, a message */
    uint32_t *peers;       /* the number of the sender, a message */
    uint32_t *segments;    /* bytes a segment, 0 for a plain datagram; written with AIORECV_TRAINS */
    uint32_t packets;      /* after the split; written with AIORECV_TRAINS */
    uint32_t *controls;    /* bytes of ancillary data, a message; at most a slot's */
    uint8_t *control;      /* AIORECV_CONTROL_SIZE bytes a slot */
    struct aiorecv_peer *names;
    struct mmsghdr *headers;
};

/* Where the packets of a read lie: arrays of the caller's, one entry a packet. */
struct aiorecv_layout {
    uint32_t *offsets;       /* into slab->memory */
    uint32_t *lengths;       /* bytes delivered */
    uint32_t *wire_lengths;  /* bytes the sender sent */
    uint8_t *truncated;      /* 1: cut to fit; of a cut train the last packet is marked */
    uint64_t *timestamps_ns; /* of the kernel; NULL: not wanted */
};

/* What the ancillary data of one message says; 0 or -1 where it says nothing. */
struct aiorecv_details {
    int32_t cut; /* not 0: MSG_CTRUNC, so what is missing is unknown */
    uint64_t timestamp_ns;
    uint32_t drops;
    int32_t tos;
    int32_t ttl;
    uint32_t interface;
    int32_t vlan_tci;
    int32_t vlan_tpid;
    int32_t family;          /* of destination: AF_INET, AF_INET6 or 0 */
    uint8_t destination[16]; /* as inet_ntop(3) takes it */
};

/* One receiver's descriptor and what it has counted. */
struct aiorecv_receiver {
    int fd;
    int flags;            /* for each call, besides MSG_DONTWAIT and MSG_TRUNC */
    int portable;         /* not 0: a recvmsg loop, since recvmmsg is missing or forbidden */
    int pending_error;    /* met by that loop after some packets; reported by the next read */
    int keep_descriptors; /* not 0: those passed by SCM_RIGHTS are the caller's to close */
    /* recvmmsg(2) and recvmsg(2); fields so that a test can put faults in their place */
    int (*recvmmsg)(int fd, struct mmsghdr *messages, unsigned int count, int flags,
                    struct timespec *timeout);
    ssize_t (*recvmsg)(int fd, struct msghdr *message, int flags);
    struct aiorecv_peers *peers;
    uint64_t packets;
    uint64_t bytes;
    uint64_t trains;
    uint64_t reads;
    uint64_t polled_reads;
    uint64_t full_reads;
    uint64_t empty_reads;
    uint64_t truncated;
    uint64_t ancillary_truncated;
    uint64_t rearmed; /* headers made ready again: equals the messages received */
};

/*
 * A packet ring: blocks of packets that the kernel has written, in order. Whoever calls sees to it
 * that calls do not overlap.
 */
struct aiorecv_ring {
    uint32_t block_size;
    uint32_t blocks;
    uint32_t most; /* packets that fit into a block */
    uint32_t next; /* the block to read next */
    uint32_t at;   /* in it, where to go on, if packets are left */
    uint32_t left;
    int32_t closed;
    /* The last read: packets `first` to before `first + count` of a block. */
    uint32_t block;
    uint32_t first;
    uint32_t count;
    uint32_t stride; /* bytes from one packet to the next, if they are equal */
    int32_t flags;   /* AIORECV_EQUAL: in length and stride; AIORECV_ONE_PEER */
    int32_t full;    /* not 0: the block was closed full, not by its timer */
    uint64_t bytes;
    uint8_t *memory; /* blocks * block_size bytes */
    uint32_t *held;  /* a block: by how many batches and views */
    /* `most` entries a block, one a packet */
    uint32_t *headers; /* from the block's start, in bytes */
    uint32_t *offsets; /* the same, of its bytes */
    uint32_t *lengths;
    uint32_t *peers;
};

/* Packets of one send, which whoever calls fills in; one serves all senders of a loop. */
struct aiorecv_outbox {
    const uint8_t *data[AIORECV_MAX_SENDS]; /* the caller keeps them alive during the call */
    uint32_t lengths[AIORECV_MAX_SENDS];
    uint32_t names[AIORECV_MAX_SENDS]; /* numbers in the sender's peers, or AIORECV_NO_NAME */
    struct aiorecv_headers *headers;   /* built once */
};

/* A local address to send from: AF_INET or AF_INET6, as inet_pton(3) writes it. */
struct aiorecv_source {
    int32_t family;
    uint8_t address[16];
};

/* One sender's descriptor and what it has counted. */
struct aiorecv_sender {
    int fd;
    int gso;      /* not 0: equal packets to one peer go as one UDP GSO message */
    int portable; /* not 0: a sendmsg loop, since sendmmsg is missing or forbidden */
    /* sendmmsg(2) and sendmsg(2); fields so that a test can put faults in their place */
    int (*sendmmsg)(int fd, struct mmsghdr *messages, unsigned int count, int flags);
    ssize_t (*sendmsg)(int fd, const struct msghdr *message, int flags);
    struct aiorecv_peers *peers; /* the names that packets go to */
    uint64_t packets;
    uint64_t bytes;
    uint64_t calls;
    uint64_t gso_sends; /* messages of more than one packet */
};

/*
 * Make a slab of up to AIORECV_MAX_SLOTS slots with all its headers, or return NULL with errno.
 * Pages are touched when a packet first reaches them.
 */
struct aiorecv_slab *aiorecv_slab_new(uint32_t slots, uint32_t slot_size);
void aiorecv_slab_free(struct aiorecv_slab *slab);

/* Make an empty table of peers, or return NULL with errno. */
struct aiorecv_peers *aiorecv_peers_new(uint64_t seed);
void aiorecv_peers_free(struct aiorecv_peers *peers);

/* Set up a receiver for `fd` with the system's own recvmmsg. */
void aiorecv_receiver_init(struct aiorecv_receiver *receiver, int fd);

/*
 * Read a descriptor that is no socket, by a read(2) a packet: 0 bytes are AIORECV_END_OF_FILE. Of a
 * packet that is cut all that is known is that it is longer than a slot.
 */
void aiorecv_receiver_read(struct aiorecv_receiver *receiver);

/*
 * Receive up to |slots| messages without blocking, message i into slot i, and decode them into
 * the slab; negative `slots` say that the descriptor was polled first. Returns the read in one
 * number (see the enum), or -errno (-EAGAIN: none), or -AIORECV_PEERS_FULL. Re-arms just the
 * slots that this read used, so that the next one finds the slab ready.
 */
int64_t aiorecv_receive(struct aiorecv_receiver *receiver, struct aiorecv_slab *slab,
                        int32_t slots);

/*
 * Lay out the packets of the slab's last read, given as aiorecv_receive returned it. The arrays
 * have an entry for each message, with AIORECV_TRAINS for each of slab->packets. Returns how many
 * were written.
 */
uint32_t aiorecv_lay_out(const struct aiorecv_slab *slab, int64_t read,
                         const struct aiorecv_layout *layout);

/*
 * Copy what the slab's last read delivered to `to`, message behind message; it has room for the
 * bytes of the read, which are the sum of slab->lengths.
 */
void aiorecv_pack(const struct aiorecv_slab *slab, uint32_t received, uint8_t *to);

/* Decode the ancillary data of message `message` of the slab's last read. */
void aiorecv_detail(const struct aiorecv_slab *slab, uint32_t message,
                    struct aiorecv_details *details);

/* Throw away what the error queue of `fd` holds, up to a bound; returns how many entries. */
int aiorecv_drain_errors(int fd);

/* Whether the other side of a connection-like socket has hung up, and no byte is left to read. */
int aiorecv_hung_up(int fd);

/*
 * Copy the filter program of a socket (SO_GET_FILTER) to `program`, which has room for `count`
 * instructions of 8 bytes. Returns how many it has, 0 without a filter, or -errno.
 */
int aiorecv_get_filter(int fd, uint8_t *program, uint32_t count);

/* Whether `fd` can report errors: it is connected, or asks for them by IP_RECVERR. */
int aiorecv_can_fail(int fd);

/*
 * Whether the interface that a packet socket is bound to is up (1), down (0) or gone (-1). 1 for any
 * other descriptor.
 */
int aiorecv_link(int fd);

/*
 * Make a ring of packet socket `fd`, whose blocks are closed when full or after `timeout`
 * milliseconds; -1: in ordinary memory, for tests. Returns NULL with errno if that can't be.
 */
struct aiorecv_ring *aiorecv_ring_new(int fd, uint32_t block_size, uint32_t blocks,
                                      uint32_t timeout);

/* Let go of the socket: blocks that are held stay where they are, as copies. Safe to repeat. */
void aiorecv_ring_close(struct aiorecv_ring *ring);
void aiorecv_ring_free(struct aiorecv_ring *ring);

/*
 * Read the next block, or what is left of it, and count it in the receiver; it is held once.
 * Returns how many packets that is (see the ring), or -EAGAIN, or -AIORECV_PEERS_FULL: then the
 * table has to be replaced. A full table ends a read early.
 */
int aiorecv_ring_read(struct aiorecv_receiver *receiver, struct aiorecv_ring *ring, int polled);

/* Hold a block once more; give it back once: the last time to the kernel, or, if the ring is closed,
 * to the system. */
void aiorecv_ring_hold(struct aiorecv_ring *ring, uint32_t block);
void aiorecv_ring_give(struct aiorecv_ring *ring, uint32_t block);

/* What can be done next: flags AIORECV_RING_*. */
int aiorecv_ring_state(const struct aiorecv_ring *ring);

/* Lay out packets of a block that is held; offsets are from its start. */
void aiorecv_ring_lay_out(const struct aiorecv_ring *ring, uint32_t block, uint32_t first,
                          uint32_t count, const struct aiorecv_layout *layout);

/* What the kernel told of one packet of a block that is held. */
void aiorecv_ring_detail(const struct aiorecv_ring *ring, uint32_t block, uint32_t packet,
                         struct aiorecv_details *details);

/* Copy packets of a block that is held to `to`, one behind the other. */
void aiorecv_ring_pack(const struct aiorecv_ring *ring, uint32_t block, uint32_t first,
                       uint32_t count, uint8_t *to);

/* Make the headers of one send, or return NULL with errno. */
struct aiorecv_outbox *aiorecv_outbox_new(void);
void aiorecv_outbox_free(struct aiorecv_outbox *outbox);

/* Set up a sender for `fd` with the system's own calls. */
void aiorecv_sender_init(struct aiorecv_sender *sender, int fd);

/* Write to a descriptor that is no socket, by a writev(2) a packet. */
void aiorecv_sender_write(struct aiorecv_sender *sender);

/*
 * Send the outbox's packets from number `first` to before `end`, without blocking; from `source`,
 * unless that is NULL. Returns how many were sent, at least one, or -errno (-EAGAIN: the socket is
 * full): an error is always that of packet `first`. GSO is given up for good where EIO or EINVAL
 * refuse a run whose packets go by themselves.
 */
int aiorecv_send(struct aiorecv_sender *sender, struct aiorecv_outbox *outbox, uint32_t first,
                 uint32_t end, const struct aiorecv_source *source);

/* Send one packet to the peer of this number, or AIORECV_NO_NAME. Returns 0 or -errno. */
int aiorecv_send_one(struct aiorecv_sender *sender, const uint8_t *data, size_t length,
                     uint32_t name);
