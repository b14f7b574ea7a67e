/*
 * Hooks: functions that lwIP calls by its options, or by edits of its source.
 */
#include <stdlib.h>

#include "netstack/link/link.h"
#include "netstack/program/log.h"
#include "netstack/tcp/tcp.h"

err_t net_segment_in(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		     uint16_t optlen, uint16_t opt1len, const uint8_t *opt2,
		     const struct pbuf *p)
{
	net_recovery_input(pcb, hdr, opt1len, p);
	return ERR_OK;
}

/* lwIP retransmits no data by itself, but it does retransmit handshakes. */
static const char *resent_by_lwip(const struct tcp_pcb *pcb,
				  const struct pbuf *p)
{
	struct tcp_seg *head = pcb->unsent;

	if (!head || head->p != p || !(net_seg_of(head)->state & NET_SEG_SENT))
		return NULL;
	return "RTO";
}

/* Bytes of data: an ACK, a reset or a probe has none. */
static unsigned data_of(const struct tcp_pcb *pcb, const struct pbuf *p)
{
	return pcb->unsent && pcb->unsent->p == p ? pcb->unsent->len : 0;
}

/* pcb is NULL for a RST to nobody. */
uint32_t *net_segment_out(const struct tcp_pcb *pcb, const struct pbuf *p,
			  struct tcp_hdr *hdr, uint32_t *opts)
{
	struct net_conn *conn = (void *)(uintptr_t)pcb;
	bool traced;
	const char *resent = NULL;

	if (!pcb)
		return opts;
	traced = net_traced(conn);
	if (traced)
		resent = resent_by_lwip(pcb, p);
	net_count_out(conn, p);
	if (pcb->flags & NET_TF_ECN)
		net_ecn_segment_out(conn, p, hdr);
	net_recovery_segment_out(pcb, p);
	net_ts_refresh(pcb, opts);
	if (traced)
		net_trace_out(conn, hdr, data_of(pcb, p), resent);
	return opts + net_ts_bytes(pcb) / sizeof(*opts);
}

/*
 * tcp_in.c is built to call this in place of tcp_output(): what a burst of
 * segments acknowledges or requests is sent once, not once a segment. This
 * delays the ACK of RFC 5681 4.2 by no more than the rest of the round.
 * Segments of a handshake are sent at once.
 */
err_t net_tcp_output(struct tcp_pcb *pcb)
{
	if (pcb->state < ESTABLISHED)
		return tcp_output(pcb);
	if (pcb->unsent || (pcb->flags & TF_ACK_NOW))
		net_conn_queue_output(net_conn_of(pcb));
	return ERR_OK;
}

struct netif *net_route_src4(const ip4_addr_t *src, const ip4_addr_t *dest)
{
	return net_here()->n_netifs > 1 && src ? net_netif_of4(NULL, src->addr)
					       : NULL;
}

/* A peer may use an address of another link: the link that leads to it counts.
 */
struct netif *net_route_src6(const ip6_addr_t *src, const ip6_addr_t *dest)
{
	const struct net_ifaddr *own = NULL;
	ip_addr_t from = IPADDR6_INIT(0, 0, 0, 0), to = from;
	struct net_hop hop;

	ip_addr_copy_from_ip6(to, *dest);
	ip_addr_copy_from_ip6(from, *src);
	if (!ip6_addr_isany(src))
		own = net_ifaddr_of(&from);
	if (own && net_route_find(own->netif->state, &to, &hop) == 0)
		return own->netif;
	return net_route_find(NULL, &to, &hop) == 0 ? hop.near->netif : NULL;
}

/*
 * lwIP continues after a failed assertion. The connection that it has been
 * shown or called for is reset before the round's output.
 */
void net_lwip_assert(const char *message, const char *file, int line)
{
	struct net_stack *here = net_here();

#if !defined(NET_OUTLIVES_ASSERTIONS)
	net_log_line(NET_LOG_CRITICAL, "coronet: lwIP: %s (%s:%d)", message,
		     file, line);
	net_log_flush();
	abort();
#endif
	net_log_seldom_of(NET_COMPONENT_CONN,
			  "an assertion of lwIP failed: %s (%s:%d)", message,
			  file, line);
	here->stats.lwip_assertions++;
	here->any_broken = true;
	if (tcp_active_pcbs)
		tcp_active_pcbs->is_broken = 1;
	else if (here->in_lwip)
		here->in_lwip->pcb.is_broken = 1;
}

err_t net_lwip_write(struct net_conn *conn, const void *data, uint16_t len,
		     uint8_t flags)
{
	err_t err;

	net_here()->in_lwip = conn;
	err = tcp_write(&conn->pcb, data, len, flags);
	net_here()->in_lwip = NULL;
	return err;
}

err_t net_lwip_output(struct net_conn *conn)
{
	err_t err;

	net_here()->in_lwip = conn;
	err = tcp_output(&conn->pcb);
	net_here()->in_lwip = NULL;
	return err;
}
