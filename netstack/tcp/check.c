/*
 * Decides which segments lwIP may see: those with valid headers and options
 * that, for a connection, are acceptable by RFC 9293 3.10.7 and RFC 5961.
 *
 * lwIP accepts the ACK of a segment whose sequence number is far outside the
 * window, data without an ACK, and an MSS option at any time. So each segment
 * is checked here before lwIP sees it; segments are still in network byte
 * order.
 */
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

#define MSS_LEN	     4
#define WSCALE_LEN   3
#define SACK_OK_LEN  2
#define TS_LEN	     10
#define CHALLENGE_MS 500u /* between two challenges on a connection */
#define PROBE_MS     20u  /* between two answers to probes */

struct segment {
	uint32_t seq, ack, len; /* len counts SYN and FIN */
	uint8_t flags;
};

/* When the last challenge ACK of any connection was sent. */
static NET_SHARD_VAR uint32_t last_challenge_ms;
#define last_challenge_ms NET_SHARD(last_challenge_ms)

/* ---- header and options ---- */

static bool option_ok(const uint8_t *opt, unsigned room)
{
	if (room < 2 || opt[1] < 2 || opt[1] > room)
		return false;
	switch (opt[0]) {
	case NET_OPT_MSS:
		return opt[1] == MSS_LEN;
	case NET_OPT_WSCALE:
		return opt[1] == WSCALE_LEN;
	case NET_OPT_SACK_OK:
		return opt[1] == SACK_OK_LEN;
	case NET_OPT_TS:
		return opt[1] == TS_LEN;
	default:
		return true;
	}
}

/*
 * lwIP's option parser trusts the lengths it reads: options that run past the
 * header, or are shorter than themselves, are refused before (RFC 9293 3.1).
 */
static bool options_ok(const uint8_t *opt, unsigned len)
{
	while (len && *opt != NET_OPT_END) {
		unsigned step = 1;

		if (*opt != NET_OPT_NOP) {
			if (!option_ok(opt, len))
				return false;
			step = opt[1];
		}
		opt += step;
		len -= step;
	}
	return true;
}

bool net_check_header(const struct pbuf *p)
{
	const struct tcp_hdr *tcp = p->payload;
	unsigned header;
	uint8_t flags;

	if (p->len < TCP_HLEN)
		return false;
	header = TCPH_HDRLEN_BYTES(tcp);
	flags = TCPH_FLAGS(tcp);
	if (header < TCP_HLEN || header > p->len)
		return false;
	if ((flags & (TCP_SYN | TCP_FIN)) == (TCP_SYN | TCP_FIN) ||
	    (flags & (TCP_SYN | TCP_RST)) == (TCP_SYN | TCP_RST))
		return false;
	return options_ok((const uint8_t *)tcp + TCP_HLEN, header - TCP_HLEN);
}

const uint8_t *net_tcp_option(const struct tcp_hdr *tcp, uint8_t kind)
{
	const uint8_t *opt = (const uint8_t *)(tcp + 1);
	const uint8_t *end = (const uint8_t *)tcp + TCPH_HDRLEN_BYTES(tcp);

	while (opt < end && *opt != NET_OPT_END) {
		if (*opt == kind)
			return opt;
		opt += *opt == NET_OPT_NOP ? 1 : opt[1];
	}
	return NULL;
}

/*
 * Walks options that net_check_header() has passed. In a handshake's first
 * segment a tiny MSS is raised: it would have us send a frame a byte. Anywhere
 * else MSS, window scale and SACK-permitted mean nothing (RFC 9293 3.2, RFC
 * 7323 2.1, RFC 2018 2), but lwIP would apply them, and forget the MTU for
 * that: they become NOPs.
 */
