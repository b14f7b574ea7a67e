/*
 * Neighbours: which MACs are accepted, which neighbours are solicited, and
 * output by the known ones.
 *
 * lwIP's tables evict their oldest entry for any new one, so a flood of
 * requests or SYNs from invented neighbours would evict real ones. Here unknown
 * senders fill at most a quarter of ARP's table (half of IPv6's), unanswered
 * requests of the stack another quarter, and an ARP request is answered whether
 * its sender gets an entry or not. A claim to an address of the stack, or to
 * one that is not on the link, is ignored.
 */
#include "netstack/link/link_priv.h"
#include "netstack/program/events.h"

#include <string.h>

#include "dpdk_glue/check.h"
#include "lwip/etharp.h"
#include "lwip/ethip6.h"
#include "lwip/ip.h"
#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"
#include "lwip/prot/nd6.h"

#define KNOWN_NS      INT64_C(1000000000) /* then lwIP is asked again */
#define ASK_NS	      INT64_C(5000000000) /* as long as ARP asks */
#define ARP_STRANGERS (ARP_TABLE_SIZE / 4)
#define ND_STRANGERS  (LWIP_ND6_NUM_NEIGHBORS / 2)
#define ND_ASKED      (LWIP_ND6_NUM_NEIGHBORS / 4)
#define ND_BYTES      24u /* of a message, before its options */

/* An ARP packet behind the Ethernet header. */
enum { ARP_OP = 6, ARP_SENDER_MAC = 8, ARP_SENDER = 14, ARP_TARGET = 24 };

#undef net_asked
NET_SHARD_VAR struct net_asked_tables net_asked;
#define net_asked NET_SHARD(net_asked)

static_assert(NET_ASKED4 <= ARP_TABLE_SIZE / 4, "room for those that answer");

static inline uint32_t hash_ip(uint32_t ip)
{
	return ip * 2654435761u;
}

/* The two slots an address may have. */
static struct net_asked4 *asked_slots(uint32_t ip)
{
	return &net_asked
			.ip4[(hash_ip(ip ^ (uint32_t)net_here()->hash_key[0]) >>
			      26) *
			     2];
}
static_assert(NET_ASKED4 == 2 << 6, "asked_slots() keeps six bits");

/* An answer may be late: a question stays until its slot is needed. */
static bool was_asked(uint32_t ip)
{
	const struct net_asked4 *slots = asked_slots(ip);

	return slots[0].ip == ip || slots[1].ip == ip;
}

/* ---- ARP that comes in ---- */

static bool is_on_link4(const struct net_port *port, uint32_t ip)
{
	ip_addr_t addr;

	ip_addr_set_ip4_u32_val(addr, ip);
	return net_route_on_link(port, &addr);
}

static void answer_arp(const struct net_port *port, const struct netif *netif,
		       const uint8_t *request)
{
	struct net_arp arp = {.to_mac = request + ARP_SENDER_MAC,
			      .own_mac = netif->hwaddr};

	memcpy(&arp.sender, request + ARP_TARGET, 4);
	memcpy(&arp.target, request + ARP_SENDER, 4);
	net_arp_send(port, &arp);
}

/* Entries of ARP's table at the last count, and those added since. */
static NET_SHARD_VAR unsigned arp_known;
static NET_SHARD_VAR int64_t arp_counted_ns;
#define arp_known      NET_SHARD(arp_known)
#define arp_counted_ns NET_SHARD(arp_counted_ns)

/*
 * May a neighbour that only asks be remembered? The table is counted ten times
 * a second, and entries that come in between are added.
 */
static bool may_remember(void)
{
	if (net_here()->now_ns >= arp_counted_ns) {
		arp_counted_ns = net_here()->now_ns + 100000000;
		arp_known = 0;
		for (unsigned i = 0; i < ARP_TABLE_SIZE; i++) {
			struct eth_addr *mac;
			struct netif *netif;
			ip4_addr_t *ip;

			arp_known += (unsigned)etharp_get_entry(i, &ip, &netif,
								&mac);
		}
	}
	if (arp_known >= ARP_STRANGERS)
		return false;
	arp_known++;
	return true;
}

