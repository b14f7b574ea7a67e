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
		load_pace_start(&slot->pace, &load.stats, slot->index,
				net_clock_ns());
	watched_start(slot);
	return NULL;
}

static void *cps_body(void *arg)
{
	struct slot *slot = arg;

	if (load.opts.rate)
		load_pace_start(&slot->pace, &load.stats, slot->index,
				net_clock_ns());
	slot_run_cps(slot);
	return NULL;
}

static void spawn_slot(struct slot *slot)
{
	if (net_spawn(load.stack, "load",
		      load.opts.mode == LOAD_CPS ? cps_body : slot_body,
		      slot) < 0)
		load_stats_error(&load.stats, LOAD_OTHER);
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
	while (load_running() && coro_sleep_ns(SCAN_NS) == 0) {
		int64_t now_ns = net_clock_ns();

		for (uint32_t i = 0; i < load.opened; i++)
			scan(&load.slots[i], now_ns);
	}
	return NULL;
}

static void *open_slots(void *arg)
{
	while (load_running() && load.opened < load.opts.conns) {
		uint32_t may = load_stats_may_open(&load.stats, net_clock_ns());

		if (load.opened >= may || load.dialing >= OPENS_AT_ONCE) {
			if (load.opened >= may)
				coro_sleep_ns(OPTS_NS_PER_S / 1000);
			else
				coro_sleep_ns(OPTS_NS_PER_S / 20000);
			continue;
		}
		load.slots[load.opened].index = load.opened;
		spawn_slot(&load.slots[load.opened++]);
		if (load.opened % 64 == 0)
			coro_yield();
	}
	return NULL;
}

/* ---- the open loop ---- */

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
static void take_turns(int64_t now_ns)
{
	uint32_t visits = 0;

	for (; load_turn_due(&load.stats, load.turn) <= now_ns; load.turn++) {
		/* Once round is enough, however late it is. */
		if (visits++ == load.opts.conns) {
			load.turn = load_turn_at(&load.stats, now_ns);
			break;
		}
		if (load.turn % load.opts.conns < load.opened)
			visit(&load.slots[load.turn % load.opts.conns],
			      net_clock_ns());
	}
}

/*
 * A timer may be late by one tick of the wheel: the last of the time is waited
 * awake. Where nothing else happens meanwhile, that is no work.
 */
static void wait_awake(int64_t now_ns)
{
	uint64_t steps = load.steps;

	coro_yield();
	if (load.steps == steps)
		load.waited_ns += net_clock_ns() - now_ns;
}

static void *pacer(void *arg)
{
	while (load_running()) {
		int64_t due_ns = load_turn_due(&load.stats, load.turn);
		int64_t now_ns = net_clock_ns();

		if (due_ns <= now_ns) {
			take_turns(now_ns);
			coro_yield();
		} else if (due_ns - now_ns <= TIMER_LATE_NS) {
			wait_awake(now_ns);
		} else {
			coro_sleep_until(due_ns - TIMER_LATE_NS);
		}
	}
	return NULL;
}

/* One of those who ask every idle connection for its second echo. */
static void *ask_again(void *arg)
{
	while (load.next_ask < load.opts.conns) {
		struct slot *slot = &load.slots[load.next_ask++];

		if (!slot->conn)
			continue;
		net_set_watch(slot->conn, NULL);
		if (slot_ask(slot) > 0)
			load.stats.answered_after++;
	}
	load.asking--;
	return NULL;
}

/* Blocks until each idle connection has answered, or one is given up. */
static void ask_all_again(void)
{
	int64_t until_ns = net_clock_ns() + load.opts.timeout_ns;
	uint64_t seen = 0;

	load.stats.asked_after = true;
	for (; load.asking < OPENS_AT_ONCE; load.asking++)
		if (net_spawn(load.stack, "ask", ask_again, NULL) < 0)
			break;
	while (load.asking && net_clock_ns() < until_ns &&
	       coro_sleep_ns(OPTS_NS_PER_S / 1000) == 0) {
		if (load.stats.answered_after == seen)
			continue;
		seen = load.stats.answered_after;
		until_ns = net_clock_ns() + load.opts.timeout_ns;
	}
}

static int64_t busy_ns(void *arg)
{
	struct net_stats stats;

	net_stack_stats(load.stack, &stats);
	return stats.busy_ns - load.waited_ns;
}

/* Watched connections end with the run; the others' coroutines see to theirs.
 */
static void end_slots(void)
{
	for (uint32_t i = 0; i < load.opened; i++) {
		struct slot *slot = &load.slots[i];

		if (is_watched() && slot->conn) {
			net_abort(slot->conn);
			slot->conn = NULL;
		}
	}
}

/* Moves the run on; the stack stops with it. */
static void *conduct(void *arg)
{
	int err = net_link_wait(load.stack, LINK_WAIT_MS);

	if (err == -ETIMEDOUT)
		net_log("coronet-load: the link is not up after %d s; is the "
			"other side running?",
			LINK_WAIT_MS / 1000);
	if (err < 0) {
		*(int *)arg = 1;
		net_stack_stop(load.stack);
		return NULL;
	}
	load_stats_start(&load.stats, &load.opts, "coronet-load",
			 net_clock_ns());
	load_stats_set_busy(&load.stats, busy_ns, NULL);
	load.stats.put = net_log_write;
	net_spawn(load.stack, "open", open_slots, NULL);
	net_spawn(load.stack, "watchdog", watchdog, NULL);
	if (load.opts.rate)
		net_spawn(load.stack, "pacer", pacer, NULL);
	while (load_stats_tick(&load.stats, net_clock_ns())) {
		int64_t until = load.stats.wake_ns;
		int64_t soon = net_clock_ns() + OPTS_NS_PER_S / 100;

		coro_sleep_until(until < soon ? until : soon);
		if (net_stack_stopping(load.stack))
			load_stats_interrupt(&load.stats, net_clock_ns());
	}
	if (load.opts.mode == LOAD_IDLE && !load.stats.interrupted)
		ask_all_again();
	end_slots();
	net_stack_stop(load.stack);
	return NULL;
}

/* A signal must first end the run, then the stack. */
static int run(void)
{
	static int status;

	if (net_spawn(load.stack, "conduct", conduct, &status) < 0)
		return 1;
	net_stack_run(load.stack);
	if (load.stats.phase != LOAD_DONE && status == 0) {
		load_stats_interrupt(&load.stats, net_clock_ns());
		load_stats_tick(&load.stats, load.stats.wake_ns);
	}
	return status ? status : load_report(&load.stats);
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
	int err, status;

	opts_set_version("coronet-load");
	opts_set_place(net_config_place);
	net_opts_init(&load.net);
	err = net_parse_args(&argp, argc, argv, &load.net, NULL);
	if (err == 0) {
		load.slots = calloc(load.opts.conns, sizeof(*load.slots));
		err = load.slots ? net_stack_open(&load.net, &load.stack)
				 : -ENOMEM;
	}
	if (err < 0) {
		if (load.net.error[0])
			fprintf(stderr, "coronet-load: %s\n", load.net.error);
		free(load.slots);
		return net_exit_status(err);
	}
	net_addr_parse(load.opts.target_text, -1, &load.target);
	load.verify = load.opts.verify || load.opts.mode == LOAD_IDLE;
	payload_fill(load.payload, LOAD_CHUNK, 0, 0);
	status = run();
	net_stack_close(load.stack);
	free(load.slots);
	return status;
}
