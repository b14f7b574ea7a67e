/*
 * Header prediction (Van Jacobson): the expected segment bypasses lwIP. On a
 * connection to which nothing unusual has happened, that is the next data, the
 * next ACK, or both. The connection's state is then as lwIP would have left it.
 */
#include "netstack/tcp/tcp.h"

#include "lwip/prot/tcp.h"

/* A header of 20 bytes with ACK, or 32 of a timestamp; PSH does not matter. */
#define EXPECTED_BITS PP_HTONS(0x5010)
#define STAMPED_BITS  PP_HTONS(0x8010)
#define EXPECTED_MASK PP_HTONS((uint16_t)~TCP_PSH)
#define FIN_MASK      PP_HTONS((uint16_t) ~(TCP_PSH | TCP_FIN))
#define STAMPED_HLEN  (TCP_HLEN + NET_TS_BYTES)

/*
 * The connection is traced or closing, or lwIP is about to do something else.
 */
#define UNUSUAL_FLAGS                                                          \
	(NET_TF_TRACED | TF_CLOSEPEND | TF_RXCLOSED | TF_FIN | TF_RTO)

struct expected {
	uint32_t seq, ack, acked; /* host order; acked: of it new */
	uint32_t ts;		  /* if it is to have one */
	uint16_t len, wnd;	  /* wnd: as it came, host order */
	bool push;
};

/* The options of most segments that have one: two NOPs and a timestamp. */
static inline bool has_stamp(const struct net_conn *conn, const struct pbuf *p,
			     uint32_t *ts)
{
	uint32_t words[2];

	if (p->len < STAMPED_HLEN)
		return false;
	memcpy(words, (const uint8_t *)p->payload + TCP_HLEN, sizeof(words));
	if (words[0] != PP_HTONL(0x0101080a))
		return false;
	*ts = lwip_ntohl(words[1]);
	return !net_ts_is_old(conn, *ts);
}

/* Returns whether a header has ACK, and this many bytes of options. */
static inline bool has_header(const struct net_conn *conn, const struct pbuf *p,
			      unsigned options, uint32_t *ts)
{
	const struct tcp_hdr *tcp = p->payload;
	uint16_t bits = tcp->_hdrlen_rsvd_flags & EXPECTED_MASK;

	return options ? bits == STAMPED_BITS && has_stamp(conn, p, ts)
		       : bits == EXPECTED_BITS;
}

static inline bool is_usual(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	return pcb->state == ESTABLISHED && !(pcb->flags & UNUSUAL_FLAGS) &&
	       !conn->lingering && !conn->rd_shut && !pcb->rcv_sacks &&
	       !pcb->nrtx && conn->attached;
}

/* Returns whether a segment is the expected one. lwIP answers a shut window. */
static inline bool is_expected(const struct net_conn *conn,
			       const struct expected *s)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	return s->seq == pcb->rcv_nxt && s->len <= pcb->rcv_wnd &&
	       pcb->rcv_wnd && s->acked <= pcb->snd_nxt - pcb->lastack &&
	       (s->acked || s->len) &&
	       (!pcb->unsent ||
		TCP_SEQ_LEQ(s->ack, net_seg_begin(pcb->unsent)));
}

static inline void add_saturating(tcpwnd_size_t *to, tcpwnd_size_t n)
{
	if (__builtin_add_overflow(*to, n, to))
		*to = (tcpwnd_size_t)-1;
}

/* RFC 9293 3.10.7.4, fifth check, where the ACK is no older than ours. */
static inline void take_window(struct tcp_pcb *pcb, const struct expected *s)
{
	if (!s->acked && !TCP_SEQ_LT(pcb->snd_wl1, s->seq) &&
	    !(pcb->snd_wl1 == s->seq && TCP_SEQ_LEQ(pcb->snd_wl2, s->ack)))
		return;
	pcb->snd_wnd = SND_WND_SCALE(pcb, s->wnd);
	if (pcb->snd_wnd_max < pcb->snd_wnd)
		pcb->snd_wnd_max = pcb->snd_wnd;
	pcb->snd_wl1 = s->seq;
	pcb->snd_wl2 = s->ack;
}

