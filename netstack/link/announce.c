/*
 * Announces the stack's addresses, and finds other hosts that have them.
 *
 * An address that the user gives, or DHCP leases, is used at once, so that a
 * restart costs no second: duplicate detection is optimistic (RFC 4429), for
 * IPv4 as well. (SLAAC probes its addresses before: link/slaac_addr.c.) When an
 * address comes up, shard 0 sends a probe (RFC 5227 2.1.1, RFC 4862 5.4.2) and
 * an announcement (a gratuitous ARP request, RFC 5227 2.3; an unsolicited
 * neighbour advertisement, RFC 4861 7.2.6), and a second later another one. An
 * answer within that second withdraws the address. A conflict later on is
 * counted and answered by an announcement, once in ten seconds (RFC 5227 2.4
 * c): connections are worth more than what one frame of a stranger says. One
 * within ten seconds of the last answer is answered at their end. Otherwise two
 * hosts between which an address moves may each answer the other once, and
 * neighbours keep the one that gave it up.
 *
 * When a link has its carrier back, its addresses are announced again.
 */
#include "netstack/link/link_priv.h"
#include "netstack/program/log.h"

#include <stdlib.h>
#include <string.h>

#define ANNOUNCEMENTS 2u
#define INTERVAL_NS   INT64_C(1000000000)
#define DEFEND_NS     INT64_C(10000000000)

enum { NA_OVERRIDE = 0x20 };

/* No announcement is due before. */
static NET_SHARD_VAR int64_t next_due_ns = CORO_FOREVER;
#define next_due_ns NET_SHARD(next_due_ns)

/* ---- frames ---- */

/* Broadcasts an ARP request for an address. A probe has no sender's address. */
static void send_arp(const struct net_ifaddr *addr, bool probe)
{
	uint32_t own = ip_2_ip4(&addr->ip)->addr;

	net_arp_send(net_port_of(addr->netif),
		     &(struct net_arp){.own_mac = addr->netif->hwaddr,
				       .sender = probe ? 0 : own,
				       .target = own});
}

static void send_advertisement(const struct net_ifaddr *addr, uint8_t flags)
{
	static const uint8_t all_nodes[16] = {0xff, 2, [15] = 1};
	static const uint8_t mac[6] = {0x33, 0x33, [5] = 1};
	const uint8_t *own = (const void *)ip_2_ip6(&addr->ip)->addr;

	net_nd_send(net_port_of(addr->netif),
		    &(struct net_nd){
			    .to_mac = mac,
			    .own_mac = addr->netif->hwaddr,
			    .src = own,
			    .dest = all_nodes,
			    .target = own,
			    .flags = flags,
		    });
}

/* Without override, a neighbour that knows another MAC keeps it. */
static void announce_addr(struct net_ifaddr *addr, bool override)
{
	if (IP_IS_V6(&addr->ip))
		send_advertisement(addr, override ? NA_OVERRIDE : 0);
	else
		send_arp(addr, false);
	addr->to_announce--;
	addr->due_ns = net_here()->now_ns + INTERVAL_NS;
	if (addr->to_announce)
		next_due_ns = LWIP_MIN(next_due_ns, addr->due_ns);
}

static void announce_due(struct net_ifaddr *addr)
{
	if (addr->due_ns == addr->defended_ns) /* the answer to a conflict */
		addr->defended_ns = net_here()->now_ns + DEFEND_NS;
	announce_addr(addr, true);
}

/* ---- when an address comes up ---- */

void net_announce_begin(struct net_ifaddr *addr, enum net_addr_origin origin)
{
	if (net_here()->shard != 0)
		return; /* shard 0 answers for it as well */
	if (ip_addr_isloopback(&addr->ip))
		return; /* a host's own */
	if (!net_here()->dad_off && origin != NET_ADDR_PROBED) {
		addr->probed_ns = net_here()->now_ns + INTERVAL_NS;
		if (IP_IS_V6(&addr->ip))
			net_nd_probe(net_port_of(addr->netif),
				     (const void *)ip_2_ip6(&addr->ip)->addr);
		else
			send_arp(addr, true);
	}
	addr->to_announce = ANNOUNCEMENTS;
	announce_addr(addr, origin == NET_ADDR_MOVED || net_here()->dad_off);
}

