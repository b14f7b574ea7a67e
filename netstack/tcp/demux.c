/*
 * Which connection a segment belongs to, in constant time, and the window
 * through which lwIP sees it.
 */
#include "netstack/recovery/path.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

int net_demux_init(unsigned max_conns)
{
	uint32_t n = 1024;
	void *mem;

	while (n < max_conns)
		n *= 2;
	mem = mmap(NULL, n * sizeof(struct net_conn *), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED)
		return -ENOMEM;
	net_the.buckets = mem;
	net_the.bucket_mask = n - 1;
	return 0;
}

void net_demux_fini(void)
{
	munmap(net_the.buckets,
	       (net_the.bucket_mask + 1) * sizeof(struct net_conn *));
	net_the.buckets = NULL;
}

/* Two keyed multiplications folded: flooding one bucket needs the key. */
static inline uint32_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 m = (unsigned __int128)(a ^ net_the.hash_key[0]) *
			      (b ^ net_the.hash_key[1]);
	uint64_t folded = (uint64_t)m ^ (uint64_t)(m >> 64);

	return (uint32_t)(folded ^ (folded >> 32));
}

static inline uint32_t hash4(uint32_t local, uint32_t remote, u16_t local_port,
			     u16_t remote_port)
{
	return mix((uint64_t)remote << 32 | local,
		   (uint64_t)remote_port << 16 | local_port);
}

static uint32_t hash6(const u32_t *local, const u32_t *remote, u16_t local_port,
		      u16_t remote_port)
{
	uint64_t a = (uint64_t)mix((uint64_t)local[0] << 32 | local[1],
				   (uint64_t)local[2] << 32 | local[3]);
	uint64_t b = (uint64_t)mix((uint64_t)remote[0] << 32 | remote[1],
				   (uint64_t)remote[2] << 32 | remote[3]);

	return mix(a << 32 | b, (uint64_t)remote_port << 16 | local_port);
}

static inline uint32_t hash_of(const ip_addr_t *local, u16_t local_port,
			       const ip_addr_t *remote, u16_t remote_port)
{
	if (IP_IS_V6(local))
		return hash6(ip_2_ip6(local)->addr, ip_2_ip6(remote)->addr,
			     local_port, remote_port);
	return hash4(ip_2_ip4(local)->addr, ip_2_ip4(remote)->addr, local_port,
		     remote_port);
}

static inline bool matches(const struct net_conn *conn, const ip_addr_t *local,
			   u16_t local_port, const ip_addr_t *remote,
			   u16_t remote_port)
{
	return conn->pcb.remote_port == remote_port &&
	       conn->pcb.local_port == local_port &&
	       ip_addr_eq(&conn->pcb.remote_ip, remote) &&
	       ip_addr_eq(&conn->pcb.local_ip, local);
}

static inline __attribute__((always_inline)) struct net_conn *
find_hashed(uint32_t hash, const ip_addr_t *local, u16_t local_port,
	    const ip_addr_t *remote, u16_t remote_port)
{
	struct net_conn *conn = net_the.buckets[hash & net_the.bucket_mask];

	for (; conn; conn = conn->hash_next)
		if (conn->hash == hash &&
		    matches(conn, local, local_port, remote, remote_port))
			break;
	return conn;
}

struct net_conn *net_demux_find(const ip_addr_t *local, u16_t local_port,
				const ip_addr_t *remote, u16_t remote_port)
{
	return find_hashed(hash_of(local, local_port, remote, remote_port),
			   local, local_port, remote, remote_port);
}

static void insert(struct net_conn *conn)
{
	struct net_conn **bucket;

	conn->hash = hash_of(&conn->pcb.local_ip, conn->pcb.local_port,
			     &conn->pcb.remote_ip, conn->pcb.remote_port);
	bucket = &net_the.buckets[conn->hash & net_the.bucket_mask];
	conn->hash_next = *bucket;
	*bucket = conn;
	conn->hashed = true;
}

void net_demux_remove(struct net_conn *conn)
{
	struct net_conn **at =
		&net_the.buckets[conn->hash & net_the.bucket_mask];

	if (!conn->hashed)
		return;
	while (*at != conn)
		at = &(*at)->hash_next;
	*at = conn->hash_next;
	conn->hashed = false;
}

