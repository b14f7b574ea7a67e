/*
 * Data that arrived out of order. It is kept until the hole before it is filled
 * (RFC 9293 3.10.7.4, segment text), and reported to the sender (RFC 2018, RFC
 * 2883).
 *
 * lwIP would keep such segments in a list, which it walks for each one: with a
 * window of megabytes that is thousands of steps per segment. So it never gets
 * any. A connection has ranges (ranges.h), each with its bytes as a list of
 * pbufs; adjacent ranges are merged. lwIP sees the rest of the segment, its ACK
 * and window, and gets a FIN once all data before it has arrived.
 *
 * A sender of single bytes with holes between them could hold every frame.
 * Small pieces are therefore copied into memory of their own size, consecutive
 * ones into one block; once the limit of held frames is reached, all pieces are
 * copied. The number of a connection's ranges is bounded; while memory is
 * short, so are its pieces and those of all connections. Data beyond these
 * bounds is dropped as if the network had lost it.
 */
#include "netstack/tcp/ranges.h"

#include <assert.h>
#include <string.h>

#include "lwip/prot/tcp.h"

#define SCARCE 16u /* pieces of a connection while memory is short */

/* ---- pieces ---- */

static void count_in(struct net_ooseq *q, const struct pbuf *p)
{
	q->pieces++;
	net_here()->ooseq_held++;
	net_here()->ooseq_frames += net_is_frame(p);
}

static void count_out(struct net_ooseq *q, const struct pbuf *p)
{
	q->pieces--;
	net_here()->ooseq_held--;
	net_here()->ooseq_frames -= net_is_frame(p);
}

static void free_pieces(struct net_ooseq *q, struct pbuf *p)
{
	struct pbuf *next;

	for (; p; p = next) {
		next = p->next;
		p->next = NULL;
		count_out(q, p);
		net_pbuf_free(p);
	}
}

/* Takes the first bytes off a range that has more. */
static void cut_range(struct net_ooseq *q, struct net_range *range,
		      uint32_t bytes)
{
	range->begin += bytes;
	q->bytes -= bytes;
	while (bytes >= range->first->len) {
		struct pbuf *p = range->first;

		bytes -= p->len;
		range->first = p->next;
		p->next = NULL;
		count_out(q, p);
		net_pbuf_free(p);
	}
	range->first->payload = (uint8_t *)range->first->payload + bytes;
	range->first->len = (uint16_t)(range->first->len - bytes);
}

/* ---- the queue ---- */

static bool has_room(const struct net_ooseq *q)
{
	if (net_here()->rcv_limit >= TCP_WND)
		return true;
	return net_here()->ooseq_held < net_here()->ooseq_max &&
	       (!q || q->pieces < SCARCE);
}

void net_ooseq_clear(struct net_conn *conn)
{
	struct net_ooseq *q = net_ooseq_of(conn);

	if (!q)
		return;
	for (unsigned i = 0; i < q->n; i++)
		free_pieces(q, net_range_at(q, i)->first);
	conn->pcb.rcv_sacks = NULL;
	net_ranges_free(q);
}

/* Replaces a range's pieces that lie in frames by copies. */
static void copy_range(struct net_ooseq *q, struct net_range *range)
{
	struct pbuf **link = &range->first, *p;

	for (; (p = *link); link = &(*link)->next) {
		struct pbuf *copy =
			net_is_frame(p) ? pbuf_alloc(PBUF_RAW, p->len, PBUF_RAM)
					: NULL;

		if (!copy)
			continue;
		memcpy(copy->payload, p->payload, p->len);
		count_out(q, p);
		count_in(q, copy);
		copy->next = p->next;
		*link = copy;
		if (range->last == p)
			range->last = copy;
		p->next = NULL;
		net_pbuf_free(p);
	}
}

void net_ooseq_copy_frames(struct net_conn *conn)
{
	struct net_ooseq *q = net_ooseq_of(conn);

	for (unsigned i = 0; q && i < q->n; i++)
		copy_range(q, net_range_at(q, i));
}

unsigned net_ooseq_frames(const struct net_conn *conn)
{
	struct net_ooseq *q = net_ooseq_of(conn);
	unsigned n = 0;

	for (unsigned i = 0; q && i < q->n; i++)
		for (struct pbuf *p = net_range_at(q, i)->first; p; p = p->next)
			n += net_is_scarce_frame(p);
	return n;
}

uint64_t net_ooseq_bytes(const struct net_conn *conn)
{
	const struct net_ooseq *q = net_ooseq_of(conn);

	if (!q)
		return 0;
	return net_mem_size(q) + (uint64_t)q->pieces * 1024 +
	       (q->room > NET_BLOCK ? q->room * sizeof(struct net_range) : 0);
}

