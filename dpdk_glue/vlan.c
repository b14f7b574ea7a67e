/*
 * Adds and removes 802.1Q tags.
 */
#include "dpdk_glue/vlan.h"

#include <string.h>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "dpdk_glue/glue_priv.h"

#define MACS 12u /* bytes of the two addresses, before any tag */

/* Moves them by four bytes, up or down: two loads, two stores and no call. */
static inline void move_macs(uint8_t *to, const uint8_t *from)
{
	uint64_t first;
	uint32_t rest;

	memcpy(&first, from, sizeof(first));
	memcpy(&rest, from + sizeof(first), sizeof(rest));
	memcpy(to, &first, sizeof(first));
	memcpy(to + sizeof(first), &rest, sizeof(rest));
}

/* Removes a tag from the frame's bytes: the MACs move up to what follows it. */
static enum glue_verdict take_from_bytes(struct rte_mbuf *m, uint16_t vid)
{
	uint8_t *eth = rte_pktmbuf_mtod(m, uint8_t *);

	if (m->data_len < GLUE_ETH_BYTES)
		return GLUE_BAD_FRAME;
	if (glue_get16(eth + MACS) != GLUE_ETHERTYPE_CTAG)
		return GLUE_OTHER_VLAN;
	if (m->data_len < GLUE_ETH_BYTES + GLUE_TAG_BYTES)
		return GLUE_BAD_FRAME;
	if ((glue_get16(eth + GLUE_ETH_BYTES) & GLUE_VID_MASK) != vid)
		return GLUE_OTHER_VLAN;
	move_macs(eth + GLUE_TAG_BYTES, eth);
	rte_pktmbuf_adj(m, GLUE_TAG_BYTES);
	return GLUE_KEEP;
}

enum glue_verdict glue_vlan_take(struct rte_mbuf *m, uint16_t vid)
{
	if (!(m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED))
		return take_from_bytes(m, vid);
	if (m->ol_flags & RTE_MBUF_F_RX_QINQ_STRIPPED)
		return GLUE_OTHER_VLAN;
	return (m->vlan_tci & GLUE_VID_MASK) == vid ? GLUE_KEEP
						    : GLUE_OTHER_VLAN;
}

bool glue_vlan_add(struct rte_mbuf *m, struct glue_frame *f, uint16_t vid)
{
	uint8_t *eth;

	if (unlikely(!RTE_MBUF_DIRECT(m) || rte_mbuf_refcnt_read(m) != 1 ||
		     m->data_len < GLUE_ETH_BYTES))
		return false;
	eth = (uint8_t *)rte_pktmbuf_prepend(m, GLUE_TAG_BYTES);
	if (unlikely(!eth))
		return false;
	move_macs(eth, eth + GLUE_TAG_BYTES);
	eth[MACS] = GLUE_ETHERTYPE_CTAG >> 8;
	eth[MACS + 1] = GLUE_ETHERTYPE_CTAG & 0xff;
	eth[MACS + 2] = (uint8_t)(vid >> 8);
	eth[MACS + 3] = (uint8_t)vid;
	f->data = eth;
	f->seg_len = (uint16_t)(f->seg_len + GLUE_TAG_BYTES);
	f->l3_off = (uint16_t)(f->l3_off + GLUE_TAG_BYTES);
	f->l4_off = (uint16_t)(f->l4_off + GLUE_TAG_BYTES);
	return true;
}

/* ---- the port's MTU and offloads ---- */

/* Returns the bytes that a tag adds to the port's MTU: none for software ports
 * and for NICs that accept longer frames. */
unsigned glue_vlan_mtu(const struct glue_link *link,
		       const struct rte_eth_dev_info *info)
{
	const uint32_t plain = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (!link->vlan || !glue_link_is_port(link) ||
	    (info->max_mtu != UINT16_MAX &&
	     info->max_rx_pktlen >= info->max_mtu + plain + GLUE_TAG_BYTES))
		return 0;
	return GLUE_TAG_BYTES;
}

/*
 * The port removes the tag if that saves us work: virtio's driver would do it
 * with the CPU as we do, and without a look at the frame's length. VFs and some
 * NICs deliver only frames of VLANs that they know.
 */
uint64_t glue_vlan_offloads(const struct glue_link *link,
			    const struct rte_eth_dev_info *info)
{
	uint64_t wanted = 0;

	if (!link->vlan)
		return 0;
	if (link->kind == GLUE_LINK_AF_PACKET)
		wanted = RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
	if (glue_link_is_port(link)) {
		wanted = RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
		if (strcmp(info->driver_name, "net_virtio") != 0)
			wanted |= RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
	}
	return wanted & info->rx_offload_capa;
}

int glue_vlan_join(uint16_t port_id, const struct glue_link *link,
		   uint64_t offloads)
{
	if (!(offloads & RTE_ETH_RX_OFFLOAD_VLAN_FILTER))
		return 0;
	return rte_eth_dev_vlan_filter(port_id, link->vlan, 1);
}