/* Where a frame's connection hangs; NULL: of none that IPv4 and TCP know. */
static inline struct net_conn **bucket_of(const struct glue_frame *frame)
{
	const uint8_t *l3 = frame->data + frame->l3_off;
	const struct tcp_hdr *tcp = (const void *)(frame->data + frame->l4_off);
	uint32_t addrs[2], hash;

	if ((frame->flags & (GLUE_FRAME_IP4 | GLUE_FRAME_TCP)) !=
	    (GLUE_FRAME_IP4 | GLUE_FRAME_TCP))
		return NULL;
	memcpy(addrs, l3 + 12, 8);
	hash = hash4(addrs[1], addrs[0], lwip_ntohs(tcp->dest),
		     lwip_ntohs(tcp->src));
	return &net_the.buckets[hash & net_the.bucket_mask];
}

/* As many connections as stay in the cache by themselves. */
#define CACHED_CONNS 2048u

/*
 * A burst's buckets are fetched first; when the first of them has come, so
 * have most, and every connection's lines are fetched. A miss is then paid once
 * a burst and not once a frame. What coroutines need, coro fetches itself.
 */
void net_demux_prefetch(struct glue_frame *const *frames, unsigned n)
{
	struct net_conn **buckets[GLUE_BURST];

	if (net_the.n_conns <= CACHED_CONNS)
		return;
	for (unsigned i = 0; i < n; i++) {
		buckets[i] = bucket_of(frames[i]);
		if (buckets[i])
			__builtin_prefetch(buckets[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		const char *conn = buckets[i] ? (void *)*buckets[i] : NULL;

		for (unsigned at = 0; conn && at < sizeof(struct net_conn);
		     at += 64)
			__builtin_prefetch(conn + at);
	}
}

void net_for_each_conn(void (*fn)(struct net_conn *conn))
{
	for (uint32_t i = 0; i <= net_the.bucket_mask; i++) {
		struct net_conn *next, *conn = net_the.buckets[i];

		for (; conn; conn = next) {
			next = conn->hash_next;
			fn(conn);
		}
	}
}

/*
 * A pcb lwIP has put on a list and we have not seen: a connection that came in
 * for the listener that is shown, or one that net_dial() made.
 */
static void adopt(struct net_conn *conn)
{
	if (conn->hashed)
		return;
	if (conn->pcb.state == SYN_RCVD) {
		conn->listener = net_the.shown;
		conn->listener->pending++;
		conn->pending = true;
		conn->half_open = true;
		net_the.half_open++;
		net_client_half_open(conn);
		tcp_nagle_disable(&conn->pcb);
	}
	insert(conn);
	if (conn->pcb.unsent) /* its first segment: the port had no room */
		net_conn_queue_output(conn);
}

static void drain_list(struct tcp_pcb **list)
{
	while (*list) {
		struct tcp_pcb *pcb = *list;
		struct net_conn *conn = net_conn_of(pcb);

		*list = pcb->next;
		pcb->next = NULL;
		adopt(conn);
		if (pcb->ooseq || conn->ooseq_held)
			net_ooseq_count(conn);
		if (pcb->state == TIME_WAIT)
			net_time_wait_enter(conn);
		net_timer_check(conn);
	}
}

void net_window_drain(void)
{
	if (tcp_active_pcbs)
		drain_list(&tcp_active_pcbs);
	if (tcp_tw_pcbs)
		drain_list(&tcp_tw_pcbs);
}

/* Half-open connections stay within the backlog and half of all. */
static bool may_open(const struct net_listener *listener)
{
	return listener->pending < listener->backlog &&
	       net_the.half_open < (net_the.max_conns + 1) / 2;
}

/*
 * A segment of no connection: lwIP is shown the listener of its address and
 * port, if there is one. A SYN beyond what that one may have half open is
 * answered with a cookie; where nobody accepts, it is dropped, to come again.
 * False if it is dealt with. An ACK with a cookie gives a connection.
 */
static bool show_listener(struct pbuf **p, struct netif *inp,
			  struct net_conn **conn)
{
	const struct tcp_hdr *tcp = (*p)->payload;
	u8_t flags = net_the.rx_flags & (TCP_SYN | TCP_ACK | TCP_RST);
	bool cookie = flags == TCP_ACK && net_cookie_hot();
	struct net_listener *listener = net_listener_find(
		ip_current_dest_addr(), lwip_ntohs(tcp->dest));

	if (!listener || listener->draining)
		return true; /* a RST is the answer to it */
	if ((flags == TCP_SYN || cookie) &&
	    listener->queued >= listener->backlog) {
		net_the.stats.backlog_drops++;
		return false;
	}
	if (flags == TCP_SYN && net_the.memory_full) {
		net_the.stats.memory_refused++;
		return false;
	}
	if (flags == TCP_SYN) {
		switch (net_clients_admit(listener, ip_current_src_addr())) {
		case NET_ADMIT_NOT:
			net_the.stats.clients_refused++;
			return false;
		case NET_ADMIT_COOKIE:
			net_cookie_send(*p);
			return false;
		case NET_ADMIT:
			if (may_open(listener))
				break;
			net_cookie_send(*p);
			return false;
		}
	}
	net_the.shown = listener;
	listener->pcb->next = NULL;
	tcp_listen_pcbs.pcbs = listener->pcb;
	if (!cookie)
		return true;
	switch (net_cookie_take(*p, inp, conn)) {
	case NET_COOKIE_NONE:
		return true;
	case NET_COOKIE_NO_ROOM:
		return false;
	case NET_COOKIE_TAKEN:
		break;
	}
	return net_check_cookie(*conn, p);
}

/* net_window_drain() after a segment that has left its connection open. */
static inline void drain_open(struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (__builtin_expect(tcp_active_pcbs != pcb || pcb->next ||
				     tcp_tw_pcbs || pcb->ooseq ||
				     conn->ooseq_held,
			     0)) {
		net_window_drain();
		return;
	}
	tcp_active_pcbs = NULL;
	net_timer_check(conn);
}

/* RFC 9293 3.7.1: who names no MSS takes 1220 bytes over IPv6; lwIP: 536. */
static void settle_mss(struct tcp_pcb *pcb)
{
	if (!net_the.rx_has_mss && IP_IS_V6_VAL(pcb->remote_ip) &&
	    pcb->mss == 536)
		pcb->mss = 1220;
}

/*
 * RFC 6928: ten segments of initial window, but no more than 14600 bytes where
 * two are less. lwIP sets its own smaller one when the handshake ends.
 */
static void raise_initial_window(struct tcp_pcb *pcb)
{
	u32_t window =
		LWIP_MIN(10u * pcb->mss, LWIP_MAX(2u * pcb->mss, 14600u));

	if (pcb->cwnd < window)
		pcb->cwnd = window;
}

/*
 * lwIP cuts segments to half the largest window it has seen, or to the MSS
 * while that is none: a window that opens from 0 to little makes it see less
 * room in what is queued than is used, and fill it with 64 KiB. It begins with
 * no less than two of the smallest segments there are.
 */
static void settle_window(struct tcp_pcb *pcb)
{
	if (pcb->snd_wnd_max < 2 * NET_MSS_FLOOR)
		pcb->snd_wnd_max = 2 * NET_MSS_FLOOR;
}

/*
 * While memory is short a connection begins with a small window: all but what
 * the SYN has announced.
 */
static void lower_window(struct tcp_pcb *pcb)
{
	u32_t announced = pcb->rcv_ann_right_edge - pcb->rcv_nxt;
	u32_t window = LWIP_MAX(net_the.rcv_most, TCPWND_MIN16(TCP_WND));

	if ((s32_t)announced > 0 && window < announced)
		window = announced;
	if (window < pcb->rcv_wnd)
		pcb->rcv_wnd = pcb->rcv_ann_wnd = window;
}

/* After a segment of a handshake: what lwIP sees otherwise than we. */
static void settle_handshake(enum tcp_state before)
{
	struct tcp_pcb *pcb = tcp_active_pcbs; /* in the window: alive */

	if (!pcb)
		return;
	if (before != SYN_RCVD)
		settle_mss(pcb);
	settle_window(pcb);
	net_path_settle(net_conn_of(pcb));
	if (pcb->state < ESTABLISHED)
		return;
	net_half_open_ends(net_conn_of(pcb));
	raise_initial_window(pcb);
	if (__builtin_expect(net_the.rcv_most < pcb->rcv_wnd, 0))
		lower_window(pcb);
}

/*
 * RFC 9293 3.10.7.4: a SYN beyond everything received opens anew what is in
 * TIME_WAIT; it is then any other SYN.
 */
static bool reopens(const struct net_conn *conn, const struct tcp_hdr *tcp)
{
	return conn->pcb.state == TIME_WAIT &&
	       (TCPH_FLAGS(tcp) & (TCP_SYN | TCP_ACK)) == TCP_SYN &&
	       (s32_t)(lwip_ntohl(tcp->seqno) - conn->pcb.rcv_nxt) > 0;
}

/*
 * The old connection goes. The new one's numbers lie beyond all of its own,
 * also when it sent faster than the clock of RFC 6528 runs (RFC 9293
 * 3.10.7.4).
 */
static void reopen(struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	u32_t isn = net_isn(&pcb->local_ip, pcb->local_port, &pcb->remote_ip,
			    pcb->remote_port);

	if ((s32_t)(isn - pcb->snd_nxt) <= 0)
		isn = pcb->snd_nxt + 1 + (net_random() & 0xffff);
	net_the.isn = isn;
	net_the.isn_given = true;
	tcp_abort(&conn->pcb); /* of TIME_WAIT: sends nothing */
}

/*
 * lwIP's slow start grows by two segments an ACK, however many it covers. Our
 * own receiver, like a kernel's behind GRO, acknowledges a whole burst at
 * once: RFC 9406 4.2 counts up to eight.
 */
static void grow_in_slow_start(struct tcp_pcb *pcb, uint32_t lastack,
			       uint32_t cwnd)
{
	uint32_t acked = pcb->lastack - lastack;

	if (acked <= 2u * pcb->mss || pcb->cwnd != cwnd + 2u * pcb->mss)
		return; /* not in slow start, or not held back */
	pcb->cwnd = cwnd + LWIP_MIN(acked, 8u * pcb->mss);
}

err_t net_segment_in(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		     u16_t optlen, u16_t opt1len, const u8_t *opt2,
		     const struct pbuf *p)
{
	if (pcb->state != LISTEN)
		net_rec_input(pcb, hdr, opt1len, p);
	return ERR_OK;
}

/* net_demux_find() for the segment at hand, inlined. */
static inline struct net_conn *find_current(const struct tcp_hdr *tcp)
{
	const ip_addr_t *local = ip_current_dest_addr();
	const ip_addr_t *remote = ip_current_src_addr();
	u16_t local_port = lwip_ntohs(tcp->dest);
	u16_t remote_port = lwip_ntohs(tcp->src);

	return find_hashed(hash_of(local, local_port, remote, remote_port),
			   local, local_port, remote, remote_port);
}

/* What ip4.c and ip6.c call for each TCP segment; owns p. */
void net_tcp_input(struct pbuf *p, struct netif *inp)
{
	const struct tcp_hdr *tcp = p->payload;
	struct net_conn *conn;
	enum tcp_state before = CLOSED;
	bool watched = false;
	bool lingering = false;
	uint32_t lastack = 0, cwnd = 0, wnd = 0;

	if (!net_check_header(p)) {
		net_the.stats.rx_bad_frame++;
		pbuf_free(p);
		return;
	}
	net_the.rx_flags = TCPH_FLAGS(tcp);
	conn = find_current(tcp);
	if (conn && reopens(conn, tcp)) {
		reopen(conn);
		conn = NULL;
	}
	if (conn ? !net_check_conn(conn, &p)
		 : !net_check_stranger(p) || !show_listener(&p, inp, &conn)) {
		tcp_listen_pcbs.pcbs = NULL;
		net_the.isn_given = false;
		pbuf_free(p);
		return;
	}
	if (conn) {
		net_count_in(conn, p);
		before = conn->pcb.state;
		watched = conn->watched;
		lingering = conn->lingering;
		lastack = conn->pcb.lastack;
		cwnd = conn->pcb.cwnd;
		if (before == SYN_SENT && net_dial_crossed(conn, tcp)) {
			pbuf_free(p);
			return;
		}
		wnd = conn->pcb.snd_wnd;
		conn->pcb.next = NULL;
		if (before == TIME_WAIT)
			tcp_tw_pcbs = &conn->pcb;
		else
			tcp_active_pcbs = &conn->pcb;
	}
	tcp_input(p, inp);
	tcp_listen_pcbs.pcbs = NULL;
	net_the.isn_given = false;
	if (lingering) /* its FIN may be acknowledged; the waiter keeps it */
		net_wake(conn->writer);
	if (before < ESTABLISHED)
		settle_handshake(before);
	else if (conn && tcp_active_pcbs == &conn->pcb) { /* alive */
		if (conn->pcb.nrtx && conn->pcb.snd_wnd > wnd)
			net_persist_window_opened(&conn->pcb);
		if (conn->repairing)
			net_rec_after_input(conn);
		else
			grow_in_slow_start(tcp_active_pcbs, lastack, cwnd);
		drain_open(conn);
	}
	net_window_drain();
	if (watched)
		net_conn_tell(conn); /* it has an owner, so it is there */
}