/* RFC 3465 2.1 and 2.2, as lwIP counts. */
static inline void grow_window(struct tcp_pcb *pcb, uint32_t acked)
{
	if (pcb->cwnd < pcb->ssthresh) {
		add_saturating(&pcb->cwnd, LWIP_MIN(acked, 2u * pcb->mss));
		return;
	}
	add_saturating(&pcb->bytes_acked, acked);
	if (pcb->bytes_acked >= pcb->cwnd) {
		pcb->bytes_acked -= pcb->cwnd;
		add_saturating(&pcb->cwnd, pcb->mss);
	}
}

/* Frees segments that are acknowledged whole; returns their bytes. */
static inline uint32_t free_acked_segs(struct tcp_pcb *pcb, uint32_t ack)
{
	struct tcp_seg *seg = pcb->unacked;
	uint32_t bytes = 0;

	while (seg && TCP_SEQ_LEQ(net_seg_end(seg), ack)) {
		struct tcp_seg *next = seg->next;
		uint16_t pieces = seg->p->next ? pbuf_clen(seg->p) : 1;

		pcb->snd_queuelen = (uint16_t)(pcb->snd_queuelen - pieces);
		bytes += seg->len;
		net_seg_free(seg);
		seg = next;
	}
	pcb->unacked = seg;
	return bytes;
}

/*
 * Passes the header to loss recovery, with numbers in host order, as lwIP would
 * pass it to net_segment_in().
 */
__attribute__((noinline)) static void pass_to_recovery(struct net_conn *conn,
						       struct pbuf *p,
						       const struct expected *s,
						       unsigned options)
{
	struct {
		struct tcp_hdr tcp;
		uint8_t options[NET_TS_BYTES];
	} hdr;
	uint16_t tot_len = p->tot_len;

	memcpy(&hdr, p->payload, TCP_HLEN + options);
	hdr.tcp.seqno = s->seq;
	hdr.tcp.ackno = s->ack;
	hdr.tcp.wnd = s->wnd;
	p->tot_len = s->len;
	net_recovery_input(&conn->pcb, &hdr.tcp, options, p);
	p->tot_len = tot_len;
}

/* Returns how many bytes it has retired. */
static inline uint32_t take_ack(struct net_conn *conn, const struct expected *s)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t bytes;

	if (likely(!conn->has_recovery))
		net_recovery_advance(conn, s->ack);
	pcb->rto = LWIP_TCP_RTO_TIME / TCP_SLOW_INTERVAL;
	pcb->dupacks = 0;
	pcb->lastack = s->ack;
	grow_window(pcb, s->acked);
	bytes = free_acked_segs(pcb, s->ack);
	pcb->rtime = pcb->unacked ? 0 : -1;
	pcb->snd_buf += bytes;
	if (!bytes)
		return 0;
	net_recovery_acked(conn);
	net_conn_wake_writer(conn);
	return bytes;
}

/* Queues the data; the caller updates the announced window. */
static inline void queue_data(struct net_conn *conn, struct pbuf *p,
			      const struct expected *s, unsigned header)
{
	struct tcp_pcb *pcb = &conn->pcb;

	pcb->rcv_nxt += s->len;
	pcb->rcv_wnd -= s->len;
	tcp_ack(pcb);
	p->payload = (uint8_t *)p->payload + header;
	p->len = p->tot_len = s->len;
	if (s->push)
		p->flags |= PBUF_FLAG_PUSH;
	net_rxq_append(conn, p);
}

static inline void take_data(struct net_conn *conn, struct pbuf *p,
			     const struct expected *s, unsigned header)
{
	queue_data(conn, p, s, header);
	tcp_update_rcv_ann_wnd(&conn->pcb);
	net_conn_wake_reader(conn);
}

/* ---- the end of a connection ---- */

/* Reads a header with ACK and perhaps FIN, without data. */
static bool read_end(const struct net_conn *conn, const struct pbuf *p,
		     struct expected *s)
{
	const struct tcp_hdr *tcp = p->payload;
	unsigned options = net_ts_bytes(&conn->pcb);
	uint16_t bits = tcp->_hdrlen_rsvd_flags & FIN_MASK;

	s->ts = 0;
	if (p->tot_len != TCP_HLEN + options ||
	    bits != (options ? STAMPED_BITS : EXPECTED_BITS) ||
	    (options && !has_stamp(conn, p, &s->ts)))
		return false;
	s->seq = lwip_ntohl(tcp->seqno);
	s->ack = lwip_ntohl(tcp->ackno);
	s->acked = s->ack - conn->pcb.lastack;
	s->len = 0;
	s->wnd = lwip_ntohs(tcp->wnd);
	return true;
}

