/*
 * The peer's sender: sends its application's bytes in segments of any size, and
 * resends unacknowledged ones with other boundaries. Mischief is traffic that a
 * wire, an old connection or an attacker may add: duplicates, overlaps,
 * segments outside the window, urgent data, wrong ACKs.
 */
#include "tests/net/random.h"

#include <string.h>

#include "tests/bytes.h"

#define PEER_URG  0x20
#define RTO_FIRST (300 * MS)
#define RTO_MAX	  (4 * SECOND)
#define IDLE	  (20 * SECOND)
#define TRIES	  40u
#define LATEST	  (90 * SECOND) /* for a FIN that waits for the stack's */

static int64_t at_or_never(int64_t after)
{
	return after ? fake_now_ns + after : NEVER;
}

void tx_open(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;
	const struct draw *d = flow->d;

	tx->rto = RTO_FIRST;
	tx->rto_due = tx->probe_due = NEVER;
	tx->write_due = fake_now_ns;
	tx->idle_due = fake_now_ns + IDLE;
	tx->fin_due = fake_now_ns + LATEST;
	tx->rst_due = at_or_never(d->rst_at);
	tx->vanish_due = at_or_never(d->vanish_at);
}

bool tx_done(const struct flow *flow)
{
	return flow->tx.fin_wanted && flow->tx.una == flow->d->in_bytes + 1;
}

/* ---- segments ---- */

/* Sends [from, to) of the stream, a FIN behind the last byte if it fits. */
static void send_range(struct flow *flow, uint32_t from, uint32_t to, bool fin)
{
	struct segment s = peer_segment(flow, PEER_ACK, from);
	uint8_t options[40];

	s.data = stream_at(flow, TO_STACK, from);
	s.len = to - from;
	if (rng_chance(&flow->rng, 300))
		s.flags |= PEER_PSH;
	if (fin)
		s.flags |= PEER_FIN;
	if (rng_chance(&flow->rng, flow->d->mischief / 8))
		s.flags |= PEER_URG;
	rx_fill(flow, &s, options);
	path_send(flow, &s);
	flow->tx.max = seq_max(flow->tx.max, to + fin);
	flow->tx.idle_due = fake_now_ns + IDLE;
	if (flow->tx.rto_due == NEVER)
		flow->tx.rto_due = fake_now_ns + flow->tx.rto;
}

static uint32_t segment_max(struct flow *flow)
{
	uint32_t most = flow->d->in_seg;

	if (most > flow->stack_mss)
		most = flow->stack_mss;
	if (rng_chance(&flow->rng, flow->d->mischief))
		most = rng_between(&flow->rng, 1, most);
	if (most > 40 && flow->rx.n_held)
		most -= 36;
	return most - (most > 40 && flow->ts.agreed ? 12 : 0);
}

/* Sends one segment at tx.next; returns whether there was data to send. */
static bool send_next(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;
	uint32_t total = flow->d->in_bytes, from = tx->next;
	uint32_t end = from + segment_max(flow);
	bool fin;

	if (from > total)
		return false;
	if (end > tx->written)
		end = tx->written;
	if (seq_after(end, tx->edge))
		end = seq_max(tx->edge, from);
	fin = tx->fin_wanted && end == total &&
	      (from == end || flow->d->fin == FIN_WITH_DATA ||
	       flow->d->fin == FIN_LATE) &&
	      !seq_after(end, tx->edge);
	if (end == from && !fin)
		return false;
	send_range(flow, from, end, fin);
	tx->next = end + fin;
	return true;
}

/* ---- mischief ---- */

static void old_duplicate(struct flow *flow)
{
	uint32_t una = flow->tx.una, from, to;

	if (una > flow->d->in_bytes)
		una = flow->d->in_bytes;
	if (una == 0)
		return;
	from = rng_below(&flow->rng, una);
	to = from + rng_between(&flow->rng, 1, 1400);
	if (to > flow->tx.written) /* it may reach into what is new */
		to = flow->tx.written;
	if (seq_after(to, flow->tx.edge))
		to = flow->tx.edge;
	if (seq_after(to, from))
		send_range(flow, from, to, false);
}

/* Sends bytes that are not of the stream, where they must not be accepted. */
static void send_garbage(struct flow *flow, uint32_t offset)
{
	static const uint8_t junk[1400] = "junk";
	struct segment s = peer_segment(flow, PEER_ACK, offset);
	uint8_t options[40];

	s.data = junk;
	s.len = rng_between(&flow->rng, 1, sizeof(junk));
	rx_fill(flow, &s, options);
	path_send(flow, &s);
}

