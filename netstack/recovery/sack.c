/*
 * The scoreboard: which segments in flight have arrived, and which are lost.
 *
 * Loss is detected by time, RACK (RFC 8985 6.2): a segment is lost when one
 * sent later has arrived and enough time has passed for both. Segments that
 * were sent once are checked once, in order; resent segments are on a list in
 * the order of sending. So the work per segment does not grow with the window.
 */
#include "netstack/recovery/recovery_priv.h"

#include <string.h>

#include "dpdk_glue/bytes.h"

#define OPT_SACK  5
#define OPT_TS	  8
#define TS_LEN	  10
#define DUPTHRESH 3u

/* ---- reading ---- */

/* Finds an option of a kind, its length in *len; NULL without one. */
static const uint8_t *find_option(const struct tcp_hdr *hdr, unsigned left,
				  uint8_t kind, unsigned *len)
{
	const uint8_t *opt = (const uint8_t *)hdr + TCP_HLEN;

	while (left >= 2 && *opt != 0) {
		if (*opt == 1) {
			opt++;
			left--;
			continue;
		}
		if (opt[1] < 2 || opt[1] > left)
			break;
		if (*opt == kind) {
			*len = opt[1];
			return opt;
		}
		left -= opt[1];
		opt += opt[1];
	}
	return NULL;
}

/*
 * RFC 2883: the first block reports a duplicate if its range has been
 * acknowledged already, or lies within the second.
 */
static bool is_dsack(const uint8_t *blocks, unsigned n, uint32_t una)
{
	uint32_t left = glue_get32(blocks), right = glue_get32(blocks + 4);

	if (TCP_SEQ_GEQ(left, right))
		return false;
	if (TCP_SEQ_LEQ(right, una))
		return una - left < UINT32_C(1) << 30;
	return n > 1 && TCP_SEQ_GEQ(left, glue_get32(blocks + 8)) &&
	       TCP_SEQ_LEQ(right, glue_get32(blocks + 12));
}

void net_sack_parse_echo(const struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
			 unsigned optlen, struct net_ack *ack)
{
	const uint8_t *opt;
	unsigned len;

	if (!(pcb->flags & NET_TF_TS))
		return;
	opt = find_option(hdr, optlen, OPT_TS, &len);
	if (!opt || len != TS_LEN)
		return;
	ack->echo = glue_get32(opt + 6);
	ack->has_echo = true;
}

/* Leaves out blocks that are malformed, or not within the data in flight. */
void net_sack_parse(const struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		    unsigned optlen, struct net_ack *ack)
{
	const uint8_t *opt;
	unsigned len, n;

	opt = find_option(hdr, optlen, OPT_SACK, &len);
	if (!opt)
		return;
	n = (len - 2) / 8;
	ack->dsack = n > 0 && is_dsack(opt + 2, n, ack->una);
	for (unsigned i = ack->dsack; i < n && i < NET_SACK_BLOCKS; i++) {
		struct net_sack_range range = {glue_get32(opt + 2 + 8 * i),
					       glue_get32(opt + 6 + 8 * i)};

		if (TCP_SEQ_LT(range.left, range.right) &&
		    TCP_SEQ_GEQ(range.left, ack->una) &&
		    TCP_SEQ_LEQ(range.right, pcb->snd_nxt))
			ack->ranges[ack->n_ranges++] = range;
	}
}

/* ---- marking ---- */

/* Notes a segment that has arrived: RACK's newest, the RTT, the order. */
static void note_arrival(struct net_recovery *rec, const struct net_seg *seg,
			 struct net_ack *ack)
{
	uint32_t rtt_us = net_now_us() - seg->sent_us;
	uint32_t end = net_seg_end(&seg->seg);

