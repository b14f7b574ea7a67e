/*
 * Loss recovery outside lwIP: two hooks see the segments that leave and the
 * ACKs that arrive; lost segments are resent from lwIP's own queue.
 *
 * Before lwIP sees an ACK, net_segment_in() reads it and detects losses; after
 * lwIP has processed it, net_recovery_after_input() sends: lost segments first,
 * then new data. In between lwIP's congestion window is closed while a repair
 * runs. lwIP counts its window from the oldest unacknowledged byte, so bytes
 * after that one which have arrived or are lost are added to the window.
 */
#include "netstack/recovery/recovery_priv.h"

#define IDLE_US		NET_MS(1000) /* without an event, a connection is idle */
#define PROBE_SHIFT_MAX 6

/* ---- output ---- */

/* Called when the head of `unsent` leaves; lwIP takes it off afterwards. */
void net_recovery_segment_out(const struct tcp_pcb *pcb, const struct pbuf *p)
{
	struct net_seg *seg, *head;
	uint32_t span;

	if (!pcb->unsent || pcb->unsent->p != p)
		return; /* an ACK, a reset, a probe: nothing to keep */
	seg = net_seg_of(pcb->unsent);
	seg->state |= seg->state & NET_SEG_SENT ? NET_SEG_RESENT : NET_SEG_SENT;
	seg->sent_us = net_now_us();
	head = pcb->unacked ? net_seg_of(pcb->unacked) : seg;
	if (head == seg)
		seg->base_us = seg->sent_us;
	head->last_us = seg->sent_us;
	span = (net_recovery_span(pcb) + seg->seg.len) / 256 + 1;
	head->span = (uint16_t)LWIP_MIN(span, 0xffff);
}

/* ---- recovery state ---- */

/* Makes recovery state if there is none. False: no memory. */
static bool make_recovery(struct net_conn *conn)
{
	struct net_recovery *rec;

	if (conn->has_recovery)
		return true;
	rec = net_mem_calloc(1, sizeof(*rec));
	if (!rec)
		return false;
	conn->recovery = rec;
	conn->has_recovery = true;
	TAILQ_INIT(&rec->lost);
	TAILQ_INIT(&rec->resent);
	rec->cwnd = conn->pcb.cwnd;
	rec->snd_seen = conn->pcb.snd_nxt;
	rec->high_sacked = conn->pcb.lastack;
	rec->min_rtt_us = conn->srtt_us >> 3;
	rec->reorder_steps = 1;
	rec->event_us = net_now_us();
	rec->new_us = net_now_us() - 1;
	net_pacing_begin(conn);
	net_cc_begin(conn);
	return true;
}

void net_recovery_free(struct net_conn *conn)
{
	if (!conn->has_recovery)
		return;
	net_cc_end(conn);
	net_mem_free(conn->recovery);
	conn->recovery = NULL;
	conn->has_recovery = conn->probed = false;
}

/*
 * Frees the recovery state of a connection that has been idle for a while
 * without a loss. A connection that was only probed, with about the initial
 * window, has nothing to remember and frees it at once: whether the probe
 * repaired a loss would hardly change that window.
 */
static void free_if_idle(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	bool matters = rec->harmed || rec->reordered || rec->cc->models ||
		       rec->cwnd > NET_CC_BULK * conn->pcb.mss;

	if (rec->state != NET_RECOVERY_OPEN || rec->pacing.held)
		return;
	if (matters && (conn->probed || net_now_us() - rec->event_us < IDLE_US))
		return;
	if (conn->paced && net_pacing_rested_ns(conn) > net_here()->now_ns)
		return; /* it would begin again with a burst */
	conn->pcb.cwnd = rec->cwnd;
	net_recovery_free(conn);
}

/* ---- the probe for a lost tail ---- */

/* Returns whether data or FIN is in flight, in a state that has an RTT. */
static bool has_in_flight(const struct tcp_pcb *pcb)
{
	return pcb->unacked && pcb->state >= ESTABLISHED &&
	       pcb->state != TIME_WAIT;
}

