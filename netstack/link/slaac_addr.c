/*
 * Addresses of SLAAC: how they are formed (RFC 7217), probed before they are
 * used (RFC 4862 5.4), and when they end (RFC 4862 5.5.3).
 *
 * An address that another host has is replaced by one with the next counter,
 * three times (RFC 7217 6). Others wait until the link-local one is in use.
 */
#include "netstack/link/slaac.h"
#include "netstack/program/log.h"

#include <stdio.h>
#include <string.h>

#include "lwip/ip6.h"
#include "lwip/mld6.h"

#define NS_PER_S     INT64_C(1000000000)
#define PROBE_NS     NS_PER_S	       /* RFC 4861's RetransTimer */
#define RETRIES	     3u		       /* RFC 7217's IDGEN_RETRIES */
#define TWO_HOURS_NS (7200 * NS_PER_S) /* RFC 4862 5.5.3 e */
#define NO_ROOM_NS   (60 * NS_PER_S)   /* then it is tried again */
#define FORM_NS	     (10 * NS_PER_S)   /* one address in that time, */
#define FORM_BURST   (30 * NS_PER_S)   /* and some at once */

/* ---- the log ---- */

static void log_used(const struct net_slaac *client,
		     const struct net_slaac_addr *addr)
{
	char text[NET_ADDR_TEXT_MAX], end[24] = "forever";

	if (addr->valid_ns != CORO_FOREVER)
		snprintf(end, sizeof(end), "%lld",
			 (long long)((addr->valid_ns - net_here()->now_ns) /
				     NS_PER_S));
	net_log_of(NET_COMPONENT_LINK, NET_LOG_NOTICE,
		   "coronet.link: event=address link=%u address=%s seconds=%s",
		   net_slaac_link(client) + 1, net_slaac_format(addr->ip, text),
		   end);
}

static void log_lost(const struct net_slaac *client,
		     const struct net_slaac_addr *addr, const char *reason)
{
	char text[NET_ADDR_TEXT_MAX];

	net_log_of(NET_COMPONENT_LINK, NET_LOG_WARNING,
		   "coronet.link: event=address-lost link=%u address=%s "
		   "reason=%s",
		   net_slaac_link(client) + 1, net_slaac_format(addr->ip, text),
		   reason);
}

static void log_duplicate(const struct net_slaac *client,
			  const struct net_slaac_addr *addr,
			  const uint8_t mac[6])
{
	char text[NET_ADDR_TEXT_MAX];

	net_log_of(NET_COMPONENT_LINK, NET_LOG_WARNING,
		   "coronet.link: event=duplicate link=%u address=%s "
		   "mac=%02x:%02x:%02x:%02x:%02x:%02x retry=%s",
		   net_slaac_link(client) + 1, net_slaac_format(addr->ip, text),
		   mac[0], mac[1], mac[2], mac[3], mac[4], mac[5],
		   addr->counter < RETRIES ? "yes" : "no");
}

/* ---- one address ---- */

static void solicited_group(const struct net_slaac_addr *addr, ip6_addr_t *out)
{
	uint8_t group[16] = {0xff, 2, [11] = 1, [12] = 0xff};

	memcpy(group + 13, addr->ip + 13, 3);
	*out = (ip6_addr_t){0};
	memcpy(out->addr, group, 16);
}

/* RFC 4862 5.4.2: without it, a switch may keep other hosts' answers back. */
static void join_group(const struct net_slaac *client,
		       struct net_slaac_addr *addr)
{
	ip6_addr_t group;

	solicited_group(addr, &group);
	addr->joined =
		mld6_joingroup_netif(client->port->netif0, &group) == ERR_OK;
}

/* The stack's own membership stays, if it uses the address by now. */
static void leave_group(const struct net_slaac *client,
			struct net_slaac_addr *addr)
{
	ip6_addr_t group;

