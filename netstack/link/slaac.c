/*
 * The SLAAC client (RFC 4862): its frames, and what the shards get of it.
 *
 * Routers are solicited when the link-local address is in use, then after 4, 8,
 * 16 seconds and so on up to an hour (RFC 7559) until one of them advertises
 * itself, and again when the last one is gone or the carrier is back.
 *
 * Advertisements are believed as RFC 4861 6.1.2 has it: dpdk_glue checks the
 * hop limit, the link-local source, the checksum and all lengths. The lists
 * that they fill are short, ten a second are read, and one address is formed
 * in ten seconds after the first few, so that a flood costs little.
 */
#include "netstack/link/slaac.h"
#include "netstack/link/lease_file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/icmp6.h"

#define NS_PER_S   INT64_C(1000000000)
#define READS_A_S  10
#define ASK_NS	   (4 * NS_PER_S)    /* RFC 4861 10 */
#define ASK_MAX_NS (3600 * NS_PER_S) /* RFC 7559 2.1 */

#undef net_slaac_links
NET_SHARD_VAR uint8_t net_slaac_links;
#define net_slaac_links NET_SHARD(net_slaac_links)

/* Of shard 0; owned. */
static NET_SHARD_VAR struct net_slaac *clients[NET_MAX_LINKS];
#define clients NET_SHARD(clients)

int64_t net_slaac_end_ns(uint32_t lifetime_s)
{
	return lifetime_s == NET_RA_INFINITE
		       ? CORO_FOREVER
		       : net_here()->now_ns + lifetime_s * NS_PER_S;
}

int64_t net_slaac_delay_ns(void)
{
	return (int64_t)(net_random() % 1001) * INT64_C(1000000);
}

const char *net_slaac_format(const uint8_t ip[16], char text[NET_ADDR_TEXT_MAX])
{
	struct net_addr addr = {.family = 6};

	memcpy(addr.ip, ip, 16);
	return net_ip_format(&addr, text);
}

/* ---- publishing to shards ---- */

static void apply_here(void *arg)
{
	struct net_slaac_config *config = arg;
	struct net_slaac *client = clients[config->link];
	unsigned failed = net_slaac_apply(config);

	if (!client) /* on other shards than 0 */
		return;
	for (unsigned i = 0; i < NET_SLAAC_ADDRS; i++)
		if (failed >> i & 1)
			net_slaac_refuse(client, &client->config.addrs[i]);
}

static void publish_config(struct net_slaac *client)
{
	struct net_slaac_config now;

	net_slaac_describe(client, &now);
	if (memcmp(&now, &client->config, sizeof(now)) != 0) {
		client->config = now;
		client->turn++;
	}
	net_share_config(&client->config, sizeof(client->config), &client->turn,
			 client->posted, apply_here);
}

/* ---- solicitations ---- */

/* Begins to ask for routers. */
static void ask_again(struct net_slaac *client)
{
	client->ask_wait_ns = 0;
	client->ask_ns = net_here()->now_ns;
}

static void solicit_routers(struct net_slaac *client)
{
	int64_t wait_ns = client->ask_wait_ns * 2;

	wait_ns = LWIP_MIN(wait_ns ? wait_ns : ASK_NS, ASK_MAX_NS);
	client->ask_wait_ns = wait_ns;
	/* RFC 7559 2: up to a tenth more or less */
	client->ask_ns = net_here()->now_ns + wait_ns - wait_ns / 10 +
			 wait_ns / 5 * (net_random() % 1001) / 1000;
	net_rs_send(client->port);
}

/* ---- the tick ---- */

static void check_carrier(struct net_slaac *client)
{
	bool none = !glue_port_has_carrier(client->port->glue);

	if (client->no_carrier && !none) {
		net_slaac_probe_again(client);
		ask_again(client);
	}
	client->no_carrier = none;
}

static void tick_client(struct net_slaac *client)
{
	check_carrier(client);
	if (!client->no_carrier)
		net_slaac_tick_addrs(client);
	net_slaac_expire(client);
	if (client->ask_ns == CORO_FOREVER && !net_slaac_has_router(client))
		ask_again(client);
	publish_config(client);
	if (client->port->has_ip6 && !client->no_carrier &&
	    net_here()->now_ns >= client->ask_ns)
		solicit_routers(client);
}

void net_slaac_tick(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		if (clients[i])
			tick_client(clients[i]);
}

/* ---- frames ---- */

/* Counts an advertisement that is not read. */
static void refuse_message(void)
{
	net_here()->stats.rx_refused++;
}

