/*
 * Random lives of several shards on one queue: a crowd of clients, many of
 * which do not read, against the stack on DPDK's own frames, pools and rings.
 *
 * random_shards.c      the program: shards, what disturbs them, checks
 * random_crowd.c       the clients, what they send and what they compare
 * random_crowd_path.c  the path between clients and stack, ARP, ND
 * random_handlers.c    the applications on the stack's side
 * random_queue.c       the queue's frames
 *
 * One thread runs all shards in turn on a clock of its own, so that a seed
 * gives the same life everywhere. Frames come from the pool of the queue, as a
 * card takes them: without a free one, a frame is lost.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "netstack/shard/shard.h"
#include "tests/net/random.h"

#define SHARDS_MAX  8u
#define CLIENTS_MAX 256u
#define ECHO_PORT   7u
#define TALK_PORT   9u /* sends without reading, then reads all */
#define TALK_BYTES  350000u

/* Times are ns, 0: never. */
struct crowd_draw {
	uint64_t seed;
	bool ip6;
	unsigned shards, readers, mutes;
	unsigned queue; /* descriptors of the link's ring */
	int64_t delay;	/* of the path, one way */
	unsigned loss;	/* per mille */
	unsigned mss;
	uint64_t budget;   /* bytes of a shard's memory; 0: any */
	unsigned path_mtu; /* after mtu_at */
	int64_t mtu_at;
	int64_t pause_every, pause_for; /* of one shard or of all */
	int64_t drop_every;  /* coronet-ctl drop, of any connection */
	int64_t forge_every; /* an ICMP error that is not true */
	uint64_t rmem_max, wmem_max;
	int64_t step; /* between two rounds */
};

enum client_kind {
	READER, /* sends to an echo, compares, closes */
	MUTE,	/* never reads */
	LATE,	/* does not read until all readers have ended */
};

struct crowd {
	struct crowd_draw draw;
	struct rng rng;
	int64_t now;
	unsigned ended;	   /* readers */
	unsigned resets;   /* of clients, by the stack */
	unsigned alive;	   /* clients */
	bool wakes;	   /* LATE clients read now, MUTE ones reset */
	int64_t paused;	   /* in all */
	uint64_t to_stack; /* frames that had a buffer */
	uint64_t lost;	   /* and that had none */
	unsigned held;	   /* frames, by connections */
	uint64_t digest;   /* of all frames that the stack sent */
	bool may_reset;	   /* memory is short, or a connection was dropped */
};
extern struct crowd crowd;

__attribute__((noreturn, format(printf, 1, 2))) void
crowd_violated(const char *what, ...);

/* The byte at an offset of a client's stream, in both directions. */
static inline uint8_t crowd_byte(uint16_t port, uint32_t offset)
{
	return (uint8_t)(offset * 37 + (offset >> 8) * 11 + port * 101u);
}

/* Fails the life unless these are the stream's bytes. */
void crowd_compare(const char *where, uint16_t port, uint32_t offset,
		   const uint8_t *data, size_t n);

/* ---- random_crowd.c ---- */
void crowd_begin(void);
/* A segment arrives at a client. */
void crowd_receive(const struct segment *s);
/* Runs timers, delivers to both sides. */
void crowd_run(void);
/* When something is due next. */
int64_t crowd_due(void);
void crowd_wake(void);
void crowd_print(void); /* the clients that are left */
/* Returns whether the mutes' data has come to a standstill. */
bool crowd_is_stuck(void);

/* ---- random_crowd_path.c ---- */
void crowd_path_begin(void);
/* Takes a frame that the stack has sent. */
void crowd_take(const uint8_t *frame, unsigned len);
/* Sends an ICMP error that quotes the last segment of the stack, wrongly. */
void crowd_forge_error(void);
/* Sends a client's segment. */
void crowd_send(unsigned host, const struct segment *s);
/* Delivers what is due, and asks for the stack's MAC address each second. */
void crowd_path_run(void);
int64_t crowd_path_due(void);
/* Returns the time in which the stack could run. */
int64_t crowd_active_ns(void);

/* ---- random_handlers.c ---- */
void echo_views_or_copies(struct net_conn *conn, void *arg);
void send_then_read(struct net_conn *conn, void *arg);

/* ---- random_shards.c ---- */
/* A frame arrives at the queue. */
void queue_receive(const uint8_t *frame, unsigned len);
