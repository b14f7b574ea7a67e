/*
 * The echo and the bulk mode: a connection has a watch instead of a coroutine,
 * so that the generator costs less than the server that it loads.
 */
#include "apps/load/coronet_load_priv.h"

#include <errno.h>

#define WRITE_MAX 16384u /* bytes handed over at a time, in bulk */

static void fail_slot(struct slot *slot, long err)
{
	slot_fail(slot, err);
	slot_count_closed(slot->shard);
	slot->reopen_ns = net_clock_ns() + LOAD_RETRY_NS;
}

/* Sends what fits of the rest of the request. False when the slot failed. */
static bool send_remaining(struct slot *slot)
{
	while (slot->unsent) {
		long n = slot_send(slot, slot->unsent);

		if (n == -EAGAIN)
			break;
		if (n < 0) {
			fail_slot(slot, n);
			return false;
		}
		slot->unsent -= (uint32_t)n;
	}
	return true;
}

static void send_request(struct slot *slot, int64_t begun_ns, int64_t now_ns)
{
	slot_expect_answer(slot);
	slot->unsent = load.opts.size;
	slot->begun_ns = begun_ns;
	slot->since_ns = now_ns;
	send_remaining(slot);
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
	load_stats_sent(&slot->shard->stats, due_ns, slot->free_ns, now_ns);
	send_request(slot, due_ns, now_ns);
}

/* Lets a slot that waits for nothing go on. */
static void begin_next(struct slot *slot, int64_t now_ns)
{
	slot->since_ns = 0;
	slot->free_ns = now_ns;
	if (load.opts.rate)
		echo_turn(slot, now_ns);
	else
		send_request(slot, now_ns, now_ns);
}

static void end_request(struct slot *slot)
{
	int64_t now_ns = net_clock_ns();

	load_stats_request(&slot->shard->stats, now_ns - slot->begun_ns);
	begin_next(slot, now_ns);
}

/* Takes what has come, to the last byte: the peer's end may follow it. */
static void on_echo(struct net_conn *conn, struct net_watch *watch)
{
	struct slot *slot = (struct slot *)(void *)watch;
	long n;

	slot->shard->steps++;
	if (!load_running(slot->shard))
		return;
	if (slot->unsent && !send_remaining(slot))
		return;
	do {
		n = slot_receive_answer(slot);
		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			fail_slot(slot, n);
			return;
		}
		if (slot->unanswered == 0)
			end_request(slot);
	} while (slot->conn);
}

/* The payload was only lent, and stays. */
static void keep_payload(void *arg)
{
}

/* Bytes that nobody checks are sent from where they are, untouched. */
static long write_part(struct slot *slot, size_t len)
{
	if (load.verify)
		return slot_send(slot, len);
	return net_send_owned(slot->conn, slot->shard->payload, len,
			      keep_payload, NULL);
}

/* Writes while a whole part fits, so that segments are whole too. */
static long write_bulk(struct slot *slot)
{
	long room;

	while ((room = net_writable(slot->conn)) > 0) {
		size_t part;
		long n;

		if (slot->unsent == 0)
			slot->unsent = load.opts.size;
		part = slot->unsent < WRITE_MAX ? slot->unsent : WRITE_MAX;
		if ((size_t)room < part)
			break;
		n = write_part(slot, part);
		if (n < 0)
			return n;
		slot->unsent -= (uint32_t)n;
	}
	return room;
}

/* Takes what has come, and looks at it only to verify it. */
static long read_bulk(struct slot *slot)
{
	long n;

	while ((n = slot_receive(slot)) > 0) {
		load_stats_bytes(&slot->shard->stats, (uint64_t)n);
		slot->since_ns = net_now_ns(slot->shard->stack);
	}
	return n;
}

static void on_bulk(struct net_conn *conn, struct net_watch *watch)
{
	struct slot *slot = (struct slot *)(void *)watch;
	long n;

	slot->shard->steps++;
	if (!load_running(slot->shard))
		return;
	n = read_bulk(slot);
	if (n == -EAGAIN)
		n = write_bulk(slot);
	if (n <= 0 && n != -EAGAIN)
		fail_slot(slot, n);
}

void watched_time_out(struct slot *slot)
{
	slot->timed_out = true;
	fail_slot(slot, -ETIMEDOUT);
}

void watched_start(struct slot *slot)
{
	bool bulk = load.opts.mode == LOAD_BULK;

	slot->unsent = slot->unanswered = 0;
	slot->reopen_ns = 0;
	slot->since_ns = net_clock_ns();
	slot->watch.fn = bulk ? on_bulk : on_echo;
	net_set_watch(slot->conn, &slot->watch);
	if (!bulk)
		begin_next(slot, slot->since_ns);
	if (slot->conn)
		slot->watch.fn(slot->conn, &slot->watch);
}