static void receive_router(struct net_slaac *client,
			   const struct glue_frame *frame)
{
	const uint8_t *from = frame->data + frame->l3_off + 8;
	const uint8_t *bytes = frame->data + frame->l4_off;
	size_t len = (size_t)frame->seg_len - frame->l4_off;
	const struct ip6_hdr *ip = (const void *)(frame->data + frame->l3_off);
	struct net_ra_msg msg;
	ip6_addr_t src;

	/* Behind the packet there may be padding. */
	len = LWIP_MIN(len, (size_t)frame->l3_off + IP6_HLEN + IP6H_PLEN(ip) -
				    frame->l4_off);
	ip6_addr_copy_from_packed(src, ip->src);
	if (net_netif_owns6(client->port->netif0, &src) ||
	    !net_rate_take(&client->read_due_ns, net_here()->now_ns,
			   NS_PER_S / READS_A_S, NS_PER_S) ||
	    net_ra_read(bytes, len, &msg) < 0) {
		refuse_message();
		return;
	}
	if (msg.has_mac) { /* RFC 4861 6.3.4 */
		net_neighbour_moved6(client->port, &src, msg.mac);
		net_neighbour_share_mac(client->port, &src, msg.mac);
	}
	net_slaac_learn(client, &msg, from);
	if (msg.router_s) /* RFC 4861 6.3.7 */
		client->ask_ns = CORO_FOREVER;
}

/*
 * RFC 4862 5.4.3 and 5.4.4: an advertisement claims an address that is being
 * probed, and so does another host's probe.
 */
static bool receive_neighbour(struct net_slaac *client,
			      const struct glue_frame *frame)
{
	static const uint8_t any[16];
	const uint8_t *nd = frame->data + frame->l4_off;
	bool claimed = nd[0] == ICMP6_TYPE_NA ||
		       memcmp(frame->data + frame->l3_off + 8, any, 16) == 0;

	return net_slaac_meets(client, nd + 8, frame->data + 6, claimed);
}

bool net_slaac_input(struct net_port *port, const struct glue_frame *frame)
{
	struct net_slaac *client = clients[port - net_here()->ports];
	const uint8_t *icmp = frame->data + frame->l4_off;

	if (!(frame->flags & GLUE_FRAME_IP6) ||
	    !(frame->flags & GLUE_FRAME_ICMP))
		return false;
	if (icmp[0] == ICMP6_TYPE_RA) {
		if (client)
			receive_router(client, frame);
		else
			refuse_message();
		return true;
	}
	return client &&
	       (icmp[0] == ICMP6_TYPE_NS || icmp[0] == ICMP6_TYPE_NA) &&
	       receive_neighbour(client, frame);
}

/* ---- opening ---- */

static int open_client(unsigned link, const struct net_opts *opts)
{
	struct net_slaac *client = calloc(1, sizeof(*client));
	char first[PATH_MAX];

	if (!client)
		return -ENOMEM;
	client->port = &net_here()->ports[link];
	client->config.link = link;
	client->form_due_ns = INT64_MIN / 2; /* the first few at once */
	net_slaac_secret_load(net_lease_directory(opts->lease_dir, first),
			      client->secret);
	/* RFC 4861 6.3.7: hosts that start together do not ask together. */
	client->ask_ns = net_here()->now_ns + net_slaac_delay_ns();
	if (!client->port->has_ip6)
		net_slaac_open_addr(client);
	clients[link] = client;
	return 0;
}

int net_slaac_open(const struct net_opts *opts)
{
	int err = 0;

	net_slaac_links = net_leased_links(opts, net_addr_is_auto);
	if (net_here()->shard != 0)
		return 0;
	for (unsigned i = 0; i < opts->n_links && err == 0; i++)
		if (net_slaac_links >> i & 1)
			err = open_client(i, opts);
	return err;
}

void net_slaac_close(void)
{
	for (unsigned i = 0; i < NET_MAX_LINKS; i++) {
		free(clients[i]);
		clients[i] = NULL;
	}
	net_slaac_links = 0;
	net_slaac_applied_close();
}

/* ---- for the folders above ---- */

bool net_slaac_lease_of(const struct net_port *port, const ip_addr_t *ip,
			int64_t *left_s)
{
	const struct net_slaac *client = clients[port - net_here()->ports];

	for (unsigned i = 0; client && IP_IS_V6(ip) && i < NET_SLAAC_ADDRS;
	     i++) {
		const struct net_slaac_addr *addr = &client->addrs[i];

		if (addr->state != NET_SLAAC_USED ||
		    memcmp(addr->ip, ip_2_ip6(ip)->addr, 16) != 0)
			continue;
		*left_s = -1;
		if (addr->valid_ns != CORO_FOREVER)
			*left_s = (addr->valid_ns - net_here()->now_ns) /
				  NS_PER_S;
		return true;
	}
	return false;
}

unsigned net_slaac_unused(struct net_slaac_unused out[NET_SLAAC_UNUSED])
{
	unsigned n = 0;

	for (unsigned i = 0; i < NET_MAX_LINKS * NET_SLAAC_ADDRS; i++) {
		const struct net_slaac *client = clients[i / NET_SLAAC_ADDRS];
		const struct net_slaac_addr *addr;

		if (!client)
			continue;
		addr = &client->addrs[i % NET_SLAAC_ADDRS];
		if (addr->state != NET_SLAAC_WAITING &&
		    addr->state != NET_SLAAC_PROBING &&
		    addr->state != NET_SLAAC_DUPLICATE)
			continue;
		out[n] = (struct net_slaac_unused){
			.link = net_slaac_link(client),
			.tentative = addr->state != NET_SLAAC_DUPLICATE,
			.addr = {.family = 6, .prefix_len = 64}};
		memcpy(out[n++].addr.ip, addr->ip, 16);
	}
	return n;
}
