/*
 * epoll-load's connections and its loop, shared between its two sources.
 *
 * A slot is one of the --conns connections. Its place in the array is its
 * number; in cps mode it has one socket after the other. There is one thread
 * and one generator.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "apps/load/load_opts.h"
#include "apps/load/load_stats.h"

#define LOAD_BUF_SIZE (256u << 10)
#define LOAD_RETRY_NS (OPTS_NS_PER_S / 10) /* before a failed slot reopens */

enum slot_state {
	SLOT_CLOSED,	 /* no socket */
	SLOT_CONNECTING, /* waits for the handshake */
	SLOT_READY,	 /* open, nothing asked */
	SLOT_ASKED,	 /* waits for an answer; in bulk mode, streams */
};

struct slot {
	int fd;
	enum slot_state state;
	bool again;	   /* in load.again */
	bool was_open;	   /* at least once */
	uint32_t sent;	   /* of this request */
	uint32_t received; /* of its answer */
	int64_t begun_ns;  /* where its latency counts from */
	int64_t free_ns;   /* since then it has waited for its turn */
	int64_t since_ns;  /* what it waits for began then: the timeout */
	int64_t reopen_ns; /* not before, after a failure */
	uint64_t sent_at;  /* place in the stream, for --verify */
	uint64_t arrived_at;
	uint64_t seed;
	struct load_pace pace;
};

struct load {
	struct load_opts opts;
	int cpu; /* -1: anywhere */
	int epoll;
	struct slot *slots;
	struct slot **again; /* bulk slots that stopped for fairness alone */
	uint32_t again_count;
	uint32_t started; /* slots that were opened for the first time */
	uint32_t connecting;
	uint32_t source;   /* the last address of choose_source() */
	uint64_t turn;	   /* the next request of the open loop's even stream */
	int64_t waited_ns; /* for turns, awake */
	int64_t scan_ns;
	struct load_stats stats;
	char to_send[LOAD_BUF_SIZE];
	char received[LOAD_BUF_SIZE];
};

extern struct load load;

/*
 * Connects. Latency counts from begun_ns where connecting is part of a request.
 */
void slot_open(struct slot *slot, int64_t begun_ns, int64_t now_ns);

/*
 * What a slot does when it waits for nothing: in the closed loop its next
 * request, in the open loop the one that is due.
 */
void slot_go_on(struct slot *slot, int64_t now_ns);

/* The same for one that has waited for something until now. */
static inline void slot_is_free(struct slot *slot, int64_t now_ns)
{
	slot->free_ns = now_ns;
	slot_go_on(slot, now_ns);
}

/* Bulk mode: streams both ways, a bounded number of rounds. */
void slot_stream(struct slot *slot, int64_t now_ns);

/* Counts the error and closes the slot's socket. */
void slot_fail(struct slot *slot, enum load_error kind, int64_t now_ns);

/* Does what epoll tells of. */
void slot_event(struct slot *slot, uint32_t events);

static inline bool is_open_loop(void)
{
	return load.opts.rate > 0;
}