/* An ACK of data that is never sent. */
static void wrong_ack(struct flow *flow)
{
	struct segment s = peer_segment(flow, PEER_ACK, flow->tx.next);
	uint32_t beyond = flow->stack_isn + 3 + flow->d->out_bytes;
	uint8_t options[40];

	rx_fill(flow, &s, options);
	s.ack = beyond + rng_between(&flow->rng, 0, 100000);
	if (rng_chance(&flow->rng, 300))
		s.ack = beyond + (uint32_t)(rng_next(&flow->rng) >> 34);
	path_send(flow, &s);
}

static void ahead_of_turn(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;
	uint32_t end = tx->written, from;

	if (seq_after(end, tx->edge))
		end = tx->edge;
	if (!seq_after(end, tx->next))
		return;
	from = rng_between(&flow->rng, tx->next, end - 1);
	if (end - from > 1400)
		end = from + rng_between(&flow->rng, 1, 1400);
	send_range(flow, from, end, false);
}

/* Many ACKs with SACK blocks of single bytes, which cover no whole segment. */
static void nonsense_sacks(struct flow *flow)
{
	uint32_t first = flow->rx.acked, span = flow->watch.sent - first;
	unsigned blocks = (stamp_room(flow) - 4) / 8;

	if (!flow->sack || span < 1000 || span > UINT32_C(1) << 30)
		return;
	for (unsigned n = rng_between(&flow->rng, 1, 60); n; n--) {
		struct segment s = peer_segment(flow, PEER_ACK, flow->tx.max);
		uint8_t options[40];

		rx_fill(flow, &s, options);
		memcpy(options, (const uint8_t[]){1, 1, 5, 2}, 4);
		options[3] = (uint8_t)(2 + 8 * blocks);
		for (unsigned i = 0; i < blocks; i++) {
			uint32_t at = flow->stack_isn + 1 + first +
				      rng_below(&flow->rng, span);

			put32(options + 4 + 8 * i, at);
			put32(options + 8 + 8 * i, at + 1);
		}
		s.options_len = 4 + 8 * blocks;
		path_send(flow, &s);
	}
}

/*
 * A segment with a new sequence number, but an old or foreign timestamp. A
 * cookie does not keep the SYN's timestamp: then the first segment sets it. The
 * stack sends cookies without memory for a record, too.
 */
static void bad_stamp(struct flow *flow)
{
	bool cookie = has_cookie() || net_here()->stats.cookies_sent;

	if (!flow->ts.has_echoed || !flow->ts.agreed ||
	    (cookie && !flow->ts.has_echo))
		return;
	flow->ts.next =
		rng_chance(&flow->ts.rng, 700) ? STAMP_STALE : STAMP_NONE;
	send_garbage(flow, flow->tx.next + rng_below(&flow->ts.rng, 3) * 100);
}

static void blind_reset(struct flow *flow)
{
	struct segment s =
		peer_segment(flow, PEER_RST,
			     flow->tx.max + rng_between(&flow->rng, 2, 9000));

	path_send(flow, &s);
}

static void do_mischief(struct flow *flow)
{
	switch (rng_below(&flow->rng, 9)) {
	case 0:
	case 1:
		old_duplicate(flow);
		break;
	case 2:
		send_garbage(flow, flow->tx.una - rng_between(&flow->rng, 1500,
							      70000));
		break;
	case 3:
		send_garbage(flow, flow->tx.max + rng_between(&flow->rng,
							      600000, 900000));
		break;
	case 4:
		wrong_ack(flow);
		break;
	case 5:
		ahead_of_turn(flow);
		break;
	case 6:
		nonsense_sacks(flow);
		break;
	case 7:
		if (rng_chance(&flow->rng, 100))
			blind_reset(flow);
		break;
	case 8:
		bad_stamp(flow);
		break;
	}
}

/* ---- input ---- */

void tx_ack(struct flow *flow, const struct segment *s)
{
	struct peer_tx *tx = &flow->tx;
	uint32_t ack = s->ack - flow->isn - 1;
	uint32_t edge = ack + ((uint32_t)s->wnd << flow->stack_scale);

	if (seq_after(ack, tx->max) || seq_after(tx->una, ack))
		return;
	tx->idle_due = fake_now_ns + IDLE;
	tx->tries = 0;
	tx->edge = seq_max(tx->edge, edge);
	if (ack != tx->una) {
		tx->una = ack;
		tx->next = seq_max(tx->next, ack);
		tx->rto = RTO_FIRST;
		tx->rto_due =
			tx->una == tx->max ? NEVER : fake_now_ns + tx->rto;
		tx->dups = 0;
	} else if (s->len == 0 && tx->una != tx->max && ++tx->dups == 3) {
		tx->next = tx->una; /* go back: all is sent again */
		tx->rto_due = fake_now_ns;
	}
}