/*
 * Each address has entries of its own: passes a neighbour's packet that is for
 * none of them, such as an announcement of a new MAC, to those that know it.
 */
static void update_others(const struct net_port *port, const struct netif *but,
			  const ip4_addr_t *sender,
			  const struct glue_frame *frame)
{
	for (unsigned i = 0; i < net_here()->n_netifs; i++) {
		struct netif *netif = &net_here()->netifs[i];
		const ip4_addr_t *found;
		struct eth_addr *mac;
		struct pbuf *p;

		if (netif == but || net_port_of(netif) != port ||
		    etharp_find_addr(netif, sender, &mac, &found) < 0)
			continue;
		p = pbuf_alloc(PBUF_RAW, NET_ARP_FRAME - NET_ETH_HEADER,
			       PBUF_RAM);
		if (!p)
			return; /* the entry ages */
		memcpy(p->payload, frame->data + frame->l3_off, p->len);
		((uint8_t *)p->payload)[ARP_OP + 1] = 2;
		memset((uint8_t *)p->payload + ARP_TARGET, 0, 4);
		etharp_input(p, netif);
	}
}

/*
 * Answers a request, and makes the packet a reply for lwIP, which does not
 * answer that: to us if its sender may become an entry, to nobody if it may
 * only update one.
 */
bool net_neighbour_arp(const struct net_port *port, struct glue_frame *frame,
		       struct netif **out)
{
	uint8_t *arp = frame->data + frame->l3_off;
	uint32_t sender, target;
	struct netif *netif;
	ip4_addr_t ip;
	const ip4_addr_t *found;
	struct eth_addr *mac;
	bool known, asked;
	ip_addr_t own;

	memcpy(&sender, arp + ARP_SENDER, 4);
	memcpy(&target, arp + ARP_TARGET, 4);
	if (arp[ARP_SENDER] == 127 || arp[ARP_TARGET] == 127)
		return false; /* own addresses are not shared with a link */
	netif = net_netif_of4(port, target);
	if (net_loop_owns4(sender)) {
		ip_addr_set_ip4_u32_val(own, sender);
		net_announce_conflict(port, &own, arp + ARP_SENDER_MAC);
		return false;
	}
	asked = netif && arp[ARP_OP + 1] == 1;
	if (asked && net_here()->shard == 0)
		answer_arp(port, netif, arp);
	*out = netif ? netif : port->netif0;
	if (sender == 0 || !is_on_link4(port, sender))
		return false; /* nor is a probe (RFC 5227) a claim */
	if (net_here()->shard == 0)
		net_neighbour_share(port, frame);
	ip.addr = sender;
	if (!netif)
		update_others(port, *out, &ip, frame);
	known = etharp_find_addr(*out, &ip, &mac, &found) >= 0;
	if (known || !netif || !(asked ? may_remember() : was_asked(sender)))
		memset(arp + ARP_TARGET, 0, 4);
	arp[ARP_OP + 1] = 2;
	return true;
}

/* ---- IPv4 that goes out ---- */

static inline struct net_neighbour *slot_of(uint32_t ip)
{
	return &net_here()->neighbours[hash_ip(ip) >> 22];
}
static_assert(NET_NEIGHBOURS == 1 << 10, "slot_of() keeps ten bits");

/*
 * May we ask for an unknown neighbour? Each of a few slots holds one question
 * until it is answered or has grown old.
 */
static bool may_ask(uint32_t ip)
{
	struct net_asked4 *slots = asked_slots(ip), *slot = slots;

	if (slots[1].ip == ip || slots[1].until_ns < slots[0].until_ns)
		slot = &slots[1];
	if (slots[0].ip == ip)
		slot = &slots[0];
	if (slot->ip != ip && slot->until_ns > net_here()->now_ns) {
		net_here()->stats.neighbours_refused++;
		net_event_unasked4(ip);
		return false;
	}
	if (slot->ip != ip || slot->until_ns <= net_here()->now_ns)
		*slot = (struct net_asked4){ip, net_here()->now_ns + ASK_NS};
	return true;
}