static bool mend_options(struct pbuf *p, bool handshake)
{
	uint8_t *opt = (uint8_t *)p->payload + TCP_HLEN;
	const uint8_t *end = (uint8_t *)p->payload +
			     TCPH_HDRLEN_BYTES((struct tcp_hdr *)p->payload);
	bool has_mss = false;

	while (opt < end && *opt != NET_OPT_END) {
		unsigned step = *opt == NET_OPT_NOP ? 1 : opt[1];

		if (handshake && *opt == NET_OPT_MSS) {
			has_mss = true;
			if ((opt[2] << 8 | opt[3]) < (int)NET_MSS_FLOOR) {
				opt[2] = 0;
				opt[3] = NET_MSS_FLOOR;
			}
		} else if (!handshake && *opt >= NET_OPT_MSS &&
			   *opt <= NET_OPT_SACK_OK) {
			memset(opt, NET_OPT_NOP, step);
		}
		opt += step;
	}
	return has_mss;
}

/* ---- challenges ---- */

/*
 * RFC 5961 section 7: at most one answer in half a second to segments that only
 * an attacker or a confused peer sends. Answers are counted for each
 * connection, so that nobody can infer from one how many another gets
 * (CVE-2016-5696).
 */
static void answer_after(struct net_conn *conn, uint32_t pause_ms)
{
	struct net_conn_ext *ext = net_conn_ext(conn);
	uint32_t now_ms = net_now_ms();

	/* Without memory to count by connection, all get one a millisecond. */
	if (!ext ? last_challenge_ms == now_ms
		 : conn->challenged && now_ms - ext->challenged_ms < pause_ms)
		return;
	if (ext) {
		conn->challenged = true;
		ext->challenged_ms = now_ms;
	}
	last_challenge_ms = now_ms;
	net_here()->stats.challenge_acks++;
	tcp_send_empty_ack(&conn->pcb);
	net_timer_check(conn); /* sends it when memory was short */
}

static void challenge_peer(struct net_conn *conn)
{
	answer_after(conn, CHALLENGE_MS);
}

/* ---- segments of a connection ---- */

/*
 * RFC 9293 3.10.7.3. An ACK of anything but our SYN draws a reset and is
 * discarded: lwIP would also repeat the SYN at once, and give up after six.
 */
static bool check_syn_sent(const struct tcp_pcb *pcb, const struct segment *s)
{
	bool acked = (s->flags & TCP_ACK) && s->ack == pcb->snd_nxt;

	if (s->flags & TCP_RST)
		return acked;
	if ((s->flags & TCP_ACK) && !acked) {
		net_rst_reply(pcb, s->ack, 0, &pcb->local_ip, &pcb->remote_ip,
			      pcb->local_port, pcb->remote_port);
		return false;
	}
	return s->flags & TCP_SYN; /* with an ACK or, crossing ours, without */
}

/*
 * Both sides dialed, and each answers the other's SYN (RFC 9293 3.5, figure 8).
 * Only the ACK of the answer counts; its SYN has been taken already.
 */
static void strip_crossed_syn(const struct net_conn *conn, struct tcp_hdr *tcp)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (!conn->connecting ||
	    (TCPH_FLAGS(tcp) & (TCP_SYN | TCP_ACK | TCP_RST)) !=
		    (TCP_SYN | TCP_ACK) ||
	    lwip_ntohl(tcp->seqno) + 1 != pcb->rcv_nxt ||
	    lwip_ntohl(tcp->ackno) != pcb->snd_nxt)
		return;
	tcp->seqno = lwip_htonl(pcb->rcv_nxt);
	TCPH_FLAGS_SET(tcp, TCPH_FLAGS(tcp) & ~TCP_SYN);
	/* A SYN's window is not scaled (RFC 7323 2.2), that of an ACK is. */
	tcp->wnd =
		lwip_htons((uint16_t)(lwip_ntohs(tcp->wnd) >> pcb->snd_scale));
}

/* RFC 1337: a reset ends no TIME_WAIT. An old SYN is only acknowledged. */
static bool check_time_wait(struct net_conn *conn, const struct segment *s)
{
	if (s->flags & TCP_RST)
		return false;
	if (s->flags & TCP_SYN)
		challenge_peer(conn);
	return (s->flags & (TCP_SYN | TCP_ACK)) == TCP_ACK;
}

/*
 * RFC 9293 3.10.7.4, first check. A peer may send one byte as a probe into a
 * closed window, and its next segments have the number behind that.
 */
