/*
 * The DHCP client (RFC 2131): its states, on shard 0.
 *
 * Retransmissions wait 4, 8, 16, 32, 64 seconds, with a random second more or
 * less (RFC 2131 4.1), for as long as no server answers. The first offer that
 * can be used is chosen. A request that is not answered four times begins
 * again.
 *
 * The lease's address is used at once, as any other (link/announce.c): another
 * host that answers for it within a second makes the client decline it.
 *
 * Answers may come to any shard, as a hash decides. They are posted to shard 0,
 * a hundred a second at most.
 */
#include "netstack/link/dhcp.h"
#include "netstack/program/log.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/udp.h"

#define NS_PER_MS    INT64_C(1000000)
#define NS_PER_S     INT64_C(1000000000)
#define REQUESTS     4u /* before it begins again */
#define REBOOTS	     3u /* the same for an address that is in use */
#define REMEMBERED   2u /* the same for one of the last start */
#define BACKOFF_MAX  4u /* doublings of the first 4 seconds */
#define RENEW_MIN_NS (60 * NS_PER_S) /* RFC 2131 4.4.5 */
#define DECLINED_NS  (10 * NS_PER_S) /* RFC 2131 3.1.5 */
#define LEASE_MIN_S  10u	     /* shorter ones are refused */
#define ANSWERS_A_S  100

#undef net_dhcp_links
NET_SHARD_VAR uint8_t net_dhcp_links;
#define net_dhcp_links NET_SHARD(net_dhcp_links)

/* Of shard 0; owned. */
static NET_SHARD_VAR struct net_dhcp *clients[NET_MAX_LINKS];
static NET_SHARD_VAR int64_t answer_due_ns; /* when one more is taken */
#define clients	      NET_SHARD(clients)
#define answer_due_ns NET_SHARD(answer_due_ns)

static uint32_t leased_ip(const struct net_lease *lease)
{
	uint32_t ip;

	memcpy(&ip, lease->addr.ip, 4);
	return ip;
}

/* A random time from 0 to max_ns. */
static int64_t random_ns(int64_t max_ns)
{
	return (int64_t)(net_random() % (uint64_t)(max_ns / NS_PER_MS + 1)) *
	       NS_PER_MS;
}

/* ---- the log ---- */

static unsigned link_number(const struct net_dhcp *client)
{
	return (unsigned)(client->port - net_here()->ports) + 1;
}

static const char *format_ip(uint32_t ip, char text[NET_ADDR_TEXT_MAX])
{
	ip_addr_t addr = IPADDR4_INIT(ip);
	struct net_addr plain;

	net_addr_from_lwip(&addr, 0, &plain);
	return net_ip_format(&plain, text);
}

/* A renewal is less interesting than a new address. */
static void log_lease(const struct net_dhcp *client, uint32_t lease_s,
		      bool renewed)
{
	char addr[NET_ADDR_TEXT_MAX], server[NET_ADDR_TEXT_MAX];
	const struct net_lease *lease = &client->lease;

	net_log_of(NET_COMPONENT_LINK, renewed ? NET_LOG_INFO : NET_LOG_NOTICE,
		   "coronet.link: event=lease link=%u address=%s/%u server=%s "
		   "seconds=%u routes=%u resolvers=%u renewed=%s",
		   link_number(client), format_ip(leased_ip(lease), addr),
		   lease->addr.prefix_len, format_ip(client->server, server),
		   lease_s, lease->n_routes, lease->n_servers,
		   renewed ? "yes" : "no");
}

static void log_lost(const struct net_dhcp *client, const char *reason)
{
	char addr[NET_ADDR_TEXT_MAX];

	net_log_of(NET_COMPONENT_LINK, NET_LOG_WARNING,
		   "coronet.link: event=lease-lost link=%u address=%s/%u "
		   "reason=%s",
		   link_number(client),
		   format_ip(leased_ip(&client->lease), addr),
		   client->lease.addr.prefix_len, reason);
}

/* ---- the state, and what the shards get of it ---- */

static void enter_state(struct net_dhcp *client, enum net_dhcp_state state)
{
	client->state = state;
	client->tries = 0;
}

/* Begins to ask for an address, after a time. */
static void restart_client(struct net_dhcp *client, int64_t wait_ns)
{
	enter_state(client, NET_DHCP_INIT);
	client->due_ns = net_here()->now_ns + wait_ns;
}