	ack->delivered += TCP_TCPLEN(&seg->seg);
	if (!(seg->state & NET_SEG_RESENT)) {
		if (rtt_us < rec->min_rtt_us || rec->min_rtt_us == 0)
			rec->min_rtt_us = rtt_us ? rtt_us : 1;
		if (TCP_SEQ_LT(end, ack->fack))
			rec->reordered = ack->reordered = true;
		ack->first_copy |= TCP_SEQ_LEQ(end, rec->recover);
	} else if (rtt_us < rec->min_rtt_us) {
		return; /* so soon: it was the first copy, sent some time ago */
	}
	if (!ack->has_newest || net_us_after(seg->sent_us, ack->newest_us))
		ack->newest_us = seg->sent_us;
	ack->has_newest = true;
	if (!rec->rack_known || net_us_after(seg->sent_us, rec->rack_sent_us) ||
	    (seg->sent_us == rec->rack_sent_us &&
	     TCP_SEQ_GT(end, rec->rack_end))) {
		rec->rack_known = true;
		rec->rack_sent_us = seg->sent_us;
		rec->rack_end = end;
		rec->rack_rtt_us = rtt_us;
		rec->rack_resent = seg->state & NET_SEG_RESENT;
	}
}

/* Takes a segment off the list it is on, if any. */
static void unlist_seg(struct net_recovery *rec, struct net_seg *seg)
{
	if (seg->state & NET_SEG_LOST) {
		TAILQ_REMOVE(&rec->lost, seg, link);
		rec->lost_bytes -= TCP_TCPLEN(&seg->seg);
	}
	if (seg->state & NET_SEG_RETRIED)
		TAILQ_REMOVE(&rec->resent, seg, link);
	seg->state &= (uint8_t) ~(NET_SEG_LOST | NET_SEG_RETRIED);
}

static void mark_sacked(struct net_recovery *rec, struct net_seg *seg,
			struct net_ack *ack)
{
	note_arrival(rec, seg, ack);
	unlist_seg(rec, seg);
	seg->state |= NET_SEG_SACKED;
	rec->sacked_bytes += TCP_TCPLEN(&seg->seg);
	rec->sacked_segs++;
	if (TCP_SEQ_GT(net_seg_end(&seg->seg), rec->high_sacked)) {
		rec->high_sacked = net_seg_end(&seg->seg);
		rec->high = seg;
	}
}

/*
 * Returns where to begin walking: behind what is known to be marked of the
 * block, or else behind the nearest segment before it that a walk has reached.
 */
static struct tcp_seg *walk_from(const struct net_recovery *rec,
				 const struct net_ack *ack,
				 const struct net_sack_range *range,
				 struct net_sack_seen *now)
{
	*now = (struct net_sack_seen){.left = range->left};
	for (unsigned i = 0; i < NET_SACK_BLOCKS; i++) {
		const struct net_sack_seen *seen = &rec->seen[i];

		if (!seen->last)
			continue;
		if (seen->left == range->left &&
		    TCP_SEQ_LEQ(seen->end, range->right)) {
			*now = *seen;
			return seen->last->seg.next;
		}
		if (TCP_SEQ_LEQ(seen->end, range->left) &&
		    (!now->last || TCP_SEQ_GT(seen->end, now->end))) {
			now->last = seen->last;
			now->end = seen->end;
		}
	}
	if (rec->high && TCP_SEQ_GEQ(range->left, rec->high_sacked))
		return rec->high->seg.next;
	return now->last ? now->last->seg.next : ack->first;
}

/*
 * Segments that were sent before a repair, or before a timeout with SACK, and
 * are acknowledged after it, measure nothing. Without SACK nothing shows
 * whether such a segment waited at the peer until one that was sent again
 * filled the hole before it; the peer may cover it by an ACK of its own. With
 * SACK the peer acknowledges it at once, but when a timeout passes, those ACKs
 * are lost, and the next one arrives after an outage of any length.
 */
static bool may_have_waited(const struct net_recovery *rec,
			    const struct tcp_seg *seg)
{
	return rec && rec->has_repaired &&
	       TCP_SEQ_LT(lwip_ntohl(seg->tcphdr->seqno), rec->repaired);
}

/*
 * While holes follow one another, every ACK that advances covers a segment that
 * was sent twice. A first copy that is sacked measures the round trip then,
 * even without timestamps: the peer acknowledges it at once (RFC 5681 4.2). The
 * one that was sent last counts, whose ACK is the least likely to have been
 * lost.
 */
