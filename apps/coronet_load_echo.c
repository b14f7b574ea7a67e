/*
 * The echo mode: a connection is a watch, not a coroutine, so that the
 * generator costs less than what it loads.
 */
#include "apps/coronet_load_priv.h"

#include <errno.h>

static void fail(struct slot *slot, long err)
{
	slot_fail(slot, err);
	slot_count_closed();
	slot->reopen_ns = net_clock_ns() + LOAD_RETRY_NS;
}

/* Sends what fits of the rest of the request. False when the slot failed. */
static bool push(struct slot *slot)
{
	while (slot->unsent) {
		long n = slot_send(slot, slot->unsent);

		if (n == -EAGAIN)
			break;
		if (n < 0) {
			fail(slot, n);
			return false;
		}
		slot->unsent -= (uint32_t)n;
	}
	return true;
}

static void ask(struct slot *slot, int64_t begun_ns, int64_t now_ns)
{
	slot->unsent = slot->unanswered = load.opts.size;
	slot->begun_ns = begun_ns;
	slot->since_ns = now_ns;
	push(slot);
}

void echo_turn(struct slot *slot, int64_t now_ns)
{
	int64_t due_ns;

	if (!slot->conn || slot->unanswered || slot->reopen_ns)
		return;
	due_ns = load_pace_due(&slot->pace);
	if (due_ns > now_ns)
		return;
	load_pace_sent(&slot->pace);
	ask(slot, due_ns, now_ns);
}

/* What a slot does that waits for nothing. */
static void go_on(struct slot *slot, int64_t now_ns)
{
	slot->since_ns = 0;
	slot->free_ns = now_ns;
	if (load.opts.rate)
		echo_turn(slot, now_ns);
	else
		ask(slot, now_ns, now_ns);
}

static void answered(struct slot *slot)
{
	int64_t now_ns = net_clock_ns();

	load_stats_request(&load.stats, now_ns - slot->begun_ns);
	go_on(slot, now_ns);
}

/* Takes what has come, to the last byte: the peer's end may follow it. */
static void on_echo(struct net_conn *conn, struct net_watch *watch)
{
	struct slot *slot = (struct slot *)(void *)watch;
	long n;

	load.steps++;
	if (!load_running())
		return;
	if (slot->unsent && !push(slot))
		return;
	do {
		n = slot_receive(slot);
		if (n == -EAGAIN)
			return;
		if (n > (long)slot->unanswered)
			n = -EBADMSG; /* more than was asked is no echo */
		if (n <= 0) {
			fail(slot, n);
			return;
		}
		slot->unanswered -= (uint32_t)n;
		if (slot->unanswered == 0)
			answered(slot);
	} while (slot->conn);
}

void echo_time_out(struct slot *slot)
{
	slot->timed_out = true;
	fail(slot, -ETIMEDOUT);
}

void echo_start(struct slot *slot)
{
	slot->unsent = slot->unanswered = 0;
	slot->reopen_ns = 0;
	slot->watch.fn = on_echo;
	net_set_watch(slot->conn, &slot->watch);
	go_on(slot, net_clock_ns());
	if (slot->conn)
		on_echo(slot->conn, &slot->watch);
}
