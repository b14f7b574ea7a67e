/*
 * The peer's receiver. It keeps data out of order in ranges, and acknowledges
 * at once, late, in the middle of a segment, or many at a time; its buffer may
 * be tiny, its reader slow, its window may shrink, and it may discard ranges
 * that it has reported by SACK.
 */
#include "tests/net/random.h"

#include <string.h>

#include "tests/bytes.h"

#define OPT_SACKS 5

static uint32_t room_now(const struct flow *flow)
{
	return flow->rx.shrunk ? flow->d->room / 8 : flow->d->room;
}

/* Returns the edge of its window, which shrinks only if that was drawn. */
static uint32_t edge_now(struct flow *flow)
{
	struct peer_rx *rx = &flow->rx;
	uint32_t edge = rx->read + room_now(flow);

	if (!flow->d->shrink)
		edge = seq_max(edge, rx->edge);
	return seq_max(edge, rx->next);
}

void rx_open(struct flow *flow)
{
	struct peer_rx *rx = &flow->rx;

	rx->read_due = rx->ack_due = rx->grow_due = NEVER;
}

bool rx_acceptable(const struct flow *flow, uint32_t offset, uint32_t len)
{
	const struct peer_rx *rx = &flow->rx;

	return !seq_after(rx->acked, offset + len) &&
	       !seq_after(offset, seq_max(rx->edge, rx->next));
}

/* ---- acknowledging ---- */

static unsigned window_shift(const struct flow *flow)
{
	return flow->scaled
		       ? (unsigned)(flow->d->wscale > 14 ? 14 : flow->d->wscale)
		       : 0;
}

static unsigned put_block(const struct flow *flow, uint8_t *at,
			  const struct range *range)
{
	put32(at, flow->stack_isn + 1 + range->from);
	put32(at + 4, flow->stack_isn + 1 + range->to);
	return 8;
}

static unsigned fill_sack(struct flow *flow, uint8_t *options)
{
	struct peer_rx *rx = &flow->rx;
	bool twice = flow->d->dsack && rx->twice.to != rx->twice.from;
	unsigned n = 4;

	if (!flow->sack || (rx->n_held == 0 && !twice))
		return 0;
	if (twice)
		n += put_block(flow, options + n, &rx->twice);
	for (unsigned i = 0; i < rx->n_held && n + 8 <= stamp_room(flow); i++)
		n += put_block(flow, options + n, &rx->held[i]);
	rx->twice.from = rx->twice.to = 0;
	options[0] = options[1] = 1;
	options[2] = OPT_SACKS;
	options[3] = (uint8_t)(n - 2);
	return n;
}

/* Returns its ACK number: all, or a part of the new data. */
static uint32_t ack_to(struct flow *flow)
{
	struct peer_rx *rx = &flow->rx;
	uint32_t new = rx->next - rx->acked;

	if (new > 1 && rng_chance(&flow->rng, flow->d->partial)) {
		rx->ack_due =
			earlier(rx->ack_due, fake_now_ns + flow->d->ack_delay);
		return rx->acked + rng_between(&flow->rng, 1, new - 1);
	}
	rx->ack_due = NEVER;
	rx->owed = 0;
	return rx->next;
}

void rx_fill(struct flow *flow, struct segment *s, uint8_t *options)
{
	struct peer_rx *rx = &flow->rx;
	uint32_t to = ack_to(flow), window = edge_now(flow) - to;

	rx->acked = to;
	window >>= window_shift(flow);
	if (window > 65535)
		window = 65535;
	s->ack = flow->stack_isn + 1 + to;
	s->wnd = (uint16_t)window;
	rx->edge = to + (window << window_shift(flow));
	s->options = options;
	s->options_len = fill_sack(flow, options);
}

void rx_ack_now(struct flow *flow)
{
	struct segment s = peer_segment(flow, PEER_ACK, flow->tx.max);
	uint8_t options[40];

	rx_fill(flow, &s, options);
	path_send(flow, &s);
}

/* ---- input ---- */

static void hold_range(struct peer_rx *rx, struct range range)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < rx->n_held; i++) {
		struct range *old = &rx->held[i];

		if (seq_after(old->from, range.to) ||
		    seq_after(range.from, old->to)) {
			rx->held[kept++] = *old;
			continue;
		}
		if (seq_after(range.from, old->from))
			range.from = old->from;
		range.to = seq_max(range.to, old->to);
	}
	if (kept == HELD)
		kept--; /* the oldest is forgotten */
	memmove(rx->held + 1, rx->held, kept * sizeof(rx->held[0]));
	rx->held[0] = range;
	rx->n_held = kept + 1;
}

