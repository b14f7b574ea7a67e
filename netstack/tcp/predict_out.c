/*
 * Header prediction for output: does what tcp_write() and tcp_output() do for
 * data that begins new segments, for ordinary segments and for pure ACKs,
 * without the cases that do not apply. It leaves the pcb and its queues as lwIP
 * would have left them, so that the next event (a loss, a timeout, the end) can
 * be processed by lwIP.
 */
#include "netstack/tcp/tcp.h"

#include <string.h>

#include "lwip/prot/tcp.h"

/* A header of 20 bytes, or 32, with nothing but ACK and PSH, if any. */
#define PLAIN_BITS   PP_HTONS(0x5000)
#define STAMPED_BITS PP_HTONS(0x8000)
#define PLAIN_MASK   PP_HTONS((uint16_t) ~(TCP_ACK | TCP_PSH))

/* The bits of a header with this many bytes of options: none, or a
 * timestamp. */
static inline uint16_t header_bits(unsigned options)
{
	return options ? STAMPED_BITS : PLAIN_BITS;
}

/* Functions of the common case are compiled twice, for either option length. */
#define TWICE static inline __attribute__((always_inline))

/* ---- writing ---- */

static err_t no_memory(struct tcp_pcb *pcb)
{
	tcp_set_flags(pcb, TF_NAGLEMEMERR);
	return ERR_MEM;
}

/* A segment of len bytes, `off` behind what is queued. NULL: no memory. */
TWICE struct tcp_seg *make_seg(const struct tcp_pcb *pcb, const void *data,
			       unsigned off, unsigned len, unsigned options)
{
	struct tcp_seg *seg = net_seg_new(options + len);
	struct tcp_hdr *tcp;

	if (!seg)
		return NULL;
	tcp = seg->tcphdr;
	seg->next = NULL;
	seg->len = (uint16_t)len;
	seg->flags = 0;
	tcp->src = lwip_htons(pcb->local_port);
	tcp->dest = lwip_htons(pcb->remote_port);
	tcp->seqno = lwip_htonl(pcb->snd_lbb + off);
	tcp->_hdrlen_rsvd_flags = header_bits(options);
	tcp->urgp = 0;
	memcpy((uint8_t *)(tcp + 1) + options, data, len);
	return seg;
}

static inline void set_push(struct tcp_seg *seg)
{
	seg->tcphdr->_hdrlen_rsvd_flags |= PP_HTONS(TCP_PSH);
}

static inline void count_queued(struct tcp_pcb *pcb, unsigned len,
				unsigned pbufs)
{
	pcb->snd_lbb += len;
	pcb->snd_buf -= len;
	pcb->snd_queuelen = (uint16_t)(pcb->snd_queuelen + pbufs);
}

/*
 * Would lwIP begin a segment with these bytes, and allocate the last one
 * without room for more? *most is how long one may be.
 */
static inline bool may_write(const struct tcp_pcb *pcb, uint16_t len,
			     uint32_t *most)
{
	uint32_t half = TCPWND_MIN16(pcb->snd_wnd_max / 2);

	*most = LWIP_MIN(pcb->mss, half);
	return net_here()->predicts && pcb->state == ESTABLISHED &&
	       len <= pcb->snd_buf &&
	       ((pcb->flags & TF_NODELAY) ||
		(len <= *most && !pcb->unacked && !pcb->unsent));
}

static void free_all(struct tcp_seg *seg)
{
	while (seg) {
		struct tcp_seg *next = seg->next;

		net_seg_free(seg);
		seg = next;
	}
}

/* Like make_seg(), but refers to its bytes. */
static struct tcp_seg *make_reference(const struct tcp_pcb *pcb,
				      const void *data, unsigned off,
				      unsigned len)
{
	struct pbuf *ref = pbuf_alloc_reference((void *)(uintptr_t)data,
						(uint16_t)len, PBUF_ROM);
	struct tcp_seg *seg =
		ref ? make_seg(pcb, "", off, 0, net_ts_bytes(pcb)) : NULL;

	if (!seg) {
		if (ref)
			pbuf_free(ref);
		return NULL;
	}
	pbuf_cat(seg->p, ref);
	seg->len = (uint16_t)len;
	return seg;
}