/* Keeps the address in use for the next start. */
static void save_lease(const struct net_dhcp *client)
{
	int64_t left_ns = client->expires_ns - net_here()->now_ns;
	struct net_lease_record record = {.ip = leased_ip(&client->lease)};

	if (!client->file)
		return;
	memcpy(record.mac, glue_port_mac(client->port->glue), 6);
	if (client->expires_ns != CORO_FOREVER)
		record.expires_s = net_lease_wall_s() + left_ns / NS_PER_S;
	net_lease_file_write(client->file, &record);
}

static void forget_lease(struct net_dhcp *client)
{
	client->remembered = false;
	if (client->file)
		net_lease_file_write(client->file, NULL);
}

/* Gives up a lease whose address this shard cannot use, for all shards. */
static void withdraw_lease(struct net_dhcp *client, int err)
{
	log_lost(client, err == -EEXIST ? "in-use" : "no-room");
	forget_lease(client);
	client->lease.bound = false;
	client->turn++;
	restart_client(client, RENEW_MIN_NS);
}

static void apply_here(void *arg)
{
	struct net_lease *lease = arg;
	struct net_dhcp *client =
		clients[lease->link]; /* NULL but on shard 0 */
	int err = net_lease_apply(lease);

	if (err < 0 && client)
		withdraw_lease(client, err);
}

static void push_lease(struct net_dhcp *client)
{
	net_share_config(&client->lease, sizeof(client->lease), &client->turn,
			 client->posted, apply_here);
}

static void publish_lease(struct net_dhcp *client)
{
	client->turn++;
	push_lease(client);
}

/* ---- output ---- */

static void send_message(struct net_dhcp *client, enum net_dhcp_type type)
{
	int64_t secs = (net_here()->now_ns - client->began_ns) / NS_PER_S;
	struct net_dhcp_out msg = {
		.type = (uint8_t)type,
		.mac = glue_port_mac(client->port->glue),
		.xid = client->xid,
		.secs = (uint16_t)LWIP_MIN(secs, UINT16_MAX),
	};

	/* RFC 2131, tables 4 and 5 */
	if (client->state == NET_DHCP_RENEWING ||
	    client->state == NET_DHCP_REBINDING)
		msg.ciaddr = leased_ip(&client->lease);
	else if (type != NET_DHCP_DISCOVER)
		msg.wanted = leased_ip(&client->lease);
	if (client->state == NET_DHCP_REQUESTING || type == NET_DHCP_DECLINE)
		msg.server = client->server;
	if (client->state == NET_DHCP_RENEWING)
		net_dhcp_unicast(client, &msg);
	else
		net_dhcp_broadcast(client, &msg, msg.ciaddr);
}

/* Sends a state's message, and waits for its answer. */
static void send_and_back_off(struct net_dhcp *client, enum net_dhcp_type type)
{
	unsigned doublings = LWIP_MIN(client->tries, BACKOFF_MAX);

	client->tries++;
	client->due_ns = net_here()->now_ns + ((4 * NS_PER_S) << doublings) -
			 NS_PER_S + random_ns(2 * NS_PER_S);
	send_message(client, type);
}

/*
 * Asks to extend the lease, and again after half of the time that is left
 * until end_ns (RFC 2131 4.4.5). Each request has an ID of its own, so that an
 * answer shows when it was asked.
 */
static void send_renewal(struct net_dhcp *client, int64_t end_ns)
{
	int64_t now_ns = net_here()->now_ns;
	int64_t wait_ns = LWIP_MAX((end_ns - now_ns) / 2, RENEW_MIN_NS);

	client->xid = net_random();
	client->asked_ns = now_ns;
	client->due_ns = LWIP_MIN(now_ns + wait_ns, end_ns);
	send_message(client, NET_DHCP_REQUEST);
}

/* ---- states ---- */

/* Gives the address up; connections that use it stay. */
static void lose_lease(struct net_dhcp *client, const char *reason)
{
	log_lost(client, reason);
	forget_lease(client);
	client->lease.bound = false;
	publish_lease(client);
}

static void start_discovery(struct net_dhcp *client)
{
	enter_state(client, NET_DHCP_SELECTING);
	client->remembered = false;
	client->xid = net_random();
	client->began_ns = net_here()->now_ns;
	client->server = 0;
	send_and_back_off(client, NET_DHCP_DISCOVER);
}

/* Asks whether the address is right for the network (INIT-REBOOT). */
static void start_init_reboot(struct net_dhcp *client)
{
	enter_state(client, NET_DHCP_REBOOTING);
	client->xid = net_random();
	client->began_ns = client->asked_ns = net_here()->now_ns;
	send_and_back_off(client, NET_DHCP_REQUEST);
}

