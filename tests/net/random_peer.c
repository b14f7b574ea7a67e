/*
 * The peer's connection: handshake, input, timers and end. Its receiver is in
 * random_recv.c, its sender in random_send.c.
 */
#include "tests/net/random.h"

#include <string.h>

#define SYN_TRIES  8u
#define FLOOD	   8u /* half-open connections before a cookie is sent */
#define OPT_MSS	   2
#define OPT_WSCALE 3
#define OPT_SACK   4

const uint8_t *stream_at(const struct flow *flow, enum direction to,
			 uint32_t offset)
{
	uint32_t start = flow->index * 2 + (to == TO_PEER && !flow->d->echo);

	return pattern + (offset + start * 7919u) % PATTERN;
}

/* ---- segments ---- */

struct segment peer_segment(struct flow *flow, uint8_t flags, uint32_t offset)
{
	return (struct segment){.src = flow->peer_port,
				.dst = flow->stack_port,
				.seq = flow->isn + 1 + offset,
				.flags = flags,
				.data = (const uint8_t *)""};
}

static unsigned write_options(const struct flow *flow, uint8_t *options)
{
	const struct draw *d = flow->d;
	unsigned n = 0;

	if (d->mss) {
		options[n++] = OPT_MSS;
		options[n++] = 4;
		options[n++] = (uint8_t)(d->mss >> 8);
		options[n++] = (uint8_t)d->mss;
	}
	if (d->wscale >= 0) {
		options[n++] = 1;
		options[n++] = OPT_WSCALE;
		options[n++] = 3;
		options[n++] = (uint8_t)d->wscale;
	}
	if (d->sack) {
		options[n++] = 1;
		options[n++] = 1;
		options[n++] = OPT_SACK;
		options[n++] = 2;
	}
	return n;
}

static void send_syn(struct flow *flow)
{
	bool answer = flow->state == PEER_ANSWERED;
	struct segment s = peer_segment(
		flow, answer ? PEER_SYN | PEER_ACK : PEER_SYN, UINT32_MAX);
	uint8_t options[16];

	s.options = options;
	s.options_len = write_options(flow, options);
	s.wnd = (uint16_t)(flow->d->room < 65535 ? flow->d->room : 65535);
	if (answer)
		s.ack = flow->stack_isn + 1;
	flow->rx.edge = s.wnd;
	flow->syns++;
	flow->syn_due = fake_now_ns + SECOND * flow->syns;
	path_send(flow, &s);
}

/* Opens as many half-open connections as the listener allows. */
static void flood_syns(struct flow *flow)
{
	for (unsigned i = 0; i < FLOOD; i++) {
		struct segment s = {.src = (uint16_t)(20000 + i),
				    .dst = PORT,
				    .seq = i * 1000,
				    .flags = PEER_SYN,
				    .wnd = 1000,
				    .data = (const uint8_t *)""};

		path_send(flow, &s);
	}
}

void peer_start(struct flow *flow)
{
	if (flow->d->dialed)
		return;
	if (flow->d->cookie)
		flood_syns(flow);
	flow->state = PEER_OPENING;
	send_syn(flow);
}

/* Reads the options of the stack's SYN; only offered ones are agreed on. */
static void read_options(struct flow *flow, const struct segment *s)
{
	const uint8_t *at = s->options, *end = at + s->options_len;

	stamp_take(flow, s);
	ecn_take_syn(flow, s);
	flow->stack_mss = 536;
	while (at < end && *at) {
		if (*at == OPT_MSS)
			flow->stack_mss = (unsigned)at[2] << 8 | at[3];
		if (*at == OPT_WSCALE && flow->d->wscale >= 0) {
			flow->scaled = true;
			flow->stack_scale = at[2];
		}
		if (*at == OPT_SACK && flow->d->sack)
			flow->sack = true;
		at += *at == 1 ? 1 : at[1];
	}
}

static void open_up(struct flow *flow)
{
	flow->state = PEER_OPEN;
	rx_open(flow);
	tx_open(flow);
}

/* ---- input ---- */

static void answer_with_reset(struct flow *flow, const struct segment *s)
{
	struct segment rst = peer_segment(flow, PEER_RST, 0);

	if (s->flags & PEER_RST)
		return;
	rst.seq = s->ack;
	if (!(s->flags & PEER_ACK)) {
		rst.seq = 0;
		rst.flags |= PEER_ACK;
		rst.ack = s->seq + s->len + ((s->flags & PEER_SYN) != 0);
	}
	flow->watch.causes |= BY_PEER;
	path_send(flow, &rst);
}

static void input_opening(struct flow *flow, const struct segment *s)
{
	bool acks = (s->flags & PEER_ACK) && s->ack == flow->isn + 1;

	if (s->flags & PEER_RST) {
		if (acks)
			flow->state = PEER_RESET;
		return;
	}
	if ((s->flags & (PEER_SYN | PEER_ACK)) != (PEER_SYN | PEER_ACK) ||
	    !acks)
		return;
	flow->stack_isn = s->seq;
	flow->known_isn = true;
	read_options(flow, s);
	open_up(flow);
	flow->tx.edge = s->wnd;
	rx_ack_now(flow);
}