/* ---- SACK blocks ---- */

/* Puts the range that has just grown first; drops those that are part of it. */
static void put_sack_first(struct net_ooseq *q, const struct net_range *range)
{
	struct tcp_sack_range sacks[NET_SACKS] = {{range->begin, range->end}};
	unsigned n = 1;

	for (unsigned i = 0; i < NET_SACKS && n < NET_SACKS; i++)
		if (q->sacks[i].left != q->sacks[i].right &&
		    q->sacks[i].left - range->begin >=
			    range->end - range->begin)
			sacks[n++] = q->sacks[i];
	memcpy(q->sacks, sacks, sizeof(sacks));
}

/* Drops ranges that have been delivered. */
static void drop_delivered_sacks(struct net_ooseq *q, uint32_t rcv_nxt)
{
	struct tcp_sack_range sacks[NET_SACKS] = {{0, 0}};
	unsigned n = 0;

	for (unsigned i = 0; i < NET_SACKS; i++)
		if (q->sacks[i].left != q->sacks[i].right &&
		    TCP_SEQ_GT(q->sacks[i].left, rcv_nxt))
			sacks[n++] = q->sacks[i];
	memcpy(q->sacks, sacks, sizeof(sacks));
}

static void send_ack(struct net_conn *conn)
{
	tcp_send_empty_ack(&conn->pcb);
	net_timer_check(conn); /* sends it when the port had no room */
}

/*
 * RFC 2883 4: a range that came twice goes first, and before the others the
 * range it is in. On a connection without SACK this is an ordinary ACK.
 */
void net_ooseq_send_dsack(struct net_conn *conn, uint32_t left, uint32_t right)
{
	struct tcp_sack_range *held = conn->pcb.rcv_sacks;
	struct tcp_sack_range sacks[NET_SACKS] = {{left, right}};
	struct net_ooseq *q = net_ooseq_of(conn);
	unsigned n = 1, at;

	if (q) {
		const struct net_range *in;

		at = net_ranges_find(q, right);
		in = net_range_at(q, at);
		if (at < q->n && TCP_SEQ_LEQ(in->begin, left))
			sacks[n++] =
				(struct tcp_sack_range){in->begin, in->end};
		for (unsigned i = 0; i < NET_SACKS && n < NET_SACKS; i++)
			if (n == 1 || held[i].left != sacks[1].left)
				sacks[n++] = held[i];
	}
	conn->pcb.rcv_sacks = sacks;
	send_ack(conn);
	conn->pcb.rcv_sacks = held;
}

/* ---- keeping segments ---- */

/* A segment's data and FIN, in host order. */
struct piece {
	uint32_t begin, end;
	struct pbuf *p;
	bool fin; /* behind end */
};

/* Links p, a chain that it owns, behind a range's last pbuf. */
static void link_behind(struct net_ooseq *q, struct net_range *range,
			struct pbuf *p)
{
	if (range->last && p->len < NET_SMALL_BYTES && !p->next) {
		p = net_rxq_pack(range->last, p);
		if (!p)
			return;
	}
	if (range->last)
		range->last->next = p;
	else
		range->first = p;
	for (; p; p = p->next) {
		count_in(q, p);
		range->last = p;
	}
}

/* Takes bytes off the front of a chain that has more. */
static struct pbuf *trim_front(struct pbuf *p, uint32_t bytes)
{
	while (bytes >= p->len) {
		struct pbuf *next = p->next;

		bytes -= p->len;
		p->next = NULL;
		net_pbuf_free(p);
		p = next;
	}
	p->payload = (uint8_t *)p->payload + bytes;
	p->len = (uint16_t)(p->len - bytes);
	return p;
}

/* Joins to `range` those ranges from `at` on that it reaches now. */
static void join_ranges(struct net_ooseq *q, struct net_range *range,
			unsigned at)
{
	unsigned n = 0;

	for (; at + n < q->n; n++) {
		struct net_range *next = net_range_at(q, at + n);

		if (TCP_SEQ_GT(next->begin, range->end))
			break;
		if (TCP_SEQ_LEQ(next->end, range->end)) {
			free_pieces(q, next->first);
			continue;
		}
		if (next->begin != range->end)
			cut_range(q, next, range->end - next->begin);
		range->last->next = next->first;
		range->last = next->last;
		range->end = next->end;
		q->bytes += next->end - next->begin;
	}
	if (n)
		net_ranges_remove(q, at, n);
}

/*
 * Puts data where it belongs; what is there already stays. False: there is no
 * room for one more range. Owns the pbufs if true.
 */
