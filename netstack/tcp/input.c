/*
 * TCP input: checks a segment, finds its connection or listener, and shows it
 * to lwIP, between the steps that come before and after that.
 */
#include "netstack/program/events.h"
#include "netstack/tcp/tcp.h"

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

/* Has a router marked the packet at hand (RFC 3168 5)? */
static bool is_marked(void)
{
	uint8_t tos = ip_current_is_v6()
			      ? (uint8_t)IP6H_TC(ip6_current_header())
			      : IPH_TOS(ip4_current_header());

	return (tos & NET_ECN_FIELD) == NET_ECN_CE;
}

/*
 * Notes that before the segment is checked: the frame with its IP header may be
 * freed then, and the segment be a copy.
 */
static void note_mark(const struct net_conn *conn)
{
	net_here()->rx_ce = (conn->pcb.flags & NET_TF_ECN) && is_marked();
}

static bool has_data(const struct pbuf *p)
{
	return p->tot_len > TCPH_HDRLEN_BYTES((struct tcp_hdr *)p->payload);
}

/* ---- a segment of no connection ---- */

/* Begins a half-open connection or drops the SYN. False: it needs a cookie. */
static bool begin_half_open(struct net_listener *listener, const struct pbuf *p)
{
	if (!net_orphan_make_room()) {
		net_here()->stats.no_memory++;
		net_event_refused(p->payload, "conns");
		return true; /* it will come again */
	}
	return net_half_open_begin(listener, p->payload);
}

/*
 * A SYN makes a half-open connection; beyond what the listener may have of
 * those it is answered with a cookie.
 */
static void take_syn(struct net_listener *listener, const struct pbuf *p)
{
	bool full = !net_half_open_may(listener);

	if (net_here()->memory_full) {
		net_here()->stats.memory_refused++;
		net_event_refused(p->payload, "memory");
		return;
	}
	switch (net_clients_admit(listener, ip_current_src_addr(),
				  full ? NET_ASKS_COOKIE : NET_ASKS)) {
	case NET_ADMIT_NOT:
		net_here()->stats.clients_refused++;
		net_event_refused(p->payload, "clients");
		return;
	case NET_ADMIT:
		if (!full && begin_half_open(listener, p))
			return;
		break;
	case NET_ADMIT_COOKIE:
		break;
	}
	if (net_syn_limit_cookie(listener, full))
		net_cookie_send(p);
}

/*
 * Processes the rest of the segment whose ACK has completed the handshake.
 * Returns true if lwIP has to see that; *p is NULL if header prediction took
 * it.
 */
static bool take_after_handshake(struct net_conn *conn, struct pbuf **p)
{
	const struct tcp_hdr *tcp = (*p)->payload;
	struct net_ts ts;

	if (net_traced(conn))
		net_trace_in(conn, *p);
	if ((*p)->tot_len == TCPH_HDRLEN_BYTES(tcp) &&
	    !(TCPH_FLAGS(tcp) & TCP_FIN)) {
		net_count_in(conn, *p);
		if (net_ts_bytes(&conn->pcb) && net_ts_read(tcp, &ts))
			net_ts_note(conn, lwip_ntohl(tcp->seqno), ts.value);
		return false;
	}
	if (net_here()->predicts && !(*p)->next && !is_marked() &&
	    net_predict_input(conn, *p)) {
		*p = NULL;
		return false;
	}
	note_mark(conn);
	return net_check_opened(conn, p);
}

/*
 * Takes a segment that only a listener can take. While the program has not
 * accepted as many connections as the backlog allows, a segment that opens
 * another is dropped; its sender repeats it. Returns false if the segment needs
 * no more; an ACK with a cookie gives a connection. lwIP resets what is left,
 * which for a listener is only an ACK (RFC 9293 3.10.7.2).
 */
static bool take_opening(struct pbuf **p, struct net_conn **conn)
{
	const struct tcp_hdr *tcp = (*p)->payload;
	uint8_t flags = net_here()->rx_flags & (TCP_SYN | TCP_ACK | TCP_RST);
	bool cookie = flags == TCP_ACK && net_cookie_hot();
	struct net_listener *listener = net_listener_find(
		ip_current_dest_addr(), lwip_ntohs(tcp->dest));

	if (!listener || listener->draining)
		return true;
	if ((flags == TCP_SYN || cookie) &&
	    listener->queued >= listener->backlog) {
		net_here()->stats.backlog_drops++;
		net_event_refused(tcp, "backlog");
		return false;
	}
	if (flags == TCP_SYN)
		take_syn(listener, *p);
	if (!cookie)
		return flags & TCP_ACK;
	switch (net_cookie_take(*p, listener, conn)) {
	case NET_COOKIE_NONE:
		return true;
	case NET_COOKIE_NO_ROOM:
		return false;
	case NET_COOKIE_TAKEN:
		break;
	}
	return take_after_handshake(*conn, p);
}