	if (!addr->joined)
		return;
	solicited_group(addr, &group);
	mld6_leavegroup_netif(client->port->netif0, &group);
	addr->joined = false;
}

static void release_addr(const struct net_slaac *client,
			 struct net_slaac_addr *addr)
{
	leave_group(client, addr);
	*addr = (struct net_slaac_addr){0};
}

/* Forms the address of its prefix and counter, to be probed after a while. */
static void form_address(const struct net_slaac *client,
			 struct net_slaac_addr *addr, unsigned counter)
{
	leave_group(client, addr);
	addr->counter = (uint8_t)counter;
	net_slaac_id(client->secret, addr->ip, net_slaac_link(client),
		     addr->counter, addr->ip + 8);
	addr->state = NET_SLAAC_WAITING;
	addr->due_ns = net_here()->now_ns;
	if (!net_here()->dad_off)
		addr->due_ns += net_slaac_delay_ns();
}

static void refuse_addr(const struct net_slaac *client,
			struct net_slaac_addr *addr, const char *reason)
{
	if (!addr->logged)
		log_lost(client, addr, reason);
	addr->logged = true;
	addr->state = NET_SLAAC_REFUSED;
	addr->due_ns = net_here()->now_ns + NO_ROOM_NS;
}

static bool is_ours_already(const struct net_slaac *client,
			    const struct net_slaac_addr *addr)
{
	struct net_addr plain = {.family = 6};
	ip_addr_t ip;

	memcpy(plain.ip, addr->ip, 16);
	net_addr_to_lwip(&plain, &ip);
	ip6_addr_assign_zone(ip_2_ip6(&ip), IP6_UNICAST, client->port->netif0);
	return net_ifaddr_of(&ip) != NULL;
}

static void use_address(const struct net_slaac *client,
			struct net_slaac_addr *addr)
{
	addr->state = NET_SLAAC_USED;
	addr->logged = false;
	log_used(client, addr);
}

static void begin_probe(const struct net_slaac *client,
			struct net_slaac_addr *addr)
{
	if (is_ours_already(client, addr)) {
		refuse_addr(client, addr, "in-use");
		return;
	}
	if (net_here()->dad_off) {
		use_address(client, addr);
		return;
	}
	join_group(client, addr);
	net_nd_probe(client->port, addr->ip);
	addr->state = NET_SLAAC_PROBING;
	addr->due_ns = net_here()->now_ns + PROBE_NS;
}

static void advance_address(const struct net_slaac *client,
			    struct net_slaac_addr *addr)
{
	switch (addr->state) {
	case NET_SLAAC_FREE:
	case NET_SLAAC_DUPLICATE:
		return;
	case NET_SLAAC_WAITING:
		if (addr == client->addrs || client->port->has_ip6)
			begin_probe(client, addr);
		return;
	case NET_SLAAC_PROBING:
		use_address(client, addr);
		return;
	case NET_SLAAC_USED:
		leave_group(client, addr); /* the address has its own by now */
		return;
	case NET_SLAAC_REFUSED:
		addr->state = NET_SLAAC_WAITING;
		return;
	}
}

void net_slaac_tick_addrs(struct net_slaac *client)
{
	int64_t now_ns = net_here()->now_ns;

	for (unsigned i = 0; i < NET_SLAAC_ADDRS; i++) {
		struct net_slaac_addr *addr = &client->addrs[i];

		if (addr->state == NET_SLAAC_FREE)
			continue;
		if (addr->valid_ns <= now_ns) {
			if (addr->state == NET_SLAAC_USED)
				log_lost(client, addr, "expired");
			release_addr(client, addr);
		} else if (addr->due_ns <= now_ns) {
			advance_address(client, addr);
		}
	}
}

/* ---- new and duplicate addresses ---- */

