/* Functions of netstack/ that lwIP calls. */
#pragma once

#include "lwip/err.h"
#include "lwip/ip_addr.h"

#include "netstack/lwip/ends.h"

struct netif;
struct pbuf;
struct tcp_hdr;
struct tcp_pcb;

/* Initial sequence number, RFC 6528 (tcp/random.c). */
uint32_t net_isn(const ip_addr_t *local_ip, uint16_t local_port,
		 const ip_addr_t *remote_ip, uint16_t remote_port);
#define LWIP_HOOK_TCP_ISN(local_ip, local_port, remote_ip, remote_port)        \
	net_isn(local_ip, local_port, remote_ip, remote_port)

/* The argument of lwIP's events for a pcb: the pcb, or NULL (lwip/event.c). */
void *net_pcb_arg(struct tcp_pcb *pcb);

/* The number of keepalive probes after which lwIP ends it (tcp/timer.c). */
uint32_t net_pcb_keep_cnt(const struct tcp_pcb *pcb);

/* The window scale that is announced to peers (conn/rcv_wnd.c). */
uint8_t net_rcv_scale(void);

/* The interface that owns a source address, for routing by it (hooks.c). */
struct netif *net_route_src4(const ip4_addr_t *src, const ip4_addr_t *dest);

/*
 * The interface for an IPv6 packet: that of the source address if its link has
 * a route, else that of the route (hooks.c). No address is link-local.
 */
struct netif *net_route_src6(const ip6_addr_t *src, const ip6_addr_t *dest);
#define LWIP_HOOK_IP6_ROUTE(src, dest) net_route_src6(src, dest)

/*
 * lwIP needs no gateways: link/neighbour.c calls its output with the neighbour
 * as the destination, which may be outside the prefixes that lwIP knows.
 */
#define LWIP_HOOK_ND6_GET_GW(netif, dest)    (dest)
#define LWIP_HOOK_ETHARP_GET_GW(netif, dest) (dest)

/*
 * Called with a segment for a pcb before lwIP processes it: hdr is in host byte
 * order, and p begins with the data. A result other than ERR_OK drops the
 * segment (hooks.c).
 */
err_t net_segment_in(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		     uint16_t optlen, uint16_t opt1len, const uint8_t *opt2,
		     const struct pbuf *p);
#define LWIP_HOOK_TCP_INPACKET_PCB(pcb, hdr, optlen, opt1len, opt2, p)         \
	net_segment_in(pcb, hdr, optlen, opt1len, opt2, p)

/*
 * RFC 7323. A bit of pcb->flags that replaces lwIP's TF_TIMESTAMP: timestamps
 * were agreed on or, in SYN_SENT, offered. Then every segment has NET_TS_BYTES
 * of additional options: two NOPs and the timestamp.
 */
#define NET_TF_TS    0x0400u
#define NET_TS_BYTES 12u
#define LWIP_HOOK_TCP_OUT_TCPOPT_LENGTH(pcb, len)                              \
	((uint8_t)((len) +                                                     \
		   ((pcb) && ((pcb)->flags & NET_TF_TS) ? NET_TS_BYTES : 0)))

/*
 * RFC 3168 (recovery/ecn.c), bits of pcb->flags that lwIP does not use: ECN was
 * agreed on or, in SYN_SENT, offered; segments to the peer carry ECE; the next
 * new data carries CWR.
 */
#define NET_TF_ECN 0x2000u
#define NET_TF_ECE 0x4000u
#define NET_TF_CWR 0x0200u

/*
 * The connection has a ring of the connection trace (conn/trace.h). The bit is
 * that of lwIP's TF_INFR, for fast retransmissions, which recovery/ replaces:
 * edits.py removes TF_INFR from lwIP.
 */
#define NET_TF_TRACED 0x0004u

/*
 * Called with a segment that is about to leave: appends a timestamp to its
 * options, and sets its ECN bits (hooks.c).
 */
uint32_t *net_segment_out(const struct tcp_pcb *pcb, const struct pbuf *p,
			  struct tcp_hdr *hdr, uint32_t *opts);
#define LWIP_HOOK_TCP_OUT_ADD_TCPOPTS(p, hdr, pcb, opts)                       \
	net_segment_out(pcb, p, hdr, opts)