/* Joins the ranges that are now in order. */
static void join_ranges(struct peer_rx *rx)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < rx->n_held; i++) {
		if (seq_after(rx->held[i].from, rx->next))
			rx->held[kept++] = rx->held[i];
		else
			rx->next = seq_max(rx->next, rx->held[i].to);
	}
	if (kept != rx->n_held) {
		rx->n_held = kept;
		join_ranges(
			rx); /* at most HELD deep: each takes one at least */
		return;
	}
	if (rx->has_fin && rx->next == rx->fin_at)
		rx->next++;
}

static void note_twice(struct peer_rx *rx, uint32_t from, uint32_t to)
{
	if (seq_after(rx->next, from)) {
		rx->twice.from = from;
		rx->twice.to = seq_after(to, rx->next) ? rx->next : to;
		return;
	}
	for (unsigned i = 0; i < rx->n_held; i++)
		if (!seq_after(rx->held[i].from, from) &&
		    !seq_after(to, rx->held[i].to))
			rx->twice = (struct range){from, to};
}

static void read_all(struct flow *flow)
{
	struct peer_rx *rx = &flow->rx;
	const struct draw *d = flow->d;

	switch (d->reading) {
	case READ_EAGER:
		rx->read = rx->next;
		return;
	case READ_SLOW:
		if (rx->read_due == NEVER && rx->read != rx->next)
			rx->read_due = fake_now_ns + d->read_pause;
		return;
	case READ_STALL:
	case READ_ABSENT:
		break;
	}
	if (!rx->stalled && rx->next >= d->stall_at) {
		rx->stalled = true;
		rx->read_due = d->reading == READ_ABSENT
				       ? NEVER
				       : fake_now_ns + d->stall;
	}
	if (!rx->stalled || (d->reading == READ_STALL && rx->read_due == NEVER))
		rx->read = rx->next;
}

void rx_data(struct flow *flow, const struct segment *s, uint32_t offset)
{
	struct peer_rx *rx = &flow->rx;
	uint32_t end = offset + s->len, next = rx->next;
	uint32_t edge = seq_max(rx->edge, rx->next);
	bool fin = s->flags & PEER_FIN;

	note_twice(rx, offset, end);
	if (seq_after(end, edge)) {
		end = edge;
		fin = false;
	}
	if (seq_after(rx->next, offset))
		offset = rx->next;
	if (fin) {
		rx->has_fin = true;
		rx->fin_at = end;
	}
	if (seq_after(end, offset))
		hold_range(rx, (struct range){offset, end});
	join_ranges(rx);
	read_all(flow);
	rx->owed++;
	if (rx->next == next || rx->n_held || fin ||
	    rx->owed >= flow->d->ack_every)
		rx_ack_now(flow);
	else if (rx->ack_due == NEVER)
		rx->ack_due = fake_now_ns + flow->d->ack_delay;
	if (rx->n_held && rng_chance(&flow->rng, flow->d->renege))
		rx->n_held = 0;
	if (rng_chance(&flow->rng, flow->d->shrink) && !rx->shrunk) {
		rx->shrunk = true;
		rx->grow_due =
			fake_now_ns + rng_between(&flow->rng, 1, 3000) * MS;
		rx_ack_now(flow);
	}
}

/* ---- time ---- */

/* Returns whether the room has grown enough for a window update. */
static bool window_moved(const struct flow *flow)
{
	const struct peer_rx *rx = &flow->rx;
	uint32_t edge = rx->read + room_now(flow);
	uint32_t step = flow->d->room / 2 < 1460 ? flow->d->room / 2 : 1460;

	return seq_after(edge, rx->edge) &&
	       edge - rx->edge >= (step ? step : 1) && !flow->d->mute;
}

static void read_some(struct flow *flow)
{
	struct peer_rx *rx = &flow->rx;
	uint32_t left = rx->next - rx->read;

	if (flow->d->reading == READ_SLOW && left > flow->d->read_bytes)
		left = flow->d->read_bytes;
	rx->read += left;
	rx->read_due = NEVER;
	if (rx->read != rx->next)
		rx->read_due = fake_now_ns + flow->d->read_pause;
	if (window_moved(flow))
		rx_ack_now(flow);
}

void rx_run(struct flow *flow)
{
	struct peer_rx *rx = &flow->rx;

	if (fake_now_ns >= rx->read_due)
		read_some(flow);
	if (fake_now_ns >= rx->grow_due) {
		rx->grow_due = NEVER;
		rx->shrunk = false;
		if (window_moved(flow))
			rx_ack_now(flow);
	}
	if (fake_now_ns >= rx->ack_due)
		rx_ack_now(flow);
}

int64_t rx_due(const struct flow *flow)
{
	const struct peer_rx *rx = &flow->rx;

	return earlier(rx->read_due, earlier(rx->ack_due, rx->grow_due));
}
