/*
 * Handshakes: makes the connection that a listener gets at the end of one,
 * corrects values that lwIP computes differently when it dials, and handles two
 * cases that lwIP does not support: a SYN that reopens a connection in
 * TIME_WAIT, and simultaneous open.
 */
#include "netstack/conn/end.h"
#include "netstack/program/events.h"
#include "netstack/tcp/tcp.h"

#include <errno.h>

#include "lwip/ip.h"
#include "lwip/nd6.h"
#include "lwip/prot/tcp.h"

#include "dpdk_glue/bytes.h"

/* ---- a SYN's options ---- */

#define OPTIONS (NET_OPT_TS + 1u) /* the kinds that a SYN may have, and 0 */

/* Finds the first option of each kind, in one walk; NULL stays: none. */
static void find_options(const struct tcp_hdr *syn, const uint8_t *at[OPTIONS])
{
	const uint8_t *opt = (const uint8_t *)(syn + 1);
	const uint8_t *end = (const uint8_t *)syn + TCPH_HDRLEN_BYTES(syn);

	while (opt < end && *opt != NET_OPT_END) {
		if (*opt < OPTIONS && !at[*opt])
			at[*opt] = opt;
		opt += *opt == NET_OPT_NOP ? 1 : opt[1];
	}
}

void net_syn_read(const struct tcp_hdr *syn, struct net_syn_options *out)
{
	const uint8_t *at[OPTIONS] = {NULL};
	unsigned named = ip_current_is_v6() ? 1220 : 536; /* RFC 9293 3.7.1 */

	find_options(syn, at);
	if (at[NET_OPT_MSS])
		named = glue_get16(at[NET_OPT_MSS] + 2);
	*out = (struct net_syn_options){
		.mss = (uint16_t)LWIP_MIN(named, TCP_MSS),
		.wscale = NET_NO_WSCALE,
		.sack = at[NET_OPT_SACK_OK] != NULL,
		.ecn = net_ecn_offered(syn),
	};
	if (at[NET_OPT_WSCALE])
		out->wscale = LWIP_MIN(at[NET_OPT_WSCALE][2], 14) & 15;
	if (at[NET_OPT_TS] && !net_here()->timestamps_off) {
		out->has_ts = 1;
		out->ts = glue_get32(at[NET_OPT_TS] + 2);
	}
}

void net_ts_answer(const struct net_syn_options *options,
		   struct net_reply *reply)
{
	if (!options->has_ts)
		return;
	net_ts_write(reply->options + reply->options_len,
		     net_ts_now() + net_ts_offset(reply->from, reply->from_port,
						  reply->to, reply->to_port),
		     options->ts);
	reply->options_len += NET_TS_BYTES;
}

void net_syn_answer(struct net_syn_options *options, struct net_reply *reply)
{
	uint16_t mss = tcp_eff_send_mss(TCP_MSS, reply->from, reply->to);
	uint8_t *opt = reply->options;

	options->mss = LWIP_MIN(options->mss, mss);
	reply->wnd = TCPWND_MIN16(TCP_WND);
	if (options->ecn)
		reply->flags |= TCP_ECE;
	*opt++ = NET_OPT_MSS;
	*opt++ = 4;
	*opt++ = (uint8_t)(mss >> 8);
	*opt++ = (uint8_t)mss;
	if (options->wscale != NET_NO_WSCALE) {
		*opt++ = NET_OPT_NOP;
		*opt++ = NET_OPT_WSCALE;
		*opt++ = 3;
		*opt++ = net_rcv_scale();
	}
	if (options->sack) {
		*opt++ = NET_OPT_NOP;
		*opt++ = NET_OPT_NOP;
		*opt++ = NET_OPT_SACK_OK;
		*opt++ = 2;
	}
	reply->options_len = (uint8_t)(opt - reply->options);
	net_ts_answer(options, reply);
}

/* Applies the options that a connection's peer has offered. */
static void apply_options(struct tcp_pcb *pcb,
			  const struct net_syn_options *options)
{
	pcb->mss = options->mss;
	if (options->wscale != NET_NO_WSCALE) {
		pcb->snd_scale = options->wscale;
		pcb->rcv_scale = net_rcv_scale();
		tcp_set_flags(pcb, TF_WND_SCALE);
		pcb->rcv_wnd = pcb->rcv_ann_wnd = TCP_WND;
	}
	if (options->sack)
		tcp_set_flags(pcb, TF_SACK);
}

/* ---- handshakes of clients ---- */