static void note_sacked_rtt(const struct net_recovery *rec,
			    const struct net_seg *seg, struct net_ack *ack)
{
	uint32_t rtt_us = net_now_us() - seg->sent_us;

	if (seg->state & NET_SEG_RESENT || may_have_waited(rec, &seg->seg))
		return;
	if (ack->has_rtt && (!ack->rtt_by_sack || ack->rtt_us <= rtt_us))
		return;
	ack->rtt_us = rtt_us;
	ack->has_rtt = ack->rtt_by_sack = true;
}

/*
 * Only whole segments count. Each is marked only once, which bounds the steps
 * that mark one; those that mark nothing are bounded by NET_SACK_STEPS an ACK,
 * whatever its blocks claim: this block may take what the ones before it have
 * left of `most`. A walk that is cut short goes on from there when the same
 * block comes again, or one behind it.
 */
static void mark_range(struct net_recovery *rec, unsigned most,
		       const struct net_sack_range *range, struct net_ack *ack,
		       struct net_sack_seen *now)
{
	struct tcp_seg *seg = walk_from(rec, ack, range, now);

	for (; seg && TCP_SEQ_LT(net_seg_begin(seg), range->right);
	     seg = seg->next) {
		bool whole = TCP_SEQ_GEQ(net_seg_begin(seg), range->left);

		if (whole && TCP_SEQ_GT(net_seg_end(seg), range->right))
			break;
		if (whole && !(net_seg_of(seg)->state & NET_SEG_SACKED)) {
			mark_sacked(rec, net_seg_of(seg), ack);
			note_sacked_rtt(rec, net_seg_of(seg), ack);
		} else if (rec->sack_steps >= most) {
			break;
		} else {
			rec->sack_steps++;
		}
		now->last = net_seg_of(seg);
		now->end = net_seg_end(seg);
	}
}

void net_sack_mark(struct net_conn *conn, struct net_ack *ack)
{
	struct net_sack_seen now[NET_SACK_BLOCKS] = {0};
	struct net_recovery *rec = net_recovery_of(conn);

	for (unsigned i = 0; i < NET_SACK_BLOCKS; i++)
		if (rec->seen[i].last &&
		    TCP_SEQ_LEQ(rec->seen[i].end, ack->una))
			rec->seen[i].last = NULL; /* lwIP frees it */
	rec->sack_steps = 0;
	/* Each block has a share, or the newest could take all steps. */
	for (unsigned i = 0; i < ack->n_ranges; i++)
		mark_range(rec, NET_SACK_STEPS * (i + 1) / ack->n_ranges,
			   &ack->ranges[i], ack, &now[i]);
	if (ack->n_ranges)
		memcpy(rec->seen, now, sizeof(now));
}

void net_sack_forget(struct net_recovery *rec, struct net_seg *seg,
		     struct net_ack *ack)
{
	if (seg->state & NET_SEG_SACKED) {
		rec->sacked_bytes -= TCP_TCPLEN(&seg->seg);
		rec->sacked_segs--;
	} else {
		note_arrival(rec, seg, ack);
	}
	unlist_seg(rec, seg);
	if (rec->scan == seg)
		rec->scan = NULL;
	if (rec->high == seg)
		rec->high = NULL;
}

/* What has been sent until now measures no round trip: may_have_waited(). */
static void note_sent(struct net_recovery *rec, const struct tcp_pcb *pcb)
{
	rec->has_repaired = true;
	rec->repaired = pcb->snd_nxt;
}

static void note_repair(struct net_recovery *rec, const struct tcp_pcb *pcb,
			const struct net_ack *ack, bool resent)
{
	if (!rec)
		return;
	if (resent && !(pcb->flags & TF_SACK))
		note_sent(rec, pcb);
	if (rec->has_repaired && TCP_SEQ_GEQ(ack->una, rec->repaired))
		rec->has_repaired = false;
}

/*
 * Takes the segments that an ACK covers; lwIP frees them right after. An ACK
 * that covers one sent twice measures nothing (Karn), except by the timestamp
 * that it echoes: the others may have waited at the peer until that one filled
 * the hole before them.
 */
