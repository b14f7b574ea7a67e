/*
 * The exception path: decides which frames go to the kernel, and moves frames
 * in both directions.
 */
#include "netstack/link/exception.h"

#include <string.h>

#include "dpdk_glue/check.h"
#include "dpdk_glue/kernel_tap.h"
#include "dpdk_glue/partial_sum.h"

#include "lwip/ip.h"
#include "lwip/prot/icmp.h"
#include "lwip/prot/icmp6.h"
#include "lwip/prot/tcp.h"

#define READ_NS	   50000 /* between two looks at the kernel's empty queue */
#define BURST_NS   INT64_C(100000000) /* of the rate, at once after a pause */
#define PIECES_MAX 64u
#define READ_MAX   (GLUE_MTU_MAX + 18u) /* with Ethernet's header and a tag */

/* ---- choosing the receiver ---- */

/* Reads an address of a packet. */
static void read_ip(const struct net_port *port, bool ip4, const uint8_t *bytes,
		    ip_addr_t *out)
{
	struct net_addr addr = {.family = ip4 ? 4 : 6};

	memcpy(addr.ip, bytes, ip4 ? 4 : 16);
	net_addr_to_lwip(&addr, out);
	if (!ip4)
		ip6_addr_assign_zone(ip_2_ip6(out), IP6_UNKNOWN, port->netif0);
}

/*
 * An address of the link, also one that was removed or that another host has.
 * The kernel may have that one still. It would answer requests for it, and
 * reset connections that continue when the address returns.
 */
static const struct net_ifaddr *find_addr(const struct net_port *port, bool ip4,
					  const uint8_t *bytes)
{
	ip_addr_t ip;

	read_ip(port, ip4, bytes, &ip);
	return net_ifaddr_on(port, &ip);
}

/*
 * Requests for an address of ours are answered here, whether the kernel has it
 * too or not; all other requests, and replies, go to both.
 */
static enum net_receiver receiver_of_arp(const struct net_port *port,
					 const uint8_t *arp)
{
	return arp[7] == 1 && find_addr(port, true, arp + 24)
		       ? NET_RECEIVER_STACK
		       : NET_RECEIVER_BOTH;
}

/*
 * Neighbour solicitations are treated like ARP requests. Errors go to both,
 * unless the rule excludes that; the receiver without the connection ignores
 * them.
 */
static enum net_receiver receiver_of_icmp(const struct net_port *port,
					  const struct net_exception_rule *rule,
					  const struct glue_frame *frame)
{
	const uint8_t *icmp = frame->data + frame->l4_off;
	bool ip4 = frame->flags & GLUE_FRAME_IP4;

	if (icmp[0] == (ip4 ? ICMP_ECHO : ICMP6_TYPE_EREQ))
		return rule->echo ? NET_RECEIVER_KERNEL : NET_RECEIVER_STACK;
	if (!ip4 && icmp[0] == ICMP6_TYPE_NS)
		return find_addr(port, false, icmp + 8) ? NET_RECEIVER_STACK
							: NET_RECEIVER_BOTH;
	if (!ip4 && icmp[0] == ICMP6_TYPE_NA)
		return NET_RECEIVER_BOTH;
	if (!ip4 && icmp[0] == ICMP6_TYPE_RA && !net_slaac_has(port))
		return rule->other_off ? NET_RECEIVER_NONE
				       : NET_RECEIVER_KERNEL;
	return rule->other_off ? NET_RECEIVER_STACK : NET_RECEIVER_BOTH;
}

/*
 * Decides about frames that glue_check() refused. The kernel reassembles
 * fragments. If they were a segment of a connection of ours it would reset
 * that, so the first of them is dropped, and the rest are of no use.
 */
static enum net_receiver
receiver_of_other(const struct net_port *port,
		  const struct net_exception_rule *rule,
		  const struct glue_frame *frame, const struct net_ifaddr *own)
{
	const uint8_t *ip = frame->data + frame->l3_off;
	bool ip4 = frame->flags & GLUE_FRAME_IP4;
	ip_addr_t remote;
	uint16_t from, to;

	if (!(frame->flags & GLUE_FRAME_TCP) || !own)
		return rule->other_off ? NET_RECEIVER_NONE
				       : NET_RECEIVER_KERNEL;
	from = (uint16_t)glue_get16(frame->data + frame->l4_off);
	to = (uint16_t)glue_get16(frame->data + frame->l4_off + 2);
	read_ip(port, ip4, ip + (ip4 ? 12 : 8), &remote);
	if (!net_ports_has(&rule->tcp, to) || net_listener_find(&own->ip, to) ||
	    net_demux_find(&own->ip, to, &remote, from))
		return NET_RECEIVER_NONE;
	return NET_RECEIVER_KERNEL;
}

