/*
 * coronet-load: the load generator on coronet's own TCP. Its twin on the
 * kernel's TCP is epoll-load.
 *
 * This file runs a load run: it opens connections, gives slots their turns of
 * the open loop, and handles timeouts and phases. A coroutine on the first
 * shard, the conductor, starts the shards that have slots, gathers their
 * counts, and ends them.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <coronet/net_resolve.h>
#include <coronet/net_tls.h>

#include "apps/load/coronet_load_priv.h"
#include "apps/load/payload.h"
#include "apps/load/report.h"

#define OPENS_AT_ONCE 512   /* handshakes under way, of all shards */
#define LINK_WAIT_MS  30000 /* for the link to come up */
#define SCAN_NS	      (OPT_NS_PER_S / 10)
#define TIMER_LATE_NS 16384 /* at most, coro_timer_arm() says */
#define UDP_SIZE_MAX  8952u /* what an MTU of 9000 takes over IPv6 */
#define LINE	      64u   /* bytes of a cache line */

struct load load;

static bool is_watched(void)
{
	return load.opts.mode == LOAD_ECHO || load.opts.mode == LOAD_BULK;
}

/* Opens a slot of any mode but cps. */
static void *slot_body(void *arg)
{
	struct slot *slot = arg;

	if (load.udp) {
		slot_run_udp(slot);
		return NULL;
	}
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

/* Gives up a slot that has waited too long, and reopens one that failed. */
static void check_slot(struct slot *slot, int64_t now_ns)
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

/* Scans the slots ten times a second. */
static void *watch_slots(void *arg)
{
	struct load_shard *shard = arg;

	while (load_running(shard) && coro_sleep_ns(SCAN_NS) == 0) {
		int64_t now_ns = net_clock_ns();

		for (uint32_t i = 0; i < shard->opened; i++)
			check_slot(&shard->slots[i], now_ns);
	}
	return NULL;
}

/* The shard's part of OPENS_AT_ONCE. */
static uint32_t opens_at_once(void)
{
	_Static_assert(OPENS_AT_ONCE >= NET_MAX_SHARDS, "each shard opens");
	return OPENS_AT_ONCE / load.n_shards;
}

static void *open_slots(void *arg)
{
	struct load_shard *shard = arg;

	while (load_running(shard) && shard->opened < shard->part.count) {
		uint32_t may = load_part_may_open(&shard->part, &shard->stats,
						  net_clock_ns());
		struct slot *slot = &shard->slots[shard->opened];

		if (shard->opened >= may || shard->dialing >= opens_at_once()) {
			if (shard->opened >= may)
				coro_sleep_ns(OPT_NS_PER_S / 1000);
			else
				coro_sleep_ns(OPT_NS_PER_S / 20000);
			continue;
		}
		slot->shard = shard;
		slot->index = shard->part.first + shard->opened++;
		spawn_slot(slot);
		if (shard->opened % 64 == 0)
			coro_yield();
	}
	return NULL;
}

/* ---- the open loop ---- */

static int64_t turn_due(const struct load_shard *shard)
{
	return load_part_due(&shard->part, &shard->stats, shard->turn);
}

static void visit_slot(struct slot *slot, int64_t now_ns)
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
		uint32_t at = (uint32_t)(shard->turn % shard->part.count);

		/* One pass is enough, however late it is. */
		if (visits++ == shard->part.count) {
			shard->turn = load_part_turn_at(&shard->part,
							&shard->stats, now_ns);
			break;
		}
		if (at < shard->opened)
			visit_slot(&shard->slots[at], net_clock_ns());
	}
}

/*
 * A timer may be late by one tick of the wheel, so the last of the time is
 * spent polling. That is no work if nothing else happens meanwhile.
 */
static void wait_awake(struct load_shard *shard, int64_t now_ns)
{
	uint64_t steps = shard->steps;

	coro_yield();
	if (shard->steps == steps)
		shard->waited_ns += net_clock_ns() - now_ns;
}

static void *run_pacer(void *arg)
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