/* Keeps a lease without an answer (RFC 2131 3.2 step 3): it has not ended. */
static void keep_lease(struct net_dhcp *client)
{
	enter_state(client, NET_DHCP_BOUND);
	client->due_ns = LWIP_MAX(client->t1_ns, net_here()->now_ns);
}

static void renew_lease(struct net_dhcp *client)
{
	if (client->state == NET_DHCP_BOUND) {
		enter_state(client, NET_DHCP_RENEWING);
		client->began_ns = net_here()->now_ns;
	}
	if (net_here()->now_ns >= client->t2_ns)
		enter_state(client, NET_DHCP_REBINDING);
	send_renewal(client, client->state == NET_DHCP_RENEWING
				     ? client->t2_ns
				     : client->expires_ns);
}

static void advance_client(struct net_dhcp *client)
{
	switch (client->state) {
	case NET_DHCP_INIT:
		if (client->remembered)
			start_init_reboot(client);
		else
			start_discovery(client);
		return;
	case NET_DHCP_SELECTING:
		send_and_back_off(client, NET_DHCP_DISCOVER);
		return;
	case NET_DHCP_REQUESTING:
		if (client->tries < REQUESTS)
			send_and_back_off(client, NET_DHCP_REQUEST);
		else
			start_discovery(client);
		return;
	case NET_DHCP_REBOOTING:
		if (client->tries <
		    (client->lease.bound ? REBOOTS : REMEMBERED))
			send_and_back_off(client, NET_DHCP_REQUEST);
		else if (client->lease.bound)
			keep_lease(client);
		else
			start_discovery(client);
		return;
	case NET_DHCP_BOUND:
	case NET_DHCP_RENEWING:
	case NET_DHCP_REBINDING:
		renew_lease(client);
		return;
	}
}

/*
 * Returns whether another host has answered for the address: link/announce.c.
 */
static bool is_duplicate(const struct net_dhcp *client)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		const struct net_ifaddr *addr = &net_here()->addrs[i];

		if (addr->duplicate &&
		    net_port_of(addr->netif) == client->port &&
		    IP_IS_V4(&addr->ip) &&
		    ip_2_ip4(&addr->ip)->addr == leased_ip(&client->lease))
			return true;
	}
	return false;
}

static void decline_lease(struct net_dhcp *client)
{
	enter_state(client, NET_DHCP_INIT);
	client->xid = net_random();
	client->began_ns = net_here()->now_ns;
	send_message(client, NET_DHCP_DECLINE);
	lose_lease(client, "conflict");
	restart_client(client, DECLINED_NS);
}

/* Checks the lease after a carrier returned: the network may be another one. */
static void check_carrier(struct net_dhcp *client)
{
	bool none = !glue_port_has_carrier(client->port->glue);

	if (client->no_carrier && !none) {
		if (client->lease.bound)
			start_init_reboot(client);
		else
			restart_client(client, 0);
	}
	client->no_carrier = none;
}

static void tick_client(struct net_dhcp *client)
{
	if (client->lease.bound && is_duplicate(client))
		decline_lease(client);
	if (client->lease.bound && net_here()->now_ns >= client->expires_ns) {
		lose_lease(client, "expired");
		restart_client(client, 0);
	}
	check_carrier(client);
	push_lease(client);
	if (net_here()->now_ns >= client->due_ns)
		advance_client(client);
}

void net_dhcp_tick(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		if (clients[i])
			tick_client(clients[i]);
}

/* ---- input ---- */

static void take_offer(struct net_dhcp *client, const struct net_dhcp_msg *msg)
{
	if (msg->lease_s && msg->lease_s < LEASE_MIN_S)
		goto refused;
	if (net_lease_read(client, msg, &client->lease) < 0)
		goto refused;
	client->server = msg->server;
	enter_state(client, NET_DHCP_REQUESTING);
	client->asked_ns = net_here()->now_ns;
	send_and_back_off(client, NET_DHCP_REQUEST);
	return;
refused:
	net_here()->stats.rx_refused++;
}