static enum net_receiver receiver_of_ip(const struct net_port *port,
					const struct net_exception_rule *rule,
					const struct glue_frame *frame)
{
	const uint8_t *ip = frame->data + frame->l3_off;
	uint16_t flags = frame->flags;
	bool ip4 = flags & GLUE_FRAME_IP4;
	const struct net_ifaddr *own =
		find_addr(port, ip4, ip + (ip4 ? 16 : 24));

	if (own && !own->active)
		return flags & GLUE_FRAME_OTHER ? NET_RECEIVER_NONE
						: NET_RECEIVER_STACK;
	if (flags & GLUE_FRAME_OTHER)
		return receiver_of_other(port, rule, frame, own);
	if (flags & GLUE_FRAME_UDP) {
		if (!net_udp_wants(frame) &&
		    net_ports_has(&rule->udp,
				  (uint16_t)glue_get16(frame->data +
						       frame->l4_off + 2)) &&
		    (own || !rule->other_off))
			return flags & GLUE_FRAME_MCAST ? NET_RECEIVER_BOTH
							: NET_RECEIVER_KERNEL;
		return NET_RECEIVER_STACK;
	}
	if (flags & GLUE_FRAME_ICMP && (own || flags & GLUE_FRAME_MCAST))
		return receiver_of_icmp(port, rule, frame);
	if (own || rule->other_off)
		return NET_RECEIVER_STACK;
	return flags & GLUE_FRAME_MCAST ? NET_RECEIVER_BOTH
					: NET_RECEIVER_KERNEL;
}

enum net_receiver net_exception_receiver(const struct net_port *port,
					 const struct glue_frame *frame)
{
	const struct net_exception_rule *rule = &port->exception->rule;

	/* from a hub, or a mirror: of no use to either */
	if (!(frame->flags & GLUE_FRAME_MCAST) &&
	    memcmp(frame->data, port->netif0->hwaddr, 6) != 0)
		return frame->flags & GLUE_FRAME_OTHER ? NET_RECEIVER_NONE
						       : NET_RECEIVER_STACK;
	if (frame->flags & GLUE_FRAME_ARP)
		return receiver_of_arp(port, frame->data + frame->l3_off);
	if (frame->flags & (GLUE_FRAME_IP4 | GLUE_FRAME_IP6))
		return receiver_of_ip(port, rule, frame);
	return rule->other_off ? NET_RECEIVER_NONE : NET_RECEIVER_KERNEL;
}

/* ---- to the kernel ---- */

/* Like net_rate_take(), but for several shards. */
static bool may_give(struct net_exception *exception)
{
	int64_t now_ns = net_here()->now_ns;
	int64_t each_ns = INT64_C(1000000000) / exception->rule.rate;
	int64_t was = atomic_load_explicit(&exception->in_due_ns,
					   memory_order_relaxed);
	int64_t due;

	do {
		due = was < now_ns - BURST_NS ? now_ns - BURST_NS : was;
		if (due > now_ns)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&exception->in_due_ns, &was, due + each_ns,
		memory_order_relaxed, memory_order_relaxed));
	return true;
}

static void write_tap(struct net_exception *exception,
		      const struct iovec *pieces, unsigned n)
{
	if (!may_give(exception))
		net_here()->stats.kernel_limited++;
	else if (n && glue_kernel_tap_write(exception->tap->fd, pieces, n))
		net_here()->stats.to_kernel++;
	else
		net_here()->stats.kernel_dropped++;
}

static void give_frame(struct net_exception *exception,
		       const struct glue_frame *frame)
{
	struct iovec pieces[PIECES_MAX];
	unsigned n = 0;

	glue_complete_sum(frame); /* the kernel would drop the frame */
	for (; frame && n < PIECES_MAX; frame = frame->next)
		pieces[n++] = (struct iovec){frame->data, frame->seg_len};
	write_tap(exception, pieces, frame ? 0 : n);
}

