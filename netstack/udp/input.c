/*
 * UDP input: checks a datagram, finds its socket and queues it there, or
 * answers that nobody listens.
 */
#include "netstack/shard_var.h"
#include "netstack/udp/udp.h"

#include <string.h>

#include "lwip/icmp.h"
#include "lwip/ip.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/ip6.h"
#include "lwip/prot/udp.h"

/*
 * Limit of ICMP errors, which are all "port unreachable" (RFC 4443 2.4 f). The
 * errors of a second may leave at once; then each waits for its share.
 */
#define ERRORS_A_SECOND 100
static NET_SHARD_VAR int64_t error_due_ns; /* when one more may be sent */
#define error_due_ns NET_SHARD(error_due_ns)

/* Checks that both paths make (RFC 768, RFC 8200). *len: of the payload. */
static inline bool read_header(const struct udp_hdr *udp, unsigned room,
			       bool is_v6, unsigned *len)
{
	unsigned all = lwip_ntohs(udp->len);

	if (all < NET_UDP_HEADER || all > room || !udp->dest)
		return false;
	if (is_v6 && udp->chksum == 0 && !net_here()->loop.receiving)
		return false; /* RFC 8200 8.1: UDP over IPv6 has one */
	*len = all - NET_UDP_HEADER;
	return true;
}

/*
 * RFC 1122 3.2.1.3: sources that no other host has. An address of the stack
 * would make a server answer itself forever.
 */
static inline bool source_ok4(const struct netif *netif, uint32_t ip)
{
	const ip4_addr_t addr = {ip};

	for (unsigned i = 0; i < net_here()->n_netifs; i++)
		if (netif_ip4_addr(&net_here()->netifs[i])->addr == ip)
			return false;
	return (lwip_htonl(ip) >> 24) - 1 < 223 &&
	       !ip4_addr_isloopback(&addr) &&
	       !ip4_addr_isbroadcast(&addr, netif);
}

static inline bool source_ok6(const ip6_addr_t *ip)
{
	for (unsigned i = 0; i < net_here()->n_netifs; i++)
		if (netif_get_ip6_addr_match(&net_here()->netifs[i], ip) >= 0)
			return false;
	return !ip6_addr_isany(ip) && !ip6_addr_ismulticast(ip) &&
	       !ip6_addr_isloopback(ip);
}

static void set_addr4(ip_addr_t *to, uint32_t ip)
{
	ip_addr_set_ip4_u32_val(*to, ip);
}

static void set_addr6(ip_addr_t *to, const void *ip, const struct netif *netif)
{
	memset(to, 0, sizeof(*to));
	memcpy(ip_2_ip6(to)->addr, ip, 16);
	IP_SET_TYPE_VAL(*to, IPADDR_TYPE_V6);
	ip6_addr_assign_zone(ip_2_ip6(to), IP6_UNKNOWN, netif);
}

static struct net_udp *find_plain4(const struct netif *netif, const uint8_t *at,
				   unsigned *len)
{
	const struct ip_hdr *ip = (const void *)at;
	const struct udp_hdr *udp = (const void *)(at + IP_HLEN);
	ip_addr_t local, remote;

	if (!read_header(udp, lwip_ntohs(IPH_LEN(ip)) - (unsigned)IP_HLEN,
			 false, len) ||
	    !source_ok4(netif, ip->src.addr))
		return NULL;
	set_addr4(&local, ip->dest.addr);
	set_addr4(&remote, ip->src.addr);
	return net_udp_find(&local, lwip_ntohs(udp->dest), &remote,
			    lwip_ntohs(udp->src));
}

static struct net_udp *find_plain6(const struct netif *netif, const uint8_t *at,
				   unsigned *len)
{
	const struct ip6_hdr *ip = (const void *)at;
	const struct udp_hdr *udp = (const void *)(at + IP6_HLEN);
	ip_addr_t local, remote;

	if (!read_header(udp, IP6H_PLEN(ip), true, len))
		return NULL;
	set_addr6(&local, &ip->dest, netif);
	set_addr6(&remote, &ip->src, netif);
	if (!source_ok6(ip_2_ip6(&remote)) ||
	    netif_get_ip6_addr_match((struct netif *)(uintptr_t)netif,
				     ip_2_ip6(&local)) < 0)
		return NULL;
	return net_udp_find(&local, lwip_ntohs(udp->dest), &remote,
			    lwip_ntohs(udp->src));
}

struct net_udp *net_udp_find_plain(const struct netif *netif,
				   const struct glue_frame *frame,
				   unsigned *len)
{
	const uint8_t *ip = frame->data + frame->l3_off;
	unsigned header = frame->l4_off - frame->l3_off;

	if (!net_udps.n || frame->next)
		return NULL;
	if (frame->flags & GLUE_FRAME_IP4)
		return header == IP_HLEN ? find_plain4(netif, ip, len) : NULL;
	return header == IP6_HLEN ? find_plain6(netif, ip, len) : NULL;
}