static bool probe_wanted(const struct net_conn *conn)
{
	const struct net_recovery *rec = net_recovery_of(conn);

	if (conn->srtt_us == 0 || conn->pcb.nrtx ||
	    net_recovery_span(&conn->pcb) > conn->pcb.snd_wnd)
		return false; /* the last: the tail is beyond the window */
	if (net_pacing_holds(conn))
		return false; /* the next segment asks the same */
	if (!rec)
		return true;
	return rec->state == NET_RECOVERY_OPEN && rec->sacked_bytes == 0 &&
	       (!conn->probed ||
		TCP_SEQ_GEQ(conn->pcb.lastack, rec->probe_end));
}

/* Sends one new segment, if there is any that the peer has room for. */
static bool probe_with_new(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t cwnd = pcb->cwnd, was = pcb->snd_nxt, need;

	if (!pcb->unsent)
		return false;
	need = net_seg_begin(pcb->unsent) - pcb->lastack + pcb->unsent->len;
	if (need > pcb->snd_wnd)
		return false;
	if (need > pcb->cwnd)
		pcb->cwnd = need;
	net_lwip_output(conn);
	pcb->cwnd = cwnd;
	return pcb->snd_nxt != was;
}

/* RFC 8985 7.3: one more segment makes the peer report what is missing. */
static void send_probe(struct net_conn *conn)
{
	struct net_recovery *rec;

	/* the next is due later */
	net_seg_of(conn->pcb.unacked)->last_us = net_now_us();
	if (net_traced(conn)) {
		net_trace_timer(conn, "TLP", 1);
		net_trace_resent_why(conn, "TLP");
	}
	if (!make_recovery(conn))
		return;
	rec = net_recovery_of(conn);
	rec->probe_us = net_now_us();
	rec->probe_resent = !probe_with_new(conn);
	if (rec->probe_resent)
		net_send_resend(conn, net_seg_of(net_unacked_last(&conn->pcb)));
	net_here()->stats.resent_tlp++;
	if (net_traced(conn))
		net_trace_resent_why(conn, NULL);
	net_send_account(conn);
	net_send_went_out(conn);
	conn->probed = true;
	rec->probe_end = conn->pcb.snd_nxt;
}

/*
 * The peer retransmits data that was acknowledged: our ACK was lost, with the
 * data that carried it. None of our timers detects this sooner, above all if
 * the peer delays its ACKs, which makes our RTT longer. It does not count while
 * an answer may still be on its way.
 */
void net_recovery_asked_again(struct net_conn *conn, uint32_t end, uint32_t ack)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (TCP_SEQ_LEQ(end, pcb->rcv_nxt) && ack == pcb->lastack &&
	    has_in_flight(pcb) && probe_wanted(conn) &&
	    net_now_us() - net_seg_of(pcb->unacked)->last_us > pcb->min_rtt_us)
		send_probe(conn);
}

/* ---- ACKs ---- */

/* Reduces the window, as something is lost. */
static void reduce_window(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	net_undo_begin(conn);
	rec->event_us = net_now_us();
	rec->harmed = true;
	rec->cc->on_loss(conn);
	net_ecn_cut(conn);
	if (net_traced(conn))
		net_trace_cwnd_why(conn, "loss");
}

static void enter_state(struct net_conn *conn, enum net_recovery_state state)
{
	struct net_recovery *rec = net_recovery_of(conn);

	reduce_window(conn);
	rec->state = state;
	rec->recover = conn->pcb.snd_nxt;
}

/*
 * RFC 8985 7.4: has the probe repaired a loss that nothing else has shown? If
 * so, the window is reduced.
 */
static void settle_probe(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (!conn->probed || TCP_SEQ_LT(ack->una, rec->probe_end))
		return;
	if (!rec->probe_resent) {
		conn->probed = false;
	} else if (ack->dsack) {
		conn->probed = false;
	} else if (TCP_SEQ_GT(ack->una, rec->probe_end)) {
		conn->probed = false;
		if (rec->state == NET_RECOVERY_OPEN) {
			reduce_window(conn);
			rec->cc->on_recovered(conn);
		}
	} else if (ack->acked == 0 && ack->n_ranges == 0 && ack->duplicate) {
		conn->probed = false;
	}
}

/* Ends a repair that is complete, begins one if something is lost, and grows
 * the window. */