/* Queues segments behind those that wait to leave: the last one is full. */
static err_t write_behind(struct tcp_pcb *pcb, const uint8_t *data,
			  uint16_t len, uint32_t most, bool refers)
{
	struct tcp_seg *first = NULL, **link = &first, *seg = NULL, *last;
	unsigned n = (len + most - 1) / most, pbufs = refers ? 2 * n : n;

	last = pcb->unsent ? net_unsent_last(pcb) : NULL;
	if ((last && last->len < most) ||
	    pcb->snd_queuelen + pbufs > TCP_SND_QUEUELEN)
		return ERR_INPROGRESS;
	for (unsigned off = 0; off < len; off += seg->len) {
		unsigned part = LWIP_MIN(len - off, most);

		seg = refers ? make_reference(pcb, data + off, off, part)
			     : make_seg(pcb, data + off, off, part,
					net_ts_bytes(pcb));
		if (!seg) {
			free_all(first);
			return no_memory(pcb);
		}
		*link = seg;
		link = &seg->next;
	}
	set_push(seg);
	if (last)
		last->next = first;
	else
		pcb->unsent = first;
	count_queued(pcb, len, pbufs);
	return ERR_OK;
}

TWICE err_t write_some(struct net_conn *conn, const void *data, uint16_t len,
		       unsigned options)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct tcp_seg *seg;
	uint32_t most;

	if (!may_write(pcb, len, &most))
		return ERR_INPROGRESS;
	if (pcb->unsent || len > most)
		return write_behind(pcb, data, len, most, false);
	if (pcb->snd_queuelen >= TCP_SND_QUEUELEN)
		return ERR_INPROGRESS;
	seg = make_seg(pcb, data, 0, len, options);
	if (!seg)
		return no_memory(pcb);
	set_push(seg);
	pcb->unsent = seg;
	pcb->unsent_near = 0;
	count_queued(pcb, len, 1);
	return ERR_OK;
}

__attribute__((noinline)) static err_t
write_stamped(struct net_conn *conn, const void *data, uint16_t len)
{
	return write_some(conn, data, len, NET_TS_BYTES);
}

err_t net_predict_write(struct net_conn *conn, const void *data, uint16_t len)
{
	if (conn->pcb.flags & NET_TF_TS)
		return write_stamped(conn, data, len);
	return write_some(conn, data, len, 0);
}

err_t net_predict_refer(struct net_conn *conn, const void *data, uint16_t len)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t most;

	if (!may_write(pcb, len, &most))
		return ERR_INPROGRESS;
	return write_behind(pcb, data, len, most, true);
}

/* ---- sending ---- */

/* Does Nagle's algorithm, as in tcp_output(), let it go? */
static inline bool nagle_lets_go(const struct tcp_pcb *pcb)
{
	return (pcb->flags & TF_NODELAY) || !pcb->unacked;
}

static inline bool is_plain(const struct tcp_pcb *pcb,
			    const struct tcp_seg *seg, unsigned options)
{
	const struct pbuf *p = seg->p;

	return p->ref == 1 && !seg->flags && seg->len &&
	       (seg->tcphdr->_hdrlen_rsvd_flags & PLAIN_MASK) ==
		       header_bits(options) &&
	       p->payload == seg->tcphdr && net_seg_begin(seg) == pcb->snd_nxt;
}

static inline void fill_header(struct tcp_pcb *pcb, struct tcp_hdr *tcp,
			       unsigned options)
{
	tcp->_hdrlen_rsvd_flags |= PP_HTONS(TCP_ACK);
	tcp->ackno = lwip_htonl(pcb->rcv_nxt);
	tcp->wnd =
		lwip_htons(TCPWND_MIN16(RCV_WND_SCALE(pcb, pcb->rcv_ann_wnd)));
	tcp->chksum = 0;
	if (options)
		net_ts_refresh(pcb, tcp + 1);
}

/* Moves the head of `unsent`, which has left, behind the last of `unacked`. */
static inline void move_on(struct tcp_pcb *pcb)
{
	struct tcp_seg *seg = pcb->unsent, *last;

	pcb->rcv_ann_right_edge = pcb->rcv_nxt + pcb->rcv_ann_wnd;
	if (pcb->rtime < 0)
		pcb->rtime = 0;
	pcb->persist_on = 0;
	pcb->snd_nxt += seg->len;
	pcb->unsent = net_unsent_leave(pcb, seg);
	if (!pcb->unsent)
		pcb->unsent_oversize = 0;
	tcp_clear_flags(pcb, TF_ACK_DELAY | TF_ACK_NOW);
	seg->next = NULL;
	if (pcb->unacked) {
		last = net_unacked_last(pcb);
		last->next = net_unacked_append(pcb, seg);
	} else {
		pcb->unacked = seg;
	}
}

