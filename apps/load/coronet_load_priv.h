/*
 * coronet-load's connections and its run, shared between its sources.
 *
 * A slot is one of the --conns connections; in cps mode it has one after the
 * other. In echo and bulk mode, and in idle mode after its first echo, a slot
 * has no coroutine: it is watched (net_set_watch()), which costs no switch.
 * Dialing and cps mode use a coroutine for each slot.
 *
 * A shard has a range of the slots; its state is in its struct load_shard and
 * its slots, which its thread alone uses. The state of the run is in struct
 * load: it is constant, atomic, or used only by the conductor, a coroutine on
 * the first shard that gathers the shards' counts (load_stats.h).
 */
#pragma once

#include <stdatomic.h>

#include <coronet/net.h>

#include "apps/load/http_answer.h"
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
	int64_t since_ns;	/* when its present wait began; 0: none */
	int64_t begun_ns;	/* start of the latency being measured */
	int64_t free_ns;	/* when it began to wait for its turn */
	uint64_t sent, arrived; /* offsets in the stream, for --verify */
	struct load_pace pace;
	struct coro *waits;  /* cps: parked until its turn */
	int64_t reopen_ns;   /* watched: when to reopen it; 0: it is open */
	uint32_t unsent;     /* watched: bytes left of this request or write */
	uint32_t unanswered; /* bytes left of its answer; 0: none; HTTP: 1 */
	uint32_t index;
	bool timed_out;
};

struct load_shard {
	struct net_stack *stack;
	struct slot *slots; /* those of its part of the run */
	struct load_part part;
	uint32_t opened; /* slots that were opened at least once */
	uint32_t dialing;
	uint32_t asking, next_ask; /* idle: the second echo */
	uint64_t turn;	   /* its next request of the open loop's stream */
	uint64_t steps;	   /* of all kinds except waiting for a turn */
	int64_t waited_ns; /* busy-waited for turns */
	struct load_stats stats;
	_Alignas(64) uint8_t payload[LOAD_CHUNK]; /* constant unless verified */
};

struct load {
	struct net_opts net;
	struct load_opts opts;
	struct net_addr target;
	struct net_tls *tls; /* NULL: without TLS */
	bool verify;
	bool udp;
	struct slot *slots;
	struct http_answer *answers; /* with --http: by the slots' indices */
	struct load_shard *shards;
	unsigned n_shards;	 /* with slots; others only hand over frames */
	struct load_stats stats; /* of the run; the conductor's */
	bool unheard;		 /* a shard did not respond; the conductor's */
	bool done;		 /* a result exists; the conductor's */
	_Atomic unsigned ending; /* shards that have not ended */
	atomic_int signalled;	 /* a signal: end the run now */
};

extern struct load load;

/*
 * Returns whether the run goes on; once it is over, connections end because of
 * that.
 */
static inline bool load_running(const struct load_shard *shard)
{
	return shard->stats.phase != LOAD_DONE &&
	       !net_stack_stopping(shard->stack);
}

/* Called when an open connection has ended. */
void slot_count_closed(struct load_shard *shard);

/*
 * Counts an error and closes the connection. err: 0 (the peer has closed) or a
 * negative errno.
 */
void slot_fail(struct slot *slot, long err);

/* Connects the slot; blocks. Returns 0, or an error, which it has counted. */
int slot_dial(struct slot *slot);

/* Notes that a request of opts.size bytes waits for its answer. */
void slot_expect_answer(struct slot *slot);

/*
 * Sends as many of the last `len` bytes of a request, or of any `len` bytes in
 * bulk mode, as fit. Returns their number or an error:
 * -EAGAIN if the slot is watched and nothing fits.
 */
long slot_send(struct slot *slot, size_t len);

/*
 * Receives one piece and checks it. Returns its length, 0 at the peer's FIN, or
 * an error: -EAGAIN if the slot is watched and no data has arrived.
 */
long slot_receive(struct slot *slot);

/*
 * The same for an answer, of which slot->unanswered is what has not come. More
 * than was asked for is -EBADMSG.
 */
long slot_receive_answer(struct slot *slot);

/*
 * Sends one request and receives its answer; blocks. Returns 1, 0 if the peer
 * has closed, or an error.
 */
long slot_ask(struct slot *slot);

/* --udp: sends requests and receives answers until the run is over. Blocks. */
void slot_run_udp(struct slot *slot);

/* Idle mode: does the first echo (blocks); then the slot is watched. */
void slot_run_idle(struct slot *slot);

/* cps mode: makes connections until the run is over. Blocks. */
void slot_run_cps(struct slot *slot);

/* Echo and bulk mode: watches the slot from now on, until it fails. */
void watched_start(struct slot *slot);

/* Echo mode, open loop: called when it is the slot's turn. */
void echo_turn(struct slot *slot, int64_t now_ns);

/* Echo and bulk mode: called when the timeout has passed without an answer. */
void watched_time_out(struct slot *slot);