void net_sack_take_acked(struct net_conn *conn, struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct tcp_seg *seg = conn->pcb.unacked;
	bool resent = false;

	for (; seg && TCP_SEQ_LEQ(net_seg_end(seg), ack->una);
	     seg = seg->next) {
		struct net_seg *own = net_seg_of(seg);

		/* A segment that was sacked before measures nothing now. */
		if (own->state & NET_SEG_RESENT) {
			resent = true;
		} else if (!(own->state & NET_SEG_SACKED) &&
			   !may_have_waited(rec, seg)) {
			ack->rtt_us = net_now_us() - own->sent_us;
			ack->has_rtt = true;
		}
		if (rec)
			net_sack_forget(rec, own, ack);
	}
	if (resent)
		ack->has_rtt = false;
	note_repair(rec, &conn->pcb, ack, resent);
	if (!ack->has_rtt)
		net_rtt_by_echo(conn, ack);
	ack->first = seg;
}

/* ---- judging ---- */

void net_sack_lose(struct net_recovery *rec, struct net_seg *seg)
{
	unlist_seg(rec, seg);
	seg->state |= NET_SEG_LOST;
	rec->lost_bytes += TCP_TCPLEN(&seg->seg);
	TAILQ_INSERT_TAIL(&rec->lost, seg, link);
}

void net_sack_lose_congested(struct net_recovery *rec, struct net_seg *seg)
{
	net_sack_lose(rec, seg);
	if (rec->cc->on_lost)
		rec->cc->on_lost(rec, seg);
}

/*
 * How long may a segment be late against those sent after it? RFC 8985 6.2 step
 * 4: not at all once three have overtaken it on a path that keeps order.
 */
static uint32_t reorder_us(const struct net_conn *conn)
{
	const struct net_recovery *rec = net_recovery_of(conn);
	uint32_t us = rec->min_rtt_us / 4 * rec->reorder_steps;

	if (!rec->reordered &&
	    (rec->state != NET_RECOVERY_OPEN || rec->sacked_segs >= DUPTHRESH))
		return 0;
	return LWIP_MIN(us, conn->srtt_us >> 3);
}

/*
 * Was the newest segment that has arrived sent after this one? Among those that
 * were sent at one time the numbers decide (RFC 8985 6.2), except for a segment
 * that was sent again after new ones, as happens in a burst of ACKs: those
 * would make it lost at once.
 */
static bool was_overtaken(const struct net_recovery *rec,
			  const struct net_seg *seg)
{
	if (seg->sent_us != rec->rack_sent_us)
		return net_us_after(rec->rack_sent_us, seg->sent_us);
	if ((seg->state & NET_SEG_BEHIND) && !rec->rack_resent)
		return false;
	return TCP_SEQ_LT(net_seg_end(&seg->seg), rec->rack_end);
}

/* Is it lost? If that is a question of time, arms the timer. */
static bool is_lost(struct net_recovery *rec, const struct net_seg *seg,
		    uint32_t late_us, bool *wait)
{
	uint32_t due_us = seg->sent_us + rec->rack_rtt_us + late_us;

	*wait = false;
	if (!was_overtaken(rec, seg))
		return false;
	if (!net_us_after(due_us, net_now_us()))
		return true;
	*wait = true;
	if (!rec->reorder_armed || net_us_after(rec->reorder_due_us, due_us))
		rec->reorder_due_us = due_us;
	rec->reorder_armed = true;
	return false;
}

void net_sack_detect(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	uint32_t late_us = reorder_us(conn);
	struct net_seg *resent;
	struct tcp_seg *seg;
	bool wait;

	rec->reorder_armed = false;
	if (!rec->rack_known)
		return;
	seg = rec->scan ? rec->scan->seg.next : ack->first;
	for (; seg; seg = seg->next) { /* each is passed once */
		struct net_seg *own = net_seg_of(seg);

		if (!(own->state &
		      (NET_SEG_SACKED | NET_SEG_LOST | NET_SEG_RETRIED))) {
			if (!is_lost(rec, own, late_us, &wait))
				break;
			net_sack_lose_congested(rec, own);
		}
		rec->scan = own;
	}
	while ((resent = TAILQ_FIRST(&rec->resent)) &&
	       is_lost(rec, resent, late_us, &wait))
		net_sack_lose_congested(rec, resent);
}

