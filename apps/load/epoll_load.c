/*
 * epoll-load: the load generator on the kernel's TCP, coronet-load's twin.
 *
 * One thread, non-blocking sockets, one edge-triggered epoll set. A request is
 * one send and one recv; the events of up to BATCH connections come from one
 * epoll_wait. Latency is taken at each answer, not once a batch: a batch of 256
 * takes long enough to matter.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "apps/common/sys.h"
#include "apps/load/epoll_load_priv.h"
#include "apps/load/payload.h"
#include "apps/load/report.h"

#define BATCH	       256
#define OPENS_A_TURN   64
#define MAX_CONNECTING 512 /* well below the usual backlog */
#define SCAN_NS	       (OPTS_NS_PER_S / 10)
#define SPARE_FILES    16
#define WAKE_LATE_NS   60000 /* what the kernel may take to wake us */

struct load load = {.cpu = -1};

static volatile sig_atomic_t stop;

/* The first opening of each slot, as the ramp and the handshakes allow. */
static void open_slots(int64_t now_ns)
{
	uint32_t may = load_stats_may_open(&load.stats, now_ns);
	uint32_t i;

	for (i = 0; i < OPENS_A_TURN && load.started < may &&
		    load.connecting < MAX_CONNECTING;
	     i++) {
		struct slot *slot = &load.slots[load.started++];

		if (load.opts.mode == LOAD_CPS) {
			if (is_open_loop())
				load_pace_start(&slot->pace, &load.stats,
						load.started - 1, now_ns);
			slot_is_free(slot, now_ns);
		} else {
			slot_open(slot, now_ns, now_ns);
		}
	}
}

static bool is_waiting(const struct slot *slot)
{
	if (load.opts.mode == LOAD_CPS)
		return slot->state == SLOT_CLOSED;
	return slot->state == SLOT_READY;
}

/*
 * The open loop: visits the slots whose requests have become due. A slot that
 * is busy then looks at its timetable itself when it is done.
 */
static void take_turns(int64_t now_ns)
{
	struct slot *slot;
	uint32_t i;

	if (!is_open_loop())
		return;
	for (i = 0; load_turn_due(&load.stats, load.turn) <= now_ns;
	     i++, load.turn++) {
		/* Once round is enough, however late it is. */
		if (i == load.opts.conns) {
			load.turn = load_turn_at(&load.stats, now_ns);
			break;
		}
		slot = &load.slots[load.turn % load.opts.conns];
		if (slot < load.slots + load.started && is_waiting(slot))
			slot_go_on(slot, sys_now_ns());
	}
}

/* Ten times a second: what waits too long, and what may come back. */
static void scan(int64_t now_ns)
{
	int64_t timeout_ns = load.opts.timeout_ns;
	struct slot *slot;
	uint32_t i;

	if (now_ns < load.scan_ns)
		return;
	load.scan_ns = now_ns + SCAN_NS;
	for (i = 0; i < load.started; i++) {
		slot = &load.slots[i];
		if (slot->state == SLOT_CLOSED) {
			if (now_ns < slot->reopen_ns)
				continue;
			if (load.opts.mode == LOAD_CPS)
				slot_is_free(slot, now_ns);
			else
				slot_open(slot, now_ns, now_ns);
		} else if (slot->state != SLOT_READY &&
			   now_ns - slot->since_ns > timeout_ns) {
			slot_fail(slot, LOAD_TIMEOUT, now_ns);
		}
	}
}

/* Bulk slots that only gave way to others. */
static void stream_again(int64_t now_ns)
{
	uint32_t i, count = load.again_count;
	struct slot *slot;

	/* What stops again goes to the place it is taken from, or before. */
	load.again_count = 0;
	for (i = 0; i < count; i++) {
		slot = load.again[i];
		slot->again = false;
		if (slot->state == SLOT_ASKED)
			slot_stream(slot, now_ns);
	}
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/*
 * How long there is nothing to do but what comes from outside. The last of the
 * time before the open loop's next turn is waited awake, lest it be late.
 */
static struct timespec time_to_wait(int64_t now_ns)
{
	int64_t until_ns = earlier(load.stats.wake_ns, load.scan_ns);
	uint32_t may = load_stats_may_open(&load.stats, now_ns);
	int64_t wait_ns;

	if (is_open_loop())
		until_ns = earlier(until_ns,
				   load_turn_due(&load.stats, load.turn) -
					   WAKE_LATE_NS);
	wait_ns = until_ns - now_ns;
	if (load.started < load.opts.conns)
		wait_ns = earlier(wait_ns, OPTS_NS_PER_S / 1000);
	if (wait_ns < 0 || load.again_count > 0 ||
	    (load.started < may && load.connecting < MAX_CONNECTING))
		wait_ns = 0;
	return (struct timespec){.tv_sec = wait_ns / OPTS_NS_PER_S,
				 .tv_nsec = wait_ns % OPTS_NS_PER_S};
}

/* The next turn is too near to sleep until then. */
static bool is_awake(int64_t now_ns)
{
	return is_open_loop() &&
	       load_turn_due(&load.stats, load.turn) - now_ns <= WAKE_LATE_NS;
}

static int take_events(int64_t now_ns, const sigset_t *while_waiting)
{
	struct timespec wait = time_to_wait(now_ns);
	struct epoll_event events[BATCH];
	int count, i;

	count = epoll_pwait2(load.epoll, events, BATCH, &wait, while_waiting);
	for (i = 0; i < count; i++)
		slot_event(events[i].data.ptr, events[i].events);
	return count;
}

/* Ready to run and without a core, it is no less the bottleneck. */
static int64_t busy_ns(void *arg)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return used.tv_sec * OPTS_NS_PER_S + used.tv_nsec + sys_no_core_ns() -
	       load.waited_ns;
}