void net_announce_start(void)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		struct net_ifaddr *addr = &net_here()->addrs[i];

		if (!addr->to_announce)
			continue;
		addr->due_ns = net_here()->now_ns + INTERVAL_NS;
		if (addr->probed_ns)
			addr->probed_ns = addr->due_ns;
	}
}

void net_announce_port(const struct net_port *port)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		struct net_ifaddr *addr = &net_here()->addrs[i];

		if (!addr->active || net_port_of(addr->netif) != port ||
		    ip_addr_isloopback(&addr->ip) || net_here()->shard != 0)
			continue;
		addr->to_announce = ANNOUNCEMENTS;
		announce_addr(addr, true);
	}
}

/* ---- withdrawals ---- */

/* Runs on another shard. */
static void withdraw_here(void *arg)
{
	ip_addr_t *ip = arg;
	struct net_ifaddr *addr = net_ifaddr_of(ip);

	if (addr)
		net_ifaddr_disable(addr, true);
	free(ip);
}

/*
 * Has the other shards withdraw an address. If memory is short or a shard's
 * queue is full, the rest of them follows at the next tick.
 */
static void post_withdrawal(struct net_ifaddr *addr)
{
	for (; addr->to_announce; addr->to_announce--) {
		ip_addr_t *ip = malloc(sizeof(*ip));

		if (ip)
			*ip = addr->ip;
		if (ip && net_post(addr->to_announce, withdraw_here, ip) == 0)
			continue;
		free(ip);
		next_due_ns = net_here()->now_ns;
		break;
	}
}

/* ---- announcements that are due ---- */

void net_announce_tick(void)
{
	int64_t now_ns = net_here()->now_ns;

	if (now_ns < next_due_ns)
		return;
	next_due_ns = CORO_FOREVER;
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		struct net_ifaddr *addr = &net_here()->addrs[i];

		if (!addr->to_announce)
			continue;
		if (addr->duplicate)
			post_withdrawal(addr);
		else if (addr->due_ns <= now_ns)
			announce_due(addr);
		else
			next_due_ns = LWIP_MIN(next_due_ns, addr->due_ns);
	}
}

/* ---- conflicts ---- */

static void log_conflict(const struct net_ifaddr *addr, const uint8_t *mac,
			 const char *what)
{
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr plain;

	net_addr_from_lwip(&addr->ip, 0, &plain);
	net_log_seldom_of(
		NET_COMPONENT_LINK,
		"coronet: link %u: another host (%02x:%02x:%02x:%02x:%02x:"
		"%02x) has our address %s: %s",
		(unsigned)(net_port_of(addr->netif) - net_here()->ports) + 1,
		mac[0], mac[1], mac[2], mac[3], mac[4], mac[5],
		net_ip_format(&plain, text), what);
}

void net_announce_conflict(const struct net_port *port, const ip_addr_t *ip,
			   const uint8_t *mac)
{
	int64_t now_ns = net_here()->now_ns;
	ip_addr_t own = *ip;
	struct net_ifaddr *addr;

	if (net_here()->shard != 0 ||
	    memcmp(mac, glue_port_mac(port->glue), 6) == 0)
		return;
	if (IP_IS_V6_VAL(own))
		ip6_addr_assign_zone(ip_2_ip6(&own), IP6_UNICAST, port->netif0);
	addr = net_ifaddr_of(&own);
	if (!addr || net_port_of(addr->netif) != port)
		return;
	net_here()->stats.addr_conflicts++;
	if (now_ns < addr->probed_ns) {
		log_conflict(addr, mac,
			     "it is not used. Change one of the two, then use "
			     "coronet-ctl addr del and add");
		net_ifaddr_disable(addr, true);
		addr->to_announce = (uint8_t)(net_here()->n_shards - 1);
		post_withdrawal(addr);
	} else if (now_ns >= addr->defended_ns) {
		log_conflict(addr, mac, "change one of the two");
		addr->defended_ns = now_ns + DEFEND_NS;
		addr->to_announce = 1;
		announce_addr(addr, true);
	} else if (!addr->to_announce) {
		addr->to_announce = 1;
		addr->due_ns = addr->defended_ns;
		next_due_ns = LWIP_MIN(next_due_ns, addr->due_ns);
	}
}