/* Like take_opening(), for any segment of no connection; it may make one. */
static bool take_stranger(struct pbuf **p, struct net_conn **conn)
{
	if (net_time_wait_input(*p))
		return false;
	switch (net_half_open_input(*p, conn)) {
	case NET_HALF_OPEN_NONE:
		break;
	case NET_HALF_OPEN_TAKEN:
		return false;
	case NET_HALF_OPEN_OPENED:
		return take_after_handshake(*conn, p);
	}
	if (net_here()->kernel_takes && net_here()->kernel_takes(*p))
		return false;
	return net_check_stranger(*p) && take_opening(p, conn);
}

/* ---- a segment that lwIP may see ---- */

/* Does a segment have data or a FIN that cannot be delivered yet? */
static bool is_ahead(const struct net_conn *conn, const struct pbuf *p)
{
	const struct tcp_hdr *tcp = p->payload;

	return conn->pcb.state >= SYN_RCVD &&
	       TCP_SEQ_GT(lwip_ntohl(tcp->seqno), conn->pcb.rcv_nxt) &&
	       (p->tot_len > TCPH_HDRLEN_BYTES(tcp) ||
		(TCPH_FLAGS(tcp) & TCP_FIN));
}

/* Is a connection that was shown to lwIP neither gone nor in TIME_WAIT? */
static bool is_alive(const struct net_conn *conn)
{
	return tcp_active_pcbs == &conn->pcb;
}

/*
 * Processes a segment before lwIP does. Returns the part of it that lwIP must
 * see; NULL: none. Owns p.
 */
static struct pbuf *prepare_segment(struct net_conn *conn, struct pbuf *p)
{
	const struct tcp_hdr *tcp = p->payload;

	net_count_in(conn, p);
	if (conn->pcb.state == SYN_SENT) {
		net_ts_answered(conn, tcp);
		net_ecn_answered(&conn->pcb, tcp);
		if (net_handshake_crossed(conn, tcp)) {
			pbuf_free(p);
			return NULL;
		}
	}
	if (conn->pcb.flags & NET_TF_ECN)
		net_ecn_input(conn, tcp, has_data(p), net_here()->rx_ce);
	if (!is_ahead(conn, p))
		return p;
	net_here()->stats.out_of_order++;
	if (net_traced(conn))
		net_trace_in_was(conn, "out of order");
	return net_ooseq_take(conn, p);
}

/* Fields that a segment may change, as they were before lwIP saw it. */
struct before {
	enum tcp_state state;
	bool watched, lingering;
	uint32_t lastack, cwnd, snd_wnd, rcv_nxt;
};

/* After lwIP has taken data in order, delivers the data that follows it. */
static void deliver_ahead(struct net_conn *conn, struct netif *inp)
{
	struct pbuf *fin = net_ooseq_deliver(conn);

	if (fin)
		tcp_input(fin, inp);
}

/* ---- pcbs on lists of lwIP's, after lwIP has worked on a connection ---- */

/* Adopts a pcb that is new on a list of lwIP's: net_dial() made it. */
static void adopt_pcb(struct net_conn *conn)
{
	if (conn->hashed)
		return;
	net_demux_insert(conn);
	if (conn->pcb.unsent) /* its first segment: the port had no room */
		net_conn_queue_output(conn);
}

static void take_pcb_back(struct tcp_pcb *pcb)
{
	struct net_conn *conn = net_conn_of(pcb);

	adopt_pcb(conn);
	if (pcb->state == TIME_WAIT)
		net_ooseq_clear(conn);
	if (pcb->state != TIME_WAIT || !net_time_wait_check(conn))
		net_timer_check(conn);
}

void net_pcbs_take_back(void)
{
	struct tcp_pcb *pcb;

	while ((pcb = net_pcb_take()))
		take_pcb_back(pcb);
}