/* T1 and T2 by default, with some time less at random (RFC 2131 4.4.5). */
static void set_times(struct net_dhcp *client, const struct net_dhcp_msg *msg)
{
	int64_t lease_ns = msg->lease_s * NS_PER_S;
	int64_t t1_ns = msg->t1_s * NS_PER_S, t2_ns = msg->t2_s * NS_PER_S;

	if (msg->lease_s == NET_DHCP_INFINITE) {
		client->t1_ns = client->t2_ns = client->expires_ns =
			CORO_FOREVER;
		return;
	}
	if (!t2_ns || t2_ns >= lease_ns)
		t2_ns = lease_ns / 8 * 7;
	if (!t1_ns || t1_ns > t2_ns)
		t1_ns = LWIP_MIN(lease_ns / 2, t2_ns);
	t1_ns -= random_ns(t1_ns / 16);
	t2_ns -= random_ns((t2_ns - t1_ns) / 16);
	client->t1_ns = client->asked_ns + t1_ns;
	client->t2_ns = client->asked_ns + t2_ns;
	client->expires_ns = client->asked_ns + lease_ns;
}

static bool leases_differ(const struct net_lease *a, const struct net_lease *b)
{
	return a->bound != b->bound || a->mtu != b->mtu ||
	       memcmp(&a->addr, &b->addr, sizeof(a->addr)) != 0 ||
	       a->n_routes != b->n_routes || a->n_servers != b->n_servers ||
	       memcmp(a->routes, b->routes, sizeof(a->routes)) != 0 ||
	       memcmp(a->servers, b->servers, sizeof(a->servers)) != 0;
}

/* Returns whether an acknowledgement is one that the client can use. */
static bool read_ack(const struct net_dhcp *client,
		     const struct net_dhcp_msg *msg, struct net_lease *out)
{
	int64_t lease_ns = msg->lease_s * NS_PER_S;

	return msg->ip == leased_ip(&client->lease) &&
	       msg->lease_s >= LEASE_MIN_S &&
	       client->asked_ns + lease_ns > net_here()->now_ns &&
	       net_lease_read(client, msg, out) == 0;
}

static void take_ack(struct net_dhcp *client, const struct net_dhcp_msg *msg)
{
	bool renewed = client->lease.bound;
	struct net_lease lease;

	if (!read_ack(client, msg, &lease)) {
		net_here()->stats.rx_refused++;
		return;
	}
	lease.bound = true;
	set_times(client, msg);
	client->server = msg->server;
	enter_state(client, NET_DHCP_BOUND);
	client->due_ns = client->t1_ns;
	if (leases_differ(&lease, &client->lease)) {
		client->lease = lease;
		publish_lease(client);
	}
	if (!client->lease.bound)
		return;
	log_lease(client, msg->lease_s, renewed);
	save_lease(client);
}

static void take_nak(struct net_dhcp *client)
{
	if (client->lease.bound)
		lose_lease(client, "nak");
	else if (client->remembered)
		forget_lease(client);
	/* A second at least: a server that always refuses makes no flood. */
	restart_client(client, NS_PER_S + random_ns(9 * NS_PER_S));
}

/* A message with the client's ID and MAC. */
static void take_message(struct net_dhcp *client,
			 const struct net_dhcp_msg *msg)
{
	bool chosen = !client->server || msg->server == client->server;

	switch (client->state) {
	case NET_DHCP_INIT:
	case NET_DHCP_BOUND:
		return;
	case NET_DHCP_SELECTING:
		if (msg->type == NET_DHCP_OFFER)
			take_offer(client, msg);
		return;
	case NET_DHCP_REQUESTING:
	case NET_DHCP_RENEWING:
		if (!chosen)
			return;
		break;
	case NET_DHCP_REBOOTING:
	case NET_DHCP_REBINDING:
		break;
	}
	if (msg->type == NET_DHCP_ACK)
		take_ack(client, msg);
	else if (msg->type == NET_DHCP_NAK)
		take_nak(client);
}

static void receive_message(struct net_dhcp *client, const uint8_t *bytes,
			    size_t len)
{
	struct net_dhcp_msg msg;

	if (net_dhcp_read(bytes, len, &msg) < 0)
		net_here()->stats.rx_refused++;
	else if (msg.xid == client->xid &&
		 !memcmp(msg.mac, glue_port_mac(client->port->glue), 6))
		take_message(client, &msg);
}

/* ---- frames ---- */

struct answer {
	unsigned link;
	size_t len;
	uint8_t bytes[];
};

/* Runs on shard 0. */
static void take_answer(void *arg)
{
	struct answer *answer = arg;

	if (clients[answer->link])
		receive_message(clients[answer->link], answer->bytes,
				answer->len);
	free(answer);
}

