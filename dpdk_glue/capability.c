/*
 * The capabilities of a port, and the choice of those that are used: MTU,
 * checksums, TSO, queues and RSS. Those of a virtual link depend on the program
 * at its other end.
 */
#include "dpdk_glue/bond.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bitops.h>
#include <rte_version.h>

#define TSO_MBUFS 40u /* of one frame at most */

static bool has_driver(const struct rte_eth_dev_info *info, const char *name)
{
	return info->driver_name && strcmp(info->driver_name, name) == 0;
}

/* ---- MTU ---- */

/*
 * Some ports report only the limit of a frame. memif reports one of 1518 bytes,
 * and moves whatever its buffers hold.
 */
unsigned glue_can_mtu(const struct glue_link *link,
		      const struct rte_eth_dev_info *info)
{
	const unsigned overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
	unsigned mtu = info->max_mtu;

	if (link->kind == GLUE_LINK_MEMIF)
		return GLUE_MTU_MAX;
	if (info->max_rx_pktlen > overhead &&
	    info->max_rx_pktlen - overhead < mtu)
		mtu = info->max_rx_pktlen - overhead;
	return mtu;
}

/*
 * net_tap cuts up segments that, with their Ethernet header, are no longer than
 * its MTU, and never sends longer ones: its MTU must exceed ours by that
 * header. Some NICs need room for a tag.
 */
unsigned glue_port_mtu(const struct glue_link *link,
		       const struct rte_eth_dev_info *info, unsigned mtu)
{
	if (link->kind == GLUE_LINK_TAP && link->tso == GLUE_TSO_ON)
		return mtu + RTE_ETHER_HDR_LEN +
		       (link->vlan ? GLUE_TAG_BYTES : 0);
	return mtu + glue_vlan_mtu(link, info);
}

/* ---- checksums and TSO ---- */

/* Many ports leave the IPv4 header's sum to software, which costs little. */
static bool can_csum(const struct rte_eth_dev_info *info)
{
	const uint64_t tx =
		RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;

	return (info->tx_offload_capa & tx) == tx;
}

/*
 * Virtual devices either cannot checksum or leave it to the peer, which is of
 * no use if the peer forwards to a third host: they use software unless the
 * user says otherwise. A device on the PCI bus has a host that computes sums,
 * or does not offer them.
 */
static int choose_csum(struct glue_device *device,
		       const struct rte_eth_dev_info *info, char *err,
		       size_t err_len)
{
	const struct glue_link *link = device->link;
	bool can = can_csum(info);

	if (link->csum == GLUE_CSUM_HW && !can)
		return glue_fail(err, err_len, -EINVAL,
				 "csum=hw: this port (driver %s) computes no "
				 "checksums of TCP and UDP; leave csum at auto",
				 info->driver_name);
	device->hw_csum =
		can &&
		(link->csum == GLUE_CSUM_HW ||
		 (link->csum == GLUE_CSUM_AUTO && glue_link_is_port(link)));
	return 0;
}

static bool can_tso(const struct glue_link *link,
		    const struct rte_eth_dev_info *info, unsigned mtu)
{
	const uint64_t needed = RTE_ETH_TX_OFFLOAD_TCP_TSO |
				RTE_ETH_TX_OFFLOAD_MULTI_SEGS |
				RTE_ETH_TX_OFFLOAD_TCP_CKSUM;

	return (info->tx_offload_capa & needed) == needed &&
	       glue_port_mtu(link, info, mtu) <= glue_can_mtu(link, info);
}

static const char *tso_hint(const struct glue_link *link,
			    const struct rte_eth_dev_info *info)
{
	if (!(info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_TSO))
		return "; leave it at auto";
	return link->kind == GLUE_LINK_TAP ? " of this size; use --mtu 1486"
					   : " of this size; use a smaller "
					     "--mtu, or leave it at auto";
}

/*
 * Without hardware that cuts segments, TSO costs what it saves (net_tap cuts
 * with the CPU), or sends frames of 64 KiB to a peer that may not accept them
 * (vhost). With packed rings net_virtio stops at the first such frame, and only
 * its log shows which rings it has (virtio.h): users have to enable TSO for it.
 */