void net_slaac_open_addr(struct net_slaac *client)
{
	struct net_slaac_addr *addr = &client->addrs[0];

	addr->ip[0] = 0xfe;
	addr->ip[1] = 0x80;
	addr->preferred_ns = addr->valid_ns = CORO_FOREVER;
	form_address(client, addr, 0);
}

void net_slaac_probe_again(struct net_slaac *client)
{
	for (unsigned i = 0; i < NET_SLAAC_ADDRS; i++)
		if (client->addrs[i].state == NET_SLAAC_PROBING ||
		    client->addrs[i].state == NET_SLAAC_DUPLICATE)
			form_address(client, &client->addrs[i], 0);
}

void net_slaac_refuse(struct net_slaac *client, const struct net_addr *addr)
{
	for (unsigned i = 0; i < NET_SLAAC_ADDRS; i++)
		if (client->addrs[i].state == NET_SLAAC_USED &&
		    memcmp(client->addrs[i].ip, addr->ip, 16) == 0) {
			leave_group(client, &client->addrs[i]);
			refuse_addr(client, &client->addrs[i], "no-room");
		}
}

static void meet_duplicate(struct net_slaac *client,
			   struct net_slaac_addr *addr, const uint8_t mac[6])
{
	net_here()->stats.addr_conflicts++;
	log_duplicate(client, addr, mac);
	if (addr->counter < RETRIES) {
		form_address(client, addr, addr->counter + 1u);
		return;
	}
	leave_group(client, addr);
	addr->state = NET_SLAAC_DUPLICATE;
}

bool net_slaac_meets(struct net_slaac *client, const uint8_t ip[16],
		     const uint8_t mac[6], bool claimed)
{
	for (unsigned i = 0; i < NET_SLAAC_ADDRS; i++) {
		struct net_slaac_addr *addr = &client->addrs[i];

		if (addr->state != NET_SLAAC_PROBING ||
		    memcmp(addr->ip, ip, 16) != 0)
			continue;
		/* A hub may bring back the probe itself. */
		if (claimed &&
		    memcmp(mac, glue_port_mac(client->port->glue), 6) != 0)
			meet_duplicate(client, addr, mac);
		return true;
	}
	return false;
}

/* ---- prefixes ---- */

/*
 * RFC 4862 5.5.3 e: an advertisement, which may be forged, does not shorten the
 * time that is left to less than two hours.
 */
static void set_lifetimes(struct net_slaac_addr *addr,
			  const struct net_ra_prefix *prefix)
{
	int64_t end_ns = net_slaac_end_ns(prefix->valid_s);
	int64_t least_ns = net_here()->now_ns + TWO_HOURS_NS;

	addr->preferred_ns = net_slaac_end_ns(prefix->preferred_s);
	if (end_ns > least_ns || end_ns > addr->valid_ns)
		addr->valid_ns = end_ns;
	else if (addr->valid_ns > least_ns)
		addr->valid_ns = least_ns;
}

void net_slaac_take_prefix(struct net_slaac *client,
			   const struct net_ra_prefix *prefix)
{
	struct net_slaac_addr *unused = NULL;

	for (unsigned i = 1; i < NET_SLAAC_ADDRS; i++) {
		struct net_slaac_addr *addr = &client->addrs[i];

		if (addr->state == NET_SLAAC_FREE) {
			unused = unused ? unused : addr;
		} else if (memcmp(addr->ip, prefix->ip, 8) == 0) {
			set_lifetimes(addr, prefix);
			return;
		}
	}
	if (prefix->valid_s == 0)
		return;
	if (!unused || !net_rate_take(&client->form_due_ns, net_here()->now_ns,
				      FORM_NS, FORM_BURST)) {
		net_here()->stats.rx_refused++;
		return;
	}
	memcpy(unused->ip, prefix->ip, 8);
	unused->preferred_ns = net_slaac_end_ns(prefix->preferred_s);
	unused->valid_ns = net_slaac_end_ns(prefix->valid_s);
	form_address(client, unused, 0);
}
