/*
 * Handshakes: what lwIP sees otherwise than we, and the two that it does not
 * know: a SYN that opens anew what is in TIME_WAIT, and simultaneous open.
 */
#include "netstack/tcp/tcp.h"

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

/* RFC 9293 3.7.1: who names no MSS takes 1220 bytes over IPv6; lwIP: 536. */
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
 * While memory is short a connection begins with a small window: all but what
 * the SYN has announced.
 */
static void lower_window(struct tcp_pcb *pcb)
{
	u32_t announced = pcb->rcv_ann_right_edge - pcb->rcv_nxt;
	u32_t window = LWIP_MAX(net_here()->rcv_most, TCPWND_MIN16(TCP_WND));

	if ((s32_t)announced > 0 && window < announced)
		window = announced;
	if (window < pcb->rcv_wnd)
		pcb->rcv_wnd = pcb->rcv_ann_wnd = window;
}

void net_handshake_settle(enum tcp_state before)
{
	struct tcp_pcb *pcb = tcp_active_pcbs; /* alive */

	if (!pcb)
		return;
	if (before != SYN_RCVD)
		settle_mss(pcb);
	settle_window(pcb);
	net_path_settle(net_conn_of(pcb));
	if (pcb->state < ESTABLISHED)
		return;
	net_half_open_leave(net_conn_of(pcb));
	net_cwnd_begin(pcb);
	if (__builtin_expect(net_here()->rcv_most < pcb->rcv_wnd, 0))
		lower_window(pcb);
}

/*
 * RFC 6191 2: a SYN with a later timestamp than any before opens anew what is
 * in TIME_WAIT, and one with the first timestamp of all; without timestamps,
 * one beyond everything received (RFC 9293 3.10.7.4).
 */
static bool is_newer(const struct tcp_hdr *syn, const struct net_past *past)
{
	bool beyond = (s32_t)(lwip_ntohl(syn->seqno) - past->rcv_nxt) > 0;
	struct net_ts ts;

	if (!net_ts_offered(syn, &ts))
		return beyond;
	if (!past->has_ts || (s32_t)(ts.value - past->ts_recent) > 0)
		return true;
	return ts.value == past->ts_recent && beyond;
}

/*
 * Such a SYN is then any other. The new connection's numbers lie beyond all of
 * the old one's, also when that sent faster than the clock of RFC 6528 runs.
 */
bool net_handshake_renews(const struct tcp_hdr *tcp,
			  const struct net_past *past)
{
	u32_t isn;

	if ((TCPH_FLAGS(tcp) & (TCP_SYN | TCP_ACK)) != TCP_SYN ||
	    !is_newer(tcp, past))
		return false;
	isn = net_isn(ip_current_dest_addr(), lwip_ntohs(tcp->dest),
		      ip_current_src_addr(), lwip_ntohs(tcp->src));
	if ((s32_t)(isn - past->snd_nxt) <= 0)
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
		.ts_recent = conn->ts_recent,
		.has_ts = pcb->flags & NET_TF_TS,
	};

	if (pcb->state != TIME_WAIT || !net_handshake_renews(tcp, &past))
		return false;
	tcp_abort(pcb); /* of TIME_WAIT: sends nothing */
	return true;
}

/* What lwIP reads of a SYN's options, from a peer that dials us. */
static void read_options(struct tcp_pcb *pcb, const struct tcp_hdr *tcp)
{
	const uint8_t *mss = net_tcp_option(tcp, NET_OPT_MSS);
	const uint8_t *wscale = net_tcp_option(tcp, NET_OPT_WSCALE);

	if (mss)
		pcb->mss = (u16_t)(mss[2] << 8 | mss[3]);
	else if (IP_IS_V6_VAL(pcb->remote_ip))
		pcb->mss = 1220; /* RFC 9293 3.7.1 */
	pcb->mss = tcp_eff_send_mss(LWIP_MIN(pcb->mss, TCP_MSS), &pcb->local_ip,
				    &pcb->remote_ip);
	if (wscale) {
		pcb->snd_scale = LWIP_MIN(wscale[2], 14);
		pcb->rcv_scale = net_rcv_scale();
		tcp_set_flags(pcb, TF_WND_SCALE);
		pcb->rcv_wnd = pcb->rcv_ann_wnd = TCP_WND;
	}
	if (net_tcp_option(tcp, NET_OPT_SACK_OK))
		tcp_set_flags(pcb, TF_SACK);
}

/*
 * Simultaneous open, RFC 9293 3.5 and MUST-10, which lwIP does not know: our
 * SYN is sent again with an ACK of theirs. The rest is lwIP's SYN_RCVD.
 */
bool net_handshake_crossed(struct net_conn *conn, const struct tcp_hdr *tcp)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if ((TCPH_FLAGS(tcp) & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return false;
	read_options(pcb, tcp);
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