static int choose_tso(struct glue_device *device,
		      const struct rte_eth_dev_info *info, char *err,
		      size_t err_len)
{
	const struct glue_link *link = device->link;
	unsigned most = info->tx_desc_lim.nb_seg_max;

	device->tso = can_tso(link, info, device->mtu);
	if (link->tso == GLUE_TSO_ON && !device->tso)
		return glue_fail(err, err_len, -EINVAL,
				 "tso=on: the port does not cut up segments%s",
				 tso_hint(link, info));
	if (link->tso == GLUE_TSO_AUTO)
		device->tso &= device->hw_csum && glue_link_is_port(link) &&
			       !has_driver(info, "net_virtio") &&
			       link->kind != GLUE_LINK_BOND;
	device->tso &= link->tso != GLUE_TSO_OFF;
	device->hw_csum |= device->tso;
	device->tso6 = device->tso && link->kind != GLUE_LINK_TAP;
	device->tso_mbufs =
		(uint16_t)(most ? RTE_MIN(most, TSO_MBUFS) : TSO_MBUFS);
	return 0;
}

int glue_choose_offloads(struct glue_device *device,
			 const struct rte_eth_dev_info *info, char *err,
			 size_t err_len)
{
	int rc = choose_csum(device, info, err, err_len);

	if (rc == 0)
		rc = choose_tso(device, info, err, err_len);
	device->hw_ip4_csum =
		device->hw_csum &&
		info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
	return rc;
}

void glue_offloads(const struct glue_device *device,
		   const struct rte_eth_dev_info *info,
		   struct rte_eth_conf *conf)
{
	bool long_frames =
		device->mtu + RTE_ETHER_HDR_LEN + GLUE_TAG_BYTES > DATA_ROOM;

	if (device->tso)
		conf->txmode.offloads |= RTE_ETH_TX_OFFLOAD_TCP_TSO;
	if (device->hw_ip4_csum)
		conf->txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
	if (device->hw_csum) {
		conf->txmode.offloads |=
			info->tx_offload_capa & (RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
						 RTE_ETH_TX_OFFLOAD_UDP_CKSUM);
		conf->rxmode.offloads =
			info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_CHECKSUM;
	}
	if (long_frames)
		conf->rxmode.offloads |=
			info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	conf->rxmode.offloads |= glue_vlan_offloads(device->link, info);
	conf->txmode.offloads |=
		info->tx_offload_capa & (RTE_ETH_TX_OFFLOAD_MULTI_SEGS |
					 RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE);
	/* FAST_FREE needs frames of one pool a queue, with one reference. */
	if (device->can_lend || device->tso || long_frames ||
	    device->n_queues < device->n_shards)
		conf->txmode.offloads &= ~RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
}

/* ---- queues ---- */

/*
 * net_e1000_em reports two queues, but loses frames that an 82540EM sends by
 * the second, and cannot spread received frames. net_vmxnet3 takes powers of
 * two.
 */
unsigned glue_usable_queues(const struct rte_eth_dev_info *info,
			    unsigned wanted)
{
	unsigned most = RTE_MIN(info->max_rx_queues, info->max_tx_queues);

	if (has_driver(info, "net_e1000_em"))
		most = 1;
	most = RTE_MIN(wanted, RTE_MAX(most, 1u));
	return has_driver(info, "net_vmxnet3") ? rte_align32prevpow2(most)
					       : most;
}

int glue_choose_queues(struct glue_device *device,
		       const struct rte_eth_dev_info *info, char *err,
		       size_t err_len)
{
	unsigned wanted = glue_eal_link_queues(device->index);
	unsigned named = device->link->queues;

	if (device->link->kind == GLUE_LINK_BOND)
		wanted = glue_bond_queues(device->index, wanted);
	if (named && glue_usable_queues(info, named) != named)
		return glue_fail(err, err_len, -EINVAL,
				 "queues=%u: this port (driver %s) can have %u",
				 named, info->driver_name,
				 glue_usable_queues(info, named));
	device->n_queues = (uint16_t)glue_usable_queues(info, wanted);
	return 0;
}

/* ---- RSS ---- */

#define RSS_TCP (RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV6_TCP)
#define RSS_UDP (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP)

/*
 * The bytes of the key that a port takes; 0: none. Before 23.11 DPDK did not
 * compare them with the driver's number, which some drivers leave at 0.
 */