static void input_waiting(struct flow *flow, const struct segment *s)
{
	if ((s->flags & (PEER_SYN | PEER_ACK | PEER_RST)) != PEER_SYN)
		return;
	flow->stack_port = s->src;
	flow->stack_isn = s->seq;
	flow->known_isn = true;
	read_options(flow, s);
	flow->tx.edge = s->wnd;
	if (flow->d->crossing) { /* it had sent one of its own just before */
		flow->state = PEER_OPENING;
		send_syn(flow);
	}
	flow->state = PEER_ANSWERED;
	if (!flow->d->crossing || rng_chance(&flow->rng, 500))
		send_syn(flow);
}

static void input_answered(struct flow *flow, const struct segment *s)
{
	if (s->flags & PEER_RST) {
		if (s->seq == flow->stack_isn + 1)
			flow->state = PEER_RESET;
		return;
	}
	if ((s->flags & PEER_SYN) && !(s->flags & PEER_ACK)) {
		send_syn(flow);
		return;
	}
	if (s->flags & PEER_SYN) { /* simultaneous open, RFC 9293 3.5 */
		if (s->ack != flow->isn + 1)
			return;
		open_up(flow);
		rx_ack_now(flow);
		return;
	}
	if (!(s->flags & PEER_ACK) || s->ack != flow->isn + 1)
		return;
	open_up(flow);
	peer_input(flow, s);
}

/* RFC 9293 3.10.7.4 */
static void input_open(struct flow *flow, const struct segment *s)
{
	uint32_t offset = s->seq - flow->stack_isn - 1;
	uint32_t len = s->len + ((s->flags & PEER_FIN) != 0);

	if (!(s->flags & PEER_SYN))
		stamp_take(flow, s);
	if (s->flags & PEER_SYN || !rx_acceptable(flow, offset, len)) {
		if (!(s->flags & PEER_RST))
			rx_ack_now(flow);
		return;
	}
	if (s->flags & PEER_RST) {
		if (offset == flow->rx.next) {
			check_reset_taken(flow);
			flow->state = PEER_RESET;
		} else {
			rx_ack_now(flow); /* RFC 5961 3.2 */
		}
		return;
	}
	if (!(s->flags & PEER_ACK))
		return;
	ecn_take(flow, s);
	tx_ack(flow, s);
	if (len)
		rx_data(flow, s, offset);
}

void peer_input(struct flow *flow, const struct segment *s)
{
	switch (flow->state) {
	case PEER_WAITS:
		input_waiting(flow, s);
		break;
	case PEER_OPENING:
		input_opening(flow, s);
		break;
	case PEER_ANSWERED:
		input_answered(flow, s);
		break;
	case PEER_OPEN:
		if (flow->known_isn && (s->flags & PEER_SYN) &&
		    s->seq != flow->stack_isn)
			answer_with_reset(flow, s); /* a ghost's */
		else
			input_open(flow, s);
		break;
	case PEER_RESET:
	case PEER_GAVE_UP:
		answer_with_reset(flow, s);
		break;
	case PEER_VANISHED:
		break;
	}
}

/* ---- time ---- */

void peer_reset(struct flow *flow)
{
	struct segment s =
		peer_segment(flow, PEER_RST | PEER_ACK, flow->tx.max);

	s.ack = flow->stack_isn + 1 + flow->rx.next;
	flow->watch.causes |= BY_PEER;
	flow->state = PEER_RESET;
	path_send(flow, &s);
}

static void end_by_draw(struct flow *flow)
{
	if (fake_now_ns >= flow->tx.vanish_due) {
		flow->watch.causes |= BY_PEER;
		flow->state = PEER_VANISHED;
	} else if (fake_now_ns >= flow->tx.rst_due) {
		peer_reset(flow);
	}
}

void peer_run(struct flow *flow)
{
	switch (flow->state) {
	case PEER_OPENING:
	case PEER_ANSWERED:
		if (fake_now_ns < flow->syn_due)
			return;
		if (flow->syns >= SYN_TRIES)
			flow->state = PEER_GAVE_UP;
		else
			send_syn(flow);
		return;
	case PEER_OPEN:
		end_by_draw(flow);
		break;
	case PEER_WAITS:
	case PEER_RESET:
	case PEER_VANISHED:
	case PEER_GAVE_UP:
		return;
	}
	if (flow->state == PEER_OPEN)
		rx_run(flow);
	if (flow->state == PEER_OPEN)
		tx_run(flow);
}

int64_t peer_due(const struct flow *flow)
{
	int64_t due;

	if (flow->state == PEER_OPENING || flow->state == PEER_ANSWERED)
		return flow->syn_due;
	if (flow->state != PEER_OPEN || peer_over(flow))
		return NEVER;
	due = earlier(rx_due(flow), tx_due(flow));
	return earlier(due, earlier(flow->tx.rst_due, flow->tx.vanish_due));
}

/*
 * Returns whether the peer is done: both directions have ended, or one end is
 * final.
 */
bool peer_over(const struct flow *flow)
{
	switch (flow->state) {
	case PEER_OPEN:
		return tx_done(flow) && flow->rx.has_fin &&
		       flow->rx.next == flow->rx.fin_at + 1;
	case PEER_WAITS:
		return app_over(flow);
	case PEER_RESET:
	case PEER_VANISHED:
	case PEER_GAVE_UP:
		return true;
	case PEER_OPENING:
	case PEER_ANSWERED:
		break;
	}
	return false;
}
