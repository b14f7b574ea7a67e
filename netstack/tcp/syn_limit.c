/*
 * Limits the cost of SYNs. Once a listener has as many half-open connections as
 * it may have, SYNs are answered with cookies. A cookie costs more than an
 * echo, so a flood of SYNs would leave no time for existing connections. A
 * listener therefore sends at most COOKIES_A_SECOND of them, and after a pause
 * COOKIES_AT_ONCE. When these are used up, all SYNs to it are dropped for
 * SHED_NS as they are received, before they are processed; but only the SYN at
 * hand, if its source alone has as many half-open connections as it may have.
 *
 * A client whose SYN is dropped sends it again after a second (RFC 6298), with
 * the same chance as any other SYN then.
 */
#include "netstack/tcp/tcp.h"

#include "lwip/prot/ip4.h"
#include "lwip/prot/ip6.h"
#include "lwip/prot/tcp.h"

#define COOKIES_A_SECOND 125000
#define COOKIES_AT_ONCE	 16384
#define SHED_NS		 1000000

bool net_syn_limit_cookie(struct net_listener *listener, bool full)
{
	const int64_t each_ns = 1000000000 / COOKIES_A_SECOND;
	int64_t now_ns = net_here()->now_ns;

	if (net_rate_take(&listener->cookie_due_ns, now_ns, each_ns,
			  COOKIES_AT_ONCE * each_ns))
		return true;
	net_here()->stats.syns_shed++;
	if (full) {
		listener->shed_until_ns = now_ns + SHED_NS;
		net_here()->shed_until_ns = listener->shed_until_ns;
	}
	return false;
}

/* Reads the destination of a TCP frame. */
static void read_dest(const struct net_port *port,
		      const struct glue_frame *frame, ip_addr_t *out)
{
	const void *ip = frame->data + frame->l3_off;

	if (frame->flags & GLUE_FRAME_IP4) {
		ip_addr_copy_from_ip4(*out, ((const struct ip_hdr *)ip)->dest);
		return;
	}
	ip_addr_copy_from_ip6_packed(*out, ((const struct ip6_hdr *)ip)->dest);
	ip6_addr_assign_zone(ip_2_ip6(out), IP6_UNKNOWN, port->netif0);
}

static bool is_shed(const struct net_port *port, const struct glue_frame *frame)
{
	const struct tcp_hdr *tcp = (const void *)(frame->data + frame->l4_off);
	const struct net_listener *listener;
	ip_addr_t dest;

	if (!(frame->flags & GLUE_FRAME_TCP) ||
	    (TCPH_FLAGS(tcp) & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) !=
		    TCP_SYN)
		return false;
	read_dest(port, frame, &dest);
	listener = net_listener_find(&dest, lwip_ntohs(tcp->dest));
	return listener && listener->shed_until_ns > net_here()->now_ns;
}

unsigned net_syn_limit_shed(const struct net_port *port,
			    struct glue_frame **frames, unsigned n)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!is_shed(port, frames[i])) {
			frames[kept++] = frames[i];
			continue;
		}
		net_here()->stats.syns_shed++;
		glue_frame_free(frames[i]);
	}
	return kept;
}