bool net_exception_input(struct net_port *port, const struct glue_frame *frame)
{
	switch (net_exception_receiver(port, frame)) {
	case NET_RECEIVER_STACK:
		return false;
	case NET_RECEIVER_KERNEL:
		give_frame(port->exception, frame);
		return true;
	case NET_RECEIVER_BOTH:
		give_frame(port->exception, frame);
		return (frame->flags & GLUE_FRAME_OTHER) != 0;
	case NET_RECEIVER_NONE:
		break;
	}
	net_here()->stats.rx_refused++;
	return true;
}

bool net_exception_stranger(struct pbuf *p)
{
	const struct tcp_hdr *tcp = p->payload;
	struct iovec pieces[PIECES_MAX];
	const struct glue_frame *frame;
	struct net_exception *exception;
	unsigned n = 0;

	if (!net_is_frame(p))
		return false;
	exception = net_frame_port(p)->exception;
	if (!exception ||
	    !net_ports_has(&exception->rule.tcp, lwip_ntohs(tcp->dest)) ||
	    net_listener_find(ip_current_dest_addr(), lwip_ntohs(tcp->dest)))
		return false;
	frame = (const void *)((const char *)p -
			       offsetof(struct glue_frame, user));
	if (frame->flags & GLUE_FRAME_MCAST)
		return false;
	glue_complete_sum(frame);
	pieces[n++] = (struct iovec){
		frame->data,
		(size_t)((uint8_t *)p->payload - frame->data) + p->len};
	for (const struct pbuf *q = p->next; q && n <= PIECES_MAX; q = q->next)
		if (n < PIECES_MAX)
			pieces[n++] = (struct iovec){q->payload, q->len};
		else
			n = PIECES_MAX + 1;
	write_tap(exception, pieces, n > PIECES_MAX ? 0 : n);
	return true;
}

/* ---- from the kernel ---- */

static bool send_copy(struct glue_port *glue, const uint8_t *data, unsigned len)
{
	struct glue_frame *frame = glue_tx_alloc(glue, len);

	if (!frame)
		return false;
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER;
	for (struct glue_frame *f = frame; f; f = f->next) {
		memcpy(f->data, data, f->seg_len);
		data += f->seg_len;
	}
	glue_tx(glue, frame); /* no flag: the kernel has summed it */
	return true;
}

/*
 * Sends at most a burst of the kernel's frames. While the port is behind, or
 * the rate is used up, they wait in the kernel's queue, which drops frames when
 * it is full, as that of any slow interface does.
 */
static unsigned take_burst(struct net_port *port)
{
	uint8_t buf[READ_MAX];
	struct net_exception *exception = port->exception;
	struct net_stack *stack = net_here();
	int64_t each_ns = INT64_C(1000000000) / exception->rule.rate;
	unsigned n = 0;

	while (n < GLUE_BURST && !glue_tx_busy(port->glue)) {
		unsigned len;

		if (exception->out_due_ns > stack->now_ns) {
			stack->stats.kernel_held++;
			break;
		}
		len = glue_kernel_tap_read(exception->tap->fd, buf,
					   sizeof(buf));
		if (len == 0)
			break;
		net_rate_take(&exception->out_due_ns, stack->now_ns, each_ns,
			      BURST_NS);
		n++;
		if (len >= NET_ETH_HEADER && send_copy(port->glue, buf, len))
			stack->stats.from_kernel++;
		else
			stack->stats.kernel_dropped++;
	}
	return n;
}

unsigned net_exception_poll(void)
{
	struct net_stack *stack = net_here();
	unsigned total = 0;

	if (stack->shard != 0)
		return 0;
	for (unsigned i = 0; i < stack->n_ports; i++) {
		struct net_port *port = &stack->ports[i];
		unsigned n;

		if (!port->exception ||
		    port->exception->next_read_ns > stack->now_ns)
			continue;
		n = take_burst(port);
		port->exception->next_read_ns = n ? 0 : stack->now_ns + READ_NS;
		total += n;
	}
	return total;
}

int net_exception_fd(const struct net_port *port)
{
	return port->exception ? port->exception->tap->fd : -1;
}