/* ---- time ---- */

static void write_more(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;
	uint32_t left = flow->d->in_bytes - tx->written;

	tx->write_due = NEVER;
	tx->written += left < flow->d->in_burst ? left : flow->d->in_burst;
	if (tx->written != flow->d->in_bytes)
		tx->write_due = fake_now_ns + flow->d->in_pause + 1000;
}

static void want_fin(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;

	if (tx->fin_wanted || tx->written != flow->d->in_bytes)
		return;
	switch (flow->d->fin) {
	case FIN_AFTER_DATA:
	case FIN_WITH_DATA:
		tx->fin_wanted = true;
		break;
	case FIN_AFTER_PEERS:
		tx->fin_wanted = fake_now_ns >= tx->fin_due ||
				 (flow->rx.has_fin &&
				  flow->rx.next == flow->rx.fin_at + 1);
		break;
	case FIN_LATE:
		if (tx->fin_due > fake_now_ns + flow->d->fin_late)
			tx->fin_due = fake_now_ns + flow->d->fin_late;
		tx->fin_wanted = fake_now_ns >= tx->fin_due;
		break;
	}
	if (tx->fin_wanted)
		tx->fin_due = NEVER;
}

static void time_out(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;

	tx->rto_due = NEVER;
	if (tx->una == tx->max)
		return;
	if (++tx->tries > TRIES) {
		flow->state = PEER_GAVE_UP;
		return;
	}
	tx->rto = earlier(tx->rto * 2, RTO_MAX);
	tx->next = tx->una;
	if (!send_next(flow) && tx->una < flow->d->in_bytes) {
		send_range(flow, tx->una, tx->una + 1,
			   false); /* the window shut */
		tx->next = tx->una + 1;
	}
	if (rng_chance(&flow->rng, 500))
		tx->next = tx->max; /* only the first again */
	tx->rto_due = fake_now_ns + tx->rto;
}

/*
 * Sends a byte into a closed window, or, with nothing in flight, an old
 * sequence number.
 */
static void send_probe(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;
	bool shut = seq_after(tx->written, tx->next) &&
		    !seq_after(tx->edge, tx->next);

	tx->idle_due = fake_now_ns + IDLE;
	if (++tx->tries > TRIES) {
		flow->state = PEER_GAVE_UP;
		return;
	}
	if (shut && rng_chance(&flow->rng, 500)) {
		send_range(flow, tx->next, tx->next + 1, false);
	} else {
		struct segment s = peer_segment(flow, PEER_ACK, tx->una - 1);
		uint8_t options[40];

		rx_fill(flow, &s, options);
		path_send(flow, &s);
	}
}

static void probe_shut(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;
	bool shut = tx->una == tx->max && tx->next == tx->max &&
		    (seq_after(tx->written, tx->next) || tx->fin_wanted) &&
		    tx->next <= flow->d->in_bytes;

	if (!shut) {
		tx->probe_due = NEVER;
	} else if (tx->probe_due == NEVER) {
		tx->probe_due = fake_now_ns + tx->rto;
	} else if (fake_now_ns >= tx->probe_due) {
		tx->rto = earlier(tx->rto * 2, RTO_MAX);
		tx->probe_due = fake_now_ns + tx->rto;
		send_probe(flow);
	}
}

void tx_run(struct flow *flow)
{
	struct peer_tx *tx = &flow->tx;

	if (fake_now_ns >= tx->write_due)
		write_more(flow);
	want_fin(flow);
	if (fake_now_ns >= tx->rto_due)
		time_out(flow);
	for (unsigned i = 0; i < 64; i++) {
		if (fake_now_ns >= tx->mischief_due &&
		    rng_chance(&flow->rng, flow->d->mischief)) {
			tx->mischief_due = fake_now_ns +
					   rng_log(&flow->rng, 1, 30000) * 1000;
			do_mischief(flow);
		}
		if (tx->next - tx->una >= flow->d->in_flight ||
		    !send_next(flow))
			break;
	}
	probe_shut(flow);
	if (fake_now_ns >= tx->idle_due)
		send_probe(flow);
}

int64_t tx_due(const struct flow *flow)
{
	const struct peer_tx *tx = &flow->tx;
	int64_t due = earlier(tx->rto_due, tx->write_due);

	due = earlier(due, earlier(tx->idle_due, tx->probe_due));
	return tx->fin_wanted ? due : earlier(due, tx->fin_due);
}