/* One of the coroutines that ask every idle connection for a second echo. */
static void *ask_again(void *arg)
{
	struct load_shard *shard = arg;

	while (shard->next_ask < shard->part.count) {
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

	for (; shard->asking < opens_at_once(); shard->asking++)
		if (net_spawn(shard->stack, "ask", ask_again, shard) < 0)
			break;
	while (shard->asking && !atomic_load(&load.signalled) &&
	       net_clock_ns() < until_ns &&
	       coro_sleep_ns(OPT_NS_PER_S / 1000) == 0) {
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

/* Ends watched connections with the run; coroutines end the others. */
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

/* ---- a shard's part, on its own thread ---- */

static void spawn_coro(struct load_shard *shard, const char *name, coro_fn body)
{
	if (net_spawn(shard->stack, name, body, shard) < 0)
		load_stats_error(&shard->stats, LOAD_OTHER);
}

/* Begins the run on a shard. */
static void *start_shard(void *arg)
{
	struct load_shard *shard = arg;

	shard->stack = net_stack_here();
	load_stats_follow(&shard->stats, &load.stats);
	/* The run's own statistics have how busy the first shard is. */
	if (shard != load.shards)
		load_stats_set_busy(&shard->stats, busy_ns, shard);
	spawn_coro(shard, "open", open_slots);
	spawn_coro(shard, "watchdog", watch_slots);
	if (load.opts.rate)
		spawn_coro(shard, "pacer", run_pacer);
	return NULL;
}

static void *gather_shard(void *arg)
{
	struct load_shard *shard = arg;

	load_stats_gather(&load.stats, &shard->stats, net_clock_ns());
	return NULL;
}

static void *end_slots_here(void *arg)
{
	struct load_shard *shard = arg;

	if (load.opts.mode == LOAD_IDLE && !shard->stats.interrupted)
		ask_all_again(shard);
	end_slots(shard);
	atomic_fetch_sub(&load.ending, 1);
	return NULL;
}

/* Ends the run on a shard. */
static void *end_shard(void *arg)
{
	struct load_shard *shard = arg;

	if (net_spawn(net_stack_here(), "end", end_slots_here, shard) < 0) {
		end_slots(shard);
		atomic_fetch_sub(&load.ending, 1);
	}
	return NULL;
}

/* ---- the conductor ---- */

/*
 * Has fn run on each shard's thread, one after the other. The conductor waits
 * meanwhile, so that fn may use the run's statistics.
 */
static void on_each_shard(coro_fn fn)
{
	for (unsigned k = 0; k < load.n_shards; k++) {
		int err = net_call(k, fn, &load.shards[k], NULL);

		if (err == 0)
			continue;
		load.unheard = true;
		net_log("coronet-load: cannot reach shard %u: %s", k,
			strerror(-err));
	}
}

static void gather_shards(struct load_stats *stats)
{
	on_each_shard(gather_shard);
}

static void begin_run(void)
{
	struct load_stats *stats = &load.stats;

	load_stats_start(stats, &load.opts, "coronet-load", net_clock_ns());
	stats->put = net_log_write;
	stats->gather = gather_shards;
	load.shards[0].stack = net_stack_here();
	load_stats_set_busy(stats, busy_ns, &load.shards[0]);
	on_each_shard(start_shard);
}

/* Moves the run on to its end. A shard that cannot be reached ends it, too. */
static void lead_run(void)
{
	struct load_stats *stats = &load.stats;

	while (load_stats_tick(stats, net_clock_ns())) {
		int64_t soon = net_clock_ns() + OPT_NS_PER_S / 100;

		coro_sleep_until(stats->wake_ns < soon ? stats->wake_ns : soon);
		if (atomic_load(&load.signalled) || load.unheard)
			load_stats_interrupt(stats, net_clock_ns());
		else if (stats->phase == LOAD_OPENING)
			gather_shards(stats); /* all may have been opened */
	}
}

static void end_run(void)
{
	load.stats.asked_after =
		load.opts.mode == LOAD_IDLE && !load.stats.interrupted;
	atomic_store(&load.ending, load.n_shards);
	on_each_shard(end_shard);
	/* Bounded: each shard gives up what does not answer. */
	while (atomic_load(&load.ending) && !load.unheard)
		coro_sleep_ns(OPT_NS_PER_S / 1000);
	gather_shards(&load.stats); /* the second echoes */
}

static void on_signal(int signo)
{
	if (atomic_exchange(&load.signalled, 1))
		_exit(1);
}

/*
 * A signal must first end the run, then the stacks: so signals are ours from
 * the time that the run can begin. False: one has come.
 */
static bool take_signals(struct net_stack *stack)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	return !net_stack_stopping(stack);
}

static struct slot *from_next_line(void *p)
{
	return (struct slot *)(((uintptr_t)p + LINE - 1) &
			       ~(uintptr_t)(LINE - 1));
}

/*
 * Deals the slots out, to at most as many shards as there are slots. No two
 * shards' slots have a cache line in common.
 */
static int make_shards(unsigned n)
{
	struct slot *next;

	n = load_parts(&load.opts, n);
	load.slots =
		calloc(1, load.opts.conns * sizeof(*load.slots) + n * LINE);
	load.shards = aligned_alloc(_Alignof(struct load_shard),
				    n * sizeof(*load.shards));
	if (load.opts.http_path)
		load.answers = calloc(load.opts.conns, sizeof(*load.answers));
	if (!load.slots || !load.shards ||
	    (load.opts.http_path && !load.answers))
		return -ENOMEM;
	load.n_shards = n;
	next = load.slots;
	memset(load.shards, 0, n * sizeof(*load.shards));
	for (unsigned k = 0; k < n; k++) {
		struct load_shard *shard = &load.shards[k];

		shard->part = load_part_of(&load.opts, k, n);
		shard->slots = from_next_line(next);
		next = shard->slots + shard->part.count;
		payload_fill(shard->payload, LOAD_CHUNK, 0, 0);
		memcpy(shard->payload, load.opts.request,
		       load.answers ? load.opts.size : 0);
	}
	return 0;
}

/*
 * Resolves the target, if it is a name, to the first address that the stack has
 * a route to. All connections use it. Returns 0 or -errno with a message.
 */
static int find_target(struct net_stack *stack)
{
	const struct net_resolve_opts opts = {.port = load.opts.target.port};
	struct net_addr found[2 * NET_RESOLVE_ADDRS];
	int n;

	if (!load.opts.target_host[0])
		return 0;
	n = net_resolve(stack, load.opts.target_host, &opts, found,
			2 * NET_RESOLVE_ADDRS);
	for (int i = 0; i < n; i++)
		if (net_route(stack, &found[i], NULL) == 0) {
			load.target = found[i];
			return 0;
		}
	n = n < 0 ? n : -ENODATA;
	snprintf(load.net.error, sizeof(load.net.error),
		 "--target '%.200s': %s", load.opts.target_text, host_error(n));
	return n;
}

/* Runs on every shard; the first one conducts the run and stops the program. */
static int open_load(struct net_stack *stack, void *arg)
{
	int err;

	if (net_stack_shard(stack) > 0)
		return 0;
	err = make_shards(net_stack_shards(stack));
	if (err < 0)
		return err;
	err = net_link_wait(stack, LINK_WAIT_MS);
	if (err == -ETIMEDOUT)
		net_log("coronet-load: the link is not up after %d s; is the "
			"other side running?",
			LINK_WAIT_MS / 1000);
	if (err == 0) {
		err = find_target(stack);
		if (err < 0 && !net_stack_stopping(stack))
			return err;
	}
	if (err == 0 && take_signals(stack)) {
		begin_run();
		lead_run();
		end_run();
		load.done = !load.unheard;
	}
	net_stack_stop(stack);
	return 0;
}

static const struct opt rows[] = {
	{"udp", OPT_FLAG, OPT_AT(struct load, udp),
	 .help = "Send UDP datagrams, one at a time from each of --conns "
		 "sockets; a datagram without an answer within --timeout "
		 "counts as a timeout",
	 .group = 10},
};

OPT_SET(udp_opts, rows, 0x3000, NULL)

/* Checks --udp beside other options. */
static void check_udp(const struct argp_state *state)
{
	if (load.opts.mode != LOAD_ECHO || load.opts.rate || load.opts.verify ||
	    load.opts.http_path || load.opts.tls)
		opt_refuse_or_exit(state, "--udp", "",
				   "echo mode without --rate, --verify, --http "
				   "and --tls",
				   "--udp --conns 64");
	if (load.opts.size < 4 || load.opts.size > UDP_SIZE_MAX)
		opt_refuse_or_exit(state, "--udp", "",
				   "a --size of 4 to 8952 bytes",
				   "--udp --size 64");
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &load.opts;
		state->child_inputs[1] = &load.net;
		return 0;
	case ARGP_KEY_SUCCESS:
		if (load.udp)
			check_udp(state);
		return 0;
	default:
		return udp_opts_parse(key, arg, state);
	}
}

#if APPS_TLS
/* Returns 0, or -errno with a message. */
static int open_tls(void)
{
	const struct load_opts *from = &load.opts;
	bool has_1_3 = from->tls_suites[0], has_1_2 = from->tls_ciphers[0];
	struct net_tls_opts opts = {
		.ca = from->tls_ca,
		.verify = from->tls_ca ? NET_TLS_VERIFY_REQUIRE
				       : NET_TLS_VERIFY_NONE,
		.ciphers = has_1_2 ? from->tls_ciphers : NULL,
		.ciphersuites = has_1_3 ? from->tls_suites : NULL,
		.min_version = has_1_3 && !has_1_2 ? NET_TLS_1_3 : 0,
		.max_version = has_1_2 && !has_1_3 ? NET_TLS_1_2 : 0,
		.alpn = from->http_path ? "http/1.1" : NULL,
		.max_sessions = from->tls_resume ? NET_TLS_MAX_SESSIONS : 0,
		.handshake_ms = (unsigned)(from->timeout_ns / 1000000),
		/* divided among the shards, whose parts differ by one */
		.max_handshakes = from->conns + NET_MAX_SHARDS,
	};
	int err = from->tls ? net_tls_client(&opts, &load.tls) : 0;

	if (err < 0)
		snprintf(load.net.error, sizeof(load.net.error), "--tls: %s",
			 opts.error);
	return err;
}

static void close_tls(void)
{
	net_tls_free(load.tls);
}
#else
static int open_tls(void)
{
	return 0;
}

static void close_tls(void)
{
}
#endif

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&load_opts_argp, 0, NULL, 0},
		{&net_argp, 0, "Common options:", 20},
		{0},
	};
	static const struct argp argp = {
		.options = udp_opts_options,
		.parser = parse_key,
		.children = children,
		.help_filter = udp_opts_help,
		.doc = "Loads an echo server over TCP or UDP through "
		       "coronet's own stack, and reports rates and "
		       "latencies.\vWords after -- go "
		       "to DPDK's EAL.\n\n" LOAD_HELP_STATUS,
	};
	int err, status = 1;

	net_log_name("coronet.load");
	opts_set_version("coronet-load");
	opt_use_place(net_config_place);
	net_opts_init(&load.net);
	err = net_parse_args(&argp, argc, argv, &load.net, &load);
	if (err == 0) {
		if (!load.opts.target_host[0])
			net_addr_parse(load.opts.target_text, -1, &load.target);
		load.verify =
			load.opts.verify ||
			(load.opts.mode == LOAD_IDLE && !load.opts.http_path);
		err = open_tls();
	}
	if (err == 0)
		err = net_run(&load.net, open_load, NULL);
	if (err < 0) {
		if (load.net.error[0])
			fprintf(stderr, "coronet-load: %s\n", load.net.error);
		status = net_exit_status(err);
	} else if (load.net.check) {
		status = 0;
	} else if (load.done) {
		status = load_report(&load.stats);
	}
	close_tls();
	free(load.shards);
	free(load.answers);
	free(load.slots);
	return status;
}