static void mark_answered(uint32_t ip)
{
	struct net_asked4 *slots = asked_slots(ip);

	for (unsigned i = 0; i < 2; i++)
		if (slots[i].ip == ip)
			slots[i].until_ns = 0;
}

/* Is the interface's address the one that the routes choose? */
static bool is_by_route(const struct netif *netif, const ip_addr_t *to)
{
	const struct net_ifaddr *own;
	struct net_hop hop;

	if (net_route_find(NULL, to, &hop) < 0)
		return false;
	own = net_route_source(&hop, to);
	return own && own->netif == netif;
}

static void learn_neighbour(struct netif *netif, const ip_addr_t *to,
			    const struct eth_addr *mac)
{
	uint32_t ip = ip_2_ip4(to)->addr;
	struct net_neighbour *slot = slot_of(ip);

	slot->ip = ip;
	slot->netif = netif;
	slot->by_route = is_by_route(netif, to);
	slot->expires_ns = net_here()->now_ns + KNOWN_NS;
	net_link_header4(slot->header, netif, ip, mac->addr);
}

/* Called if nothing was sent there for a second. */
cold static err_t ask_arp(struct netif *netif, struct pbuf *p,
			  const ip4_addr_t *dest)
{
	const ip4_addr_t *found;
	struct eth_addr *mac;
	struct net_hop hop;
	ip_addr_t to;

	if (ip4_addr_ismulticast(dest) || ip4_addr_isbroadcast(dest, netif))
		return etharp_output(netif, p, dest);
	if (net_loop_owns4(dest->addr))
		return net_loop_output(netif, p);
	if (ip4_addr_isloopback(dest))
		return ERR_RTE; /* RFC 1122 3.2.1.3 (g) */
	ip_addr_copy_from_ip4(to, *dest);
	if (net_route_find(net_port_of(netif), &to, &hop) < 0)
		return ERR_RTE;
	if (etharp_find_addr(netif, ip_2_ip4(&hop.ip), &mac, &found) >= 0) {
		mark_answered(ip_2_ip4(&hop.ip)->addr);
		learn_neighbour(netif, &to, mac);
	} else if (!may_ask(ip_2_ip4(&hop.ip)->addr)) {
		return ERR_OK; /* lost, as on a wire */
	}
	/* asks again when it is time */
	return etharp_output(netif, p, ip_2_ip4(&hop.ip));
}

const struct net_neighbour *net_neighbour_known(const ip4_addr_t *dest)
{
	const struct net_neighbour *slot = slot_of(dest->addr);

	return slot->ip == dest->addr && slot->expires_ns > net_here()->now_ns
		       ? slot
		       : NULL;
}

err_t net_neighbour_output4(struct netif *netif, struct pbuf *p,
			    const ip4_addr_t *dest)
{
	const struct net_neighbour *slot = net_neighbour_known(dest);
	struct ip_hdr *ip = p->payload;

	if (unlikely(net_here()->addrs_removed) && ip->src.addr &&
	    !net_loop_owns4(ip->src.addr))
		return ERR_OK; /* its address was removed: lost */
	IPH_ID_SET(ip, net_ip_id(dest));
	if (IPH_PROTO(ip) != IP_PROTO_ICMP && net_path_df(dest))
		IPH_OFFSET_SET(ip, PP_HTONS(IP_DF));
	if (likely(slot && slot->netif == netif))
		return net_link_send(netif, p, slot->header);
	return ask_arp(netif, p, dest);
}

/* ---- IPv6 ---- */

static struct nd6_neighbor_cache_entry *entry_of(const struct netif *netif,
						 const ip6_addr_t *ip)
{
	for (unsigned i = 0; i < LWIP_ND6_NUM_NEIGHBORS; i++)
		if (neighbor_cache[i].state != ND6_NO_ENTRY &&
		    neighbor_cache[i].netif == netif &&
		    ip6_addr_zoneless_eq(&neighbor_cache[i].next_hop_address,
					 ip))
			return &neighbor_cache[i];
	return NULL;
}