/*
 * RFC 2018 8: the peer may renege on SACKs. That shows when the oldest segment
 * is sacked and yet not acknowledged: then no SACK counts.
 */
static void forget_sacks(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	for (struct tcp_seg *seg = conn->pcb.unacked; seg; seg = seg->next)
		net_seg_of(seg)->state &= (uint8_t)~NET_SEG_SACKED;
	memset(rec->seen, 0, sizeof(rec->seen));
	rec->high = NULL;
	rec->high_sacked = conn->pcb.lastack;
}

void net_sack_lose_all(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct tcp_seg *seg = conn->pcb.unacked;

	note_sent(rec, &conn->pcb);
	if (!(conn->pcb.flags & TF_SACK) ||
	    (seg && net_seg_of(seg)->state & NET_SEG_SACKED))
		forget_sacks(conn);
	rec->sacked_bytes = rec->sacked_segs = 0;
	for (; seg; seg = seg->next) {
		if (!(net_seg_of(seg)->state & NET_SEG_SACKED)) {
			net_sack_lose_congested(rec, net_seg_of(seg));
		} else {
			rec->sacked_bytes += TCP_TCPLEN(seg);
			rec->sacked_segs++;
		}
	}
	rec->scan = NULL;
	rec->reorder_armed = false;
}

void net_sack_find_all(struct net_recovery *rec)
{
	struct net_seg *seg;

	while ((seg = TAILQ_FIRST(&rec->lost)))
		unlist_seg(rec, seg);
	rec->scan = NULL;
	rec->rack_known = rec->reorder_armed = false;
}

void net_sack_resent(struct net_recovery *rec, struct net_seg *seg)
{
	unlist_seg(rec, seg);
	seg->state |= NET_SEG_RESENT | NET_SEG_RETRIED;
	seg->sent_us = net_now_us();
	if (seg->sent_us == rec->new_us)
		seg->state |= NET_SEG_BEHIND;
	else
		seg->state &= (uint8_t)~NET_SEG_BEHIND;
	TAILQ_INSERT_TAIL(&rec->resent, seg, link);
}

void net_sack_replace(struct net_recovery *rec, struct net_seg *seg)
{
	unlist_seg(rec, seg);
	if (rec->scan == seg)
		rec->scan = NULL;
	if (rec->high == seg)
		rec->high = NULL;
	for (unsigned i = 0; i < NET_SACK_BLOCKS; i++)
		if (rec->seen[i].last == seg)
			rec->seen[i].last = NULL;
}

/*
 * With a peer without SACK, each duplicate ACK says that one segment has
 * arrived (RFC 5681), and an ACK of a part that the next one is lost (RFC
 * 6582).
 */
void net_sack_count_duplicates(struct net_conn *conn, struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct tcp_seg *head = ack->first;
	uint32_t mss = conn->pcb.mss;

	if (ack->acked) {
		rec->sacked_bytes -= LWIP_MIN(rec->sacked_bytes, ack->acked);
		if (!head || rec->state == NET_RECOVERY_OPEN)
			rec->sacked_bytes = 0;
		rec->dupacks = 0;
		if (!head || rec->state != NET_RECOVERY_RECOVERY ||
		    TCP_SEQ_GEQ(ack->una, rec->recover))
			return;
	} else {
		if (!ack->duplicate || !head)
			return;
		rec->dupacks += rec->dupacks < 255;
		if (rec->sacked_bytes + mss <= conn->pcb.snd_nxt - ack->una) {
			rec->sacked_bytes += mss;
			ack->delivered += mss;
		}
		if (rec->dupacks != 3 || rec->state != NET_RECOVERY_OPEN)
			return;
	}
	if (!(net_seg_of(head)->state & (NET_SEG_LOST | NET_SEG_RETRIED)))
		net_sack_lose_congested(rec, net_seg_of(head));
}
