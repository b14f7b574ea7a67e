/*
 * Packets to the stack's own addresses whose flow belongs to another shard. As
 * with frames from a link, a flow's socket is on the shard that owns the flow:
 * an unconnected UDP socket with a port that the program chose may send to any.
 *
 * Each shard has a list of such packets. Every other shard adds to it, and the
 * owner takes all of them at once into its ring. Pbufs belong to one shard, so
 * a packet is copied: the shard that sends allocates it, and the owner frees
 * it. Shards look at their lists once a round, and naps of a shard that has
 * others are short (shard/idle.c), so nothing has to wake it.
 *
 * A list is bounded as the ring is: a packet that finds it full, or finds that
 * the shard is not open, is dropped and counted in loop_drops.
 */
#include "netstack/link/link_priv.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "lwip/ip.h"

struct packet {
	struct packet *next;
	uint8_t if_idx; /* shards open the same interfaces in the same order */
	uint16_t len;
	uint8_t data[];
};

static struct packet list_end; /* an open list's last packet */

static struct list {
	_Atomic(struct packet *) newest; /* NULL: the shard is not open */
	atomic_uint n;			 /* packets, at most NET_LOOP_PKTS */
} __attribute__((aligned(64))) lists[NET_MAX_SHARDS];

/* The shard that owns a packet's flow; this one if it belongs to no flow. */
static unsigned flow_owner(const struct pbuf *p)
{
	const struct ip_hdr *ip4 = p->payload;
	const struct ip6_hdr *ip6 = p->payload;
	bool is_v6 = IPH_V(ip4) == 6;
	uint16_t header = is_v6 ? IP6_HLEN : IPH_HL_BYTES(ip4), ports[2];
	uint8_t proto = is_v6 ? IP6H_NEXTH(ip6) : IPH_PROTO(ip4);
	uint16_t fold;

	if ((proto != IP_PROTO_UDP && proto != IP_PROTO_TCP) ||
	    pbuf_copy_partial(p, ports, sizeof(ports), header) != sizeof(ports))
		return net_here()->shard;
	fold = is_v6 ? glue_flow_fold(&ip6->src, &ip6->dest, 16)
		     : glue_flow_fold(&ip4->src, &ip4->dest, 4);
	return glue_flow_shard(fold, lwip_ntohs(ports[0]),
			       lwip_ntohs(ports[1]));
}

/* Owns the packet. */
static void add_packet(struct list *list, struct packet *packet)
{
	struct packet *newest = atomic_load(&list->newest);

	do {
		if (!newest) {
			atomic_fetch_sub(&list->n, 1);
			net_here()->stats.loop_drops++;
			free(packet);
			return;
		}
		packet->next = newest;
	} while (!atomic_compare_exchange_weak(&list->newest, &newest, packet));
}

static err_t hand_over(struct list *list, const struct netif *netif,
		       const struct pbuf *p)
{
	struct packet *packet;

	if (atomic_fetch_add(&list->n, 1) >= NET_LOOP_PKTS) {
		atomic_fetch_sub(&list->n, 1);
		net_here()->stats.loop_drops++; /* lost, as on a wire */
		return ERR_OK;
	}
	packet = malloc(sizeof(*packet) + p->tot_len);
	if (!packet) {
		atomic_fetch_sub(&list->n, 1);
		return ERR_MEM;
	}
	packet->if_idx = netif_get_index(netif);
	packet->len = pbuf_copy_partial(p, packet->data, p->tot_len, 0);
	add_packet(list, packet);
	return ERR_OK;
}

bool net_loop_hand_over(const struct netif *netif, const struct pbuf *p,
			err_t *err)
{
	unsigned owner = flow_owner(p);

	if (owner == net_here()->shard)
		return false;
	*err = hand_over(&lists[owner], netif, p);
	return true;
}

/* Queues a copy in the shard's ring. */
static void receive_packet(const struct packet *packet)
{
	struct netif *netif = netif_get_by_index(packet->if_idx);
	struct pbuf *p =
		netif ? pbuf_alloc(PBUF_RAW, packet->len, PBUF_RAM) : NULL;

	if (!p) {
		net_here()->stats.loop_drops++;
		return;
	}
	pbuf_take(p, packet->data, packet->len);
	net_loop_push(netif, p);
}

/* Takes all packets, and leaves the list in the state `rest`. */
static struct packet *take_all(struct list *list, struct packet *rest)
{
	struct packet *newest = atomic_exchange(&list->newest, rest);
	struct packet *oldest = NULL;
	unsigned n = 0;

	while (newest && newest != &list_end) {
		struct packet *next = newest->next;

		newest->next = oldest;
		oldest = newest;
		newest = next;
		n++;
	}
	atomic_fetch_sub(&list->n, n);
	return oldest;
}

void net_loop_take_over(void)
{
	struct list *list = &lists[net_here()->shard];
	struct packet *packet, *next;

	if (atomic_load_explicit(&list->newest, memory_order_relaxed) ==
	    &list_end)
		return;
	for (packet = take_all(list, &list_end); packet; packet = next) {
		next = packet->next;
		receive_packet(packet);
		free(packet);
	}
}

void net_loop_shards_open(void)
{
	atomic_store(&lists[net_here()->shard].newest, &list_end);
}

void net_loop_shards_close(void)
{
	struct packet *packet, *next;

	for (packet = take_all(&lists[net_here()->shard], NULL); packet;
	     packet = next) {
		next = packet->next;
		free(packet);
	}
}