static void move_on(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->state != NET_RECOVERY_OPEN &&
	    TCP_SEQ_GEQ(ack->una, rec->recover)) {
		rec->cc->on_recovered(conn);
		if (net_traced(conn))
			net_trace_cwnd_why(conn, "repaired");
		rec->state = NET_RECOVERY_OPEN;
		if (!(conn->pcb.flags & TF_SACK))
			rec->sacked_bytes = 0;
	}
	if (rec->state == NET_RECOVERY_OPEN && !TAILQ_EMPTY(&rec->lost)) {
		enter_state(conn, NET_RECOVERY_RECOVERY);
		net_prr_begin(rec, conn->pcb.snd_nxt - ack->una);
	}
	rec->cc->on_ack(conn, ack);
}

/* Takes every ACK of a connection with recovery state. */
static void take_ack(struct net_conn *conn, struct net_ack *ack)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct net_recovery *rec = net_recovery_of(conn);

	net_send_account(conn);
	if (ack->dsack)
		net_undo_duplicate(conn);
	if (pcb->flags & TF_SACK) {
		net_sack_mark(conn, ack);
		net_sack_detect(conn, ack);
	} else {
		net_sack_count_duplicates(conn, ack);
	}
	if (ack->dsack || ack->reordered)
		net_count_odd_ack(conn, ack->dsack, ack->reordered);
	if (ack->ece)
		net_count_marked(conn, ack->delivered);
	settle_probe(conn, ack);
	net_undo_ack(conn, ack);
	move_on(conn, ack);
	net_ecn_ack(conn, ack);
	if (TCP_SEQ_LT(rec->high_sacked, ack->una))
		rec->high_sacked = ack->una;
	if (ack->una == pcb->snd_nxt)
		rec->rack_known =
			false; /* no time is kept over an idle spell */
	pcb->dupacks = 0;      /* three would be lwIP's turn */
	pcb->cwnd = rec->state == NET_RECOVERY_OPEN
			    ? rec->cwnd + rec->sacked_bytes
			    : NET_CWND_SHUT;
	net_here()->rx_keep_cwnd = true;
	net_here()->rx_cwnd = pcb->cwnd;
}

/* RFC 5681 2: nothing new in either direction, and something is in flight. */
static bool is_duplicate(const struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
			 const struct pbuf *p)
{
	return hdr->ackno == pcb->lastack && p->tot_len == 0 && pcb->unacked &&
	       !(TCPH_FLAGS(hdr) & (TCP_SYN | TCP_FIN)) &&
	       (tcpwnd_size_t)SND_WND_SCALE(pcb, hdr->wnd) == pcb->snd_wnd;
}

/*
 * RFC 9438 5.8, RFC 5681 2: a window that is not used does not grow. It is in
 * use for a round after it was full, whatever is in flight meanwhile: ACKs that
 * arrive together, as after the thread has not run for a while, release more
 * than the pace may send at once.
 */
static bool window_is_used(struct net_recovery *rec, const struct tcp_pcb *pcb,
			   const struct net_ack *ack, uint32_t was)
{
	if (rec->was_full && TCP_SEQ_LEQ(ack->una, rec->full_end))
		return true;
	rec->was_full = false;
	if (rec->cwnd < pcb->ssthresh)
		return 2 * was >= rec->cwnd;
	return was + 3u * pcb->mss >= rec->cwnd;
}

/* Out of line: takes an ACK that is not simply the next one. */
__attribute__((noinline)) static void take_odd(struct net_conn *conn,
					       const struct tcp_hdr *hdr,
					       unsigned optlen,
					       struct net_ack *ack)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct net_recovery *rec;
	uint32_t was;

	if (pcb->flags & TF_SACK)
		net_sack_parse(pcb, hdr, optlen, ack);
	if (!conn->has_recovery) {
		bool wanted = ack->n_ranges || ack->ece ||
			      (ack->duplicate && !(pcb->flags & TF_SACK));

		pcb->dupacks = 0;
		if (!wanted)
			return;
		if (!make_recovery(conn)) {
			if (ack->ece)
				net_ecn_ack_without_memory(conn);
			return;
		}
	}
	rec = net_recovery_of(conn);
	net_sack_parse_echo(pcb, hdr, optlen, ack);
	ack->fack = rec->high_sacked;
	was = net_recovery_pipe(conn, pcb->lastack);
	net_sack_take_acked(conn, ack);
	if (rec->state == NET_RECOVERY_OPEN && was < ack->span)
		was = ack->span;
	ack->limited = window_is_used(rec, pcb, ack, was);
	take_ack(conn, ack);
}

