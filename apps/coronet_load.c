/*
 * coronet-load: the load generator on coronet's own TCP, one coroutine a
 * connection. Its twin on the kernel's is epoll-load.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/net.h>

#include "apps/common/payload.h"
#include "apps/common/report.h"

#define OPENS_AT_ONCE 512  /* handshakes under way */
#define LINK_WAIT_MS  5000 /* for the link to come up */
#define SCAN_NS	      (OPTS_NS_PER_S / 10)
#define RETRY_NS      (OPTS_NS_PER_S / 10)
#define CHUNK	      65536u /* bytes of one write */

/* One of the --conns connections; in cps mode one after the other. */
struct slot {
	struct net_watch watch; /* of an idle one */
	struct net_conn *conn;
	int64_t since_ns;	/* what it waits for began then; 0: nothing */
	uint64_t sent, arrived; /* places in the stream, for --verify */
	struct load_pace pace;
	uint32_t index;
	bool timed_out;
	bool dialing;
};

static struct load {
	struct net_opts net;
	struct load_opts opts;
	struct net_stack *stack;
	struct net_addr target;
	struct slot *slots;
	uint32_t dialing;
	uint32_t asking, next_ask; /* idle: the second echo */
	bool verify;
	struct load_stats stats;
	uint8_t payload[CHUNK]; /* filled before each write, then copied */
} load;

/* Once the run is over, what breaks and closes is the end's own doing. */
static bool running(void)
{
	return load.stats.phase != LOAD_DONE && !net_stack_stopping(load.stack);
}

static void count_closed(void)
{
	if (running())
		load_stats_closed(&load.stats);
}

static int64_t now_ns(void)
{
	return net_clock_ns();
}

/* Counts what went wrong and lets the connection go. */
static void fail(struct slot *slot, long err)
{
	enum load_error kind = LOAD_CLOSED;

	if (slot->timed_out)
		kind = LOAD_TIMEOUT;
	else if (err == -EBADMSG)
		kind = LOAD_VERIFY;
	else if (err < 0)
		kind = load_error_of((int)err);
	if (running())
		load_stats_error(&load.stats, kind);
	if (slot->conn)
		net_abort(slot->conn);
	slot->conn = NULL;
	slot->since_ns = 0;
}

static void choose_source(const struct slot *slot, struct net_dial_opts *dial)
{
	unsigned seen = 0, same = 0;

	for (unsigned i = 0; i < load.net.n_addrs; i++)
		same += load.net.addrs[i].family == load.target.family;
	if (same < 2)
		return;
	for (unsigned i = 0; i < load.net.n_addrs; i++)
		if (load.net.addrs[i].family == load.target.family &&
		    seen++ == slot->index % same)
			dial->source = load.net.addrs[i];
}

static int slot_dial(struct slot *slot)
{
	struct net_dial_opts dial = {
		.timeout_ms = (unsigned)(load.opts.timeout_ns / 1000000)};
	int64_t begun_ns = now_ns();
	int err;

	choose_source(slot, &dial);
	load.dialing++;
	err = net_dial(load.stack, &load.target, &dial, &slot->conn);
	load.dialing--;
	slot->timed_out = false;
	if (err < 0) {
		slot->conn = NULL;
		fail(slot, err);
		return err;
	}
	load_stats_opened(&load.stats, now_ns() - begun_ns);
	return 0;
}

/* One write's bytes; the connection copies them. */
static const uint8_t *fill(const struct slot *slot, size_t len)
{
	if (load.verify)
		payload_fill(load.payload, len, payload_seed(slot->index),
			     slot->sent);
	return load.payload;
}

/*
 * Sends `len` bytes. The payload is shared, so what did not fit at once is
 * filled again: another coroutine may have used it meanwhile.
 */
