/*
 * Packets to the stack's own addresses are not sent: they are copied into a
 * ring of the shard that owns the flow, and received from there in its next
 * round. Copies of datagrams to groups that sockets of this shard have joined
 * are received so, too.
 *
 * A flow belongs to the same shard in both directions, and a connection is
 * dialed on the shard of its flow, so that shard has both ends. Datagrams of an
 * unconnected socket may belong to any shard: loop_shards.c hands those over.
 * ICMP, which belongs to no flow, stays on the shard.
 *
 * The copies are received as packets with valid checksums. They skip the checks
 * of frames from a link, which refuse packets from an address of the stack.
 *
 * The ring is bounded as a link's is: a packet that finds it full is dropped
 * and counted in loop_drops.
 */
#include "netstack/link/link_priv.h"

#include "lwip/ip.h"

static_assert((NET_LOOP_PKTS & (NET_LOOP_PKTS - 1)) == 0, "a power of two");
static_assert(NET_MAX_ADDRS + NET_MAX_LINKS < UINT8_MAX,
	      "pbuf.if_idx holds an interface's number");

bool net_netif_owns6(const struct netif *netif, const ip6_addr_t *ip)
{
	for (unsigned i = 0; i < LWIP_IPV6_NUM_ADDRESSES; i++)
		if (ip6_addr_isvalid(netif_ip6_addr_state(netif, i)) &&
		    ip6_addr_zoneless_eq(netif_ip6_addr(netif, i), ip))
			return true;
	return false;
}

struct netif *net_netif_of4(const struct net_port *port, uint32_t ip)
{
	for (unsigned i = 0; ip && i < net_here()->n_netifs; i++) {
		struct netif *netif = &net_here()->netifs[i];

		if (netif_ip4_addr(netif)->addr == ip &&
		    (!port || net_port_of(netif) == port))
			return netif;
	}
	return NULL;
}

bool net_loop_owns4(uint32_t ip)
{
	return net_netif_of4(NULL, ip) != NULL;
}

bool net_loop_owns6(const struct netif *netif, const ip6_addr_t *ip)
{
	if (ip6_addr_islinklocal(ip))
		return net_netif_owns6(netif, ip);
	for (unsigned i = 0; i < net_here()->n_netifs; i++)
		if (net_netif_owns6(&net_here()->netifs[i], ip))
			return true;
	return false;
}

bool net_link_owns(const struct netif *netif, const ip_addr_t *ip)
{
	return IP_IS_V6(ip) ? net_loop_owns6(netif, ip_2_ip6(ip))
			    : net_loop_owns4(ip_2_ip4(ip)->addr);
}

void net_loop_push(const struct netif *netif, struct pbuf *p)
{
	struct net_loop *loop = &net_here()->loop;

	if (loop->tail - loop->head == NET_LOOP_PKTS) {
		net_here()->stats.loop_drops++; /* lost, as on a wire */
		pbuf_free(p);
		return;
	}
	p->if_idx = netif_get_index(netif);
	loop->ring[loop->tail++ % NET_LOOP_PKTS] = p;
	net_here()->stats.looped++;
}

err_t net_loop_output(struct netif *netif, const struct pbuf *p)
{
	struct pbuf *copy;
	err_t err;

	if (net_here()->n_shards > 1 && net_loop_hand_over(netif, p, &err))
		return err;
	copy = pbuf_alloc(PBUF_RAW, p->tot_len, PBUF_RAM);
	if (!copy)
		return ERR_MEM;
	pbuf_copy_partial(p, copy->payload, p->tot_len, 0);
	net_loop_push(netif, copy);
	return ERR_OK;
}

/* lwIP takes packets to a loopback address from its interface alone. */
static void input_ip4(struct pbuf *p, struct netif *netif)
{
	const struct ip_hdr *ip = p->payload;
	struct netif *own = net_netif_of4(NULL, ip->dest.addr);

	ip4_input(p, own ? own : netif);
}

static void input_ip(struct pbuf *p)
{
	struct netif *netif = netif_get_by_index(p->if_idx);
	const uint8_t *ip = p->payload;

	if (!netif)
		pbuf_free(p);
	else if (net_group_is_dest(ip))
		net_udp_group_input(net_link_of(netif), p, 0,
				    ip[0] >> 4 == 6 ? (unsigned)IP6_HLEN
						    : IP_HLEN);
	else if (IPH_V((const struct ip_hdr *)p->payload) == 6)
		ip6_input(p, netif);
	else
		input_ip4(p, netif);
}

unsigned net_loop_input(void)
{
	struct net_loop *loop = &net_here()->loop;
	unsigned n = LWIP_MIN(loop->tail - loop->head, GLUE_BURST);

	loop->receiving = true;
	for (unsigned i = 0; i < n; i++)
		input_ip(loop->ring[loop->head++ % NET_LOOP_PKTS]);
	loop->receiving = false;
	return n;
}

void net_loop_close(void)
{
	struct net_loop *loop = &net_here()->loop;

	net_loop_shards_close();
	while (loop->head != loop->tail)
		pbuf_free(loop->ring[loop->head++ % NET_LOOP_PKTS]);
}