/* Moves the fields that only the oldest segment has to the next segment. */
static inline void pass_on(const struct net_seg *from, struct tcp_seg *seg)
{
	struct net_seg *to = net_seg_of(seg);

	to->base_us = net_now_us();
	to->last_us = from->last_us;
	to->span = from->span;
}

/* The ordinary ACK: of new data, on a connection that has lost nothing. */
void net_recovery_advance(struct net_conn *conn, uint32_t una)
{
	const struct net_seg *newest = NULL, *head;
	struct tcp_pcb *pcb = &conn->pcb;
	struct tcp_seg *seg = pcb->unacked;
	uint8_t resent = 0;

	if (!seg)
		return;
	head = net_seg_of(seg);
	if (una == pcb->snd_nxt && !seg->next) {
		newest = head->state & NET_SEG_RESENT ? NULL : head;
		seg = NULL;
	}
	for (; seg && TCP_SEQ_LEQ(net_seg_end(seg), una); seg = seg->next) {
		resent |= net_seg_of(seg)->state & NET_SEG_RESENT;
		newest = net_seg_of(seg);
	}
	if (resent) /* see net_sack_take_acked() */
		newest = NULL;
	/* RFC 7661's idea: a window that is not used does not grow. */
	net_here()->rx_cwnd = pcb->cwnd;
	net_here()->rx_keep_cwnd = 2 * 256u * head->span < pcb->cwnd;
	if (seg)
		pass_on(head, seg);
	if (newest) {
		conn->probe_shift = 0;
		if (net_rtt_is_wanted(conn, net_now_us() - newest->sent_us))
			net_rtt_sample(conn, net_now_us() - newest->sent_us);
	}
}

/* Out of line: takes every ACK of a connection under repair, or that may begin
 * one. */
__attribute__((noinline)) static void take_slowly(struct net_conn *conn,
						  const struct tcp_hdr *hdr,
						  unsigned optlen,
						  const struct pbuf *p)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct net_seg *head = net_seg_of(pcb->unacked);
	struct net_ack ack = {.una = pcb->lastack,
			      .ece = net_ecn_is_echo(pcb, hdr)};
	bool probed = conn->probed, resent;

	if (TCP_SEQ_BETWEEN(hdr->ackno, pcb->lastack + 1, pcb->snd_nxt)) {
		ack.una = hdr->ackno;
		ack.acked = hdr->ackno - pcb->lastack;
	} else {
		ack.duplicate = is_duplicate(pcb, hdr, p);
	}
	if (head) {
		ack.since_us = head->base_us;
		ack.span = head->span * 256u;
	}
	resent = probed && conn->recovery->probe_resent;
	take_odd(conn, hdr, optlen, &ack);
	if (!conn->has_recovery) {
		if (ack.acked)
			net_recovery_advance(conn, ack.una);
		return;
	}
	if (ack.acked && ack.first)
		pass_on(head, ack.first);
	if (ack.has_rtt)
		net_rtt_sample(conn, ack.rtt_us);
	/* A timestamp also measures segments that were sent again, but not the
	 * delay of an ACK that came for the probe. */
	if (ack.acked && probed &&
	    (resent || !ack.has_rtt || ack.rtt_by_sack)) {
		if (conn->probe_shift < PROBE_SHIFT_MAX)
			conn->probe_shift++;
	} else if (ack.has_rtt && !ack.rtt_by_sack) {
		conn->probe_shift = 0;
	}
}

/* Is there room for SACK: ten bytes at least, beside a timestamp's ten? */
static inline bool may_sack(const struct tcp_pcb *pcb, unsigned optlen)
{
	return optlen >= (pcb->flags & NET_TF_TS ? 20 : 10);
}

/*
 * lwIP is about to process a segment of this pcb; the header's numbers are in
 * host order, p begins with the data.
 *
 * The peer's window counts from SND.UNA, so an ACK of something new always
 * updates it, even on a segment that was sent again: from the new SND.UNA the
 * old window, which RFC 9293 3.10.7.4 would keep, reaches beyond what the peer
 * promised.
 */