/* Notes that the peer is alive, its timestamp, and what it acknowledges. */
static void take_end_ack(struct net_conn *conn, const struct pbuf *p,
			 const struct expected *s)
{
	struct tcp_pcb *pcb = &conn->pcb;

	net_count_in(conn, p);
	if (pcb->flags & NET_TF_TS)
		net_ts_note(conn, s->seq, s->ts);
	net_here()->rx_keep_cwnd = false;
	pcb->tmr = tcp_ticks;
	pcb->keep_cnt_sent = 0;
	pcb->persist_probe = 0;
	take_window(pcb, s);
	if (s->acked)
		net_count_bytes(conn, 0, take_ack(conn, s));
}

/*
 * A FIN without data, next in order. While something is in flight it has to
 * acknowledge some of that: loss recovery looks at others.
 */
static inline bool fin_is_expected(const struct net_conn *conn,
				   const struct expected *s)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	return is_usual(conn) && !conn->has_recovery &&
	       s->seq == pcb->rcv_nxt && pcb->rcv_wnd &&
	       s->acked <= pcb->snd_nxt - pcb->lastack &&
	       (s->acked || !pcb->unacked) &&
	       (!pcb->unsent ||
		TCP_SEQ_LEQ(s->ack, net_seg_begin(pcb->unsent)));
}

static void take_fin(struct net_conn *conn, struct pbuf *p,
		     const struct expected *s)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t lastack = pcb->lastack, cwnd = pcb->cwnd;

	take_end_ack(conn, p, s);
	pcb->rcv_nxt++;
	pcb->rcv_wnd--;
	tcp_update_rcv_ann_wnd(pcb);
	tcp_ack(pcb);
	tcp_ack_now(pcb);
	pcb->state = CLOSE_WAIT;
	if (pcb->rcv_wnd != TCP_WND_MAX(pcb)) /* nobody reads a FIN */
		pcb->rcv_wnd++;
	conn->eof = true;
	net_conn_wake_reader(conn);
	net_conn_queue_output(conn);
	net_cwnd_slow_start(pcb, lastack, cwnd);
	net_count_phase(conn);
	net_pbuf_free(p);
	net_conn_notify(conn);
}

/*
 * The ACK of our FIN. lwIP then frees the pcb, and reports nothing as the owner
 * has closed it.
 */
static inline bool is_last_ack(const struct net_conn *conn,
			       const struct expected *s)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	uint16_t flags = NET_TF_TRACED | TF_ACK_DELAY | TF_RXCLOSED;

	return pcb->state == LAST_ACK && (pcb->flags & flags) == TF_RXCLOSED &&
	       !conn->attached && !conn->has_recovery && !pcb->unsent &&
	       s->seq == pcb->rcv_nxt && s->acked && s->ack == pcb->snd_nxt;
}

/*
 * Frees the pcb as tcp_pcb_remove() and tcp_free() do. What the ACK says about
 * windows and congestion means nothing any more.
 */
static void take_last_ack(struct net_conn *conn, struct pbuf *p,
			  const struct expected *s)
{
	struct tcp_pcb *pcb = &conn->pcb;

	net_count_in(conn, p);
	net_recovery_advance(conn, s->ack);
	net_count_bytes(conn, 0, free_acked_segs(pcb, s->ack));
	pcb->state = CLOSED;
	pcb->local_port = 0;
	net_pbuf_free(p);
	net_conn_pcb_freed(conn);
}

/* Takes a segment that ends a connection which has nothing else to do. */
__attribute__((noinline)) static bool input_end(struct net_conn *conn,
						struct pbuf *p)
{
	const struct tcp_hdr *tcp = p->payload;
	bool fin = TCPH_FLAGS(tcp) & TCP_FIN;
	struct expected s;

	if (!read_end(conn, p, &s))
		return false;
	if (fin && fin_is_expected(conn, &s))
		take_fin(conn, p, &s);
	else if (!fin && is_last_ack(conn, &s))
		take_last_ack(conn, p, &s);
	else
		return false;
	return true;
}

/* ---- any expected segment ---- */

