/*
 * The counters of a load run, and its phases.
 *
 * 	load_stats_start(&stats, &opts, "epoll-load", now_ns);
 * 	while (load_stats_tick(&stats, now_ns)) {
 * 		... open connections, at most load_stats_may_open() so far;
 * 		... load_stats_opened(), _request(), _error(), _closed();
 * 	}
 * 	return load_report(&stats);
 *
 * A run opens its connections (until each was opened or failed), warms up,
 * measures, and is done; load_stats_tick() advances it and prints the progress
 * line. The result is that of the measuring phase, except for errors, which are
 * counted in all phases.
 *
 * Plain calls from one thread; nothing allocates. The caller provides the clock
 * (nanoseconds that never go back), the memory (105 KiB) and the options, which
 * must outlive it.
 *
 * A run of several threads has a struct load_stats for each. One is the leader:
 * it holds the counts of the run, is ticked and reported. The others are
 * followers: each counts on its own thread, and load_stats_gather() moves its
 * counts to the leader. If no thread counts in the leader (each has a
 * follower), only the thread that ticks it must pause for that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "apps/common/sys.h"
#include "apps/load/hist.h"
#include "apps/load/load_opts.h"

enum load_error {
	LOAD_REFUSED,	  /* connect: nobody listens */
	LOAD_UNREACHABLE, /* connect: no route to the address */
	LOAD_NO_PORT,	  /* connect: every local port is taken */
	LOAD_TIMEOUT,	  /* a connect or an answer took too long */
	LOAD_RESET,	  /* the peer reset an open connection */
	LOAD_CLOSED,	  /* the peer closed before its answer was complete */
	LOAD_VERIFY,	  /* an answer is not what its request asks for */
	LOAD_TLS,	  /* a handshake failed, or the peer broke TLS */
	LOAD_OTHER,
	LOAD_ERRORS,
};

enum load_phase { LOAD_OPENING, LOAD_WARMUP, LOAD_MEASURING, LOAD_DONE };

/* Above this share of a core the generator was the bottleneck. */
#define LOAD_BUSY_LIMIT 0.97

/* Above this share of a latency, most of it is the generator's own delay. */
#define LOAD_LATE_LIMIT 0.5

/*
 * Returns the time that the generator has worked, not waited, since a fixed
 * moment.
 */
typedef int64_t load_busy_fn(void *arg);

struct load_stats {
	int64_t wake_ns; /* when load_stats_tick() has work */
	uint64_t bytes;	 /* payload received in this interval */
	uint64_t open;	 /* connections now */
	struct hist interval;
	struct hist total; /* without the current interval */
	struct hist late;  /* the generator's own delays, open loop */
	uint64_t total_bytes;
	uint64_t opened;  /* since the start */
	uint64_t settled; /* opens that succeeded or failed, while opening */
	uint64_t errors[LOAD_ERRORS];
	uint64_t error_count;
	/* idle: connections that answered an echo before and after */
	uint64_t answered_before, answered_after;
	bool asked_after;	  /* the second echo was requested */
	struct sys_memory memory; /* of the generator, when measuring ended */
	const struct load_opts *opts;
	const char *tool;
	enum load_phase phase;
	bool interrupted;
	bool tty;
	int line_width; /* of the progress line on the tty */
	/* Where progress goes; NULL: to stderr, even if that blocks. */
	void (*put)(const char *text, size_t len);
	int64_t start_ns;
	int64_t phase_end_ns;
	int64_t interval_start_ns;
	int64_t interval_busy_ns; /* busy() at the interval's start */
	int64_t opened_ns;	  /* duration of opening; 0: it did not end */
	int64_t measured_from_ns;
	int64_t measured_to_ns;
	load_busy_fn *busy;
	void *busy_arg;
	int64_t busy_from_ns;
	int64_t busy_to_ns;
	double busiest_follower; /* its share while measuring; 0: none */
	uint64_t open_gathered;	 /* a follower's: part of `open` gathered */
	int64_t gathered_ns; /* leader: sum of followers' times - start_ns */
	int64_t gathered;    /* leader: number of followers in that sum */
	/* The leader's: gathers each follower, on the follower's thread. */
	void (*gather)(struct load_stats *leader);
};

/* Begins a run at now_ns. `opts` and `tool` are borrowed. */
void load_stats_start(struct load_stats *stats, const struct load_opts *opts,
		      const char *tool, int64_t now_ns);

/*
 * Enables the report to say whether the generator itself was the limit; without
 * this call it says that this is unknown. Called right after
 * load_stats_start().
 */
void load_stats_set_busy(struct load_stats *stats, load_busy_fn *busy,
			 void *arg);

/* Makes `follower` a follower of a run that has been started. */
void load_stats_follow(struct load_stats *follower,
		       const struct load_stats *leader);

/*
 * Moves the follower's counts since the last call to the leader: histograms are
 * added bucket by bucket, so that percentiles are those of all values and not
 * averages. The follower takes over the leader's phase. Called while neither
 * thread counts: on the follower's thread, while the leader's thread waits.
 * Once the run is over, only the second echoes of idle mode are moved.
 *
 * The leader's gather() calls this for each follower; load_stats_advance()
 * calls gather() before and after it ends an interval or a phase. The interval
 * or phase ends at the mean of the followers' now_ns, if that is later.
 */
void load_stats_gather(struct load_stats *leader, struct load_stats *follower,
		       int64_t now_ns);