/* RFC 9293 3.7.1: a peer without MSS takes 1220 bytes over IPv6; lwIP: 536. */
static void settle_mss(struct tcp_pcb *pcb)
{
	if (!net_here()->rx_has_mss && IP_IS_V6_VAL(pcb->remote_ip) &&
	    pcb->mss == 536)
		pcb->mss = 1220;
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
 * While memory is short a connection begins with a small window: no larger than
 * the SYN, which is not scaled, has announced. lwIP assumes that it was more.
 */
static void lower_window(struct tcp_pcb *pcb)
{
	uint32_t window =
		LWIP_MAX(net_here()->rcv_limit, TCPWND_MIN16(TCP_WND));

	if (window >= pcb->rcv_wnd)
		return;
	pcb->rcv_wnd = pcb->rcv_ann_wnd = window;
	pcb->rcv_ann_right_edge = pcb->rcv_nxt + window;
}

void net_handshake_settle(enum tcp_state before)
{
	struct tcp_pcb *pcb = tcp_active_pcbs; /* alive */

	if (!pcb)
		return;
	if (before != SYN_RCVD)
		settle_mss(pcb);
	settle_window(pcb);
	/* In SYN_RCVD an ACK may have announced all of it. */
	if (unlikely(net_here()->rcv_limit < pcb->rcv_wnd) &&
	    before != SYN_RCVD)
		lower_window(pcb);
	net_path_settle(net_conn_of(pcb));
	if (pcb->state < ESTABLISHED)
		return;
	tcp_clear_flags(pcb, TF_RTO); /* of a SYN sent again */
	net_cwnd_begin(pcb);
}

/* ---- handshakes of listeners ---- */

/* Sets the numbers as after our SYN-ACK, and the ACK that has come for it. */
static void set_numbers(struct tcp_pcb *pcb, const struct net_opening *opening)
{
	pcb->rcv_nxt = opening->irs + 1;
	pcb->lastack = pcb->snd_nxt = pcb->snd_lbb = opening->iss + 1;
}

/* A window of the SYN is not scaled (RFC 7323 2.2), that of the ACK is. */
static void set_windows(struct tcp_pcb *pcb, const struct net_opening *opening,
			const struct tcp_hdr *tcp)
{
	pcb->snd_wnd = SND_WND_SCALE(pcb, (uint32_t)lwip_ntohs(tcp->wnd));
	pcb->snd_wnd_max = LWIP_MAX(pcb->snd_wnd, opening->wnd);
	pcb->snd_wl1 = lwip_ntohl(tcp->seqno);
	pcb->snd_wl2 = pcb->lastack;
	settle_window(pcb);
	pcb->rcv_ann_right_edge = pcb->rcv_nxt + pcb->rcv_wnd;
	if (unlikely(net_here()->rcv_limit < pcb->rcv_wnd))
		lower_window(pcb);
}

/* A timeout of the SYN-ACK ends slow start early, as one of data does. */
static void set_path(struct net_conn *conn, const struct net_opening *opening)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (opening->timeouts)
		pcb->ssthresh = 2u * pcb->mss;
	net_path_settle(conn);
	net_cwnd_begin(pcb);
	if (opening->rtt_us)
		net_rtt_sample(conn, opening->rtt_us);
	if (ip_current_is_v6()) /* RFC 4861 7.3.1: its ACK has come */
		nd6_reachability_hint(ip6_current_src_addr());
}

static void count_answers(struct net_conn *conn,
			  const struct net_opening *opening)
{
	struct net_conn_ext *counts = net_counts(conn);

	if (!counts)
		return;
	counts->tx_segs = 1 + opening->resent;
	counts->retransmits = opening->resent;
	counts->rtos = (uint16_t)opening->timeouts;
}

static void join_listener(struct net_conn *conn, struct net_listener *listener)
{
	conn->listener = listener;
	conn->cc = listener->cc & 3;
	listener->pending++;
	conn->pending = true;
	net_client_half_open(conn);
	net_demux_insert_hashed(conn, net_here()->rx_hash);
}