void net_recovery_input(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
			unsigned optlen, const struct pbuf *p)
{
	struct net_conn *conn = net_conn_of(pcb);
	uint32_t acked = hdr->ackno - pcb->lastack;
	bool new = acked - 1 < net_recovery_span(pcb);

	net_here()->rx_keep_cwnd = false;
	if ((TCPH_FLAGS(hdr) & (TCP_ACK | TCP_RST)) != TCP_ACK ||
	    pcb->state < SYN_SENT || pcb->state == TIME_WAIT)
		return;
	if (new && pcb->state >= ESTABLISHED)
		pcb->snd_wl1 = hdr->seqno - 1;
	if (conn->has_recovery ||
	    (pcb->unacked && pcb->state >= ESTABLISHED &&
	     (may_sack(pcb, optlen) || (acked == 0 && p->tot_len == 0) ||
	      net_ecn_is_echo(pcb, hdr))))
		take_slowly(conn, hdr, optlen, p);
	else if (new)
		net_recovery_advance(conn, hdr->ackno);
}

/* lwIP has grown its window; it will send as soon as we return. */
void net_recovery_acked(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t cwnd;

	if (net_here()->rx_keep_cwnd)
		pcb->cwnd = net_here()->rx_cwnd;
	cwnd = conn->has_recovery ? conn->recovery->cwnd : pcb->cwnd;
	if (cwnd > TCP_SND_BUF / 2 && cwnd < UINT32_C(1) << 30)
		net_cwnd_grow_buffer(conn, cwnd);
}

void net_recovery_after_input(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->state != NET_RECOVERY_OPEN) {
		net_send_repair(conn);
	} else if (!conn->pcb.unacked) {
		if (rec->cc->models && !conn->pcb.unsent)
			rec->event_us = net_now_us();
		free_if_idle(conn);
	}
	if (conn->has_recovery && conn->recovery->reorder_armed)
		net_timer_by(conn, net_recovery_due_ns(conn));
}

/* ---- timeouts ---- */

/* Counts from the last progress, or from when it was last sent (RFC 6298 5). */
static uint32_t rto_due_us(const struct net_conn *conn)
{
	const struct net_seg *head = net_seg_of(conn->pcb.unacked);
	uint32_t from_us = head->sent_us;

	if (net_us_after(head->base_us, from_us))
		from_us = head->base_us;
	if (conn->probed && net_us_after(conn->recovery->probe_us, from_us))
		from_us = conn->recovery->probe_us;
	return from_us + net_rtt_rto_us(conn);
}

static uint32_t probe_due_us(const struct net_conn *conn)
{
	const struct net_seg *head = net_seg_of(conn->pcb.unacked);
	uint32_t from_us = head->last_us;

	if (net_us_after(head->base_us, from_us))
		from_us = head->base_us;
	return from_us + net_rtt_probe_us(conn);
}

/* Nothing is in flight or held back, and all losses are repaired. */
static bool is_idle(const struct net_conn *conn)
{
	return conn->has_recovery && !conn->pcb.unacked &&
	       conn->recovery->state == NET_RECOVERY_OPEN &&
	       !conn->recovery->pacing.held;
}

/* Returns when the connection will have been idle for IDLE_US, ns. */
static int64_t idle_due_ns(const struct net_conn *conn)
{
	int64_t due_ns = net_us_to_ns(conn->recovery->event_us + IDLE_US);

	if (conn->paced && due_ns < net_pacing_rested_ns(conn))
		due_ns = net_pacing_rested_ns(conn);
	return due_ns;
}

int64_t net_recovery_due_ns(const struct net_conn *conn)
{
	const struct net_recovery *rec = net_recovery_of(conn);
	int64_t held_ns = CORO_FOREVER, due_ns;
	uint32_t due_us;

	if (is_idle(conn)) /* frees its recovery state, even if no segment ever
			      comes */
		return idle_due_ns(conn);
	if (rec && rec->pacing.held)
		held_ns = rec->pacing.due_ns;
	if (!has_in_flight(&conn->pcb))
		return held_ns;
	due_us = rto_due_us(conn);
	if (probe_wanted(conn) && net_us_after(due_us, probe_due_us(conn)))
		due_us = probe_due_us(conn);
	if (rec && rec->reorder_armed &&
	    net_us_after(due_us, rec->reorder_due_us))
		due_us = rec->reorder_due_us;
	due_ns = net_us_to_ns(due_us);
	return LWIP_MIN(due_ns, held_ns);
}

