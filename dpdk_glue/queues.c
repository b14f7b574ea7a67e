/*
 * Decides how many queue pairs a link has.
 */
#include "dpdk_glue/glue_priv.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpdk_glue/memif.h"

/*
 * The queues of a kernel interface: those that receive, and those that DPDK can
 * read, which are the combined channels, or the first queue if the driver has
 * none.
 */
struct iface_queues {
	unsigned receive, readable;
	bool combined;
};

static struct iface_queues iface_queues(const char *name)
{
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
	struct ifreq ifr = {.ifr_data = (void *)&channels};
	struct iface_queues queues = {.receive = 1, .readable = 1};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return queues;
	memcpy(ifr.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	rc = ioctl(fd, SIOCETHTOOL, &ifr);
	close(fd);
	if (rc < 0)
		return queues;
	queues.combined = channels.combined_count > 0;
	if (queues.combined)
		queues.readable = channels.combined_count;
	queues.receive = channels.combined_count + channels.rx_count;
	return queues;
}

/*
 * Queue pairs for a link that names no number: one for each shard if this side
 * decides alone, and one in all if the peer may have fewer and does not say.
 */
static unsigned default_queues(const struct glue_link *link)
{
	unsigned most = glue_link_max_queues(link);
	unsigned n_shards = glue_eal_shards();

	if (n_shards == 1)
		return 1;
	switch (link->kind) {
	case GLUE_LINK_MEMIF:
		if (!link->server)
			most = glue_memif_ask(link->name);
		break;
	case GLUE_LINK_AF_XDP:
		most = iface_queues(link->name).readable;
		break;
	case GLUE_LINK_VHOST:
		most = 1;
		break;
	case GLUE_LINK_TAP:
	case GLUE_LINK_AF_PACKET:
	case GLUE_LINK_PCI:
	case GLUE_LINK_PORT:
	case GLUE_LINK_BOND: /* as its members have: bond.c */
	case GLUE_LINK_RING:
	case GLUE_LINK_PCAP:
		break;
	}
	most = most < n_shards ? most : n_shards;
	return most ? most : 1;
}

unsigned glue_queues_wanted(const struct glue_link *link)
{
	return link->queues ? link->queues : default_queues(link);
}

/*
 * An AF_XDP socket gets the frames of one queue of the interface; those of a
 * queue without one go to the kernel, which has no use for them. A user who
 * names fewer queues must ensure that they get all frames for this program.
 */
static int check_iface_queues(const struct glue_link *link, char *err,
			      size_t err_len)
{
	struct iface_queues have = iface_queues(link->name);
	unsigned n_shards = glue_eal_shards();
	unsigned reads = have.readable < n_shards ? have.readable : n_shards;

	if (link->queues > have.readable)
		return glue_fail(err, err_len, -EINVAL,
				 "link af_xdp:%s: queues=%u, but DPDK reads %u "
				 "of this interface: %s",
				 link->name, link->queues, have.readable,
				 have.combined
					 ? "it has no more combined channels "
					   "('ethtool -L' may change that)"
					 : "its driver has no combined "
					   "channels ('ethtool -l')");
	if (link->queues || have.receive <= reads)
		return 0;
	return glue_fail(
		err, err_len, -EINVAL,
		"link af_xdp:%s: the interface receives by %u queues "
		"and %u would be read (%s); use 'ethtool -L %s %s %u'%s"
		", or queues=%u if the other queues get no frames for this "
		"program",
		link->name, have.receive, reads,
		have.combined ? "one by each shard"
			      : "its driver has no combined channels",
		link->name, have.combined ? "combined" : "rx", reads,
		have.combined ? " or more shards" : "", reads);
}

int glue_queues_check(const struct glue_link *link, char *err, size_t err_len)
{
	const char *kind = glue_link_kind_name(link->kind);
	unsigned n_shards = glue_eal_shards();

	if (link->queues > n_shards)
		return glue_fail(err, err_len, -EINVAL,
				 "link %s:%s: queues=%u for only %u shard%s: "
				 "nothing would read the other queues; use "
				 "queues=%u, or more lcores",
				 kind, link->name, link->queues, n_shards,
				 n_shards == 1 ? "" : "s", n_shards);
	if (link->kind == GLUE_LINK_AF_XDP)
		return check_iface_queues(link, err, err_len);
	return 0;
}
