/*
 * coronet-load: the load generator on coronet's own TCP. Its twin on the
 * kernel's is epoll-load.
 *
 * This is what moves a run: opening, turns of the open loop, timeouts, phases.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/load/coronet_load_priv.h"
#include "apps/load/payload.h"
#include "apps/load/report.h"

#define OPENS_AT_ONCE 512   /* handshakes under way */
#define LINK_WAIT_MS  30000 /* for the link to come up */
#define SCAN_NS	      (OPTS_NS_PER_S / 10)
#define TIMER_LATE_NS 16384 /* at most, coro_timer_arm() says */

struct load load;

static bool is_watched(void)
{
	return load.opts.mode == LOAD_ECHO || load.opts.mode == LOAD_BULK;
}

/* Opens a slot of any mode but cps. */
static void *slot_body(void *arg)
{
	struct slot *slot = arg;

	if (slot_dial(slot) < 0) {
		slot->reopen_ns = net_clock_ns() + LOAD_RETRY_NS;
		return NULL;
	}
	if (!is_watched()) {
		slot_run_idle(slot);
		return NULL;
	}
	if (load.opts.rate && slot->pace.step_ns == 0)
		load_pace_start(&slot->pace, &slot->shard->stats, slot->index,
				net_clock_ns());
	watched_start(slot);
	return NULL;
}

static void *cps_body(void *arg)
{
	struct slot *slot = arg;

	if (load.opts.rate)
		load_pace_start(&slot->pace, &slot->shard->stats, slot->index,
				net_clock_ns());
	slot_run_cps(slot);
	return NULL;
}

static void spawn_slot(struct slot *slot)
{
	if (net_spawn(slot->shard->stack, "load",
		      load.opts.mode == LOAD_CPS ? cps_body : slot_body,
		      slot) < 0)
		load_stats_error(&slot->shard->stats, LOAD_OTHER);
}

/* Gives up what has waited too long. What failed may come back, if not idle. */
static void scan(struct slot *slot, int64_t now_ns)
{
	bool late = slot->since_ns &&
		    slot->since_ns <= now_ns - load.opts.timeout_ns;

	if (slot->conn && late && is_watched()) {
		watched_time_out(slot);
	} else if (slot->conn && late) {
		slot->timed_out = true;
		slot->since_ns = 0;
		net_abort(slot->conn);
	} else if (is_watched() && slot->reopen_ns &&
		   slot->reopen_ns <= now_ns) {
		slot->reopen_ns = 0;
		spawn_slot(slot);
	}
}

/* Ten times a second. */
static void *watchdog(void *arg)
{
	struct load_shard *shard = arg;

	while (load_running(shard) && coro_sleep_ns(SCAN_NS) == 0) {
		int64_t now_ns = net_clock_ns();

		for (uint32_t i = 0; i < shard->opened; i++)
			scan(&shard->slots[i], now_ns);
	}
	return NULL;
}

/* The shard's part of what the ramp allows. */
static uint32_t may_open(const struct load_shard *shard)
{
	uint64_t all = load_stats_may_open(&shard->stats, net_clock_ns());

	return (uint32_t)((all * shard->count + load.opts.conns - 1) /
			  load.opts.conns);
}

static void *open_slots(void *arg)
{
	struct load_shard *shard = arg;

	while (load_running(shard) && shard->opened < shard->count) {
		uint32_t may = may_open(shard);
		struct slot *slot = &shard->slots[shard->opened];

		if (shard->opened >= may || shard->dialing >= OPENS_AT_ONCE) {
			if (shard->opened >= may)
				coro_sleep_ns(OPTS_NS_PER_S / 1000);
			else
				coro_sleep_ns(OPTS_NS_PER_S / 20000);
			continue;
		}
		slot->shard = shard;
		slot->index = shard->first + shard->opened++;
		spawn_slot(slot);
		if (shard->opened % 64 == 0)
			coro_yield();
	}
	return NULL;
}

/* ---- the open loop ---- */

/* The number in the run's stream of request `turn` of the shard's own. */
static uint64_t turn_of_run(const struct load_shard *shard, uint64_t turn)
{
	return turn / shard->count * load.opts.conns + shard->first +
	       turn % shard->count;
}

static int64_t turn_due(const struct load_shard *shard)
{
	return load_turn_due(&shard->stats, turn_of_run(shard, shard->turn));
}

