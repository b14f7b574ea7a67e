/*
 * coronet-load's connections and its run, shared between its sources.
 *
 * A slot is one of the --conns connections; in cps mode it has one after the
 * other. In echo and bulk mode, and idle once it has answered, a slot has no
 * coroutine: it is watched, which costs no switch. Dialing and cps have one.
 *
 * A shard has a range of the slots; its state is in its struct load_shard and
 * its slots, which its thread alone uses. The state of the run is in struct
 * load: it is constant, atomic, or used only by the conductor, a coroutine on
 * the first shard that gathers the shards' counts (load_stats.h).
 */
#pragma once

#include <stdatomic.h>

#include <coronet/net.h>

#include "apps/load/load_opts.h"
#include "apps/load/load_part.h"
#include "apps/load/load_stats.h"

#define LOAD_RETRY_NS (OPT_NS_PER_S / 10) /* before a failed slot reopens */
#define LOAD_CHUNK    65536u		  /* bytes of one write */

struct load_shard;

struct slot {
	struct net_watch watch; /* first */
	struct load_shard *shard;
	struct net_conn *conn;
	int64_t since_ns;	/* what it waits for began then; 0: nothing */
	int64_t begun_ns;	/* where its latency counts from */
	int64_t free_ns;	/* since then it has waited for its turn */
	uint64_t sent, arrived; /* places in the stream, for --verify */
	struct load_pace pace;
	struct coro *waits;  /* cps: parked until its turn */
	int64_t reopen_ns;   /* watched: not before, after a failure; 0: open */
	uint32_t unsent;     /* watched: of this request, or write */
	uint32_t unanswered; /* echo: of its answer; 0: nothing asked */
	uint32_t index;
	bool timed_out;
};

struct load_shard {
	struct net_stack *stack;
	struct slot *slots; /* of its part of the run's */
	struct load_part part;
	uint32_t opened; /* slots that were opened for the first time */
	uint32_t dialing;
	uint32_t asking, next_ask; /* idle: the second echo */
	uint64_t turn;	   /* the shard's next of the open loop's stream */
	uint64_t steps;	   /* of anything but waiting for a turn */
	int64_t waited_ns; /* for turns, awake */
	struct load_stats stats;
	_Alignas(64) uint8_t payload[LOAD_CHUNK]; /* constant unless verified */
};

struct load {
	struct net_opts net;
	struct load_opts opts;
	struct net_addr target;
	bool verify;
	bool udp;
	struct slot *slots;
	struct load_shard *shards;
	unsigned n_shards;	 /* with slots; further ones only hand over */
	struct load_stats stats; /* the run's; only the conductor's */
	bool unheard;		 /* a shard could not be reached; the same */
	bool done;		 /* there is something to report; the same */
	_Atomic unsigned ending; /* shards that have not ended */
	atomic_int signalled;	 /* end the run now */
};

extern struct load load;

/* False once the run is over: connections then break because it ends. */
static inline bool load_running(const struct load_shard *shard)
{
	return shard->stats.phase != LOAD_DONE &&
	       !net_stack_stopping(shard->stack);
}

/* A connection that was open has ended. */
void slot_count_closed(struct load_shard *shard);

/*
 * Counts an error, 0 (the peer has closed) or a negative errno, and closes the
 * connection.
 */
void slot_fail(struct slot *slot, long err);

/* Blocks until the slot has a connection: 0, or an error that is counted. */
int slot_dial(struct slot *slot);

/*
 * Sends at most `len` bytes, what fits: a count or an error, -EAGAIN when the
 * slot is watched and nothing fits.
 */
long slot_send(struct slot *slot, size_t len);

/*
 * Receives one piece and checks it: its length, 0 at the end, or an error,
 * -EAGAIN when the slot is watched and nothing is there.
 */
long slot_receive(struct slot *slot);

/* One request and its answer: 1, 0 when the peer ended, or an error. Blocks. */
long slot_ask(struct slot *slot);

/* --udp: requests and answers until the run is over. Blocks. */
void slot_run_udp(struct slot *slot);

/* Idle: a first echo; from then on the slot is watched. Blocks. */
void slot_run_idle(struct slot *slot);

/* cps: connections until the run ends. */
void slot_run_cps(struct slot *slot);

/* echo, bulk: from now on the slot is watched, until it fails. */
void watched_start(struct slot *slot);

/* echo: the open loop's turn of this slot has come. */
void echo_turn(struct slot *slot, int64_t now_ns);

/* echo, bulk: the timeout has passed without an answer. */
void watched_time_out(struct slot *slot);