static unsigned count_entries(bool asked_only)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LWIP_ND6_NUM_NEIGHBORS; i++)
		n += asked_only ? neighbor_cache[i].state == ND6_INCOMPLETE
				: neighbor_cache[i].state != ND6_NO_ENTRY;
	return n;
}

static bool is_on_link6(const struct net_port *port, const ip6_addr_t *ip)
{
	ip_addr_t addr;

	ip_addr_copy_from_ip6(addr, *ip);
	return net_route_on_link(port, &addr);
}

/*
 * Sends an advertisement to a neighbour that must not be remembered: lwIP would
 * need an entry to send it.
 */
static void answer_solicitation(const struct net_port *port, const uint8_t *ip6,
				const uint8_t *nd, const uint8_t *to_mac)
{
	net_nd_send(port, &(struct net_nd){
				  .to_mac = to_mac,
				  .own_mac = port->netif0->hwaddr,
				  .src = nd + 8, /* from the target */
				  .dest = ip6 + 8,
				  .target = nd + 8,
				  .flags = 0x60, /* solicited, override */
			  });
}

/*
 * Returns the MAC in the first option of a type, or NULL. lwIP takes the first
 * option for the MAC, whatever its type is, so this one is moved there, which
 * does not change the checksum.
 */
static const uint8_t *find_mac(const struct glue_frame *frame, unsigned type)
{
	uint8_t *first = frame->data + frame->l4_off + ND_BYTES;
	const uint8_t *ip6 = frame->data + frame->l3_off;
	unsigned len = glue_get16(ip6 + 4) + (unsigned)IP6_HLEN -
		       (unsigned)(first - ip6);
	const uint8_t *found = glue_nd_option(first, len, type);
	uint8_t option[8];

	if (!found)
		return NULL;
	memcpy(option, found, sizeof(option));
	memmove(first + sizeof(option), first, (size_t)(found - first));
	memcpy(first, option, sizeof(option));
	return first + 2;
}

static bool has_mac(const struct nd6_neighbor_cache_entry *entry)
{
	return entry && entry->state != ND6_INCOMPLETE;
}

void net_neighbour_moved6(const struct net_port *port, const ip6_addr_t *ip,
			  const uint8_t mac[6])
{
	struct nd6_neighbor_cache_entry *entry = entry_of(port->netif0, ip);

	if (!has_mac(entry) || memcmp(entry->lladdr, mac, 6) == 0)
		return;
	memcpy(entry->lladdr, mac, 6);
	/* Packets that are queued wait for the answer to a probe. */
	entry->state = entry->q ? ND6_DELAY : ND6_STALE;
	entry->counter.stale_time = 0;
}

/* Makes lwIP keep the MAC that it knows; corrects the checksum (RFC 1624). */
static void clear_override(uint8_t *nd)
{
	uint32_t sum = glue_get16(nd + 2);

	if (nd[4] & ND6_FLAG_OVERRIDE)
		sum += ND6_FLAG_OVERRIDE << 8;
	sum += sum >> 16;
	nd[2] = (uint8_t)(sum >> 8);
	nd[3] = (uint8_t)sum;
	nd[4] &= (uint8_t)~ND6_FLAG_OVERRIDE;
}

/*
 * RFC 4861 7.2.4 and 7.2.5: the answer to a probe that was sent to one MAC may
 * leave that out. It shows that a neighbour is reachable whose MAC is known.
 */
static bool is_confirmation(const struct net_port *port,
			    const struct glue_frame *frame,
			    const ip6_addr_t *target)
{
	const uint8_t *dest = frame->data + frame->l3_off + 24;
	const uint8_t *nd = frame->data + frame->l4_off;

	return dest[0] != 0xff && nd[4] & ND6_FLAG_SOLICITED &&
	       has_mac(entry_of(port->netif0, target));
}

