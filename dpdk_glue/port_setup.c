/*
 * Configures a device's port of DPDK by what was chosen for it, and starts it:
 * when the device is opened, and again after its card was reset.
 */
#include "dpdk_glue/port_priv.h"

#include <errno.h>

#include <rte_errno.h>

#include "dpdk_glue/memif.h"

static int set_mtu(struct glue_device *device,
		   const struct rte_eth_dev_info *info, char *err,
		   size_t err_len)
{
	unsigned mtu = glue_port_mtu(device->link, info, device->mtu);
	int rc;

	if (device->mtu > glue_can_mtu(device->link, info))
		return glue_fail(err, err_len, -EINVAL,
				 "the port takes an MTU of at most %u, not %u; "
				 "memif and most NICs take up to 9000",
				 glue_can_mtu(device->link, info), device->mtu);
	if (mtu == RTE_ETHER_MTU)
		return 0;
	rc = rte_eth_dev_set_mtu(device->id, (uint16_t)mtu);
	if (rc < 0 && glue_vlan_mtu(device->link, info)) /* it may do without */
		rc = rte_eth_dev_set_mtu(device->id, (uint16_t)device->mtu);
	if (rc < 0 && rc != -ENOTSUP)
		return glue_fail(err, err_len, -EINVAL,
				 "the port refuses an MTU of %u: %s",
				 device->mtu, rte_strerror(-rc));
	return 0;
}

/* Sets up one queue pair, whose descriptors lie on a NUMA node. */
static int set_queue(const struct glue_device *device, uint16_t queue,
		     uint16_t n_rx, uint16_t n_tx, unsigned node)
{
	/* net_tap of DPDK 24.11 prepares TSO only if the sender comes first */
	int rc = rte_eth_tx_queue_setup(device->id, queue, n_tx, node, NULL);

	return rc < 0 ? rc
		      : rte_eth_rx_queue_setup(device->id, queue, n_rx, node,
					       NULL, device->pools[queue]);
}

static int set_queues(struct glue_device *device, uint16_t n, char *err,
		      size_t err_len)
{
	const unsigned any = (unsigned)SOCKET_ID_ANY;
	uint16_t n_rx = (uint16_t)device->n_ring, n_tx = n_rx;
	unsigned node = device->node >= 0 ? (unsigned)device->node : any;
	int rc = 0;

	rte_eth_dev_adjust_nb_rx_tx_desc(device->id, &n_rx, &n_tx);
	for (uint16_t i = 0; i < n && rc == 0; i++) {
		rc = set_queue(device, i, n_rx, n_tx, node);
		if (rc < 0 && node != any) /* the node may have no memory */
			rc = set_queue(device, i, n_rx, n_tx, any);
	}
	if (rc < 0) /* DPDK's AF_XDP driver hides the reason */
		return glue_fail(
			err, err_len,
			device->link->kind == GLUE_LINK_AF_XDP ? -EAGAIN : rc,
			"port queues: %s%s", rte_strerror(-rc),
			glue_link_queues_hint(device->link));
	return 0;
}

static int get_info(const struct glue_device *device,
		    struct rte_eth_dev_info *info, char *err, size_t err_len)
{
	int rc = rte_eth_dev_info_get(device->id, info);

	return rc < 0 ? glue_fail(err, err_len, rc, "port information: %s",
				  rte_strerror(-rc))
		      : 0;
}

/* Configures the port with n queue pairs. conf is all zeros, but for RSS. */
static int configure_port(struct glue_device *device,
			  const struct rte_eth_dev_info *info, uint16_t n,
			  struct rte_eth_conf *conf, char *err, size_t err_len)
{
	int rc;

	glue_offloads(device, info, conf);
	rc = rte_eth_dev_configure(device->id, n, n, conf);
	if (rc < 0)
		return glue_fail(err, err_len, rc, "port configuration: %s",
				 rte_strerror(-rc));
	rc = set_mtu(device, info, err, err_len);
	return rc < 0 ? rc : set_queues(device, n, err, err_len);
}

int glue_port_set_queues(struct glue_device *device, uint16_t n, char *err,
			 size_t err_len)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	int rc = get_info(device, &info, err, err_len);

	return rc < 0 ? rc
		      : configure_port(device, &info, n, &conf, err, err_len);
}

int glue_port_setup(struct glue_device *device, char *err, size_t err_len)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	uint8_t key[GLUE_RSS_KEY_MAX];
	int rc = get_info(device, &info, err, err_len);

	if (rc < 0)
		return rc;
	device->no_rss = glue_ask_for_rss(device, &info, &conf, key);
	rc = configure_port(device, &info, device->n_queues, &conf, err,
			    err_len);
	if (rc == 0)
		rc = glue_memif_start(device, err, err_len);
	if (rc < 0)
		return rc;
	rc = glue_vlan_join(device->id, device->link, conf.rxmode.offloads);
	if (rc < 0) {
		rte_eth_dev_stop(device->id);
		return glue_fail(err, err_len, rc, "vlan=%u: %s",
				 device->link->vlan, rte_strerror(-rc));
	}
	if (!device->no_rss)
		device->no_rss = glue_set_rss(device, &conf);
	device->rss = !device->no_rss;
	device->rss_all = device->rss && glue_rss_is_for_all(&conf);
	rte_eth_allmulticast_enable(device->id); /* not every port can */
	return 0;
}
