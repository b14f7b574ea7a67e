/* The counters of a load run, and its phases. */
#include "apps/load/load_stats.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "apps/load/report.h"

static const char *const error_names[] = {
	[LOAD_REFUSED] = "refused", [LOAD_UNREACHABLE] = "unreachable",
	[LOAD_NO_PORT] = "no_port", [LOAD_TIMEOUT] = "timeout",
	[LOAD_RESET] = "reset",	    [LOAD_CLOSED] = "closed",
	[LOAD_VERIFY] = "verify",   [LOAD_TLS] = "tls",
	[LOAD_OTHER] = "other",
};

const char *load_error_name(enum load_error kind)
{
	assert(kind < LOAD_ERRORS);
	return error_names[kind];
}

enum load_error load_error_of(int err)
{
	switch (-err) {
	case ECONNREFUSED:
		return LOAD_REFUSED;
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENETDOWN:
		return LOAD_UNREACHABLE;
	case EADDRNOTAVAIL:
	case EADDRINUSE:
		return LOAD_NO_PORT;
	case ETIMEDOUT:
		return LOAD_TIMEOUT;
	case EPROTO:
		return LOAD_TLS;
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE:
		return LOAD_RESET;
	default:
		return LOAD_OTHER;
	}
}

/* Sets the next moment at which something ends or is printed. */
static void set_wake(struct load_stats *stats)
{
	int64_t print_ns = stats->interval_start_ns + stats->opts->interval_ns;

	stats->wake_ns = stats->phase_end_ns;
	if (stats->opts->interval_ns > 0 && print_ns < stats->wake_ns)
		stats->wake_ns = print_ns;
	if (stats->phase == LOAD_DONE)
		stats->wake_ns = 0;
}

static int64_t busy_ns(const struct load_stats *stats)
{
	return stats->busy ? stats->busy(stats->busy_arg) : 0;
}

/* Ends the interval, and adds it to the total or drops it. */
static void end_interval(struct load_stats *stats, int64_t now_ns, bool keep)
{
	if (keep) {
		hist_merge(&stats->total, &stats->interval);
		stats->total_bytes += stats->bytes;
	}
	hist_reset(&stats->interval);
	stats->bytes = 0;
	stats->interval_start_ns = now_ns;
	stats->interval_busy_ns = busy_ns(stats);
}

/* Idle mode's rate and latencies are of its connects, before measuring. */
static bool is_of_opening(const struct load_stats *stats)
{
	return stats->opts->mode == LOAD_IDLE;
}

static bool interval_counts(const struct load_stats *stats)
{
	return stats->phase == LOAD_MEASURING || is_of_opening(stats);
}

void load_stats_start(struct load_stats *stats, const struct load_opts *opts,
		      const char *tool, int64_t now_ns)
{
	memset(stats, 0, sizeof(*stats));
	hist_reset(&stats->interval);
	hist_reset(&stats->total);
	hist_reset(&stats->late);
	stats->opts = opts;
	stats->tool = tool;
	stats->tty = isatty(STDERR_FILENO);
	stats->phase = LOAD_OPENING;
	stats->start_ns = now_ns;
	stats->interval_start_ns = now_ns;
	stats->phase_end_ns = now_ns + opts->ramp_ns + opts->timeout_ns;
	set_wake(stats);
}

void load_stats_set_busy(struct load_stats *stats, load_busy_fn *busy,
			 void *arg)
{
	stats->busy = busy;
	stats->busy_arg = arg;
	stats->busy_from_ns = stats->interval_busy_ns = busy_ns(stats);
}

void load_stats_follow(struct load_stats *follower,
		       const struct load_stats *leader)
{
	load_stats_start(follower, leader->opts, leader->tool,
			 leader->start_ns);
	follower->phase = leader->phase;
}

/* Moves a histogram's values to the leader. */
static void move_hist(struct hist *into, struct hist *from)
{
	if (from->count == 0)
		return;
	hist_merge(into, from);
	hist_reset(from);
}

static void move_count(uint64_t *into, uint64_t *from)
{
	*into += *from;
	*from = 0;
}

static void gather_counts(struct load_stats *leader,
			  struct load_stats *follower)
{
	move_hist(&leader->interval, &follower->interval);
	move_hist(&leader->late, &follower->late);
	move_count(&leader->bytes, &follower->bytes);
	move_count(&leader->opened, &follower->opened);
	move_count(&leader->settled, &follower->settled);
	for (int i = 0; i < LOAD_ERRORS; i++)
		move_count(&leader->errors[i], &follower->errors[i]);
	move_count(&leader->error_count, &follower->error_count);
	leader->open += follower->open - follower->open_gathered;
	follower->open_gathered = follower->open;
}