/* An advertisement updates an entry. */
static bool take_advertisement(const struct net_port *port,
			       const struct glue_frame *frame,
			       const ip6_addr_t *target)
{
	ip_addr_t own;

	if (net_netif_owns6(port->netif0, target)) {
		ip_addr_copy_from_ip6(own, *target);
		net_announce_conflict(port, &own, frame->data + 6);
		return false;
	}
	if (net_here()->shard == 0)
		net_neighbour_share(port, frame);
	if (find_mac(frame, GLUE_ND_TARGET_MAC))
		return true;
	if (!is_confirmation(port, frame, target))
		return false;
	clear_override(frame->data + frame->l4_off);
	return true;
}

/* Returns whether lwIP answers; else the sender has been answered, or not. */
static bool take_solicitation(const struct net_port *port,
			      const struct glue_frame *frame)
{
	const uint8_t *ip6 = frame->data + frame->l3_off;
	const struct nd6_neighbor_cache_entry *entry;
	const uint8_t *mac;
	ip6_addr_t src = {0};

	memcpy(src.addr, ip6 + 8, 16);
	if (net_netif_owns6(port->netif0, &src))
		return false;
	if (ip6_addr_isany(&src))
		return true; /* RFC 4862: a probe */
	if (!is_on_link6(port, &src))
		return false;
	mac = find_mac(frame, GLUE_ND_SOURCE_MAC);
	if (mac) { /* RFC 4861 7.2.3 */
		net_neighbour_moved6(port, &src, mac);
		net_neighbour_share_mac(port, &src, mac);
	}
	entry = entry_of(port->netif0, &src);
	if (mac && (entry || count_entries(false) < ND_STRANGERS))
		return true;
	if (!mac)
		mac = has_mac(entry) ? entry->lladdr : frame->data + 6;
	answer_solicitation(port, ip6, frame->data + frame->l4_off, mac);
	return false;
}

bool net_neighbour_nd(const struct net_port *port,
		      const struct glue_frame *frame)
{
	const uint8_t *nd = frame->data + frame->l4_off;
	ip6_addr_t target = {0};

	memcpy(target.addr, nd + 8, 16);
	if (ip6_addr_isloopback(&target))
		return false;
	if (nd[0] == ICMP6_TYPE_NA)
		return take_advertisement(port, frame, &target);
	return net_here()->shard == 0 &&
	       net_netif_owns6(port->netif0, &target) &&
	       take_solicitation(port, frame);
}

static struct net_asked6 *slot_of6(const ip6_addr_t *ip)
{
	uint32_t h = ip->addr[0] ^ ip->addr[1] ^ ip->addr[2];

	h = hash_ip(h ^ (uint32_t)net_here()->hash_key[0]) ^ ip->addr[3];
	return &net_asked.ip6[hash_ip(h) >> 24];
}
static_assert(NET_ASKED6 == 1 << 8, "slot_of6() keeps eight bits");

/*
 * May a packet go to slot->hop, which was unknown or not used for a second? If
 * not, it is lost, as on a wire.
 */
static bool may_send6(const struct netif *netif, const ip6_addr_t *dest,
		      struct net_asked6 *slot)
{
	struct nd6_neighbor_cache_entry *entry = entry_of(netif, &slot->hop);

	slot->entry = entry;
	if (entry)
		memcpy(slot->mac, entry->lladdr, 6);
	if (entry || count_entries(true) < ND_ASKED)
		return true;
	net_here()->stats.neighbours_refused++;
	net_event_unasked6(dest);
	return false;
}

/* Called if nothing was sent there for a second: finds the neighbour. */
cold static err_t ask_nd(struct netif *netif, struct pbuf *p,
			 const ip6_addr_t *dest, struct net_asked6 *slot)
{
	struct net_hop hop;
	ip_addr_t to;

	if (net_loop_owns6(netif, dest))
		return net_loop_output(netif, p);
	if (ip6_addr_isloopback(dest))
		return ERR_RTE; /* RFC 4291 2.5.3 */
	ip_addr_copy_from_ip6(to, *dest);
	if (net_route_find(net_port_of(netif), &to, &hop) < 0)
		return ERR_RTE;
	slot->hop = *ip_2_ip6(&hop.ip);
	slot->until_ns = 0;
	if (!may_send6(netif, dest, slot))
		return ERR_OK;
	slot->ip = *dest;
	slot->netif = netif;
	slot->until_ns = net_here()->now_ns + KNOWN_NS;
	return ethip6_output(netif, p, &slot->hop);
}

