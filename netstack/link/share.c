/*
 * Neighbours, and configurations of links, for every shard.
 *
 * Frames that belong to no flow go to shard 0, which alone answers for the
 * program's addresses. Replies to requests of other shards arrive there as
 * well, so shard 0 posts ARP packets and IPv6 neighbour advertisements to the
 * others, and the messages of IGMP and MLD (link/group.c). Each shard accepts
 * them by its own rules, as if they had come from the link, but does not answer
 * them. Of solicitations and router advertisements it posts the sender's MAC.
 *
 * A flood must not reach every shard: a thousand packets a second are passed
 * on, and further ones count as refused neighbours.
 */
#include "netstack/link/link_priv.h"
#include "netstack/shard_var.h"

#include <stdlib.h>
#include <string.h>

#include "lwip/ip6.h"
#include "lwip/prot/icmp6.h"
#include "netif/ethernet.h"

#define SHARED_MAX	256u /* bytes of a frame; ARP has 42, ND little more */
#define SHARES_A_SECOND 1000

static NET_SHARD_VAR int64_t share_due_ns; /* when one more may be passed on */
#define share_due_ns NET_SHARD(share_due_ns)

struct shared {
	unsigned link;
	uint16_t len, flags, l3_off, l4_off;
	uint8_t data[SHARED_MAX];
};

static bool may_share(void)
{
	struct net_stack *stack = net_here();

	if (net_rate_take(&share_due_ns, stack->now_ns,
			  1000000000 / SHARES_A_SECOND, 1000000000))
		return true;
	stack->stats.neighbours_refused++;
	return false;
}

static bool admit_shared(const struct net_port *port, struct glue_frame *frame,
			 struct netif **netif)
{
	const uint8_t *icmp = frame->data + frame->l4_off;

	if (frame->flags & GLUE_FRAME_ARP)
		return net_neighbour_arp(port, frame, netif);
	if (frame->flags & GLUE_FRAME_IGMP)
		return net_group_message(port, frame);
	if (!port->has_ip6)
		return false;
	if (icmp[0] == ICMP6_TYPE_MLQ || icmp[0] == ICMP6_TYPE_MLR)
		return net_group_message(port, frame);
	return net_neighbour_nd(port, frame);
}

/* Runs on another shard, and does what input_other() does with a frame. */
static void take_shared(void *arg)
{
	struct shared *shared = arg;
	struct net_port *port = &net_here()->ports[shared->link];
	struct glue_frame frame = {.data = shared->data,
				   .seg_len = shared->len,
				   .flags = shared->flags,
				   .l3_off = shared->l3_off,
				   .l4_off = shared->l4_off};
	struct netif *netif = port->netif0;
	struct pbuf *p = NULL;

	if (shared->link < net_here()->n_ports &&
	    admit_shared(port, &frame, &netif))
		p = pbuf_alloc(PBUF_RAW, shared->len, PBUF_RAM);
	if (p) {
		memcpy(p->payload, shared->data, shared->len);
		ethernet_input(p, netif);
	}
	free(shared);
}

static void share_with(unsigned shard, void (*take)(void *copy),
		       const void *what, size_t size)
{
	void *copy = malloc(size);

	if (!copy) {
		net_here()->stats.neighbours_refused++;
		return;
	}
	memcpy(copy, what, size);
	if (net_post(shard, take, copy) < 0) {
		net_here()->stats.neighbours_refused++;
		free(copy);
	}
}

/* take: called on each other shard; frees its copy, which malloc(3) made. */
static void share_with_all(void (*take)(void *copy), const void *what,
			   size_t size)
{
	for (unsigned i = 1; i < net_here()->n_shards; i++)
		share_with(i, take, what, size);
}

void net_neighbour_share(const struct net_port *port,
			 const struct glue_frame *frame)
{
	struct net_stack *stack = net_here();
	struct shared shared = {.link = (unsigned)(port - stack->ports),
				.flags = frame->flags,
				.l3_off = frame->l3_off,
				.l4_off = frame->l4_off,
				.len = frame->seg_len};

	if (stack->n_shards == 1 || frame->next || shared.len > SHARED_MAX ||
	    !may_share())
		return;
	memcpy(shared.data, frame->data, shared.len);
	share_with_all(take_shared, &shared, sizeof(shared));
}

struct shared_mac {
	unsigned link;
	ip6_addr_t ip;
	uint8_t mac[6];
};

static void take_mac(void *arg)
{
	struct shared_mac *shared = arg;
	struct net_stack *stack = net_here();

	if (shared->link < stack->n_ports && stack->ports[shared->link].has_ip6)
		net_neighbour_moved6(&stack->ports[shared->link], &shared->ip,
				     shared->mac);
	free(shared);
}

void net_neighbour_share_mac(const struct net_port *port, const ip6_addr_t *ip,
			     const uint8_t mac[6])
{
	struct shared_mac shared = {
		.link = (unsigned)(port - net_here()->ports), .ip = *ip};

	if (net_here()->n_shards == 1 || !may_share())
		return;
	memcpy(shared.mac, mac, 6);
	share_with_all(take_mac, &shared, sizeof(shared));
}

/* ---- configurations ---- */

static void share_config_with(unsigned shard, const void *config, size_t size,
			      uint8_t *turn_posted, uint8_t turn,
			      void (*apply)(void *copy))
{
	void *copy = malloc(size);

	if (!copy)
		return;
	memcpy(copy, config, size);
	if (shard != 0 && net_post(shard, apply, copy) < 0) {
		free(copy);
		return;
	}
	*turn_posted = turn;
	if (shard == 0)
		apply(copy);
}

void net_share_config(const void *config, size_t size, const uint8_t *turn,
		      uint8_t posted[NET_MAX_SHARDS], void (*apply)(void *copy))
{
	for (unsigned i = 0; i < net_here()->n_shards; i++)
		if (posted[i] != *turn)
			share_config_with(i, config, size, &posted[i], *turn,
					  apply);
}
