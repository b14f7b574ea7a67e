/*
 * The peer's timestamps (RFC 7323), and checks of the stack's: all segments
 * have one or none does, it follows the stack's clock, and an echo is never
 * newer than the value recorded by RFC 7323 4.3, nor older than the previous
 * echo.
 */
#include "tests/net/random.h"

#include <string.h>

#include "tests/bytes.h"

#define OPT_TS 8
#define TS_LEN 10
#define FIELD  12u   /* with two NOPs */
#define WAITED 5500u /* ms: frames wait for a MAC address for five seconds */

static const uint8_t *find_stamp(const struct segment *s)
{
	const uint8_t *at = s->options, *end = at + s->options_len;

	for (; at < end && *at; at += *at == 1 ? 1 : at[1])
		if (*at == OPT_TS)
			return at;
	return NULL;
}

/* ---- the peer's timestamps ---- */

static uint32_t stamp_now(const struct flow *flow)
{
	int64_t passed = fake_now_ns - life.start;

	return flow->d->ts_begin + (uint32_t)(passed / flow->d->ts_tick);
}

/* Returns a timestamp of the past: the stack has echoed later ones. */
static uint32_t draw_stale_stamp(struct flow *flow)
{
	return flow->ts.echoed - rng_log(&flow->ts.rng, 1, 1u << 30);
}

static bool is_stamped(struct flow *flow, const struct segment *s)
{
	if (s->flags & PEER_SYN)
		return s->flags & PEER_ACK ? flow->ts.agreed
					   : flow->d->ts_tick != 0;
	return flow->ts.agreed && flow->ts.next != STAMP_NONE &&
	       (!(s->flags & PEER_RST) || rng_chance(&flow->ts.rng, 500));
}

void stamp_fill(struct flow *flow, struct segment *s, uint8_t *options)
{
	bool before = rng_chance(&flow->ts.rng, 950);
	uint8_t *at = options + (before ? 0 : s->options_len);

	if (is_stamped(flow, s)) {
		uint32_t value = stamp_now(flow);

		if (s->options_len)
			memcpy(options + (before ? FIELD : 0), s->options,
			       s->options_len);
		memset(at, 1, FIELD);
		at += before ? 2 : 0; /* NOPs may come behind it */
		at[0] = OPT_TS;
		at[1] = TS_LEN;
		if (flow->ts.next == STAMP_STALE ||
		    (s->flags & PEER_RST && rng_chance(&flow->ts.rng, 500)))
			value = draw_stale_stamp(flow);
		put32(at + 2, value);
		put32(at + 6, s->flags & PEER_ACK ? flow->ts.recent : 0);
		s->options = options;
		s->options_len += FIELD;
	}
	flow->ts.next = STAMP_NOW;
}

/* Returns the room left of 40 bytes of options. */
unsigned stamp_room(const struct flow *flow)
{
	return 40 - (flow->ts.agreed ? FIELD : 0);
}

void stamp_take(struct flow *flow, const struct segment *s)
{
	const uint8_t *at = find_stamp(s);

	if (s->flags & PEER_SYN)
		flow->ts.agreed = at && flow->d->ts_tick;
	if (!at || !flow->ts.agreed || s->flags & PEER_RST)
		return;
	if (s->flags & PEER_SYN || seq_after(get32(at + 2), flow->ts.recent))
		flow->ts.recent = get32(at + 2);
	if (s->flags & PEER_ACK) {
		flow->ts.echoed = get32(at + 6);
		flow->ts.has_echoed = true;
	}
}

/* ---- the stack's timestamps ---- */

static bool is_wanted(const struct flow *flow, const struct segment *s)
{
	bool both = flow->d->ts_tick && !life.draw.ts_off;

	return s->flags & PEER_SYN && !(s->flags & PEER_ACK) ? !life.draw.ts_off
							     : both;
}

void stamp_check_sent(struct flow *flow, const struct segment *s)
{
	const uint8_t *at = find_stamp(s);
	uint32_t slack = WAITED + (uint32_t)(life.paused >> 20);
	uint32_t offset, echo;

	if (s->flags & PEER_RST && !at)
		return;
	if ((at != NULL) != is_wanted(flow, s))
		violated(flow, "a segment with%s a timestamp", at ? "" : "out");
	if (!at)
		return;
	offset = get32(at + 2) - (uint32_t)(fake_now_ns >> 20);
	echo = get32(at + 6);
	/* It may have waited for the neighbour's MAC. */
	if (flow->ts.seen && offset - flow->ts.offset + slack > 2 * slack)
		violated(flow, "the clock of timestamps jumps by %d",
			 (int)(offset - flow->ts.offset));
	flow->ts.offset = offset;
	flow->ts.seen = true;
	if (!(s->flags & PEER_ACK))
		return;
	if (seq_after(echo, flow->ts.newest))
		violated(flow, "echoes timestamp %u, %u is the latest", echo,
			 flow->ts.newest);
	if (!(s->flags & PEER_SYN) && flow->ts.has_echo &&
	    seq_after(flow->ts.echo, echo))
		violated(flow, "echoes timestamp %u after %u", echo,
			 flow->ts.echo);
	flow->ts.echo = echo;
	flow->ts.has_echo = !(s->flags & PEER_SYN);
}

/*
 * RFC 7323 4.3, for every received segment; each of a round's segments may have
 * been acknowledged before the next one came.
 */
void stamp_check_delivered(struct flow *flow, const struct segment *s,
			   uint32_t offset)
{
	const uint8_t *at = find_stamp(s);
	uint32_t value;

	if (!at || s->flags & PEER_RST)
		return;
	value = get32(at + 2);
	if (!(s->flags & PEER_SYN) && seq_after(offset, flow->watch.delivered))
		return; /* out of order, for sure */
	if (!flow->ts.heard || seq_after(value, flow->ts.newest))
		flow->ts.newest = value;
	flow->ts.heard = true;
}

/* Returns whether the stack may drop it for its timestamp, RFC 7323 5.3. */
bool stamp_is_old(const struct flow *flow, const struct segment *s)
{
	const uint8_t *at = find_stamp(s);

	return at && flow->ts.heard &&
	       seq_after(flow->ts.newest, get32(at + 2));
}