/* The shard's first request that is not due before now_ns, or nearly. */
static uint64_t turn_at(const struct load_shard *shard, int64_t now_ns)
{
	uint64_t turn = load_turn_at(&shard->stats, now_ns);
	uint64_t round = turn / load.opts.conns, at = turn % load.opts.conns;

	if (at < shard->first)
		at = 0;
	else if (at - shard->first < shard->count)
		at -= shard->first;
	else
		at = shard->count;
	return round * shard->count + at;
}

static void visit(struct slot *slot, int64_t now_ns)
{
	if (load.opts.mode == LOAD_ECHO)
		echo_turn(slot, now_ns);
	else if (slot->waits)
		coro_unpark(slot->waits);
}

/*
 * Visits the slots whose requests have become due. A slot that is busy then
 * looks at its timetable itself when it is done.
 */
static void take_turns(struct load_shard *shard, int64_t now_ns)
{
	uint32_t visits = 0;

	for (; turn_due(shard) <= now_ns; shard->turn++) {
		uint32_t at = (uint32_t)(shard->turn % shard->count);

		/* Once round is enough, however late it is. */
		if (visits++ == shard->count) {
			shard->turn = turn_at(shard, now_ns);
			break;
		}
		if (at < shard->opened)
			visit(&shard->slots[at], net_clock_ns());
	}
}

/*
 * A timer may be late by one tick of the wheel: the last of the time is waited
 * awake. Where nothing else happens meanwhile, that is no work.
 */
static void wait_awake(struct load_shard *shard, int64_t now_ns)
{
	uint64_t steps = shard->steps;

	coro_yield();
	if (shard->steps == steps)
		shard->waited_ns += net_clock_ns() - now_ns;
}

static void *pacer(void *arg)
{
	struct load_shard *shard = arg;

	while (load_running(shard)) {
		int64_t due_ns = turn_due(shard);
		int64_t now_ns = net_clock_ns();

		if (due_ns <= now_ns) {
			take_turns(shard, now_ns);
			coro_yield();
		} else if (due_ns - now_ns <= TIMER_LATE_NS) {
			wait_awake(shard, now_ns);
		} else {
			coro_sleep_until(due_ns - TIMER_LATE_NS);
		}
	}
	return NULL;
}

/* One of those who ask every idle connection for its second echo. */
static void *ask_again(void *arg)
{
	struct load_shard *shard = arg;

	while (shard->next_ask < shard->count) {
		struct slot *slot = &shard->slots[shard->next_ask++];

		if (!slot->conn)
			continue;
		net_set_watch(slot->conn, NULL);
		if (slot_ask(slot) > 0)
			shard->stats.answered_after++;
	}
	shard->asking--;
	return NULL;
}

/* Blocks until each idle connection has answered, or one is given up. */
static void ask_all_again(struct load_shard *shard)
{
	int64_t until_ns = net_clock_ns() + load.opts.timeout_ns;
	uint64_t seen = 0;

	shard->stats.asked_after = true;
	for (; shard->asking < OPENS_AT_ONCE; shard->asking++)
		if (net_spawn(shard->stack, "ask", ask_again, shard) < 0)
			break;
	while (shard->asking && net_clock_ns() < until_ns &&
	       coro_sleep_ns(OPTS_NS_PER_S / 1000) == 0) {
		if (shard->stats.answered_after == seen)
			continue;
		seen = shard->stats.answered_after;
		until_ns = net_clock_ns() + load.opts.timeout_ns;
	}
}

static int64_t busy_ns(void *arg)
{
	struct load_shard *shard = arg;
	struct net_stats stats;

	net_stack_stats(shard->stack, &stats);
	return stats.busy_ns - shard->waited_ns;
}

/* Watched connections end with the run; the others' coroutines see to theirs.
 */
static void end_slots(struct load_shard *shard)
{
	for (uint32_t i = 0; i < shard->opened; i++) {
		struct slot *slot = &shard->slots[i];

		if (is_watched() && slot->conn) {
			net_abort(slot->conn);
			slot->conn = NULL;
		}
	}
}

/* On the shard's thread; its stats have been started, or follow. */
static void start_shard(struct load_shard *shard)
{
	load_stats_set_busy(&shard->stats, busy_ns, shard);
	net_spawn(shard->stack, "open", open_slots, shard);
	net_spawn(shard->stack, "watchdog", watchdog, shard);
	if (load.opts.rate)
		net_spawn(shard->stack, "pacer", pacer, shard);
}