static void on_signal(int number)
{
	/* The second one does not wait for the report. */
	if (stop)
		_exit(1);
	stop = 1;
}

/* Signals are let in only while waiting, so that none is missed. */
static void catch_signals(sigset_t *while_waiting)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, while_waiting);
	sigdelset(while_waiting, SIGINT);
	sigdelset(while_waiting, SIGTERM);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void run(void)
{
	sigset_t while_waiting;
	int64_t now_ns;
	uint64_t turn;
	bool awake;

	catch_signals(&while_waiting);
	load_stats_start(&load.stats, &load.opts, "epoll-load", sys_now_ns());
	load_stats_set_busy(&load.stats, busy_ns, NULL);
	for (;;) {
		now_ns = sys_now_ns();
		if (stop)
			load_stats_interrupt(&load.stats, now_ns);
		if (!load_stats_tick(&load.stats, now_ns))
			break;
		turn = load.turn;
		open_slots(now_ns);
		take_turns(now_ns);
		scan(now_ns);
		stream_again(now_ns);
		awake = is_awake(now_ns);
		if (take_events(now_ns, &while_waiting) == 0 && awake &&
		    load.turn == turn)
			load.waited_ns += sys_now_ns() - now_ns;
	}
	sigprocmask(SIG_SETMASK, &while_waiting, NULL);
}

static int set_up(void)
{
	uint32_t i;

	load.slots = calloc(load.opts.conns, sizeof(*load.slots));
	load.again = calloc(load.opts.conns, sizeof(struct slot *));
	load.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!load.slots || !load.again || load.epoll < 0)
		return -errno;
	for (i = 0; i < load.opts.conns; i++) {
		load.slots[i].fd = -1;
		load.slots[i].seed = payload_seed(i);
	}
	payload_fill(load.to_send, LOAD_BUF_SIZE, 0, 0);
	/* The open loop wants its waits to end on time. */
	prctl(PR_SET_TIMERSLACK, 1);
	return 0;
}

static void tear_down(void)
{
	uint32_t i;

	for (i = 0; load.slots && i < load.opts.conns; i++)
		if (load.slots[i].fd >= 0)
			close(load.slots[i].fd);
	if (load.epoll >= 0)
		close(load.epoll);
	free(load.again);
	free(load.slots);
}

/* Too many connections for the limit of open files is a wrong value. */
static void check_files(const struct argp_state *state)
{
	uint64_t files = sys_raise_files();
	char conns[24], expected[96];

	if (load.opts.conns + SPARE_FILES <= files)
		return;
	snprintf(conns, sizeof(conns), "%u", load.opts.conns);
	snprintf(expected, sizeof(expected),
		 "at most %ju: this process may open %ju files (ulimit -Hn)",
		 (uintmax_t)(files > SPARE_FILES ? files - SPARE_FILES : 0),
		 (uintmax_t)files);
	opts_refuse(state, "--conns", conns, expected, "--conns 64");
}

enum { OPT_CPU = 0x200 };

static const struct argp_option options[] = {
	{"cpu", OPT_CPU, "N", 0, "Run on this CPU (default: any)", 20},
	{"lcore", 0, 0, OPTION_ALIAS, 0, 20},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opts_begin(state);
		state->child_inputs[0] = &load.opts;
		return 0;
	case OPT_CPU:
		load.cpu = (int)opts_number(state, "--cpu", arg, 0, 1023,
					    "--cpu 1");
		if (sys_pin_cpu((unsigned int)load.cpu))
			opts_refuse(state, "--cpu", arg,
				    "a CPU this process may run on", "--cpu 0");
		return 0;
	case ARGP_KEY_SUCCESS:
		check_files(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&load_opts_argp, 0, NULL, 0},
		{0},
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.children = children,
		.doc = "Loads a TCP echo server through the kernel's sockets "
		       "and epoll, and reports rates and latencies."
		       "\v" LOAD_HELP_STATUS,
	};
	int err, status = 1;

	opts_set_version("epoll-load");
	if (argp_parse(&argp, argc, argv, 0, NULL, NULL))
		return OPTS_EXIT_USAGE;
	err = set_up();
	if (err == 0) {
		run();
		status = load_report(&load.stats);
	} else {
		fprintf(stderr, "epoll-load: cannot start: %s\n",
			strerror(-err));
	}
	tear_down();
	return status;
}