/* The same after a segment that has left its connection open. */
static void take_back_open(struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (unlikely(tcp_active_pcbs != pcb || pcb->next || tcp_tw_pcbs)) {
		net_pcbs_take_back();
		return;
	}
	tcp_active_pcbs = NULL;
	net_timer_after_input(conn);
}

/* ---- after lwIP ---- */

/* Completes a segment after lwIP, if its connection was open and still is. */
static void settle_open(struct net_conn *conn, const struct before *before)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (pcb->nrtx && pcb->snd_wnd > before->snd_wnd)
		net_persist_window_opened(pcb, before->snd_wnd);
	if (conn->has_recovery)
		net_recovery_after_input(conn);
	else
		net_cwnd_slow_start(pcb, before->lastack, before->cwnd);
	if (net_traced(conn))
		net_trace_settle(conn);
	net_count_phase(conn);
	take_back_open(conn);
}

/* Completes a segment after lwIP, which may have freed the connection. */
static void settle_segment(struct net_conn *conn, const struct before *before,
			   struct netif *inp)
{
	if (is_alive(conn) && conn->pcb.rcv_sacks &&
	    conn->pcb.rcv_nxt != before->rcv_nxt)
		deliver_ahead(conn, inp);
	/* Its FIN may be acknowledged; the waiter keeps it. */
	if (before->lingering)
		net_wake(conn->writer);
	if (before->state < ESTABLISHED)
		net_handshake_settle(before->state);
	if (is_alive(conn) && before->state >= ESTABLISHED)
		settle_open(conn, before);
	else if ((is_alive(conn) || tcp_tw_pcbs == &conn->pcb) &&
		 net_traced(conn))
		net_trace_settle(conn);
	net_pcbs_take_back();
	if (before->watched)
		net_conn_notify(conn); /* it has an owner, so it is there */
}

/* Passes a segment that was checked to its connection. Owns p. */
static void deliver_segment(struct net_conn *conn, struct pbuf *p,
			    struct netif *inp)
{
	struct before before;

	p = prepare_segment(conn, p);
	if (!p)
		return;
	before = (struct before){
		.state = conn->pcb.state,
		.watched = conn->watched,
		.lingering = conn->lingering,
		.lastack = conn->pcb.lastack,
		.cwnd = conn->pcb.cwnd,
		.snd_wnd = conn->pcb.snd_wnd,
		.rcv_nxt = conn->pcb.rcv_nxt,
	};
	net_pcb_show(&conn->pcb);
	tcp_input(p, inp);
	settle_segment(conn, &before, inp);
}

/* ---- input ---- */

/* A segment of a connection. Owns p. */
static void input_known(struct net_conn *conn, struct pbuf *p,
			struct netif *inp)
{
	if (net_traced(conn))
		net_trace_in(conn, p);
	note_mark(conn);
	if (net_check_conn(conn, &p)) {
		deliver_segment(conn, p, inp);
		return;
	}
	if (net_traced(conn))
		net_trace_in_was(conn, "refused");
	pbuf_free(p);
}

/* A segment of no connection; it may make one. Owns p. */
static void input_stranger(struct pbuf *p, struct netif *inp)
{
	struct net_conn *conn = NULL;
	bool left = take_stranger(&p, &conn);

	/* These were set for this segment alone. */
	net_clients_unadmit();
	net_here()->isn_fixed = false;
	if (!left) {
		if (p)
			net_pbuf_free(p);
	} else if (conn) {
		deliver_segment(conn, p, inp);
	} else {
		tcp_input(p, inp); /* resets it */
		net_pcbs_take_back();
	}
}

void net_tcp_input_found(struct net_conn *conn, struct pbuf *p,
			 struct netif *inp)
{
	const struct tcp_hdr *tcp = p->payload;

	if (!net_check_header(p)) {
		net_here()->stats.rx_bad_frame++;
		pbuf_free(p);
		return;
	}
	net_here()->rx_flags = TCPH_FLAGS(tcp);
	if (conn && !net_handshake_reopens(conn, tcp))
		input_known(conn, p, inp);
	else
		input_stranger(p, inp);
}

/* ip4.c and ip6.c call this for each TCP segment; owns p. */
void net_tcp_input(struct pbuf *p, struct netif *inp)
{
	struct net_conn *conn = NULL;

	if (p->len >= TCP_HLEN)
		conn = net_demux_find_current(p->payload);
	net_tcp_input_found(conn, p, inp);
}