struct nd6_neighbor_cache_entry *net_neighbour_known6(const ip6_addr_t *dest)
{
	const struct net_asked6 *slot = slot_of6(dest);
	struct nd6_neighbor_cache_entry *entry = slot->entry;

	return entry && slot->until_ns > net_here()->now_ns &&
			       ip6_addr_zoneless_eq(&slot->ip, dest) &&
			       entry->state == ND6_REACHABLE &&
			       memcmp(entry->lladdr, slot->mac, 6) == 0
		       ? entry
		       : NULL;
}

void net_link_confirm6(const struct netif *netif, const ip6_addr_t *dest)
{
	struct nd6_neighbor_cache_entry *entry = net_neighbour_known6(dest);
	const struct net_asked6 *slot = slot_of6(dest);

	if (slot->netif != netif)
		return;
	if (entry)
		entry->counter.reachable_time = LWIP_ND6_REACHABLE_TIME;
	else if (ip6_addr_zoneless_eq(&slot->ip, dest))
		nd6_reachability_hint(&slot->hop);
}

/* Is a packet from an address that is the stack's no more? */
static bool is_removed6(const struct netif *netif, const struct ip6_hdr *ip)
{
	ip6_addr_t src;

	ip6_addr_copy_from_packed(src, ip->src);
	return !ip6_addr_isany(&src) && !net_loop_owns6(netif, &src);
}

err_t net_neighbour_output6(struct netif *netif, struct pbuf *p,
			    const ip6_addr_t *dest)
{
	struct net_asked6 *slot = slot_of6(dest);

	if (unlikely(net_here()->addrs_removed) &&
	    is_removed6(netif, p->payload))
		return ERR_OK; /* lost */
	if (ip6_addr_ismulticast(dest))
		return ethip6_output(netif, p, dest);
	if (slot->until_ns <= net_here()->now_ns || slot->netif != netif ||
	    !ip6_addr_zoneless_eq(&slot->ip, dest))
		return ask_nd(netif, p, dest, slot);
	return ethip6_output(netif, p, &slot->hop);
}

/*
 * A neighbour that asks for our address before it has answered our own question
 * is known from then on, but lwIP keeps packets that were queued for it until
 * it has been probed, five seconds later. RFC 4861 7.2.3 has them sent at once;
 * the probe's answer sends them, so the probe is due now.
 */
void net_neighbour_probe(void)
{
	for (int i = 0; i < LWIP_ND6_NUM_NEIGHBORS; i++)
		if (neighbor_cache[i].state == ND6_DELAY &&
		    neighbor_cache[i].q) {
			neighbor_cache[i].state = ND6_PROBE;
			neighbor_cache[i].counter.probes_sent = 0;
		}
}

bool net_neighbour_reachable(const ip_addr_t *ip)
{
	const struct nd6_neighbor_cache_entry *entry;
	const ip4_addr_t *found;
	struct eth_addr *mac;
	struct net_hop hop;

	if (net_link_owns(net_here()->ports[0].netif0, ip))
		return true;
	if (net_route_find(NULL, ip, &hop) < 0)
		return false;
	if (IP_IS_V6(ip)) {
		entry = entry_of(hop.near->netif, ip_2_ip6(&hop.ip));
		return entry && entry->state >= ND6_REACHABLE;
	}
	for (unsigned i = 0; i < net_here()->n_netifs; i++)
		if (etharp_find_addr(&net_here()->netifs[i], ip_2_ip4(&hop.ip),
				     &mac, &found) >= 0)
			return true;
	return false;
}
