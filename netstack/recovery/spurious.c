/*
 * Undoes retransmissions of segments that were not lost, but late or reordered:
 * the congestion window that was cut for them is restored (RFC 4015).
 *
 * Three signs show that nothing was lost. A peer with SACK reports each copy
 * that it did not need (D-SACK, RFC 2883). With timestamps, the first ACK that
 * covers a retransmitted segment echoes which copy it is for (Eifel, RFC 3522);
 * this is the earliest sign. Without timestamps, F-RTO (RFC 5682) detects a
 * spurious timeout: data that was not retransmitted is acknowledged while only
 * new data leaves.
 *
 * RFC 4015 restores the slow start threshold and the data in flight; here the
 * whole window is restored, as in Linux, and is paced. An ACK with ECN-Echo
 * undoes nothing (ecn.c).
 */
#include "netstack/recovery/recovery_priv.h"

/* A timeout during a repair keeps what was noted before the repair. */
void net_undo_begin(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	rec->undo_left = 0;
	rec->frto = NET_FRTO_OFF;
	if (rec->state == NET_RECOVERY_RECOVERY)
		return;
	rec->undo_cwnd = rec->cwnd;
	rec->undo_ssthresh = conn->pcb.ssthresh;
	rec->undo_has_ts = false;
}

void net_undo_resent(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->state == NET_RECOVERY_OPEN)
		return; /* a probe, for which nothing was cut */
	rec->undo_left++;
	if (rec->undo_has_ts || !(conn->pcb.flags & NET_TF_TS))
		return;
	rec->undo_ts = net_ts_now() + conn->pcb.ts_offset;
	rec->undo_has_ts = true;
}

void net_undo_never(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	rec->undo_ts = net_ts_now() + conn->pcb.ts_offset - (UINT32_C(1) << 30);
	rec->undo_has_ts = true;
}

static void undo_reduction(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	net_sack_find_all(rec);
	rec->undo_left = 0;
	rec->undo_has_ts = false;
	rec->frto = NET_FRTO_OFF;
	rec->state = NET_RECOVERY_OPEN;
	if (!(conn->pcb.flags & TF_SACK))
		rec->sacked_bytes = 0;
	net_ecn_uncut(conn);
	rec->cc->on_undo(conn);
	net_here()->stats.cuts_undone++;
	if (net_traced(conn))
		net_trace_cwnd_why(conn, "undone: nothing was lost");
}

/* Counts a duplicate; undoes the cut once all that was sent again is one. */
void net_undo_duplicate(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->reorder_steps < 8)
		rec->reorder_steps++; /* RFC 8985 6.2: a wider window */
	if (rec->undo_left == 0 || --rec->undo_left || !TAILQ_EMPTY(&rec->lost))
		return;
	undo_reduction(conn);
}

/*
 * RFC 3522 3.2: was the ACK sent for a copy that left before any left again? In
 * a repair that a timeout has begun that holds for all segments; in another,
 * only if nothing else that was sent again is in flight.
 */
static bool is_for_first_copy(const struct net_recovery *rec,
			      const struct net_ack *ack)
{
	if (!rec->undo_has_ts || !ack->has_echo || ack->acked == 0 ||
	    (int32_t)(ack->echo - rec->undo_ts) >= 0)
		return false;
	return rec->state == NET_RECOVERY_LOSS || TAILQ_EMPTY(&rec->resent);
}

/* ---- F-RTO ---- */

/* With timestamps the first ACK decides; a shut window is no lost segment. */
void net_frto_begin(struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	net_recovery_of(conn)->frto =
		(pcb->flags & NET_TF_TS) || net_window_shut(pcb)
			? NET_FRTO_OFF
			: NET_FRTO_FIRST;
}

/* May something new leave by the peer's window? */
static bool has_new(const struct tcp_pcb *pcb, const struct net_ack *ack)
{
	return pcb->unsent &&
	       net_seg_end(pcb->unsent) - ack->una <= pcb->snd_wnd;
}

/*
 * RFC 5682 2.1 and 3.1: the first ACK may be of a segment that was sent again;
 * the second is not, if it covers or SACKs more. Duplicates, or an ACK of all
 * there was, show nothing: the repair goes on.
 */
static bool frto_undoes(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	enum net_frto was = rec->frto;

	if (ack->acked == 0 && ack->delivered == 0 && !ack->duplicate)
		return false; /* the peer's own data, or its window */
	rec->frto = NET_FRTO_OFF;
	switch (was) {
	case NET_FRTO_OFF:
		break;
	case NET_FRTO_FIRST:
		if (ack->acked && TCP_SEQ_LT(ack->una, rec->recover) &&
		    has_new(&conn->pcb, ack))
			rec->frto = NET_FRTO_SECOND;
		break;
	case NET_FRTO_SECOND:
		return ack->first_copy;
	}
	return false;
}

void net_undo_ack(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->state == NET_RECOVERY_OPEN || ack->ece)
		return;
	if (is_for_first_copy(rec, ack) ||
	    (rec->state == NET_RECOVERY_LOSS && frto_undoes(conn, ack)))
		undo_reduction(conn);
}