static bool insert_data(struct net_conn *conn, struct piece *s)
{
	struct net_ooseq *q = net_ooseq_of(conn);
	unsigned at = q ? net_ranges_find(q, s->begin) : 0;
	struct net_range *range;

	if (!q || at == q->n ||
	    TCP_SEQ_GT(net_range_at(q, at)->begin, s->begin)) {
		q = net_ranges_make_room(conn);
		if (!q)
			return false;
		net_ranges_insert(q, at, s->begin);
	}
	range = net_range_at(q, at);
	if (range->end != s->begin)
		s->p = trim_front(s->p, range->end - s->begin);
	link_behind(q, range, s->p);
	q->bytes += s->end - range->end;
	range->end = s->end;
	join_ranges(q, range, at + 1);
	put_sack_first(q, net_range_at(q, at)); /* it may have moved */
	return true;
}

/* Is all of a piece there already? */
static bool is_known(struct net_ooseq *q, const struct piece *s)
{
	unsigned at;

	if (!q || s->begin == s->end)
		return false;
	at = net_ranges_find(q, s->end);
	return at < q->n && TCP_SEQ_LEQ(net_range_at(q, at)->begin, s->begin);
}

/* Notes the FIN's place; a second one elsewhere is a lie. */
static void put_fin(struct net_conn *conn, uint32_t fin)
{
	struct net_ooseq *q = net_ooseq_of(conn);

	if (!q)
		q = net_ranges_make_room(conn);
	if (!q || q->has_fin)
		return;
	q->has_fin = true;
	q->fin = fin;
}

static struct pbuf *copy_of(struct pbuf *p, unsigned len)
{
	struct pbuf *copy = pbuf_alloc(PBUF_RAW, (uint16_t)len, PBUF_RAM);

	if (copy)
		pbuf_copy_partial(p, copy->payload, (uint16_t)len, 0);
	pbuf_free(p);
	return copy;
}

/* Bytes behind the window's edge are dropped, and a FIN there. */
static void keep_in_window(const struct tcp_pcb *pcb, struct piece *s)
{
	uint32_t edge = pcb->rcv_nxt + pcb->rcv_wnd;
	uint32_t room = TCP_SEQ_GT(edge, s->begin) ? edge - s->begin : 0;

	if (s->end - s->begin + s->fin <= room)
		return;
	s->fin = false;
	if (s->end - s->begin <= room)
		return;
	s->end = s->begin + room;
	pbuf_realloc(s->p, (uint16_t)room);
}

/* Keeps what it can; the hole is reported in any case. */
static void keep_piece(struct net_conn *conn, struct piece *s)
{
	struct net_ooseq *q = net_ooseq_of(conn);
	unsigned len = s->end - s->begin;
	bool kept = true;

	if (is_known(q, s)) {
		net_ooseq_send_dsack(conn, s->begin, s->end);
		pbuf_free(s->p);
		return;
	}
	if (len) {
		kept = has_room(q);
		if (kept && net_is_frame(s->p) &&
		    (len < NET_SMALL_BYTES ||
		     net_here()->ooseq_frames >= net_here()->ooseq_max)) {
			s->p = copy_of(s->p, len);
			kept = s->p != NULL;
		}
		kept = kept && insert_data(conn, s);
	}
	if (!kept)
		net_here()->stats.ooseq_drops++;
	else if (s->fin)
		put_fin(conn, s->end);
	if (kept && len)
		net_rcv_wnd_held(conn, net_ooseq_of(conn)->bytes);
	if ((!kept || !len) && s->p)
		pbuf_free(s->p);
	send_ack(conn);
}

/* ---- the segment for lwIP ---- */

/* Does the segment have news beside its data? */
static bool is_news(const struct tcp_pcb *pcb, const struct tcp_hdr *tcp)
{
	uint32_t wnd = lwip_ntohs(tcp->wnd);

	return lwip_ntohl(tcp->ackno) != pcb->lastack ||
	       SND_WND_SCALE(pcb, wnd) != pcb->snd_wnd ||
	       ((pcb->flags & TF_SACK) &&
		TCPH_HDRLEN_BYTES(tcp) > TCP_HLEN + net_ts_bytes(pcb));
}

/* Copies the segment without data and FIN; NULL: no memory. */
static struct pbuf *without_data(const struct pbuf *p)
{
	unsigned len = TCPH_HDRLEN_BYTES((const struct tcp_hdr *)p->payload);
	struct pbuf *bare = pbuf_alloc(PBUF_RAW, (uint16_t)len, PBUF_RAM);
	struct tcp_hdr *tcp;

	if (!bare)
		return NULL;
	tcp = bare->payload;
	pbuf_copy_partial(p, tcp, (uint16_t)len, 0);
	TCPH_FLAGS_SET(tcp, TCPH_FLAGS(tcp) & ~(TCP_FIN | TCP_PSH));
	return bare;
}