static uint8_t key_bytes(const struct rte_eth_dev_info *info)
{
#if RTE_VERSION < RTE_VERSION_NUM(23, 11, 0, 0)
	return info->hash_key_size ? info->hash_key_size : 40;
#else
	return info->hash_key_size;
#endif
}

/*
 * If the port can spread flows, it gets our rule. Frames that reach a wrong
 * queue nevertheless are handed over like any other. net_vmxnet3 has no RETA
 * until RSS is configured.
 */
const char *glue_ask_for_rss(const struct glue_device *device,
			     const struct rte_eth_dev_info *info,
			     struct rte_eth_conf *conf, uint8_t *key)
{
	uint64_t can = info->flow_type_rss_offloads & (RSS_TCP | RSS_UDP);

	if (device->n_queues == 1)
		return "one queue pair";
	if (!(can & RSS_TCP))
		return "no hash of TCP's ports";
	if (info->reta_size == 0 && !has_driver(info, "net_vmxnet3"))
		return "no redirection table";
	if (key_bytes(info) == 0)
		return "no key that can be set";
	glue_flow_key(key, GLUE_RSS_KEY_MAX);
	conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	conf->rx_adv_conf.rss_conf = (struct rte_eth_rss_conf){
		.rss_key = key,
		.rss_key_len = key_bytes(info),
		.rss_hf = can,
	};
	return NULL;
}

bool glue_rss_is_for_all(const struct rte_eth_conf *conf)
{
	return conf->rx_adv_conf.rss_conf.rss_hf == (RSS_TCP | RSS_UDP);
}

/*
 * Fills the port's RETA with ours, repeated or cut off to its size. Entries of
 * shards without a queue go to shards that have one.
 */
static void fill_reta(const struct glue_device *device,
		      struct rte_eth_rss_reta_entry64 *reta, unsigned size)
{
	for (unsigned i = 0; i < size; i++) {
		unsigned group = i / RTE_ETH_RETA_GROUP_SIZE;

		reta[group].mask |= UINT64_C(1) << i % RTE_ETH_RETA_GROUP_SIZE;
		reta[group].reta[i % RTE_ETH_RETA_GROUP_SIZE] =
			(uint16_t)(glue_flow_rule.reta[i % GLUE_RETA_SIZE] %
				   device->n_queues);
	}
}

static bool set_reta(const struct glue_device *device)
{
	struct rte_eth_rss_reta_entry64 *reta, *got;
	struct rte_eth_dev_info info;
	bool is_own = false;
	uint16_t size, groups;

	if (rte_eth_dev_info_get(device->id, &info) < 0 || info.reta_size == 0)
		return false;
	size = info.reta_size;
	groups = (uint16_t)((size + RTE_ETH_RETA_GROUP_SIZE - 1) /
			    RTE_ETH_RETA_GROUP_SIZE);
	reta = calloc(2u * groups, sizeof(*reta));
	if (!reta)
		return false;
	got = reta + groups;
	fill_reta(device, reta, size);
	for (uint16_t i = 0; i < groups; i++)
		got[i].mask = reta[i].mask;
	if (rte_eth_dev_rss_reta_update(device->id, reta, size) == 0 &&
	    rte_eth_dev_rss_reta_query(device->id, got, size) == 0)
		is_own = memcmp(reta, got, groups * sizeof(*reta)) == 0;
	free(reta);
	return is_own;
}

/*
 * Reads the key back, since a port may take one and keep its own. Drivers that
 * cannot report it, such as net_vmxnet3, are believed: they use the key that
 * they were configured with.
 */
static bool has_key(const struct glue_device *device,
		    const struct rte_eth_rss_conf *asked)
{
	uint8_t got[GLUE_RSS_KEY_MAX] = {0};
	struct rte_eth_rss_conf conf = {.rss_key = got,
					.rss_key_len = asked->rss_key_len};
	int rc = rte_eth_dev_rss_hash_conf_get(device->id, &conf);

	return rc == -ENOTSUP || (rc == 0 && memcmp(got, asked->rss_key,
						    asked->rss_key_len) == 0);
}

const char *glue_set_rss(const struct glue_device *device,
			 const struct rte_eth_conf *conf)
{
	if (!set_reta(device))
		return "a redirection table that cannot be set";
	if (!has_key(device, &conf->rx_adv_conf.rss_conf))
		return "a hash key of its own";
	return NULL;
}
