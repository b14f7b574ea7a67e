/*
 * Delivery rate samples (draft-ietf-ccwg-bbr-06 4.1, after
 * draft-cheng-iccrg-delivery-rate-estimation): the data that was delivered
 * between the sending of a segment and its ACK, divided by the time that
 * sending or acknowledging it took, whichever is longer.
 *
 * The state at the time of sending is found by that time. Segments that were
 * sent within a thirty-second of a round trip share one mark: this makes an
 * interval longer by no more than that, and the data delivered in it larger
 * accordingly.
 */
#include "netstack/recovery/bbr.h"

#define OLD_US NET_MS(60000) /* nothing that was sent then is in flight */

struct net_rate *net_rate_of(const struct net_conn *conn)
{
	const struct net_recovery *rec = net_recovery_of(conn);

	return rec && rec->cc == &net_cc_bbr ? &rec->bbr->rate : NULL;
}

void net_rate_begin(struct net_rate *rate)
{
	rate->delivered = rate->lost = rate->app_limited_to = 0;
	rate->delivered_us = rate->first_us = net_now_us();
	rate->first = rate->n = 0;
}

static struct net_rate_mark *nth_mark(const struct net_rate *rate, unsigned i)
{
	return (struct net_rate_mark *)&rate
		->marks[(rate->first + i) % NET_RATE_MARKS];
}

/* ---- sending ---- */

static bool is_fresh(const struct net_conn *conn,
		     const struct net_rate_mark *mark)
{
	return net_now_us() - mark->sent_us <=
	       (conn->srtt_us >> 3) / NET_RATE_FINE;
}

static struct net_rate_mark *add_mark(struct net_rate *rate)
{
	if (rate->n == NET_RATE_MARKS) {
		rate->first = (rate->first + 1) % NET_RATE_MARKS;
		rate->n--;
	}
	rate->n++;
	return nth_mark(rate, rate->n - 1);
}

/*
 * Marks are searched by a clock that wraps: what was sent half an hour ago
 * would be later than what is sent now.
 */
static void forget_old(struct net_rate *rate)
{
	if (rate->n &&
	    net_now_us() - nth_mark(rate, rate->n - 1)->sent_us > OLD_US)
		rate->n = 0;
}

void net_rate_sent(struct net_conn *conn, uint32_t bytes)
{
	struct net_rate *rate = net_rate_of(conn);
	uint32_t pipe = net_recovery_pipe(conn, conn->pcb.lastack);
	bool first = pipe <= bytes;
	struct net_rate_mark *mark;

	if (first) { /* nothing was in flight */
		rate->first_us = rate->delivered_us = net_now_us();
		forget_old(rate);
	}
	mark = rate->n ? nth_mark(rate, rate->n - 1) : NULL;
	if (mark && !first && is_fresh(conn, mark)) {
		mark->in_flight = pipe & INT32_MAX;
		return;
	}
	mark = add_mark(rate);
	*mark = (struct net_rate_mark){
		.delivered = rate->delivered,
		.lost = rate->lost,
		.sent_us = net_now_us(),
		.delivered_us = rate->delivered_us,
		.first_us = rate->first_us,
		.in_flight = pipe & INT32_MAX,
		.app_limited = rate->app_limited_to != 0,
	};
}

/* 4.1.2.4: the application is the limit until all that is in flight arrives. */
void net_rate_app_limited(struct net_conn *conn)
{
	struct net_rate *rate = net_rate_of(conn);
	uint32_t pipe = net_recovery_pipe(conn, conn->pcb.lastack);

	if (pipe >= net_recovery_of(conn)->cwnd)
		return;
	rate->app_limited_to = rate->delivered + pipe;
	if (rate->app_limited_to == 0)
		rate->app_limited_to = 1;
}

/* ---- an ACK ---- */

const struct net_rate_mark *net_rate_mark_at(const struct net_rate *rate,
					     uint32_t sent_us)
{
	unsigned low = 0, high = rate->n; /* the last not after sent_us */

	while (low < high) {
		unsigned mid = (low + high) / 2;

		if (net_us_after(nth_mark(rate, mid)->sent_us, sent_us))
			high = mid;
		else
			low = mid + 1;
	}
	return low ? nth_mark(rate, low - 1) : NULL;
}

static void measure_delivery(const struct net_conn *conn,
			     const struct net_rate *rate,
			     const struct net_rate_mark *mark,
			     uint32_t newest_us, struct net_rate_sample *out)
{
	uint32_t send_us = newest_us - mark->first_us;
	uint32_t ack_us = net_now_us() - mark->delivered_us;
	uint32_t interval_us = LWIP_MAX(send_us, ack_us);

	out->has_mark = true;
	out->prior_delivered = mark->delivered;
	out->delivered = rate->delivered - mark->delivered;
	out->lost = rate->lost - mark->lost;
	out->in_flight = mark->in_flight;
	out->app_limited = mark->app_limited;
	/* Sooner than a round trip: it was not this copy that arrived. */
	if (interval_us == 0 || interval_us < conn->pcb.min_rtt_us)
		return;
	out->rate = (double)out->delivered * 1e9 / 1024 / interval_us;
}

void net_rate_sample(struct net_conn *conn, const struct net_ack *ack,
		     struct net_rate_sample *out)
{
	struct net_rate *rate = net_rate_of(conn);
	const struct net_rate_mark *mark;

	*out = (struct net_rate_sample){0};
	/* Without SACK `delivered` has bytes that are acknowledged only
	 * later. */
	out->acked = conn->pcb.flags & TF_SACK ? ack->delivered : ack->acked;
	if (out->acked) {
		rate->delivered += out->acked;
		rate->delivered_us = net_now_us();
	}
	if (rate->app_limited_to && rate->delivered > rate->app_limited_to)
		rate->app_limited_to = 0;
	if (!ack->has_newest)
		return;
	mark = net_rate_mark_at(rate, ack->newest_us);
	if (!mark)
		return;
	measure_delivery(conn, rate, mark, ack->newest_us, out);
	rate->first_us = ack->newest_us;
}