/*
 * Ends the run early, on a signal; its result covers the time until now_ns.
 */
void load_stats_interrupt(struct load_stats *stats, int64_t now_ns);

/* The cold half of load_stats_tick(). */
bool load_stats_advance(struct load_stats *stats, int64_t now_ns);

/*
 * Returns how many connections the ramp allows to have been opened by now_ns.
 */
uint32_t load_stats_may_open(const struct load_stats *stats, int64_t now_ns);

/* Counts a connection that has opened, latency_ns after its connect began. */
void load_stats_opened(struct load_stats *stats, int64_t latency_ns);

/* Counts the end of an open connection, closed by either side. */
void load_stats_closed(struct load_stats *stats);

/*
 * Counts an error. An open connection that fails needs two calls: this one and
 * load_stats_closed().
 */
void load_stats_error(struct load_stats *stats, enum load_error kind);

/* The kind of a negative errno of connect, recv or send. */
enum load_error load_error_of(int err);

/* "refused", "unreachable", ...: the key in the report. */
const char *load_error_name(enum load_error kind);

/*
 * The share of one core that the generator used during the reported time: while
 * measuring or, in idle mode, while opening; -1: unknown. With several threads,
 * the share of the busiest one.
 */
double load_stats_busy_share(const struct load_stats *stats);

/* Returns the same share for the current interval. */
double load_stats_interval_share(const struct load_stats *stats,
				 int64_t now_ns);

enum load_limit {
	LOAD_NOT_LIMITED,
	LOAD_LIMIT_BUSY, /* its share of a core exceeded LOAD_BUSY_LIMIT */
	LOAD_LIMIT_LATE, /* open loop: its delay exceeded LOAD_LATE_LIMIT */
};

/*
 * Returns whether the generator itself was the bottleneck, and the symptom: the
 * server may be faster than measured, and the latencies include the generator's
 * own delays.
 */
enum load_limit load_stats_limit(const struct load_stats *stats);

/*
 * The generator's own share of the open loop's latency: its delay at a
 * percentile divided by the latency at the same percentile. The larger of the
 * values at the median and at p99; 0 in the closed loop.
 */
double load_stats_late_share(const struct load_stats *stats);

static inline bool load_stats_is_limited(const struct load_stats *stats)
{
	return load_stats_limit(stats) != LOAD_NOT_LIMITED;
}

/*
 * Called in every turn of the program's loop, and at least once per progress
 * interval. Returns false once the run is over.
 */
static inline bool load_stats_tick(struct load_stats *stats, int64_t now_ns)
{
	if (now_ns < stats->wake_ns)
		return true;
	return load_stats_advance(stats, now_ns);
}

/* Counts an answered request of opts->size bytes and its latency. */
static inline void load_stats_request(struct load_stats *stats,
				      int64_t latency_ns)
{
	hist_record(&stats->interval, latency_ns);
	if (!stats->opts->http_path) /* else load_stats_bytes() */
		stats->bytes += stats->opts->size;
}

/*
 * Open loop: counts a request that is sent at now_ns, was due at due_ns, and
 * whose connection has waited only for it since free_ns. The time from the
 * later of the two to now_ns is the generator's own delay; a time from due_ns
 * to free_ns is the server's, which had not answered the previous request.
 */
static inline void load_stats_sent(struct load_stats *stats, int64_t due_ns,
				   int64_t free_ns, int64_t now_ns)
{
	if (stats->phase == LOAD_MEASURING)
		hist_record(&stats->late,
			    now_ns - (due_ns > free_ns ? due_ns : free_ns));
}

/* Bulk mode: counts received bytes. */
static inline void load_stats_bytes(struct load_stats *stats, uint64_t bytes)
{
	stats->bytes += bytes;
}

/*
 * The open loop's schedule of one connection: it sends every conns-th request
 * of an even stream of opts->rate requests a second.
 */
struct load_pace {
	double first_ns;
	double step_ns;
	uint64_t next;
};

/*
 * Returns when request number `turn` (from 0) of that stream is due, on
 * connection turn % conns. It is 2 ns later than load_pace_due(), so that
 * rounding never makes a tool check too early.
 */
static inline int64_t load_turn_due(const struct load_stats *stats,
				    uint64_t turn)
{
	return stats->start_ns + 2 +
	       (int64_t)((double)turn * 1e9 / (double)stats->opts->rate);
}

/*
 * The first request of the stream that is due at now_ns or later,
 * approximately.
 */
static inline uint64_t load_turn_at(const struct load_stats *stats,
				    int64_t now_ns)
{
	return (uint64_t)((double)(now_ns - stats->start_ns) / 1e9 *
			  (double)stats->opts->rate);
}

/*
 * Begins the schedule of connection `index` (from 0), whose first request is
 * due at from_ns or at most opts->conns / opts->rate seconds later. The even
 * stream begins at stats->start_ns. Only with opts->rate > 0.
 */
void load_pace_start(struct load_pace *pace, const struct load_stats *stats,
		     uint32_t index, int64_t from_ns);

/*
 * Returns when the next request should be sent; its latency counts from that
 * time.
 */
static inline int64_t load_pace_due(const struct load_pace *pace)
{
	return (int64_t)(pace->first_ns + (double)pace->next * pace->step_ns);
}

/* Called when the next request was sent: advances to the one after it. */
static inline void load_pace_sent(struct load_pace *pace)
{
	pace->next++;
}