static void post_answer(unsigned link, const uint8_t *bytes, size_t len)
{
	struct answer *answer = malloc(sizeof(*answer) + len);

	if (!answer)
		return;
	answer->link = link;
	answer->len = len;
	memcpy(answer->bytes, bytes, len);
	if (net_post(0, take_answer, answer) < 0)
		free(answer);
}

/* The message in a frame, if it is a server's to this MAC; else NULL. */
static const uint8_t *find_message(const struct net_port *port,
				   const struct glue_frame *frame, size_t *len)
{
	const struct udp_hdr *udp = (const void *)(frame->data + frame->l4_off);
	const uint8_t *bytes = (const void *)(udp + 1);
	size_t room = (size_t)frame->seg_len - frame->l4_off, all;

	if (!(frame->flags & GLUE_FRAME_IP4) ||
	    !(frame->flags & GLUE_FRAME_UDP) || frame->next ||
	    room < NET_UDP_HEADER ||
	    udp->dest != PP_HTONS(NET_DHCP_CLIENT_PORT) ||
	    udp->src != PP_HTONS(NET_DHCP_SERVER_PORT))
		return NULL;
	all = lwip_ntohs(udp->len);
	if (all < NET_UDP_HEADER + NET_DHCP_FIXED || all > room ||
	    memcmp(bytes + NET_DHCP_MAC_AT, glue_port_mac(port->glue), 6) != 0)
		return NULL;
	*len = all - NET_UDP_HEADER;
	return bytes;
}

bool net_dhcp_input(struct net_port *port, const struct glue_frame *frame)
{
	unsigned link = (unsigned)(port - net_here()->ports);
	const uint8_t *bytes;
	size_t len;

	bytes = find_message(port, frame, &len);
	if (!bytes)
		return false;
	if (!net_rate_take(&answer_due_ns, net_here()->now_ns,
			   NS_PER_S / ANSWERS_A_S, NS_PER_S))
		net_here()->stats.rx_refused++;
	else if (net_here()->shard != 0)
		post_answer(link, bytes, len);
	else if (clients[link])
		receive_message(clients[link], bytes, len);
	return true;
}

/* ---- opening ---- */

/* Reads the address of the last start, if the options say where it is. */
static int open_file(struct net_dhcp *client, const struct net_opts *opts)
{
	char first[PATH_MAX];
	const char *directory = net_lease_directory(opts->lease_dir, first);
	struct net_lease_record record;
	int err;

	if (!directory)
		return 0;
	err = net_lease_file_open(directory, client->lease.link, &client->file);
	if (err < 0)
		return err;
	client->remembered =
		net_lease_file_read(client->file,
				    glue_port_mac(client->port->glue),
				    &record) == 0;
	if (client->remembered)
		memcpy(client->lease.addr.ip, &record.ip, 4);
	return 0;
}

static int open_client(unsigned link, const struct net_opts *opts)
{
	struct net_dhcp *client = calloc(1, sizeof(*client));

	if (!client)
		return -ENOMEM;
	client->port = &net_here()->ports[link];
	client->lease.link = link;
	if (open_file(client, opts) < 0) {
		free(client);
		return -ENOMEM;
	}
	/* RFC 2131 4.4.1: hosts that start together do not ask together. */
	restart_client(client, random_ns(NS_PER_S));
	clients[link] = client;
	return 0;
}

int net_dhcp_open(const struct net_opts *opts)
{
	int err = 0;

	net_dhcp_links = net_leased_links(opts, net_addr_is_dhcp);
	if (net_here()->shard != 0)
		return 0;
	for (unsigned i = 0; i < opts->n_links && err == 0; i++)
		if (net_dhcp_links >> i & 1)
			err = open_client(i, opts);
	return err;
}

void net_dhcp_close(void)
{
	for (unsigned i = 0; i < NET_MAX_LINKS; i++) {
		if (clients[i])
			net_lease_file_close(clients[i]->file);
		free(clients[i]);
		clients[i] = NULL;
	}
	net_dhcp_links = 0;
	net_leases_close();
}

bool net_dhcp_lease_of(const struct net_port *port, const ip_addr_t *ip,
		       int64_t *left_s)
{
	const struct net_dhcp *client = clients[port - net_here()->ports];

	if (!client || !client->lease.bound || !IP_IS_V4(ip) ||
	    ip_2_ip4(ip)->addr != leased_ip(&client->lease))
		return false;
	*left_s = -1;
	if (client->expires_ns != CORO_FOREVER)
		*left_s = (client->expires_ns - net_here()->now_ns) / NS_PER_S;
	return true;
}