int net_handshake_open(const struct net_opening *opening,
		       const struct tcp_hdr *tcp, struct net_conn **out)
{
	struct net_conn *conn = net_conn_new();
	struct tcp_pcb *pcb;

	if (!conn)
		return -ENOMEM;
	pcb = &conn->pcb;
	ip_addr_copy(pcb->local_ip, *ip_current_dest_addr());
	ip_addr_copy(pcb->remote_ip, *ip_current_src_addr());
	pcb->local_port = opening->listener->addr.port;
	pcb->remote_port = lwip_ntohs(tcp->src);
	pcb->state = ESTABLISHED;
	tcp_nagle_disable(pcb);
	apply_options(pcb, &opening->options);
	if (opening->options.has_ts)
		net_ts_accept(conn, opening->options.ts);
	if (opening->options.ecn)
		net_ecn_accept(pcb);
	set_numbers(pcb, opening);
	set_windows(pcb, opening, tcp);
	set_path(conn, opening);
	count_answers(conn, opening);
	join_listener(conn, opening->listener);
	net_trace_begins(conn, "accepted");
	if (net_listener_established(conn) != ERR_OK) {
		net_event_refused(tcp, opening->listener->stopped
					       ? "stopped"
					       : "no-coroutine");
		net_conn_reset(conn, NET_END_UNACCEPTED);
		return -ECONNABORTED;
	}
	*out = conn;
	return 0;
}

/* ---- SYNs for known connections ---- */

/*
 * RFC 6191 2: a SYN with a later timestamp than any before, or with the first
 * timestamp of all, reopens a connection that is in TIME_WAIT; without
 * timestamps, one beyond everything received (RFC 9293 3.10.7.4).
 */
static bool is_newer(const struct tcp_hdr *syn, const struct net_past *past)
{
	bool beyond = (int32_t)(lwip_ntohl(syn->seqno) - past->rcv_nxt) > 0;
	struct net_ts ts;

	if (!net_ts_offered(syn, &ts))
		return beyond;
	if (!past->has_ts || (int32_t)(ts.value - past->ts_recent) > 0)
		return true;
	return ts.value == past->ts_recent && beyond;
}

/* Returns whether a listener may take this SYN. */
static bool is_listening(const struct tcp_hdr *syn)
{
	const struct net_listener *listener = net_listener_find(
		ip_current_dest_addr(), lwip_ntohs(syn->dest));

	return listener && !listener->draining;
}

/*
 * Returns whether a SYN reopens a connection in TIME_WAIT; it is then handled
 * like any other SYN. Where nobody listens it would be reset, and the record
 * would be lost. The new connection's sequence numbers lie beyond all of
 * the old one's, even if the old one sent faster than the clock of RFC 6528
 * runs.
 */
bool net_handshake_renews(const struct tcp_hdr *tcp,
			  const struct net_past *past)
{
	uint32_t isn;

	if ((TCPH_FLAGS(tcp) & (TCP_SYN | TCP_ACK)) != TCP_SYN ||
	    !is_newer(tcp, past) || !is_listening(tcp))
		return false;
	isn = net_isn(ip_current_dest_addr(), lwip_ntohs(tcp->dest),
		      ip_current_src_addr(), lwip_ntohs(tcp->src));
	if ((int32_t)(isn - past->snd_nxt) <= 0)
		isn = past->snd_nxt + 1 + (net_random() & 0xffff);
	net_here()->isn = isn;
	net_here()->isn_fixed = true;
	return true;
}

bool net_handshake_reopens(struct net_conn *conn, const struct tcp_hdr *tcp)
{
	struct tcp_pcb *pcb = &conn->pcb;
	const struct net_past past = {
		.rcv_nxt = pcb->rcv_nxt,
		.snd_nxt = pcb->snd_nxt,
		.ts_recent = conn->pcb.ts_recent,
		.has_ts = pcb->flags & NET_TF_TS,
	};

	if (pcb->state != TIME_WAIT || !net_handshake_renews(tcp, &past))
		return false;
	tcp_abort(pcb); /* of TIME_WAIT: sends nothing */
	return true;
}

/*
 * Simultaneous open, RFC 9293 3.5 and MUST-10, which lwIP does not know: our
 * SYN is sent again with an ACK of theirs. The rest is lwIP's SYN_RCVD.
 */
bool net_handshake_crossed(struct net_conn *conn, const struct tcp_hdr *tcp)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct net_syn_options options;

	if ((TCPH_FLAGS(tcp) & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return false;
	net_syn_read(tcp, &options);
	options.mss =
		tcp_eff_send_mss(options.mss, &pcb->local_ip, &pcb->remote_ip);
	apply_options(pcb, &options);
	pcb->rcv_nxt = lwip_ntohl(tcp->seqno) + 1;
	pcb->rcv_ann_right_edge = pcb->rcv_nxt;
	pcb->snd_wl1 = lwip_ntohl(tcp->seqno) - 1;
	pcb->snd_wnd = pcb->snd_wnd_max = lwip_ntohs(tcp->wnd);
	pcb->tmr = tcp_ticks;
	pcb->state = SYN_RCVD;
	tcp_rexmit(pcb);
	tcp_output(pcb);
	net_timer_check(conn);
	return true;
}
