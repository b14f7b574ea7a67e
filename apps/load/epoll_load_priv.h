/*
 * epoll-load's connections and its run, shared between its sources.
 *
 * A slot is one of the --conns connections; in cps mode it has one socket after
 * the other. A worker is one thread with everything it needs: a range of the
 * slots, an epoll set, buffers, and what it counts. Only its thread uses it,
 * except fields marked as the conductor's.
 *
 * The conductor is the main thread. It starts the workers, gathers what they
 * have counted (load_stats.h), and ends them: each ends when it learns that the
 * run is over.
 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "apps/common/epoll_threads.h"
#include "apps/load/load_opts.h"
#include "apps/load/load_part.h"
#include "apps/load/load_stats.h"

#define LOAD_BUF_SIZE (256u << 10)
#define LOAD_RETRY_NS (OPT_NS_PER_S / 10) /* before a failed slot reopens */

struct worker;

enum slot_state {
	SLOT_CLOSED,	 /* no socket */
	SLOT_CONNECTING, /* waits for the handshake */
	SLOT_READY,	 /* open, nothing asked */
	SLOT_ASKED,	 /* waits for an answer; in bulk mode, streams */
};

struct slot {
	struct worker *worker;
	int fd;
	enum slot_state state;
	bool again;	   /* in the worker's list of the same name */
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

struct worker {
	_Alignas(64) pthread_t thread; /* the conductor's */
	sem_t gathered;
	atomic_bool asked; /* the conductor wants to gather */
	uint32_t index;
	int epoll;
	int wake; /* an eventfd: asked has been set */
	struct slot *slots;
	struct load_part part;
	struct slot **again; /* bulk slots that stopped for fairness alone */
	uint32_t again_count;
	uint32_t started; /* slots that were opened for the first time */
	uint32_t connecting;
	uint32_t source;   /* the last address of choose_source() */
	uint64_t turn;	   /* its next request of the open loop's stream */
	int64_t waited_ns; /* for turns, awake */
	int64_t scan_ns;
	int64_t busy_ns;  /* when last gathered */
	uint64_t settled; /* of stats.settled: taken off load.unsettled */
	struct load_stats stats;
	char to_send[LOAD_BUF_SIZE];
	char received[LOAD_BUF_SIZE];
};

struct load {
	struct load_opts opts;
	struct epoll_threads threads;
	struct worker *workers;
	uint32_t n_started;	 /* threads; the conductor's */
	uint32_t n_workers;	 /* with slots */
	struct load_stats stats; /* the run's; the conductor's */
	/* opens to come, of each slot one; may fall below 0 */
	_Atomic int64_t unsettled;
	int all_settled; /* an eventfd: they are all known */
};

extern struct load load;

/* The slot's number in the run. */
static inline uint32_t slot_index(const struct slot *slot)
{
	const struct worker *worker = slot->worker;

	return worker->part.first + (uint32_t)(slot - worker->slots);
}

/*
 * Connects. Latency counts from begun_ns where connecting is part of a request.
 */
void slot_open(struct slot *slot, int64_t begun_ns, int64_t now_ns);

/*
 * Continues a slot that waits for nothing: in the closed loop with its next
 * request, in the open loop with the one that is due.
 */
void slot_go_on(struct slot *slot, int64_t now_ns);

/* The same for one that has waited for something until now. */
static inline void slot_is_free(struct slot *slot, int64_t now_ns)
{
	slot->free_ns = now_ns;
	slot_go_on(slot, now_ns);
}

/* Bulk mode: streams in both directions for a bounded number of rounds. */
void slot_stream(struct slot *slot, int64_t now_ns);

/* Counts the error and closes the slot's socket. */
void slot_fail(struct slot *slot, enum load_error kind, int64_t now_ns);

/* Handles an event of epoll. */
void slot_event(struct slot *slot, uint32_t events);

/* 0 or -errno; worker_fini() undoes either. */
int worker_init(struct worker *worker, uint32_t index);
void worker_fini(struct worker *worker);

/* The run has started, and the worker has not. */
void worker_follow(struct worker *worker);

/* A thread: loads until the run is over. */
void *worker_main(void *arg);

/* Gathers what the worker has counted; blocks until it has. The conductor's. */
void worker_gather(struct worker *worker);

static inline bool is_open_loop(void)
{
	return load.opts.rate > 0;
}
