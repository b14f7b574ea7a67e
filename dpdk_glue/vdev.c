/*
 * Builds DPDK's devargs for the links that are virtual devices.
 */
#include "dpdk_glue/glue_priv.h"
#include "dpdk_glue/vlan.h"

#include <stdio.h>
#include <string.h>

static unsigned log2_of(unsigned n)
{
	return (unsigned)__builtin_ctz(n);
}

/*
 * A memif packet must fit into one buffer of the ring: DPDK 22.11 loses its
 * place when one spans several and the ring is nearly full.
 */
static unsigned memif_buffer(void)
{
	const unsigned headers = GLUE_ETH_BYTES + GLUE_TAG_BYTES;

	return glue_eal_mtu() + headers <= 2048
		       ? 2048
		       : (glue_eal_mtu() + headers + 63) / 64 * 64;
}

void glue_vdev_describe(const struct glue_link *link, unsigned index,
			unsigned queues, const char *path, char *name,
			char *args, size_t args_len)
{
	const size_t name_len = GLUE_PORT_NAME_MAX + 1;
	unsigned queue = link->queue_size ? link->queue_size : 1024;
	char mac[32] = "";

	if (memcmp(link->mac, "\0\0\0\0\0\0", 6) != 0)
		snprintf(mac, sizeof(mac), ",mac=%02x:%02x:%02x:%02x:%02x:%02x",
			 link->mac[0], link->mac[1], link->mac[2], link->mac[3],
			 link->mac[4], link->mac[5]);
	switch (link->kind) {
	case GLUE_LINK_MEMIF:
		snprintf(name, name_len, "net_memif%u", index);
		snprintf(args, args_len,
			 "role=%s,id=0,socket=%s,socket-abstract=no,rsize=%u,"
			 "bsize=%u%s",
			 link->server ? "server" : "client", path,
			 log2_of(queue), memif_buffer(), mac);
		break;
	case GLUE_LINK_TAP:
		snprintf(name, name_len, "net_tap%u", index);
		snprintf(args, args_len, "iface=%s%s", link->name, mac);
		break;
	case GLUE_LINK_VHOST:
		snprintf(name, name_len, "net_virtio_user%u", index);
		snprintf(args, args_len,
			 "path=%s,queues=%u,queue_size=%u,server=%d%s",
			 link->name, queues, queue, link->server, mac);
		break;
	case GLUE_LINK_AF_PACKET:
		snprintf(name, name_len, "net_af_packet%u", index);
		snprintf(args, args_len,
			 "iface=%s,qdisc_bypass=1,blocksz=65536,framecnt=2048,"
			 "qpairs=%u",
			 link->name, queues);
		break;
	case GLUE_LINK_AF_XDP:
		snprintf(name, name_len, "net_af_xdp%u", index);
		snprintf(args, args_len,
			 "iface=%s,start_queue=0,queue_count=%u", link->name,
			 queues);
		break;
	case GLUE_LINK_RING:
		snprintf(name, name_len, "net_ring%u", index);
		args[0] = '\0';
		break;
	case GLUE_LINK_PCAP:
		snprintf(name, name_len, "net_pcap%u", index);
		snprintf(args, args_len, "rx_pcap=%s,tx_pcap=%s", link->name,
			 link->name2);
		break;
	case GLUE_LINK_PCI:
	case GLUE_LINK_PORT:
	case GLUE_LINK_BOND: /* not plugged: glue_bond_make() */
		memcpy(name, link->name, GLUE_PORT_NAME_MAX);
		name[GLUE_PORT_NAME_MAX] = '\0';
		break;
	}
}