/* Takes a follower into the leader's phase. */
static void follow_phase(struct load_stats *leader, struct load_stats *follower)
{
	bool opening = is_of_opening(leader);
	enum load_phase begins = opening ? LOAD_OPENING : LOAD_MEASURING;
	int64_t now_busy_ns = busy_ns(follower);
	int64_t passed_ns =
		opening ? leader->opened_ns
			: leader->measured_to_ns - leader->measured_from_ns;
	double share;

	if (leader->phase == LOAD_MEASURING && !opening)
		follower->busy_from_ns = now_busy_ns;
	if (follower->phase == begins)
		follower->busy_to_ns = now_busy_ns;
	follower->phase = leader->phase;
	follower->interrupted = leader->interrupted;
	if (leader->phase != LOAD_DONE || !follower->busy || passed_ns <= 0)
		return;
	share = (double)(follower->busy_to_ns - follower->busy_from_ns) /
		(double)passed_ns;
	leader->busiest_follower = fmax(leader->busiest_follower, share);
}

void load_stats_gather(struct load_stats *leader, struct load_stats *follower,
		       int64_t now_ns)
{
	leader->gathered_ns += now_ns - leader->start_ns;
	leader->gathered++;
	if (leader->phase != LOAD_DONE)
		gather_counts(leader, follower);
	move_count(&leader->answered_before, &follower->answered_before);
	move_count(&leader->answered_after, &follower->answered_after);
	if (leader->phase != follower->phase)
		follow_phase(leader, follower);
	if (leader->phase == LOAD_OPENING &&
	    leader->settled >= leader->opts->conns)
		leader->wake_ns = 0;
}

/*
 * Returns when what is gathered was counted: now or, if followers were asked,
 * the mean of their times, if that is later. A thread may have to wait for a
 * core before it answers.
 */
static int64_t gather_followers(struct load_stats *stats, int64_t now_ns)
{
	int64_t mean_ns;

	if (!stats->gather)
		return now_ns;
	stats->gathered_ns = 0;
	stats->gathered = 0;
	stats->gather(stats);
	if (stats->gathered == 0)
		return now_ns;
	mean_ns = stats->start_ns + stats->gathered_ns / stats->gathered;
	return mean_ns > now_ns ? mean_ns : now_ns;
}

static void enter_warmup(struct load_stats *stats, int64_t now_ns)
{
	stats->phase = LOAD_WARMUP;
	stats->opened_ns = now_ns - stats->start_ns;
	stats->phase_end_ns = now_ns + stats->opts->warmup_ns;
	if (is_of_opening(stats))
		stats->busy_to_ns = busy_ns(stats);
}

static void enter_measuring(struct load_stats *stats, int64_t now_ns)
{
	end_interval(stats, now_ns, interval_counts(stats));
	stats->phase = LOAD_MEASURING;
	stats->measured_from_ns = now_ns;
	stats->phase_end_ns = now_ns + stats->opts->duration_ns;
	if (!is_of_opening(stats))
		stats->busy_from_ns = busy_ns(stats);
}

static void enter_done(struct load_stats *stats, int64_t now_ns)
{
	int64_t interval_ns = stats->opts->interval_ns;

	/* The last interval is a little short: the loop's turns take time. */
	if (interval_ns > 0 &&
	    now_ns - stats->interval_start_ns >= interval_ns / 2)
		load_progress(stats, now_ns);
	end_interval(stats, now_ns, interval_counts(stats));
	if (stats->phase == LOAD_MEASURING) {
		stats->measured_to_ns = now_ns;
		if (!is_of_opening(stats))
			stats->busy_to_ns = busy_ns(stats);
	}
	stats->memory = sys_memory_now();
	stats->phase = LOAD_DONE;
	load_progress_end(stats);
}

/* Every connection was tried: nothing is gained by waiting on. */
static bool is_settled(const struct load_stats *stats)
{
	return stats->settled >= stats->opts->conns;
}

/* Nothing could be opened: there is nothing to measure. */
static bool is_hopeless(const struct load_stats *stats)
{
	return stats->opened == 0 && stats->error_count > 0;
}

static bool next_phase(struct load_stats *stats, int64_t now_ns)
{
	switch (stats->phase) {
	case LOAD_OPENING:
		if (!is_settled(stats) && now_ns < stats->phase_end_ns)
			return false;
		if (is_hopeless(stats))
			enter_done(stats, now_ns);
		else
			enter_warmup(stats, now_ns);
		return true;
	case LOAD_WARMUP:
		if (now_ns < stats->phase_end_ns)
			return false;
		enter_measuring(stats, now_ns);
		return true;
	case LOAD_MEASURING:
		if (now_ns < stats->phase_end_ns)
			return false;
		enter_done(stats, now_ns);
		return true;
	case LOAD_DONE:
		return false;
	}
	__builtin_unreachable();
}