/* There too, once the run is over. */
static void end_shard(struct load_shard *shard)
{
	if (load.opts.mode == LOAD_IDLE && !shard->stats.interrupted)
		ask_all_again(shard);
	end_slots(shard);
}

/* Moves the run on; the stack stops with it. */
static void *conduct(void *arg)
{
	struct load_shard *shard = arg;
	struct load_stats *stats = &shard->stats;
	int err = net_link_wait(shard->stack, LINK_WAIT_MS);

	if (err == -ETIMEDOUT)
		net_log("coronet-load: the link is not up after %d s; is the "
			"other side running?",
			LINK_WAIT_MS / 1000);
	if (err < 0) {
		load.status = 1;
		net_stack_stop(shard->stack);
		return NULL;
	}
	load_stats_start(stats, &load.opts, "coronet-load", net_clock_ns());
	stats->put = net_log_write;
	start_shard(shard);
	while (load_stats_tick(stats, net_clock_ns())) {
		int64_t until = stats->wake_ns;
		int64_t soon = net_clock_ns() + OPTS_NS_PER_S / 100;

		coro_sleep_until(until < soon ? until : soon);
		if (net_stack_stopping(shard->stack))
			load_stats_interrupt(stats, net_clock_ns());
	}
	end_shard(shard);
	net_stack_stop(shard->stack);
	return NULL;
}

/* A signal must first end the run, then the stack. */
static int run(void)
{
	struct load_shard *shard = &load.shards[0];
	struct load_stats *stats = &shard->stats;

	if (net_spawn(shard->stack, "conduct", conduct, shard) < 0)
		return 1;
	net_stack_run(shard->stack);
	if (stats->phase != LOAD_DONE && load.status == 0) {
		load_stats_interrupt(stats, net_clock_ns());
		load_stats_tick(stats, stats->wake_ns);
	}
	return load.status ? load.status : load_report(stats);
}

/* Deals the slots out; there are at least as many as shards. */
static int make_shards(unsigned n)
{
	load.n_shards = n;
	load.slots = calloc(load.opts.conns, sizeof(*load.slots));
	load.shards = aligned_alloc(_Alignof(struct load_shard),
				    n * sizeof(*load.shards));
	if (!load.slots || !load.shards)
		return -ENOMEM;
	memset(load.shards, 0, n * sizeof(*load.shards));
	for (unsigned k = 0; k < n; k++) {
		struct load_shard *shard = &load.shards[k];

		shard->first = (uint32_t)((uint64_t)load.opts.conns * k / n);
		shard->count =
			(uint32_t)((uint64_t)load.opts.conns * (k + 1) / n) -
			shard->first;
		shard->slots = load.slots + shard->first;
		payload_fill(shard->payload, LOAD_CHUNK, 0, 0);
	}
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	if (key != ARGP_KEY_INIT)
		return ARGP_ERR_UNKNOWN;
	opts_begin(state);
	state->child_inputs[0] = &load.opts;
	state->child_inputs[1] = &load.net;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&load_opts_argp, 0, NULL, 0},
		{&net_argp, 0, "Common options:", 1},
		{0},
	};
	static const struct argp argp = {
		.parser = parse,
		.children = children,
		.doc = "Loads a TCP echo server through coronet's own stack, "
		       "and reports rates and latencies.\vWords after -- go "
		       "to DPDK's EAL.\n\n" LOAD_HELP_STATUS,
	};
	int err, status = 1;

	opts_set_version("coronet-load");
	opts_set_place(net_config_place);
	net_opts_init(&load.net);
	err = net_parse_args(&argp, argc, argv, &load.net, NULL);
	if (err == 0)
		err = make_shards(1);
	if (err == 0)
		err = net_stack_open(&load.net, &load.shards[0].stack);
	if (err < 0) {
		if (load.net.error[0])
			fprintf(stderr, "coronet-load: %s\n", load.net.error);
	} else {
		net_addr_parse(load.opts.target_text, -1, &load.target);
		load.verify = load.opts.verify || load.opts.mode == LOAD_IDLE;
		status = run();
		net_stack_close(load.shards[0].stack);
	}
	free(load.shards);
	free(load.slots);
	return err < 0 ? net_exit_status(err) : status;
}