static bool seq_ok(const struct tcp_pcb *pcb, const struct segment *s)
{
	uint32_t ahead = s->seq - pcb->rcv_nxt;

	if (ahead <= (pcb->rcv_wnd ? pcb->rcv_wnd : 1))
		return true;
	return (int32_t)ahead < 0 && (int32_t)(ahead + s->len) > 0;
}

/* RFC 5961 5.2: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT. */
static inline bool ack_ok(const struct tcp_pcb *pcb, uint32_t ack)
{
	return pcb->snd_nxt - ack <=
	       pcb->snd_nxt - pcb->lastack + pcb->snd_wnd_max;
}

/*
 * Is it a keepalive or a probe of our window, with the number before the next
 * one? A sender that knows that and our numbers is no stranger, and may be
 * about to give us up.
 */
static bool is_probe(const struct tcp_pcb *pcb, const struct segment *s)
{
	return s->seq == pcb->rcv_nxt - 1 && ack_ok(pcb, s->ack);
}

/* RFC 5961 3.2: the next number resets; any in the window is challenged. */
static bool check_rst(struct net_conn *conn, const struct segment *s)
{
	uint32_t ahead = s->seq - conn->pcb.rcv_nxt;

	if (ahead == 0)
		return true;
	if (ahead < conn->pcb.rcv_wnd)
		challenge_peer(conn);
	return false;
}

/* RFC 5961 4.2; on a half-open connection the very same SYN may come again. */
static bool check_syn(struct net_conn *conn, const struct segment *s)
{
	if (conn->pcb.state == SYN_RCVD && !(s->flags & TCP_ACK) &&
	    s->seq == conn->pcb.rcv_nxt - 1)
		return true;
	challenge_peer(conn);
	return false;
}

/* Answers a segment that lies behind or beyond the window. */
static void answer_again(struct net_conn *conn, const struct segment *s)
{
	uint32_t end = s->seq + s->len;

	if (TCP_SEQ_LEQ(end, conn->pcb.rcv_nxt))
		net_ooseq_send_dsack(conn, s->seq, end);
	else
		tcp_send_empty_ack(&conn->pcb);
}

static bool check_synchronised(struct net_conn *conn, const struct segment *s)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (s->flags & TCP_RST)
		return check_rst(conn, s);
	if (s->flags & TCP_SYN)
		return check_syn(conn, s);
	if (!(s->flags & TCP_ACK))
		return false;
	if (!seq_ok(pcb, s)) {
		if (s->len) { /* the ACK of what came before was lost */
			answer_again(conn, s);
			net_recovery_asked_again(conn, s->seq + s->len, s->ack);
			net_timer_check(conn);
		} else if (is_probe(pcb, s)) {
			answer_after(conn, PROBE_MS);
		} else {
			challenge_peer(conn);
		}
		return false;
	}
	if (pcb->state == SYN_RCVD || ack_ok(pcb, s->ack))
		return true; /* in SYN_RCVD lwIP resets a wrong one */
	challenge_peer(conn);
	return false;
}

/*
 * RFC 7323 3.2 and 5.3 R1, on a connection that has agreed on timestamps: a
 * segment without one is dropped in silence, an old one is acknowledged. A
 * reset needs none, and a SYN is challenged in any case (RFC 5961 4).
 */
static bool check_timestamp(struct net_conn *conn, const struct tcp_hdr *tcp,
			    const struct segment *s, struct net_ts *ts)
{
	if (s->flags & (TCP_RST | TCP_SYN))
		return true;
	if (!net_ts_read(tcp, ts))
		return false;
	if (!net_ts_is_old(conn, ts->value))
		return true;
	if (s->len) {
		answer_again(conn, s);
		net_timer_check(conn);
	} else {
		challenge_peer(conn);
	}
	return false;
}