bool load_stats_advance(struct load_stats *stats, int64_t now_ns)
{
	int64_t interval_ns = stats->opts->interval_ns;

	if (stats->phase != LOAD_DONE)
		now_ns = gather_followers(stats, now_ns);
	/* Printed first, so that a phase's last interval is seen. */
	if (stats->phase != LOAD_DONE && interval_ns > 0 &&
	    now_ns - stats->interval_start_ns >= interval_ns) {
		load_progress(stats, now_ns);
		end_interval(stats, now_ns, interval_counts(stats));
	}
	while (next_phase(stats, now_ns))
		; /* bounded: phases only go on */
	gather_followers(stats, now_ns);
	set_wake(stats);
	return stats->phase != LOAD_DONE;
}

void load_stats_interrupt(struct load_stats *stats, int64_t now_ns)
{
	if (stats->phase == LOAD_DONE)
		return;
	stats->interrupted = true;
	now_ns = gather_followers(stats, now_ns);
	enter_done(stats, now_ns);
	gather_followers(stats, now_ns);
	set_wake(stats);
}

uint32_t load_stats_may_open(const struct load_stats *stats, int64_t now_ns)
{
	const struct load_opts *opts = stats->opts;
	int64_t passed_ns = now_ns - stats->start_ns;

	if (passed_ns >= opts->ramp_ns)
		return opts->conns;
	return (uint32_t)((double)opts->conns * (double)passed_ns /
			  (double)opts->ramp_ns) +
	       1;
}

/* Counts one more connection that was tried while opening. */
static void settle_conn(struct load_stats *stats)
{
	if (stats->phase == LOAD_OPENING &&
	    ++stats->settled == stats->opts->conns)
		stats->wake_ns = 0;
}

void load_stats_opened(struct load_stats *stats, int64_t latency_ns)
{
	stats->open++;
	stats->opened++;
	if (stats->opts->mode == LOAD_IDLE)
		hist_record(&stats->interval, latency_ns);
	settle_conn(stats);
}

void load_stats_closed(struct load_stats *stats)
{
	assert(stats->open > 0);
	stats->open--;
}

void load_stats_error(struct load_stats *stats, enum load_error kind)
{
	assert(kind < LOAD_ERRORS);
	/* Connections that break after the end break because of it. */
	if (stats->phase == LOAD_DONE)
		return;
	stats->errors[kind]++;
	stats->error_count++;
	settle_conn(stats);
}

double load_stats_busy_share(const struct load_stats *stats)
{
	int64_t passed_ns =
		is_of_opening(stats)
			? stats->opened_ns
			: stats->measured_to_ns - stats->measured_from_ns;

	if (!stats->busy || passed_ns <= 0)
		return -1;
	return fmax(stats->busiest_follower,
		    (double)(stats->busy_to_ns - stats->busy_from_ns) /
			    (double)passed_ns);
}

double load_stats_interval_share(const struct load_stats *stats, int64_t now_ns)
{
	int64_t passed_ns = now_ns - stats->interval_start_ns;

	if (!stats->busy || passed_ns <= 0)
		return -1;
	return (double)(busy_ns(stats) - stats->interval_busy_ns) /
	       (double)passed_ns;
}

static double late_share_at(const struct load_stats *stats, double percent)
{
	int64_t latency_ns = hist_percentile(&stats->total, percent);

	if (latency_ns == 0)
		return 0;
	return (double)hist_percentile(&stats->late, percent) /
	       (double)latency_ns;
}

double load_stats_late_share(const struct load_stats *stats)
{
	return fmax(late_share_at(stats, 50), late_share_at(stats, 99));
}

enum load_limit load_stats_limit(const struct load_stats *stats)
{
	if (load_stats_busy_share(stats) >= LOAD_BUSY_LIMIT)
		return LOAD_LIMIT_BUSY;
	if (load_stats_late_share(stats) > LOAD_LATE_LIMIT)
		return LOAD_LIMIT_LATE;
	return LOAD_NOT_LIMITED;
}

void load_pace_start(struct load_pace *pace, const struct load_stats *stats,
		     uint32_t index, int64_t from_ns)
{
	double request_ns = 1e9 / (double)stats->opts->rate;
	double behind_ns;

	pace->step_ns = request_ns * stats->opts->conns;
	pace->first_ns = (double)stats->start_ns + request_ns * index;
	pace->next = 0;
	behind_ns = (double)from_ns - pace->first_ns;
	if (behind_ns > 0)
		pace->next = (uint64_t)ceil(behind_ns / pace->step_ns);
}