static inline bool may_leave(const struct tcp_pcb *pcb, uint32_t wnd,
			     unsigned options)
{
	uint32_t under_way = pcb->snd_nxt - pcb->lastack;

	return pcb->unsent && under_way <= wnd &&
	       pcb->unsent->len <= wnd - under_way && nagle_lets_go(pcb) &&
	       is_plain(pcb, pcb->unsent, options);
}

/* Like tcp_send_empty_ack(), if there is no SACK to send. */
static bool send_ack(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	unsigned options = net_ts_bytes(pcb), len = TCP_HLEN + options;
	struct {
		struct tcp_hdr tcp;
		uint8_t options[NET_TS_BYTES];
	} header = {
		.tcp.src = lwip_htons(pcb->local_port),
		.tcp.dest = lwip_htons(pcb->remote_port),
		.tcp.seqno = lwip_htonl(pcb->snd_nxt),
		.tcp._hdrlen_rsvd_flags = header_bits(options),
	};
	struct pbuf p = {.payload = &header,
			 .len = (uint16_t)len,
			 .tot_len = (uint16_t)len};

	if (!(pcb->flags & TF_ACK_NOW) || pcb->rcv_sacks ||
	    pcb->snd_nxt - pcb->lastack > pcb->snd_wnd)
		return false; /* also if the peer may not take this number */
	fill_header(pcb, &header.tcp, options);
	if (!net_link_send_tcp(pcb, &p))
		return false;
	net_count_sent(conn, 0);
	pcb->rcv_ann_right_edge = pcb->rcv_nxt + pcb->rcv_ann_wnd;
	tcp_clear_flags(pcb, TF_ACK_DELAY | TF_ACK_NOW);
	return true;
}

/* Would tcp_output() do nothing? */
static inline bool has_nothing(const struct tcp_pcb *pcb)
{
	return !pcb->unsent && !(pcb->flags & (TF_ACK_NOW | TF_NAGLEMEMERR));
}

TWICE bool send_unsent(struct net_conn *conn, unsigned options)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t wnd = LWIP_MIN(pcb->snd_wnd, pcb->cwnd);

	if (pcb->state != ESTABLISHED)
		return has_nothing(pcb);
	if (!pcb->unsent)
		return has_nothing(pcb) || send_ack(conn);
	if (!may_leave(pcb, wnd, options))
		return false;
	do {
		const struct pbuf *p = pcb->unsent->p;

		fill_header(pcb, pcb->unsent->tcphdr, options);
		if (!net_link_send_tcp(pcb, p))
			return false;
		net_count_sent(conn, pcb->unsent->len);
		net_recovery_segment_out(pcb, p);
		move_on(pcb);
	} while (may_leave(pcb, wnd, options));
	if (pcb->unsent)
		return false;
	tcp_clear_flags(pcb, TF_NAGLEMEMERR); /* as lwIP does, last of all */
	return true;
}

/*
 * Segments of a traced connection pass net_segment_out(), which traces them.
 * With ECN new data leaves as ECN-capable and an ACK does not (RFC 3168 6.1.4);
 * lwIP sends segments with ECE or CWR, by net_segment_out().
 */
__attribute__((noinline)) static bool output_agreed(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (pcb->flags & (NET_TF_ECN | NET_TF_TRACED)) {
		if (pcb->flags & NET_TF_TRACED)
			return false;
		if (!net_ecn_is_quiet(pcb))
			return false;
		net_ecn_set_ect(pcb, pcb->unsent);
	}
	return pcb->flags & NET_TF_TS ? send_unsent(conn, NET_TS_BYTES)
				      : send_unsent(conn, 0);
}

bool net_predict_output(struct net_conn *conn)
{
	if (conn->pcb.flags & (NET_TF_TS | NET_TF_ECN | NET_TF_TRACED))
		return output_agreed(conn);
	return send_unsent(conn, 0);
}