/* Compiled twice: without options, and with a timestamp. */
static inline __attribute__((always_inline)) bool
input_with_options(struct net_conn *conn, struct pbuf *p, unsigned options)
{
	const struct tcp_hdr *tcp = p->payload;
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t lastack = pcb->lastack, cwnd = pcb->cwnd, retired = 0;
	struct expected s;

	if (!has_header(conn, p, options, &s.ts) || !is_usual(conn))
		return input_end(conn, p);
	s.seq = lwip_ntohl(tcp->seqno);
	s.ack = lwip_ntohl(tcp->ackno);
	s.acked = s.ack - lastack;
	s.len = (uint16_t)(p->tot_len - TCP_HLEN - options);
	s.wnd = lwip_ntohs(tcp->wnd);
	s.push = TCPH_FLAGS(tcp) & TCP_PSH;
	if (!is_expected(conn, &s) || (s.len && !net_rxq_has_room(p)))
		return false;
	if (options)
		net_ts_note(conn, s.seq, s.ts);
	net_here()->rx_keep_cwnd = false;
	if (unlikely(conn->has_recovery))
		pass_to_recovery(conn, p, &s, options);
	pcb->tmr = tcp_ticks;
	pcb->keep_cnt_sent = 0;
	pcb->persist_probe = 0;
	take_window(pcb, &s);
	if (s.acked)
		retired = take_ack(conn, &s);
	if (s.len)
		take_data(conn, p, &s, TCP_HLEN + options);
	else
		net_pbuf_free(p);
	net_count_expected(conn, s.len, retired);
	if (pcb->unsent || (pcb->flags & TF_ACK_NOW))
		net_conn_queue_output(conn);
	if (unlikely(conn->has_recovery))
		net_recovery_after_input(conn);
	else
		net_cwnd_slow_start(pcb, lastack, cwnd);
	net_timer_after_input(conn);
	net_conn_notify(conn);
	return true;
}

__attribute__((noinline)) static bool input_stamped(struct net_conn *conn,
						    struct pbuf *p)
{
	return input_with_options(conn, p, NET_TS_BYTES);
}

bool net_predict_input(struct net_conn *conn, struct pbuf *p)
{
	if (conn->pcb.flags & NET_TF_TS)
		return input_stamped(conn, p);
	return input_with_options(conn, p, 0);
}

/* ---- further segments of a burst ---- */

/*
 * The segment before it was predicted, so the connection is a usual one, and
 * its timers and keepalive have heard of the peer. Only data that acknowledges
 * nothing new is taken.
 */
static inline __attribute__((always_inline)) bool
next_with_options(struct net_conn *conn, struct pbuf *p, unsigned options)
{
	const struct tcp_hdr *tcp = p->payload;
	struct tcp_pcb *pcb = &conn->pcb;
	struct expected s;

	if (!has_header(conn, p, options, &s.ts))
		return false;
	s.seq = lwip_ntohl(tcp->seqno);
	s.ack = lwip_ntohl(tcp->ackno);
	s.acked = 0;
	s.len = (uint16_t)(p->tot_len - TCP_HLEN - options);
	s.wnd = lwip_ntohs(tcp->wnd);
	s.push = TCPH_FLAGS(tcp) & TCP_PSH;
	if (s.seq != pcb->rcv_nxt || s.ack != pcb->lastack || !s.len ||
	    s.len > pcb->rcv_wnd || pcb->state != ESTABLISHED ||
	    !net_rxq_has_room(p))
		return false;
	if (options)
		net_ts_note(conn, s.seq, s.ts);
	take_window(pcb, &s);
	queue_data(conn, p, &s, TCP_HLEN + options);
	net_count_expected(conn, s.len, 0);
	return true;
}

__attribute__((noinline)) static bool next_stamped(struct net_conn *conn,
						   struct pbuf *p)
{
	return next_with_options(conn, p, NET_TS_BYTES);
}

bool net_predict_next(struct net_conn *conn, struct pbuf *p)
{
	if (conn->pcb.flags & NET_TF_TS)
		return next_stamped(conn, p);
	return next_with_options(conn, p, 0);
}

void net_predict_settle(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;

	tcp_update_rcv_ann_wnd(pcb);
	net_conn_wake_reader(conn);
	if (pcb->unsent || (pcb->flags & TF_ACK_NOW))
		net_conn_queue_output(conn);
	net_timer_after_input(conn);
}