bool net_udp_wants(const struct glue_frame *frame)
{
	const uint8_t *ip = frame->data + frame->l3_off;
	const struct udp_hdr *udp = (const void *)(frame->data + frame->l4_off);
	ip_addr_t local, remote;
	uint32_t ip4[2];

	if (!net_udps.n)
		return false;
	if (frame->flags & GLUE_FRAME_IP4) {
		memcpy(ip4, ip + 12, sizeof(ip4));
		set_addr4(&remote, ip4[0]);
		set_addr4(&local, ip4[1]);
	} else {
		set_addr6(&remote, ip + 8, net_here()->netifs);
		set_addr6(&local, ip + 24, net_here()->netifs);
	}
	return net_udp_find(&local, lwip_ntohs(udp->dest), &remote,
			    lwip_ntohs(udp->src)) != NULL;
}

/* Writes the headers that net_udp_describe() reads. */
static void put_headers(uint8_t *at, const struct udp_hdr *udp)
{
	uint8_t *end = at;

	if (ip_current_is_v6()) {
		memset(at, 0, IP6_HLEN);
		memcpy(at, ip6_current_header(), 8);
		memcpy(at + 8, ip_2_ip6(ip_current_src_addr())->addr, 16);
		memcpy(at + 24, ip_2_ip6(ip_current_dest_addr())->addr, 16);
		end += IP6_HLEN;
	} else {
		memcpy(at, ip4_current_header(), IP_HLEN);
		memcpy(at + 12, &ip_2_ip4(ip_current_src_addr())->addr, 4);
		memcpy(at + 16, &ip_2_ip4(ip_current_dest_addr())->addr, 4);
		end += IP_HLEN;
	}
	memcpy(end, udp, NET_UDP_HEADER);
}

/* A datagram of any shape, as a queue has them; NULL: no memory. */
static struct pbuf *copy_current(const struct pbuf *p, unsigned len)
{
	bool is_v6 = ip_current_is_v6();
	unsigned headers =
		NET_UDP_HEADER + (is_v6 ? (unsigned)IP6_HLEN : IP_HLEN);
	struct pbuf *copy =
		pbuf_alloc(PBUF_RAW, (uint16_t)(headers + len), PBUF_RAM);

	if (!copy)
		return NULL;
	put_headers(copy->payload, p->payload);
	copy->payload = (uint8_t *)copy->payload + headers;
	copy->len = copy->tot_len = (uint16_t)len;
	pbuf_copy_partial(p, copy->payload, (uint16_t)len, NET_UDP_HEADER);
	if (is_v6)
		copy->flags |= NET_UDP_IS_V6;
	return copy;
}

/* Answers a datagram without a socket (RFC 1122 4.1.3.1, RFC 4443 3.1). */
static void refuse_current(struct pbuf *p)
{
	net_here()->stats.udp_no_socket++;
	if (!net_rate_take(&error_due_ns, net_here()->now_ns,
			   1000000000 / ERRORS_A_SECOND, 1000000000)) {
		net_here()->stats.rx_refused++;
		return;
	}
	pbuf_header_force(p, (int16_t)ip_current_header_tot_len());
	icmp_port_unreach(ip_current_is_v6(), p);
}

static bool current_source_ok(const struct netif *netif)
{
	const ip_addr_t *src = ip_current_src_addr();

	return net_here()->loop.receiving ||
	       (IP_IS_V6(src) ? source_ok6(ip_2_ip6(src))
			      : source_ok4(netif, ip_2_ip4(src)->addr));
}

static void input_current(struct pbuf *p, const struct netif *netif)
{
	const struct udp_hdr *hdr = p->payload;
	struct net_udp *udp;
	struct pbuf *copy;
	unsigned len;

	if (p->len < NET_UDP_HEADER ||
	    !read_header(hdr, p->tot_len, ip_current_is_v6(), &len) ||
	    !current_source_ok(netif) ||
	    ip_addr_isbroadcast(ip_current_dest_addr(), netif) ||
	    ip_addr_ismulticast(ip_current_dest_addr())) {
		net_here()->stats.rx_refused++;
		return;
	}
	udp = net_udp_find(ip_current_dest_addr(), lwip_ntohs(hdr->dest),
			   ip_current_src_addr(), lwip_ntohs(hdr->src));
	if (!udp) {
		refuse_current(p);
		return;
	}
	copy = net_budget_is_short() ? NULL : copy_current(p, len);
	if (copy) {
		net_udp_queue(udp, copy);
		return;
	}
	udp->stats.rx_no_memory++;
	net_here()->stats.rx_no_memory++;
}

/* ---- groups ---- */

/* A datagram to a group, as net_udp_group_input() has found it. */
struct group_datagram {
	const struct pbuf *p;
	unsigned l3_off, l4_off, len;
	bool is_v6;
	ip_addr_t local, remote;
	uint16_t local_port, remote_port;
};

