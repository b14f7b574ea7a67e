/*
 * What lwIP calls back into netstack/ for.
 */
#pragma once

#include "lwip/err.h"
#include "lwip/ip_addr.h"

#include "netstack/lwip/ends.h"

struct netif;
struct pbuf;
struct tcp_hdr;
struct tcp_pcb;

/* Initial sequence number, RFC 6528 (tcp/random.c). */
u32_t net_isn(const ip_addr_t *local_ip, u16_t local_port,
	      const ip_addr_t *remote_ip, u16_t remote_port);
#define LWIP_HOOK_TCP_ISN(local_ip, local_port, remote_ip, remote_port)        \
	net_isn(local_ip, local_port, remote_ip, remote_port)

/* The shift of the windows that we announce (conn/rcv_wnd.c). */
u8_t net_rcv_scale(void);

/* The interface that owns a source address, the gateway of one (hooks.c). */
struct netif *net_route_src4(const ip4_addr_t *src, const ip4_addr_t *dest);

/* The IPv6 gateway, when one was given; NULL otherwise. */
const ip6_addr_t *net_gateway6(struct netif *netif, const ip6_addr_t *dest);
#define LWIP_HOOK_ND6_GET_GW(netif, dest) net_gateway6(netif, dest)

/*
 * A segment for a pcb, before it is processed: its header in host order, p
 * after it. Anything but ERR_OK drops it (hooks.c).
 */
err_t net_segment_in(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		     u16_t optlen, u16_t opt1len, const u8_t *opt2,
		     const struct pbuf *p);
#define LWIP_HOOK_TCP_INPACKET_PCB(pcb, hdr, optlen, opt1len, opt2, p)         \
	net_segment_in(pcb, hdr, optlen, opt1len, opt2, p)

/*
 * RFC 7323. In pcb->flags, in place of lwIP's TF_TIMESTAMP: timestamps have
 * been agreed upon; in SYN_SENT, offered. Every segment has NET_TS_BYTES more
 * of options then, two NOPs before the option.
 */
#define NET_TF_TS    0x0400u
#define NET_TS_BYTES 12u
#define LWIP_HOOK_TCP_OUT_TCPOPT_LENGTH(pcb, len)                              \
	((u8_t)((len) +                                                        \
		((pcb) && ((pcb)->flags & NET_TF_TS) ? NET_TS_BYTES : 0)))

/* A segment about to leave: puts a timestamp behind its options (hooks.c). */
u32_t *net_segment_out(const struct tcp_pcb *pcb, const struct pbuf *p,
		       u32_t *opts);
#define LWIP_HOOK_TCP_OUT_ADD_TCPOPTS(p, hdr, pcb, opts)                       \
	net_segment_out(pcb, p, opts)
