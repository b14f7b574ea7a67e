/*
 * epoll-load's connections and its run, shared between its sources.
 *
 * A slot is one of the --conns connections; in cps mode it has one socket after
 * the other. A worker is one thread with everything it needs: a range of the
 * slots, an epoll set, buffers and counters. Only its thread uses it, except
 * fields marked as the conductor's.
 *
 * The conductor is the main thread. It starts the workers, gathers their counts
 * (load_stats.h), and waits for them: each ends when it learns that the run is
 * over.
 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "apps/common/epoll_threads.h"
#include "apps/common/socket_tls.h"
#include "apps/load/http_answer.h"
#include "apps/load/load_opts.h"
#include "apps/load/load_part.h"
#include "apps/load/load_stats.h"

#define LOAD_BUF_SIZE (256u << 10)
#define LOAD_RETRY_NS (OPT_NS_PER_S / 10) /* before a failed slot reopens */

struct worker;

enum slot_state {
	SLOT_CLOSED,	 /* no socket */
	SLOT_CONNECTING, /* waits for the handshakes of TCP and TLS */
	SLOT_READY,	 /* open, without a request */
	SLOT_ASKED,	 /* waits for an answer; in bulk mode it streams */
};

struct slot {
	struct worker *worker;
	int fd;
	SSL *tls; /* owned; NULL before TCP's handshake, and without TLS */
	enum slot_state state;
	bool again;	   /* in the worker's list `again` */
	bool was_open;	   /* at least once */
	uint32_t sent;	   /* bytes of this request */
	uint32_t received; /* bytes of its answer; not with --http */
	int64_t begun_ns;  /* start of the latency being measured */
	int64_t free_ns;   /* when it began to wait for its turn */
	int64_t since_ns;  /* when its present wait began, for the timeout */
	int64_t reopen_ns; /* when to reopen it after a failure */
	uint64_t sent_at;  /* offsets in the stream, for --verify */
	uint64_t arrived_at;
	uint64_t seed;
	struct load_pace pace;
	struct http_answer answer; /* with --http */
};

struct worker {
	_Alignas(64) pthread_t thread; /* the conductor's */
	sem_t gathered;
	atomic_bool asked; /* the conductor waits to gather */
	uint32_t index;
	int epoll;
	int wake; /* an eventfd: `asked` was set */
	struct slot *slots;
	struct load_part part;
	struct slot **again; /* bulk slots that stopped only for fairness */
	uint32_t again_count;
	uint32_t started; /* slots that were opened at least once */
	uint32_t connecting;
	uint32_t source;   /* the last address of choose_source() */
	uint64_t turn;	   /* its next request of the open loop's stream */
	int64_t waited_ns; /* busy-waited for turns */
	int64_t scan_ns;
	int64_t busy_ns;  /* at the last gathering */
	uint64_t settled; /* part of stats.settled subtracted from unsettled */
	struct load_stats stats;
	char to_send[LOAD_BUF_SIZE];
	char received[LOAD_BUF_SIZE];
};

struct load {
	struct load_opts opts;
	struct epoll_threads threads;
	SSL_CTX *tls; /* NULL: without TLS */
	struct worker *workers;
	uint32_t n_started;	 /* threads; the conductor's */
	uint32_t n_workers;	 /* with slots */
	struct load_stats stats; /* of the run; the conductor's */
	/* slots whose first open has not ended; may fall below 0 */
	_Atomic int64_t unsettled;
	int all_settled; /* an eventfd: unsettled has reached 0 */
};

extern struct load load;

/* The slot's number in the run. */
static inline uint32_t slot_index(const struct slot *slot)
{
	const struct worker *worker = slot->worker;

	return worker->part.first + (uint32_t)(slot - worker->slots);
}

/*
 * Connects a slot. If connecting is part of a request, its latency counts from
 * begun_ns.
 */
void slot_open(struct slot *slot, int64_t begun_ns, int64_t now_ns);

/*
 * Continues a slot that waits for nothing: in the closed loop with its next
 * request, in the open loop with a request that is due.
 */
void slot_go_on(struct slot *slot, int64_t now_ns);

/* slot_go_on() for a slot whose wait has ended just now. */
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

/* Returns 0 or -errno; worker_fini() must be called in both cases. */
int worker_init(struct worker *worker, uint32_t index);
void worker_fini(struct worker *worker);

/* Called when the run has started, before the worker's thread starts. */
void worker_follow(struct worker *worker);

/* The worker's thread, which generates load until the run is over. */
void *worker_main(void *arg);

/* Gathers the worker's counts; blocks for it. Called by the conductor. */
void worker_gather(struct worker *worker);

static inline bool is_open_loop(void)
{
	return load.opts.rate > 0;
}