/*
 * The oldest segment is sent again nevertheless. lwIP must not do that: it
 * would move all that is in flight back to `unsent`, and a repair that begins
 * later would count those segments as still in flight, and never send them
 * again.
 */
static void time_out_without_memory(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct net_seg *head = net_seg_of(pcb->unacked);
	struct tcp_seg *seg = pcb->unacked;

	pcb->ssthresh = LWIP_MAX(pcb->cwnd / 2, 2u * pcb->mss);
	pcb->cwnd = pcb->mss;
	if (pcb->nrtx < 255)
		pcb->nrtx++;
	net_count_rto(conn);
	if (net_send_again(conn, head)) {
		net_here()->stats.resent_rto++;
		head->sent_us = net_now_us();
		for (; seg; seg = seg->next) /* see may_have_waited() */
			net_seg_of(seg)->state |= NET_SEG_RESENT;
	}
}

/* RFC 6298 5.4 to 5.7; what the peer has sacked is not sent again. */
static void time_out(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct net_recovery *rec;

	if (pcb->nrtx == 0)
		net_user_timeout_begin(conn);
	net_seg_of(pcb->unacked)->base_us = net_now_us();
	conn->probed = false;
	if (net_traced(conn))
		net_trace_timer(conn, "RTO", pcb->nrtx + 1u);
	if (!make_recovery(conn)) {
		time_out_without_memory(conn);
		return;
	}
	rec = net_recovery_of(conn);
	if (!net_window_shut(pcb)) /* then it is the peer, not the path */
		net_path_timed_out(conn);
	if (rec->state != NET_RECOVERY_LOSS || pcb->nrtx == 0)
		enter_state(conn, NET_RECOVERY_LOSS);
	rec->recover = pcb->snd_nxt;
	rec->cwnd = pcb->mss;
	rec->dupacks = 0;
	net_sack_lose_all(conn);
	if (rec->cc->on_rto)
		rec->cc->on_rto(conn);
	net_frto_begin(conn);
	if (pcb->nrtx < 255)
		pcb->nrtx++;
	net_count_rto(conn);
	if (net_traced(conn))
		net_trace_cwnd_why(conn, "RTO");
	rec->at_once = true; /* RFC 6298 5.4: it has waited long enough */
	net_send_repair(conn);
}

bool net_recovery_timeout(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	uint32_t now_us = net_now_us();

	if (is_idle(conn) && idle_due_ns(conn) <= net_here()->now_ns) {
		conn->probed = false; /* no answer comes any more */
		free_if_idle(conn);
		rec = net_recovery_of(conn);
	}
	if (rec && rec->pacing.held &&
	    rec->pacing.due_ns <= net_here()->now_ns) {
		if (rec->state != NET_RECOVERY_OPEN)
			net_send_repair(conn);
		else
			net_conn_output_now(conn);
	}
	if (!has_in_flight(&conn->pcb))
		return false;
	if (!net_us_after(rto_due_us(conn), now_us)) {
		if (net_persist_gives_up(&conn->pcb))
			return true;
		time_out(conn);
	} else if (rec && rec->reorder_armed &&
		   !net_us_after(rec->reorder_due_us, now_us)) {
		const struct net_ack ack = {.una = conn->pcb.lastack,
					    .first = conn->pcb.unacked};

		if (net_traced(conn))
			net_trace_timer(conn, "RACK", 1);
		net_sack_detect(conn, &ack);
		move_on(conn, &ack);
		if (rec->state != NET_RECOVERY_OPEN)
			net_send_repair(conn);
	} else if (probe_wanted(conn) &&
		   !net_us_after(probe_due_us(conn), now_us)) {
		send_probe(conn);
	}
	return false;
}

/* ---- segments larger than the path MTU ---- */

bool net_recovery_begin(struct net_conn *conn)
{
	return make_recovery(conn);
}

void net_recovery_resume_cut(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (!rec || TAILQ_EMPTY(&rec->lost))
		return;
	if (rec->state == NET_RECOVERY_OPEN) {
		net_undo_begin(conn);
		net_undo_never(conn);
		rec->event_us = net_now_us();
		rec->state = NET_RECOVERY_LOSS;
		rec->recover = conn->pcb.snd_nxt;
	}
	if (net_traced(conn))
		net_trace_resent_why(conn, "MTU");
	net_send_repair(conn);
	if (net_traced(conn))
		net_trace_resent_why(conn, NULL);
}