/* False: it is malformed, or no other host may send it (RFC 4291 2.7). */
static bool read_group(unsigned link, struct group_datagram *d)
{
	const struct netif *netif = net_here()->ports[link].netif0;
	const uint8_t *ip = (const uint8_t *)d->p->payload + d->l3_off;
	const struct udp_hdr *udp =
		(const void *)((const uint8_t *)d->p->payload + d->l4_off);
	const struct ip_hdr *ip4 = (const void *)ip;
	const struct ip6_hdr *ip6 = (const void *)ip;
	unsigned header = d->l4_off - d->l3_off, room;

	d->is_v6 = ip[0] >> 4 == 6;
	d->local_port = lwip_ntohs(udp->dest);
	d->remote_port = lwip_ntohs(udp->src);
	if (d->is_v6) {
		room = (unsigned)IP6_HLEN + IP6H_PLEN(ip6) - header;
		set_addr6(&d->local, &ip6->dest, netif);
		set_addr6(&d->remote, &ip6->src, netif);
	} else {
		room = lwip_ntohs(IPH_LEN(ip4)) - header;
		set_addr4(&d->local, ip4->dest.addr);
		set_addr4(&d->remote, ip4->src.addr);
	}
	if (!read_header(udp, room, d->is_v6, &d->len))
		return false;
	if (net_here()->loop.receiving)
		return true;
	if (!d->is_v6)
		return source_ok4(netif, ip4->src.addr);
	return source_ok6(ip_2_ip6(&d->remote)) &&
	       ip6_addr_multicast_scope(ip_2_ip6(&d->local)) >
		       IP6_MULTICAST_SCOPE_INTERFACE_LOCAL;
}

/* Does a member's socket get it? RFC 1112 7.1; the socket's own addresses. */
static bool is_receiver(const struct net_udp_member *m,
			const struct group_datagram *d)
{
	const struct net_udp *udp = m->udp;

	if (udp->local_port != d->local_port ||
	    (!IP_IS_ANY_TYPE_VAL(m->source) &&
	     !ip_addr_zoneless_eq(&m->source, &d->remote)))
		return false;
	if (udp->remote_port)
		return udp->remote_port == d->remote_port &&
		       ip_addr_eq(&udp->remote, &d->remote);
	return IP_IS_ANY_TYPE_VAL(udp->local) ||
	       (IP_GET_TYPE(&udp->local) == IP_GET_TYPE(&d->local) &&
		ip_addr_isany_val(udp->local));
}

/* Returns a copy in the form that queues have, or NULL without memory. */
static struct pbuf *copy_group(const struct group_datagram *d)
{
	unsigned header = d->is_v6 ? (unsigned)IP6_HLEN : IP_HLEN;
	unsigned headers = header + NET_UDP_HEADER;
	struct pbuf *copy =
		pbuf_alloc(PBUF_RAW, (uint16_t)(headers + d->len), PBUF_RAM);
	const uint8_t *from = d->p->payload;
	uint8_t *to;

	if (!copy)
		return NULL;
	to = copy->payload;
	memcpy(to, from + d->l3_off, header);
	memcpy(to + header, from + d->l4_off, NET_UDP_HEADER);
	copy->payload = to + headers;
	copy->len = copy->tot_len = (uint16_t)d->len;
	pbuf_copy_partial(d->p, copy->payload, (uint16_t)d->len,
			  (uint16_t)(d->l4_off + NET_UDP_HEADER));
	if (d->is_v6)
		copy->flags |= NET_UDP_IS_V6;
	return copy;
}

static void deliver_group(struct net_udp *udp, const struct group_datagram *d)
{
	struct pbuf *copy = net_budget_is_short() ? NULL : copy_group(d);

	if (copy) {
		net_udp_queue(udp, copy);
		return;
	}
	udp->stats.rx_no_memory++;
	net_here()->stats.rx_no_memory++;
}

/*
 * A socket's watch may join, leave and close: then the members are looked at
 * from the first one again, and those that have got the datagram are skipped.
 */
static unsigned deliver_all(unsigned link, const struct group_datagram *d)
{
	struct net_udp_group *group = net_udp_group_find(link, &d->local);
	struct net_udp_member *m = group ? group->members : NULL;
	uint64_t number = ++net_udps.group_datagrams;
	unsigned n = 0;

	while (m) {
		unsigned changes = net_udps.group_changes;
		struct net_udp_member *next = m->next;

		if (m->delivered != number && is_receiver(m, d)) {
			m->delivered = number;
			deliver_group(m->udp, d);
			n++;
		}
		if (changes != net_udps.group_changes) {
			group = net_udp_group_find(link, &d->local);
			next = group ? group->members : NULL;
		}
		m = next;
	}
	return n;
}

void net_udp_group_input(unsigned link, struct pbuf *p, unsigned l3_off,
			 unsigned l4_off)
{
	struct group_datagram d = {.p = p, .l3_off = l3_off, .l4_off = l4_off};

	if (!net_udps.n_groups[link] || !read_group(link, &d) ||
	    !deliver_all(link, &d))
		net_here()->stats.rx_refused++;
	pbuf_free(p);
}

void net_udp_input(struct pbuf *p, struct netif *netif)
{
	input_current(p, netif);
	pbuf_free(p);
}
