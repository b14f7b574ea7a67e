/*
 * A connection of coronet-load: dialing, sending, receiving, failing; and the
 * modes in which it has a coroutine.
 */
#include "apps/load/coronet_load_priv.h"

#include <errno.h>

#include "apps/load/payload.h"

void slot_count_closed(struct load_shard *shard)
{
	if (load_running(shard))
		load_stats_closed(&shard->stats);
}

void slot_fail(struct slot *slot, long err)
{
	enum load_error kind = LOAD_CLOSED;

	if (slot->timed_out)
		kind = LOAD_TIMEOUT;
	else if (err == -EBADMSG)
		kind = LOAD_VERIFY;
	else if (err < 0)
		kind = load_error_of((int)err);
	if (load_running(slot->shard))
		load_stats_error(&slot->shard->stats, kind);
	if (slot->conn)
		net_abort(slot->conn);
	slot->conn = NULL;
	slot->since_ns = 0;
}

/* Without a prefix an address stands for one that DHCP leases. */
static bool is_source(const struct net_addr *addr)
{
	return addr->family == load.target.family && addr->prefix_len;
}

static void choose_source(const struct slot *slot, struct net_dial_opts *dial)
{
	unsigned seen = 0, same = 0;

	for (unsigned i = 0; i < load.net.n_addrs; i++)
		same += is_source(&load.net.addrs[i]);
	if (same < 2)
		return;
	for (unsigned i = 0; i < load.net.n_addrs; i++)
		if (is_source(&load.net.addrs[i]) &&
		    seen++ == slot->index % same)
			dial->source = load.net.addrs[i];
}

int slot_dial(struct slot *slot)
{
	struct net_dial_opts dial = {
		.timeout_ms = (unsigned)(load.opts.timeout_ns / 1000000),
		.tls = load.tls,
		.tls_name = load.opts.tls_name};
	int64_t begun_ns = net_clock_ns();
	int err;

	choose_source(slot, &dial);
	slot->shard->dialing++;
	err = net_dial(slot->shard->stack, &load.target, &dial, &slot->conn);
	slot->shard->dialing--;
	slot->shard->steps++;
	slot->timed_out = false;
	if (err < 0) {
		slot->conn = NULL;
		slot_fail(slot, err);
		return err;
	}
	slot->arrived = slot->sent;
	if (load.answers)
		load.answers[slot->index] = (struct http_answer){0};
	load_stats_opened(&slot->shard->stats, net_clock_ns() - begun_ns);
	return 0;
}

/*
 * The connection copies the bytes. The payload is shared, so bytes that did not
 * fit are filled in again: another slot may have used it meanwhile.
 */
long slot_send(struct slot *slot, size_t len)
{
	long n = len < LOAD_CHUNK ? (long)len : (long)LOAD_CHUNK;
	size_t from = load.answers ? load.opts.size - len : 0;

	if (load.verify) {
		long room = net_writable(slot->conn);

		if (room < n)
			n = room;
		if (n < 0)
			return n;
		payload_fill(slot->shard->payload, (size_t)n,
			     payload_seed(slot->index), slot->sent);
	}
	n = net_send(slot->conn, slot->shard->payload + from, (size_t)n);
	if (n > 0)
		slot->sent += (uint64_t)n;
	return n;
}

long slot_receive(struct slot *slot)
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

void slot_expect_answer(struct slot *slot)
{
	slot->unanswered = load.answers ? 1 : load.opts.size;
}

static long receive_http(struct slot *slot)
{
	struct net_view view;
	long n = net_recv_view(slot->conn, &view);
	int rc;

	if (n <= 0)
		return n;
	rc = slot->unanswered ? http_answer_take(&load.answers[slot->index],
						 view.data, view.len)
			      : -EBADMSG;
	net_view_release(slot->conn, &view);
	if (rc < 0)
		return rc;
	if (rc > 0)
		slot->unanswered = 0;
	load_stats_bytes(&slot->shard->stats, (uint64_t)n);
	return n;
}

long slot_receive_answer(struct slot *slot)
{
	long n;

	if (load.answers)
		return receive_http(slot);
	n = slot_receive(slot);
	if (n <= 0)
		return n;
	if (n > (long)slot->unanswered)
		return -EBADMSG;
	slot->unanswered -= (uint32_t)n;
	return n;
}

static long send_all(struct slot *slot, size_t len)
{
	while (len) {
		long n = slot_send(slot, len);

		if (n < 0)
			return n;
		len -= (size_t)n;
	}
	return 0;
}

long slot_ask(struct slot *slot)
{
	long n;

	slot->since_ns = net_clock_ns();
	slot_expect_answer(slot);
	n = send_all(slot, load.opts.size);
	while (n >= 0 && slot->unanswered) {
		n = slot_receive_answer(slot);
		slot->shard->steps++;
		if (n == 0)
			break;
	}
	/* After -EBADF the connection is gone, closed by the watchdog. */
	if (n == -EBADF)
		slot->conn = NULL;
	slot->since_ns = 0;
	return n > 0 ? 1 : n;
}

/* Returns the time a request counts from; in the open loop, waits for it. */
static int64_t wait_turn(struct slot *slot)
{
	int64_t due_ns;

	slot->free_ns = net_clock_ns();
	if (load.opts.rate == 0)
		return slot->free_ns;
	due_ns = load_pace_due(&slot->pace);
	slot->waits = coro_self();
	while (due_ns > net_clock_ns() && load_running(slot->shard))
		if (coro_park() < 0)
			break;
	slot->waits = NULL;
	slot->shard->steps++;
	load_pace_sent(&slot->pace);
	load_stats_sent(&slot->shard->stats, due_ns, slot->free_ns,
			net_clock_ns());
	return due_ns;
}

void slot_run_cps(struct slot *slot)
{
	while (load_running(slot->shard)) {
		int64_t begun_ns = wait_turn(slot);
		long n;

		if (slot_dial(slot) < 0) {
			coro_sleep_ns(LOAD_RETRY_NS);
			continue;
		}
		n = slot_ask(slot);
		slot_count_closed(slot->shard);
		if (n <= 0) {
			slot_fail(slot, n);
			continue;
		}
		load_stats_request(&slot->shard->stats,
				   net_clock_ns() - begun_ns);
		net_close(slot->conn);
		slot->conn = NULL;
	}
}

/* An idle connection should stay: -EAGAIN says that it does. */
static void on_idle(struct net_conn *conn, struct net_watch *watch)
{
	struct slot *slot = (struct slot *)(void *)watch;
	struct net_view view;
	long n = net_recv_view(conn, &view);

	if (n == -EAGAIN)
		return;
	if (n > 0)
		net_view_release(conn, &view); /* nobody asked for bytes */
	slot_fail(slot, n > 0 ? -EBADMSG : n);
	slot_count_closed(slot->shard);
}

void slot_run_idle(struct slot *slot)
{
	long n = slot_ask(slot);

	if (n <= 0) {
		slot_fail(slot, n);
		slot_count_closed(slot->shard);
		return;
	}
	slot->shard->stats.answered_before++;
	slot->watch.fn = on_idle;
	net_set_watch(slot->conn, &slot->watch);
	on_idle(slot->conn, &slot->watch);
}
