/*
 * ECN (RFC 3168): the peer's side, a path that marks, and checks of the
 * stack's: without an agreement no ECN bits are set, only new data is
 * ECN-capable or has CWR, and a mark is echoed until the peer sends CWR.
 */
#include "tests/net/random.h"

#include "tests/bytes.h"

#define BITS (PEER_ECE | PEER_CWR)
#define ECT0 2
#define CE   3

/* ---- frames ---- */

uint8_t ecn_tos(const uint8_t *ip)
{
	return over_ip6 ? (uint8_t)(ip[0] << 4 | ip[1] >> 4) : ip[1];
}

void ecn_put_tos(uint8_t *ip, uint8_t tos)
{
	if (over_ip6) {
		ip[0] = (uint8_t)(0x60 | tos >> 4);
		ip[1] = (uint8_t)((tos & 15) << 4 | (ip[1] & 15));
	} else {
		ip[1] = tos;
	}
}

/* A router with a long queue. */
void ecn_travel(struct flow *flow, enum direction to, uint8_t *frame)
{
	uint8_t field = ecn_tos(frame + 14) & CE;

	if (field && rng_chance(&flow->ecn.rng, flow->d->marks[to]))
		ecn_put_tos(frame + 14, ecn_tos(frame + 14) | CE);
}

/* ---- the peer's segments ---- */

static void fill_syn(struct flow *flow, struct segment *s)
{
	struct ecn *ecn = &flow->ecn;
	bool asks = flow->d->ecn && !ecn->quiet;

	if (s->flags & PEER_ACK) {
		if (asks && ecn->asked)
			s->flags |= ecn->echoes_bits ? BITS : PEER_ECE;
		return;
	}
	if (asks && flow->syns > 1 && rng_chance(&ecn->rng, 500))
		asks = false; /* 6.1.1.1 */
	if (asks)
		s->flags |= BITS;
	ecn->quiet |= !asks;
}

/* Mostly follows RFC 3168; some peers lie. */
void ecn_fill(struct flow *flow, struct segment *s)
{
	struct ecn *ecn = &flow->ecn;
	bool fresh;

	if (s->flags & PEER_SYN) {
		fill_syn(flow, s);
		return;
	}
	if (!ecn->agreed || s->flags & PEER_RST)
		return;
	fresh = s->len && flow->ts.next == STAMP_NOW &&
		s->seq - flow->isn - 1 == flow->tx.max;
	if (fresh)
		s->tos = rng_chance(&ecn->rng, 100) ? 1 : ECT0;
	if (ecn->owes_ece)
		s->flags |= PEER_ECE;
	if (fresh && ecn->owes_cwr) {
		s->flags |= PEER_CWR;
		ecn->owes_cwr = false;
	}
	if (rng_chance(&ecn->rng, flow->d->ecn_lies))
		s->flags ^= rng_chance(&ecn->rng, 700) ? PEER_ECE : PEER_CWR;
}

/* Takes the stack's SYN, or its answer to the peer's. */
void ecn_take_syn(struct flow *flow, const struct segment *s)
{
	struct ecn *ecn = &flow->ecn;
	unsigned bits = s->flags & BITS;

	if (s->flags & PEER_ACK)
		ecn->agreed = flow->d->ecn && !ecn->quiet && bits == PEER_ECE;
	else
		ecn->asked = bits == BITS;
}

void ecn_take(struct flow *flow, const struct segment *s)
{
	struct ecn *ecn = &flow->ecn;

	if (s->flags & PEER_CWR)
		ecn->owes_ece = false;
	if ((s->tos & CE) == CE && s->len)
		ecn->owes_ece = true;
	if (s->flags & PEER_ECE)
		ecn->owes_cwr = true;
}

/* ---- the stack's segments ---- */

static void check_syn(struct flow *flow, const struct segment *s)
{
	struct ecn *ecn = &flow->ecn;
	unsigned bits = s->flags & BITS;

	if (s->tos)
		violated(flow, "a SYN is ECN-capable");
	if (s->flags & PEER_ACK) {
		if (bits && (bits != PEER_ECE || !ecn->heard_ask ||
			     life.draw.ecn == NET_ECN_OFF))
			violated(flow, "a SYN-ACK with ECN's flags %02x", bits);
		/*
		 * A cookie keeps no state: the ACK's flags show which of two
		 * answers the peer has received. The stack also sends cookies
		 * when memory is short.
		 */
		ecn->may = bits == PEER_ECE ||
			   (ecn->may && net_here()->stats.cookies_sent);
		return;
	}
	if (bits &&
	    (bits != BITS || life.draw.ecn != NET_ECN_ON || ecn->syn_left))
		violated(flow, "a SYN with ECN's flags %02x", bits);
	if (!bits && life.draw.ecn == NET_ECN_ON && !ecn->syn_left &&
	    !fault_given && !life.draw.starve_every)
		violated(flow, "the first SYN does not ask");
	ecn->has_asked |= bits != 0;
	ecn->syn_left = true;
}

void ecn_check_sent(struct flow *flow, const struct segment *s)
{
	struct ecn *ecn = &flow->ecn;
	uint32_t end = s->seq + s->len - flow->stack_isn - 1;
	unsigned bits = s->flags & BITS;

	if (s->flags & PEER_SYN) {
		check_syn(flow, s);
		return;
	}
	if (!ecn->may || s->flags & PEER_RST) {
		if (bits || s->tos)
			violated(flow, "flags %02x and TOS %u without ECN",
				 bits, s->tos);
		return;
	}
	if (flow->watch.causes & BY_GHOST)
		return;
	if (s->tos &&
	    (s->tos != ECT0 || !s->len || !seq_after(end, flow->watch.sent)))
		violated(flow, "TOS %u of %u bytes up to %u, %u were sent",
			 s->tos, s->len, end, flow->watch.sent);
	if (bits & PEER_CWR && !s->tos)
		violated(flow, "CWR, and no new data");
	if (bits & PEER_ECE && !ecn->has_ce)
		violated(flow, "ECE without a mark");
	if (!(bits & PEER_ECE) && ecn->must)
		violated(flow, "a mark is not echoed");
}

/*
 * A mark surely counts on the next expected data within the announced window.
 * It is echoed after the stack's next round.
 */
void ecn_check_delivered(struct flow *flow, const struct segment *s,
			 uint32_t offset)
{
	struct ecn *ecn = &flow->ecn;
	const struct watch *w = &flow->watch;
	unsigned bits = s->flags & BITS;

	if (s->flags & PEER_SYN) {
		if (s->flags & PEER_ACK)
			ecn->may |= ecn->has_asked && bits == PEER_ECE;
		ecn->heard_ask |= bits == BITS;
		return;
	}
	if (bits & PEER_CWR)
		ecn->must = ecn->comes = false;
	if ((s->tos & CE) != CE || !s->len)
		return;
	ecn->has_ce = true;
	if (ecn->may && w->announced && offset == w->our_ack &&
	    offset == w->delivered && /* no copy of it has come before */
	    !seq_after(offset + s->len, w->our_edge) &&
	    !stamp_is_old(flow, s) && !flow->app.closed)
		ecn->comes = true;
}

/* Checks after a round; alive: the connection exists and sends. */
void ecn_check_round(struct flow *flow, bool alive)
{
	struct ecn *ecn = &flow->ecn;

	if (!alive || fault_given || flow->app.closed)
		ecn->comes = ecn->must = false;
	ecn->must |= ecn->comes;
	ecn->comes = false;
}