static bool check_slowly(struct net_conn *conn, const struct segment *s)
{
	switch (conn->pcb.state) {
	case CLOSED:
	case LISTEN:
		return true;
	case SYN_SENT:
		return check_syn_sent(&conn->pcb, s);
	case TIME_WAIT:
		return check_time_wait(conn, s);
	case SYN_RCVD:
	case ESTABLISHED:
	case FIN_WAIT_1:
	case FIN_WAIT_2:
	case CLOSE_WAIT:
	case CLOSING:
	case LAST_ACK:
		break;
	}
	return check_synchronised(conn, s);
}

/* Is it like nearly every segment? */
static inline bool is_ordinary(const struct tcp_pcb *pcb,
			       const struct segment *s)
{
	return pcb->state >= ESTABLISHED && pcb->state < TIME_WAIT &&
	       (s->flags & (TCP_SYN | TCP_RST | TCP_ACK)) == TCP_ACK &&
	       s->seq - pcb->rcv_nxt <= pcb->rcv_wnd && ack_ok(pcb, s->ack);
}
static_assert(ESTABLISHED == 4 && TIME_WAIT == 10,
	      "what lies between are the synchronised states that talk");

static inline __attribute__((always_inline)) bool
check_conn(struct net_conn *conn, struct pbuf **p)
{
	struct tcp_hdr *tcp = (*p)->payload;
	struct tcp_pcb *pcb = &conn->pcb;
	unsigned header = TCPH_HDRLEN_BYTES(tcp);
	unsigned bytes = (*p)->tot_len - header;
	bool stamped = (pcb->flags & NET_TF_TS) && pcb->state > SYN_SENT;
	struct segment s;
	struct net_ts ts;

	if (pcb->state == SYN_RCVD)
		strip_crossed_syn(conn, tcp);
	s.seq = lwip_ntohl(tcp->seqno);
	s.ack = lwip_ntohl(tcp->ackno);
	s.flags = TCPH_FLAGS(tcp);
	if (header > TCP_HLEN || pcb->state == SYN_SENT)
		net_here()->rx_has_mss =
			mend_options(*p, pcb->state == SYN_SENT);
	s.len = bytes + ((s.flags & (TCP_SYN | TCP_FIN)) != 0);
	if ((stamped && !check_timestamp(conn, tcp, &s, &ts)) ||
	    (!is_ordinary(pcb, &s) && !check_slowly(conn, &s))) {
		net_here()->stats.rx_unacceptable++;
		return false;
	}
	if (stamped && pcb->state != TIME_WAIT &&
	    !(s.flags & (TCP_RST | TCP_SYN)))
		net_ts_note(conn, s.seq, ts.value);
	return bytes == 0 || net_rxq_admit(p);
}

bool net_check_conn(struct net_conn *conn, struct pbuf **p)
{
	return check_conn(conn, p);
}

/* Separate, so that net_check_conn() has one caller, and is inlined into it. */
cold bool net_check_opened(struct net_conn *conn, struct pbuf **p)
{
	return check_conn(conn, p);
}

/* ---- segments of no connection ---- */

/*
 * RFC 1122 4.2.3.10: no segment is answered that came to many or claims to come
 * from many; nor one that comes by a link and claims to come from the address
 * it goes to (LAND) or from a loopback address.
 */
bool net_check_stranger(struct pbuf *p)
{
	const ip_addr_t *src = ip_current_src_addr();
	const ip_addr_t *dest = ip_current_dest_addr();
	uint8_t flags = TCPH_FLAGS((const struct tcp_hdr *)p->payload);

	if ((p->flags & (PBUF_FLAG_LLBCAST | PBUF_FLAG_LLMCAST)) ||
	    ip_addr_isany(src) || ip_addr_ismulticast(src) ||
	    ip_addr_isbroadcast(src, ip_current_netif()) ||
	    ip_addr_ismulticast(dest) ||
	    ip_addr_isbroadcast(dest, ip_current_netif()) ||
	    ((ip_addr_eq(src, dest) || ip_addr_isloopback(src)) &&
	     !net_here()->loop.receiving)) {
		net_here()->stats.rx_unacceptable++;
		return false;
	}
	if (flags & TCP_SYN)
		net_here()->rx_has_mss = mend_options(p, true);
	return true;
}