static long slot_send(struct slot *slot, size_t len)
{
	while (len) {
		size_t part = len < CHUNK ? len : CHUNK;
		long n = net_writable(slot->conn);

		if (n > 0)
			n = net_send(slot->conn, fill(slot, part), part);
		if (n < 0)
			return n;
		slot->sent += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* Receives one piece, checks it: its length, 0 at the end, or an error. */
static long slot_receive(struct slot *slot)
{
	struct net_view view;
	long n = net_recv_view(slot->conn, &view);

	if (n <= 0)
		return n;
	if (load.verify &&
	    payload_check(view.data, view.len, payload_seed(slot->index),
			  slot->arrived) != view.len)
		n = -EBADMSG;
	net_view_release(slot->conn, &view);
	if (n > 0)
		slot->arrived += (uint64_t)n;
	return n;
}

/* One request and its answer: 1, 0 when the peer ended, or an error. */
static long slot_ask(struct slot *slot)
{
	size_t left = load.opts.size;
	long n;

	slot->since_ns = now_ns();
	n = slot_send(slot, left);
	while (n >= 0 && left) {
		n = slot_receive(slot);
		if (n == 0)
			break;
		if (n > 0 && (size_t)n > left)
			n = -EBADMSG; /* more than was asked is no echo */
		else if (n > 0)
			left -= (size_t)n;
	}
	/* After -EBADF the connection is gone, closed by the watchdog. */
	if (n == -EBADF)
		slot->conn = NULL;
	slot->since_ns = 0;
	return n > 0 ? 1 : n;
}

/* The time a request counts from; waits for it in the open loop. */
static int64_t wait_turn(struct slot *slot)
{
	int64_t due_ns;

	if (load.opts.rate == 0)
		return now_ns();
	due_ns = load_pace_due(&slot->pace);
	if (due_ns > now_ns())
		coro_sleep_until(due_ns);
	load_pace_sent(&slot->pace);
	return due_ns;
}

static void run_echo(struct slot *slot)
{
	while (running()) {
		int64_t begun_ns = wait_turn(slot);
		long n = slot_ask(slot);

		if (n <= 0) {
			fail(slot, n);
			count_closed();
			return;
		}
		load_stats_request(&load.stats, now_ns() - begun_ns);
	}
}

static void run_cps(struct slot *slot)
{
	while (running()) {
		int64_t begun_ns = wait_turn(slot);
		long n;

		if (slot_dial(slot) < 0) {
			coro_sleep_ns(RETRY_NS);
			continue;
		}
		slot->arrived = slot->sent;
		n = slot_ask(slot);
		count_closed();
		if (n <= 0) {
			fail(slot, n);
			continue;
		}
		load_stats_request(&load.stats, now_ns() - begun_ns);
		net_close(slot->conn);
		slot->conn = NULL;
	}
}

/*
 * An idle connection needs no coroutine: it is watched, for it should stay.
 * -EAGAIN says that it does.
 */
static void on_idle(struct net_conn *conn, struct net_watch *watch)
{
	struct slot *slot = (struct slot *)(void *)watch;
	struct net_view view;
	long n = net_recv_view(conn, &view);

	if (n == -EAGAIN)
		return;
	if (n > 0)
		net_view_release(conn, &view); /* nobody asked for bytes */
	fail(slot, n > 0 ? -EBADMSG : n);
	count_closed();
}

static void run_idle(struct slot *slot)
{
	long n = slot_ask(slot);

	if (n <= 0) {
		fail(slot, n);
		count_closed();
		return;
	}
	load.stats.answered_before++;
	slot->watch.fn = on_idle;
	net_set_watch(slot->conn, &slot->watch);
	on_idle(slot->conn, &slot->watch);
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
	int64_t until_ns = now_ns() + load.opts.timeout_ns;
	uint64_t seen = 0;

	load.stats.asked_after = true;
	for (; load.asking < OPENS_AT_ONCE; load.asking++)
		if (net_spawn(load.stack, "ask", ask_again, NULL) < 0)
			break;
	while (load.asking && now_ns() < until_ns &&
	       coro_sleep_ns(OPTS_NS_PER_S / 1000) == 0) {
		if (load.stats.answered_after == seen)
			continue;
		seen = load.stats.answered_after;
		until_ns = now_ns() + load.opts.timeout_ns;
	}
}

/* Bulk's other direction, in a coroutine of its own. */
static void *read_bulk(void *arg)
{
	struct slot *slot = arg;
	long n;

	while ((n = slot_receive(slot)) > 0)
		load_stats_bytes(&load.stats, (uint64_t)n);
	return (void *)(intptr_t)n;
}

static void run_bulk(struct slot *slot)
{
	const struct coro_attr attr = {.name = "bulk-reader"};
	void *result = NULL;
	struct coro *reader;
	long n = 0;

	if (coro_spawn(coro_sched_self(), &attr, read_bulk, slot, &reader) <
	    0) {
		fail(slot, -ENOMEM);
		return;
	}
	while (running() && n >= 0)
		n = slot_send(slot, load.opts.size);
	if (running())
		net_shutdown(slot->conn, NET_SHUT_WR);
	else
		coro_cancel(reader);
	coro_join(reader, &result);
	count_closed();
	if (running())
		fail(slot, n < 0 ? n : (long)(intptr_t)result);
}

static void slot_run(struct slot *slot)
{
	switch (load.opts.mode) {
	case LOAD_ECHO:
		run_echo(slot);
		break;
	case LOAD_IDLE:
		run_idle(slot);
		break;
	case LOAD_BULK:
		run_bulk(slot);
		break;
	case LOAD_CPS:
		run_cps(slot);
		break;
	}
}

/* The life of a slot: opened again after a failure, but for idle ones. */
static void *slot_body(void *arg)
{
	struct slot *slot = arg;

	if (load.opts.rate)
		load_pace_start(&slot->pace, &load.stats, slot->index,
				now_ns());
	if (load.opts.mode == LOAD_CPS) {
		run_cps(slot);
		return NULL;
	}
	while (running()) {
		if (slot_dial(slot) == 0) {
			slot->arrived = slot->sent;
			slot_run(slot);
		}
		if (load.opts.mode == LOAD_IDLE)
			break;
		if (running())
			coro_sleep_ns(RETRY_NS);
	}
	return NULL;
}

/* Ten times a second: what has waited too long is given up. */
static void *watchdog(void *arg)
{
	while (running() && coro_sleep_ns(SCAN_NS) == 0) {
		int64_t late_ns = now_ns() - load.opts.timeout_ns;

		for (uint32_t i = 0; i < load.opts.conns; i++) {
			struct slot *slot = &load.slots[i];

			if (!slot->conn || !slot->since_ns ||
			    slot->since_ns > late_ns)
				continue;
			slot->timed_out = true;
			slot->since_ns = 0;
			net_abort(slot->conn);
		}
	}
	return NULL;
}

static void *open_slots(void *arg)
{
	uint32_t opened = 0;

	while (running() && opened < load.opts.conns) {
		uint32_t may = load_stats_may_open(&load.stats, now_ns());

		if (opened >= may || load.dialing >= OPENS_AT_ONCE) {
			if (opened >= may)
				coro_sleep_ns(OPTS_NS_PER_S / 1000);
			else
				coro_sleep_ns(OPTS_NS_PER_S / 20000);
			continue;
		}
		load.slots[opened].index = opened;
		if (net_spawn(load.stack, "load", slot_body,
			      &load.slots[opened]) < 0)
			load_stats_error(&load.stats, LOAD_OTHER);
		opened++;
		if (opened % 64 == 0)
			coro_yield();
	}
	return NULL;
}

static int64_t busy_ns(void *arg)
{
	struct net_stats stats;

	net_stack_stats(load.stack, &stats);
	return stats.busy_ns;
}

/* Moves the run on; the stack stops with it. */
static void *conduct(void *arg)
{
	int err = net_link_wait(load.stack, LINK_WAIT_MS);

	if (err == -ETIMEDOUT)
		fprintf(stderr,
			"coronet-load: the link is not up after %d s; is the "
			"other side running?\n",
			LINK_WAIT_MS / 1000);
	if (err < 0) {
		*(int *)arg = 1;
		net_stack_stop(load.stack);
		return NULL;
	}
	load_stats_start(&load.stats, &load.opts, "coronet-load", now_ns());
	load_stats_set_busy(&load.stats, busy_ns, NULL);
	net_spawn(load.stack, "open", open_slots, NULL);
	net_spawn(load.stack, "watchdog", watchdog, NULL);
	while (load_stats_tick(&load.stats, now_ns())) {
		int64_t until = load.stats.wake_ns;
		int64_t soon = now_ns() + OPTS_NS_PER_S / 100;

		coro_sleep_until(until < soon ? until : soon);
		if (net_stack_stopping(load.stack))
			load_stats_interrupt(&load.stats, now_ns());
	}
	if (load.opts.mode == LOAD_IDLE && !load.stats.interrupted)
		ask_all_again();
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
		load_stats_interrupt(&load.stats, now_ns());
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
	payload_fill(load.payload, CHUNK, 0, 0);
	status = run();
	net_stack_close(load.stack);
	free(load.slots);
	return status;
}
