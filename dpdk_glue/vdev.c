/*
 * Makes the links that are virtual devices.
 */
#include "dpdk_glue/glue_priv.h"
#include "dpdk_glue/memif.h"
#include "dpdk_glue/vlan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_dev.h>

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

/* ---- making it ---- */

/* To whom sockets belong; uid 0: the process's user. Set while EAL starts. */
static struct {
	uid_t uid;
	gid_t gid;
} owner;

void glue_vdev_own(uid_t uid, gid_t gid)
{
	owner.uid = uid;
	owner.gid = gid;
	/* Its files in a bpffs would be root's when the program is taken off.
	 */
	if (uid)
		setenv("LIBXDP_SKIP_DISPATCHER", "1", 0);
}

static int make_device(const struct glue_link *link, unsigned index,
		       unsigned queues, const char *inner, const char *device,
		       const char *args, char *err, size_t err_len)
{
	bool serves = link->kind == GLUE_LINK_MEMIF && link->server;
	struct glue_captured log;
	char reason[256];
	mode_t mask = 0;
	int rc;

	glue_capture_start(&log);
	if (serves) /* DPDK's socket is ours alone until it is hidden */
		mask = umask(0177);
	rc = rte_eal_hotplug_add("vdev", device, args);
	if (serves)
		umask(mask);
	glue_capture_end(&log);
	glue_capture_line(&log, reason, sizeof(reason));
	if (rc < 0)
		return glue_fail(err, err_len, rc, "link %s:%s: %s",
				 glue_link_kind_name(link->kind), link->name,
				 reason);
	if (!serves)
		return 0;
	rc = glue_memif_serve(index, link->name, inner,
			      link->mode ? link->mode : 0600, queues);
	if (rc < 0)
		return glue_fail(err, err_len, rc, "link memif:%s: %s",
				 link->name, strerror(-rc));
	return 0;
}

/* Returns 0 if a socket can be made at a path, or -errno. */
static int try_path(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;

	strcpy(addr.sun_path, path);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof(addr)))
		rc = -errno;
	else
		unlink(path);
	if (fd >= 0)
		close(fd);
	return rc;
}

/*
 * A server's socket is removed at the end, and a memif server's is made again
 * if it has vanished: both as the user. DPDK does not say why it cannot.
 */
static int make_as_owner(const struct glue_link *link, unsigned index,
			 unsigned queues, const char *inner, const char *device,
			 const char *args, char *err, size_t err_len)
{
	int rc;

	setfsgid(owner.gid);
	setfsuid(owner.uid);
	rc = try_path(link->name);
	if (rc < 0)
		rc = glue_fail(err, err_len, rc,
			       "link %s:%s: user %u cannot make this socket: "
			       "%s; name one in a directory of that user",
			       glue_link_kind_name(link->kind), link->name,
			       owner.uid, strerror(-rc));
	else
		rc = make_device(link, index, queues, inner, device, args, err,
				 err_len);
	setfsuid(0);
	setfsgid(0);
	return rc;
}

int glue_vdev_make(const struct glue_link *link, unsigned index,
		   unsigned queues, const char *inner, const char *device,
		   const char *args, char *err, size_t err_len)
{
	bool makes_socket = link->server && (link->kind == GLUE_LINK_MEMIF ||
					     link->kind == GLUE_LINK_VHOST);

	return (owner.uid && makes_socket ? make_as_owner : make_device)(
		link, index, queues, inner, device, args, err, err_len);
}
