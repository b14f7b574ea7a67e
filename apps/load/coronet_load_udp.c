/*
 * coronet-load --udp: each slot is a connected UDP socket with a coroutine,
 * which has one request out at a time. A request without an answer in time is
 * counted as a timeout, and the next one follows; an answer that comes later is
 * recognised by its number and discarded.
 */
#include "apps/load/coronet_load_priv.h"

#include <errno.h>
#include <string.h>

#include <coronet/net_udp.h>

/* A request's number is at its beginning. */
typedef uint32_t request_number;

/* Waits for the answer to a request: its length, or an error. */
static long wait_answer(struct net_udp *udp, request_number number)
{
	request_number answered = number - 1;
	struct net_datagram got;
	long n;

	do { /* bounded by the deadline */
		n = net_udp_recv_batch(udp, &got, 1);
		if (n < 0)
			return n;
		n = (long)got.len;
		if (got.len >= sizeof(answered))
			memcpy(&answered, got.data, sizeof(answered));
		net_udp_release(udp, &got, 1);
	} while (answered != number);
	return n;
}

static long exchange_datagram(struct slot *slot, struct net_udp *udp,
			      request_number number)
{
	const struct iovec iov[] = {
		{&number, sizeof(number)},
		{slot->shard->payload, load.opts.size - sizeof(number)},
	};
	int64_t begun_ns = net_clock_ns();
	long n;

	net_udp_set_read_deadline(udp, net_now_ns(slot->shard->stack) +
					       load.opts.timeout_ns);
	n = net_udp_sendv(udp, NULL, iov, 2);
	if (n < 0)
		return n;
	n = wait_answer(udp, number);
	slot->shard->steps++;
	if (n == (long)load.opts.size && load_running(slot->shard))
		load_stats_request(&slot->shard->stats,
				   net_clock_ns() - begun_ns);
	return n >= 0 && n != (long)load.opts.size ? -EBADMSG : n;
}

static void ask_until_over(struct slot *slot, struct net_udp *udp)
{
	request_number number = 1;

	for (; load_running(slot->shard); number++) {
		long n = exchange_datagram(slot, udp, number);

		if (n == -ECANCELED)
			return;
		if (n < 0 && load_running(slot->shard))
			load_stats_error(&slot->shard->stats,
					 n == -EBADMSG ? LOAD_VERIFY
						       : load_error_of((int)n));
		if (n < 0 && n != -ETIMEDOUT && n != -EBADMSG)
			coro_sleep_ns(LOAD_RETRY_NS);
	}
}

void slot_run_udp(struct slot *slot)
{
	const struct net_udp_opts opts = {.rx_datagrams = 16};
	const struct net_addr any = {.family = load.target.family};
	struct net_udp *udp;
	int err = net_udp_open(slot->shard->stack, &any, &opts, &udp);

	if (err == 0) {
		err = net_udp_connect(udp, &load.target);
		if (err < 0)
			net_udp_close(udp);
	}
	if (err < 0) {
		load_stats_error(&slot->shard->stats, load_error_of(err));
		slot->reopen_ns = net_clock_ns() + LOAD_RETRY_NS;
		return;
	}
	load_stats_opened(&slot->shard->stats, 0);
	ask_until_over(slot, udp);
	net_udp_close(udp);
}