struct pbuf *net_ooseq_take(struct net_conn *conn, struct pbuf *p)
{
	const struct tcp_hdr *tcp = p->payload;
	struct tcp_pcb *pcb = &conn->pcb;
	struct pbuf *bare = is_news(pcb, tcp) ? without_data(p) : NULL;
	struct piece s = {
		.begin = lwip_ntohl(tcp->seqno),
		.fin = TCPH_FLAGS(tcp) & TCP_FIN,
	};

	s.p = pbuf_free_header(p, TCPH_HDRLEN_BYTES(tcp));
	s.end = s.begin + (s.p ? s.p->tot_len : 0);
	if (!bare) { /* as lwIP does for any segment */
		if (!(pcb->flags & TF_RXCLOSED))
			pcb->tmr = tcp_ticks;
		pcb->keep_cnt_sent = 0;
		pcb->persist_probe = 0;
	}
	/* Such data is not kept: without a reader data in order resets the
	 * connection, and after the peer's FIN there is none. */
	if ((pcb->flags & TF_RXCLOSED) || pcb->state >= CLOSE_WAIT) {
		if (s.p)
			pbuf_free(s.p);
		send_ack(conn);
		return bare;
	}
	keep_in_window(pcb, &s);
	keep_piece(conn, &s);
	return bare;
}

/* ---- delivering ---- */

/* Passes bytes whose turn has come to the reader; without one, drops them. */
static void hand_over(struct net_conn *conn, struct net_ooseq *q,
		      struct net_range *range)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t len = range->end - range->begin;
	struct pbuf *p, *next;
	bool read = conn->attached && !conn->rd_shut;

	pcb->rcv_nxt += len;
	pcb->rcv_wnd -= LWIP_MIN(len, pcb->rcv_wnd);
	tcp_update_rcv_ann_wnd(pcb);
	if (!read) {
		free_pieces(q, range->first);
		if (conn->attached)
			net_conn_recved(conn, len);
		return;
	}
	net_count_bytes(conn, len, 0);
	for (p = range->first; p; p = next) {
		next = p->next;
		p->next = NULL;
		count_out(q, p);
		net_rxq_append(conn, p);
	}
	net_conn_wake_reader(conn);
}

/* Makes a FIN by itself, as the peer would send it last; NULL: no memory. */
static struct pbuf *make_fin(const struct tcp_pcb *pcb)
{
	struct pbuf *p = pbuf_alloc(PBUF_RAW, TCP_HLEN, PBUF_RAM);
	struct tcp_hdr *tcp;

	if (!p)
		return NULL;
	tcp = p->payload;
	memset(tcp, 0, TCP_HLEN);
	tcp->src = lwip_htons(pcb->remote_port);
	tcp->dest = lwip_htons(pcb->local_port);
	tcp->seqno = lwip_htonl(pcb->rcv_nxt);
	tcp->ackno = lwip_htonl(pcb->lastack);
	TCPH_HDRLEN_FLAGS_SET(tcp, TCP_HLEN / 4, TCP_FIN | TCP_ACK);
	tcp->wnd = lwip_htons((uint16_t)(pcb->snd_wnd >> pcb->snd_scale));
	return p;
}

struct pbuf *net_ooseq_deliver(struct net_conn *conn)
{
	struct net_ooseq *q = net_ooseq_of(conn);
	struct tcp_pcb *pcb = &conn->pcb;
	struct pbuf *fin = NULL;
	unsigned n = 0;

	if (pcb->state >= CLOSE_WAIT) { /* the peer's FIN came before */
		net_ooseq_clear(conn);
		return NULL;
	}
	for (; n < q->n; n++) {
		struct net_range *range = net_range_at(q, n);

		if (TCP_SEQ_GT(range->begin, pcb->rcv_nxt))
			break;
		if (TCP_SEQ_LEQ(range->end, pcb->rcv_nxt)) {
			free_pieces(q, range->first);
			continue;
		}
		if (range->begin != pcb->rcv_nxt)
			cut_range(q, range, pcb->rcv_nxt - range->begin);
		hand_over(conn, q, range);
	}
	if (n)
		net_ranges_remove(q, 0, n);
	if (q->has_fin && TCP_SEQ_LEQ(q->fin, pcb->rcv_nxt)) {
		if (q->fin == pcb->rcv_nxt)
			fin = make_fin(pcb);
		net_ooseq_clear(conn);
		return fin;
	}
	drop_delivered_sacks(q, pcb->rcv_nxt);
	if (q->n) /* RFC 5681 4.2; an ACK with data has no room for SACK */
		send_ack(conn);
	else
		tcp_ack_now(pcb);
	if (q->n == 0 && !q->has_fin)
		net_ooseq_clear(conn);
	return NULL;
}
