/*
 * A device: a link's port of DPDK, opened once for all shards.
 */
#include "dpdk_glue/port_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf_pool_ops.h>

#include "dpdk_glue/bond.h"
#include "dpdk_glue/link_watch.h"
#include "dpdk_glue/memif.h"
#include "dpdk_glue/tap.h"
#include "dpdk_glue/thread.h"
#include "dpdk_glue/virtio.h"

#define POOL_DEFAULT 12288 /* frames, of all shards together */
#define POOL_CACHE   256   /* frames that each thread keeps */
#define CACHE_MIN    64

/* How long the queues of an AF_XDP link may take to become free. */
#define XDP_WAIT_US 200000u
#define XDP_TRIES   25
/*
 * RTS: a thread that is preempted in a ring does not stop the others. The ring
 * writes 8 bytes and reads 4 of them, which ThreadSanitizer does not follow.
 */
#if defined(__SANITIZE_THREAD__)
#define RING_KIND 0
#else
#define RING_KIND RING_F_MP_RTS_ENQ
#endif

/* Written while ports are opened and closed; shards find theirs in the port. */
static struct glue_device *devices[GLUE_MAX_LINKS];
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- sizes ---- */

static uint16_t ring_size(const struct glue_link *link)
{
	return (uint16_t)(link->queue_size ? link->queue_size : 1024);
}

/* Any thread may free any shard's frames, and keeps some of each pool. */
static unsigned cache_frames(unsigned n_shards)
{
	return RTE_MAX(POOL_CACHE / n_shards, (unsigned)CACHE_MIN);
}

/*
 * The most frames of one pool that are in transit: in two rings of the port, in
 * the queue before one, in the threads' caches, and in the rings of the shards
 * that take frames over from one queue.
 */
static unsigned transit_frames(unsigned n_ring, unsigned n_shards,
			       unsigned n_queues)
{
	unsigned frames = 2 * n_ring + TX_PENDING +
			  n_shards * cache_frames(n_shards) * 3 / 2;
	unsigned served = (n_shards + n_queues - 1) / n_queues;

	return n_shards > 1 ? frames + served * HAND_OVER : frames;
}

/*
 * The size of a shard's pool. A pool that a queue receives into also has frames
 * that connections hold, those of shards without a queue among them. A shard
 * without a queue takes only what it sends from its pool.
 */
static unsigned pool_frames(const struct glue_link *link, unsigned asked,
			    unsigned n_shards, unsigned n_queues,
			    unsigned shard)
{
	unsigned n_ring = ring_size(link);

	if (shard >= n_queues)
		return transit_frames(n_ring, n_shards, n_shards);
	return RTE_MAX(asked ? asked : POOL_DEFAULT / n_shards,
		       2 * transit_frames(n_ring, n_shards, n_queues));
}

/* The number of queues is unknown before the port exists: assume the worst. */
unsigned glue_link_shards_mem_mib(const struct glue_link *link,
				  unsigned n_shards)
{
	unsigned most = 0;

	for (unsigned queues = 1; queues <= n_shards; queues++) {
		unsigned frames = 0;

		for (unsigned shard = 0; shard < n_shards; shard++)
			frames += pool_frames(link, 0, n_shards, queues, shard);
		most = RTE_MAX(most, frames);
	}
	return RTE_MAX(64u, most * 5 / 2 / 1024 + 34);
}

unsigned glue_link_mem_mib(const struct glue_link *link)
{
	return glue_link_shards_mem_mib(link, 1);
}

/*
 * These drivers copy a frame's segments with the CPU, from any memory. The
 * others hand addresses to a device or to another process, which see only
 * DPDK's own memory.
 */
static bool copies_frames(const struct glue_link *link)
{
	switch (link->kind) {
	case GLUE_LINK_MEMIF:
	case GLUE_LINK_TAP:
	case GLUE_LINK_AF_PACKET:
	case GLUE_LINK_RING: /* sends frames back to us */
	case GLUE_LINK_PCAP:
		return true;
	case GLUE_LINK_VHOST:
	case GLUE_LINK_AF_XDP:
	case GLUE_LINK_PCI:
	case GLUE_LINK_PORT:
	case GLUE_LINK_BOND:
		break;
	}
	return false;
}

/* ---- MAC ---- */

/*
 * net_tap gives its port the kernel interface's own MAC, also in a bond; two
 * stacks on one wire need two, or their link-local addresses collide.
 */
static int choose_mac(struct glue_device *device, const struct glue_link *link,
		      char *err, size_t err_len)
{
	bool is_taps =
		link->kind == GLUE_LINK_TAP || glue_bond_has_tap(device->index);
	struct rte_ether_addr addr = {0};
	int rc = 0;

	rte_eth_macaddr_get(device->id, &addr);
	memcpy(device->mac, addr.addr_bytes, sizeof(device->mac));
	if (is_taps) {
		device->mac[0] |= 2;
		device->mac[5] ^= 1;
	}
	if (memcmp(link->mac, "\0\0\0\0\0\0", 6) == 0)
		return 0;
	memcpy(device->mac, link->mac, sizeof(device->mac));
	memcpy(addr.addr_bytes, link->mac, sizeof(addr.addr_bytes));
	if (glue_link_is_port(link) ||
	    (link->kind == GLUE_LINK_BOND && !is_taps))
		rc = rte_eth_dev_default_mac_addr_set(device->id, &addr);
	if (rc < 0)
		return glue_fail(err, err_len, rc,
				 "mac=: the port refuses to change its "
				 "address: %s; leave mac= out",
				 rte_strerror(-rc));
	return 0;
}

/* ---- memory ---- */

/*
 * Like rte_pktmbuf_pool_create(), which without hugepages lays no frame across
 * a page of 4 KiB, and so puts one frame into each. If the other side sees the
 * same addresses as we do, a frame may cross pages: 20 MiB less for 12288. But
 * then DPDK computes no I/O addresses, which devices on the PCI bus need.
 */
static struct rte_mempool *make_pool(const struct glue_device *device,
				     const char *name, unsigned n_frames,
				     int socket)
{
	struct rte_pktmbuf_pool_private priv = {
		.mbuf_data_room_size = RTE_PKTMBUF_HEADROOM + DATA_ROOM,
		.mbuf_priv_size = sizeof(struct glue_frame),
	};
	unsigned n_shards = device->n_shards;
	unsigned flags = rte_eal_iova_mode() == RTE_IOVA_VA &&
					 !glue_link_is_port(device->link) &&
					 device->link->kind != GLUE_LINK_BOND
				 ? RTE_MEMPOOL_F_NO_IOVA_CONTIG
				 : 0;
	struct rte_mempool *pool = rte_mempool_create_empty(
		name, n_frames,
		(unsigned)sizeof(struct rte_mbuf) + priv.mbuf_priv_size +
			priv.mbuf_data_room_size,
		cache_frames(n_shards), sizeof(priv), socket, flags);

	if (!pool)
		return NULL;
	if (rte_mempool_set_ops_byname(
		    pool,
		    n_shards > 1 ? "ring_mt_rts" : rte_mbuf_best_mempool_ops(),
		    NULL) != 0)
		goto free_pool;
	rte_pktmbuf_pool_init(pool, &priv);
	if (rte_mempool_populate_default(pool) < 0)
		goto free_pool;
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;

free_pool:
	rte_mempool_free(pool);
	return NULL;
}

/* Frames lie near the card or, for a virtual device, near the CPU. */
static int memory_node(const struct glue_device *device, unsigned shard)
{
	return device->node >= 0 ? device->node
				 : glue_node_of_cpu(glue_eal_lcore(shard));
}

/* Allocate on the node that suits or, if that has no memory, on another. */
static struct rte_mempool *shard_pool(const struct glue_device *device,
				      unsigned shard)
{
	unsigned n_frames =
		pool_frames(device->link, device->asked_frames,
			    device->n_shards, device->n_queues, shard);
	int node = memory_node(device, shard);
	struct rte_mempool *pool;
	char name[32];

	snprintf(name, sizeof(name), "frames%u.%u", device->index, shard);
	pool = make_pool(device, name, n_frames, node);
	if (!pool && node != SOCKET_ID_ANY)
		pool = make_pool(device, name, n_frames, SOCKET_ID_ANY);
	return pool;
}

/* Like shard_pool(). */
static struct rte_ring *hand_over_ring(const struct glue_device *device,
				       const char *what, unsigned shard)
{
	const unsigned flags = RING_KIND | RING_F_SC_DEQ;
	int node = glue_node_of_cpu(glue_eal_lcore(shard));
	struct rte_ring *ring;
	char name[32];

	snprintf(name, sizeof(name), "%s%u.%u", what, device->index, shard);
	ring = rte_ring_create(name, HAND_OVER, node, flags);
	if (!ring && node != SOCKET_ID_ANY)
		ring = rte_ring_create(name, HAND_OVER, SOCKET_ID_ANY, flags);
	return ring;
}

static int alloc_memory(struct glue_device *device, char *err, size_t err_len)
{
	for (unsigned i = 0; i < device->n_shards; i++) {
		device->pools[i] = shard_pool(device, i);
		if (!device->pools[i])
			return glue_fail(
				err, err_len, -ENOMEM,
				"no memory for the frames of shard %u of %u: "
				"%s%s",
				i + 1, device->n_shards,
				rte_strerror(rte_errno), glue_huge_hint());
		if (device->n_shards == 1)
			continue;
		device->rx_rings[i] = hand_over_ring(device, "rx", i);
		device->tx_rings[i] = hand_over_ring(device, "tx", i);
		if (!device->rx_rings[i] || !device->tx_rings[i])
			return glue_fail(err, err_len, -ENOMEM,
					 "no memory for rings: %s",
					 rte_strerror(rte_errno));
	}
	return 0;
}

/* ---- opening ---- */

static int configure_device(struct glue_device *device, char *err,
			    size_t err_len)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(device->id, &info);

	if (rc < 0)
		return glue_fail(err, err_len, rc, "port information: %s",
				 rte_strerror(-rc));
	rc = glue_choose_queues(device, &info, err, err_len);
	if (rc == 0)
		rc = glue_choose_offloads(device, &info, err, err_len);
	if (rc == 0)
		rc = alloc_memory(device, err, err_len);
	if (rc < 0)
		return rc;
	device->transit = transit_frames(device->n_ring, device->n_shards,
					 device->n_queues);
	device->can_lend = copies_frames(device->link);
	/* A ring passes the frame itself back to us; a tag would move in it. */
	device->can_resend = device->can_lend &&
			     device->link->kind != GLUE_LINK_RING &&
			     !device->link->vlan;
	/* memif.c lowers this if a client, which may come now, has fewer */
	device->n_active = device->n_queues;
	glue_memif_attach(device);
	return 0;
}

/*
 * Prepares a device, once, and sets up its port. -EAGAIN: the queues are not
 * free yet, and the call can be repeated.
 */
static int set_up_device(struct glue_device *device, struct glue_captured *log,
			 char *err, size_t err_len)
{
	int rc = 0, level;

	glue_capture_start(log); /* net_tap logs harmless complaints */
	level = glue_virtio_log_begin();
	if (!device->pools[0])
		rc = configure_device(device, err, err_len);
	if (rc == 0)
		rc = glue_port_setup(device, err, err_len);
	if (rc == 0)
		rc = choose_mac(device, device->link, err, err_len);
	glue_virtio_log_end(level);
	glue_capture_end(log);
	return rc;
}

/*
 * The kernel takes a queue from an AF_XDP socket some time after the socket was
 * closed: up to 30 ms on an idle machine. So that a program can be started
 * again at once, it tries for a while.
 */
static int set_up_again(struct glue_device *device, struct glue_captured *log,
			char *err, size_t err_len)
{
	int rc = -EAGAIN;

	glue_log_line("link af_xdp:%s: queues cannot be set up; trying again "
		      "for %u s, since a program that had them may just have "
		      "ended",
		      device->link->name, XDP_TRIES * XDP_WAIT_US / 1000000);
	for (int i = 0; i < XDP_TRIES && rc == -EAGAIN; i++) {
		rte_delay_us_sleep(XDP_WAIT_US);
		rc = set_up_device(device, log, err, err_len);
	}
	return rc == -EAGAIN ? -EINVAL : rc;
}

static void free_ring(struct rte_ring *ring)
{
	void *m;

	while (ring && rte_ring_sc_dequeue(ring, &m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(ring);
}

static void free_memory(struct glue_device *device)
{
	for (unsigned i = 0; i < device->n_shards; i++) {
		free_ring(device->rx_rings[i]);
		free_ring(device->tx_rings[i]);
	}
	for (unsigned i = 0; i < device->n_shards; i++)
		rte_mempool_free(device->pools[i]);
	rte_free(device->empty);
	rte_free(device);
}

/* Allocates a device with an entry for each shard in its tables. */
static struct glue_device *alloc_device(unsigned n_shards)
{
	size_t table = n_shards * sizeof(void *);
	struct glue_device *device =
		rte_zmalloc("glue_device", sizeof(*device) + 3 * table,
			    RTE_CACHE_LINE_SIZE);

	struct glue_empty *empty = rte_zmalloc(
		"glue_empty", n_shards * sizeof(*empty), RTE_CACHE_LINE_SIZE);

	if (!device || !empty) {
		rte_free(device);
		rte_free(empty);
		return NULL;
	}
	device->empty = empty;
	pthread_mutex_init(&device->port_lock, NULL);
	device->n_shards = (uint16_t)n_shards;
	device->pools = (void *)(device + 1);
	device->rx_rings = (void *)(device->pools + n_shards);
	device->tx_rings = device->rx_rings + n_shards;
	return device;
}

/*
 * If DPDK could not map all memory into the IOMMU, the card starts, and loses
 * frames: EAL logs that and goes on.
 */
static int check_mapped(const struct glue_captured *log, char *err,
			size_t err_len)
{
	if (!strstr(log->text, "set up DMA remapping"))
		return 0;
	return glue_fail(err, err_len, -ENOMEM,
			 "the card cannot reach all of the frames' memory: the "
			 "process may not lock so much; raise the limit: "
			 "ulimit -l unlimited, or LimitMEMLOCK=infinity in the "
			 "service's unit");
}

/*
 * Refuses what makes net_virtio stop without an error: see virtio.h. Frames of
 * several buffers are those that are longer than one, and TSO's.
 */
static int check_rings(const struct glue_device *device,
		       const struct glue_captured *log, char *err,
		       size_t err_len)
{
	unsigned most = DATA_ROOM - RTE_ETHER_HDR_LEN;

	if (!glue_virtio_stalls(log->text))
		return 0;
	if (device->mtu > most)
		return glue_fail(err, err_len, -EINVAL,
				 "--mtu %u: on this card's packed rings DPDK's "
				 "driver sends no packets of more than %u "
				 "bytes; use --mtu %u or less, or give the "
				 "card split rings (QEMU: packed=off)",
				 device->mtu, most, most);
	if (device->tso)
		return glue_fail(
			err, err_len, -EINVAL,
			"tso=on: on this card's packed rings DPDK's "
			"driver stops at TSO; leave tso at auto, or "
			"give the card split rings (QEMU: packed=off)");
	return 0;
}

/*
 * Appends what a card's driver logged when it failed. Drivers of virtual
 * devices log complaints about harmless things.
 */
static void add_reason(const struct glue_device *device,
		       const struct glue_captured *log, char *err,
		       size_t err_len)
{
	size_t used = strlen(err);
	char line[160];

	glue_capture_line(log, line, sizeof(line));
	if ((glue_link_is_port(device->link) ||
	     device->link->kind == GLUE_LINK_BOND) &&
	    strstr(log->text, line))
		snprintf(err + used, err_len - used, " (%s)", line);
}

/* Virtual links never spread flows, and a user may have asked for one queue. */
static void explain_sharing(const struct glue_device *device)
{
	if (!device->no_rss || device->n_shards == 1 || device->link->queues ||
	    !glue_link_is_port(device->link))
		return;
	glue_log_line("link %s:%s: shards hand frames over to each other, "
		      "because the port has %s",
		      glue_link_kind_name(device->link->kind),
		      device->link->name, device->no_rss);
}

static void stop_and_close(void *arg)
{
	const struct glue_device *device = arg;

	rte_eth_dev_stop(device->id);
	glue_bond_close_taps(device->id);
	rte_eth_dev_close(device->id);
}

/*
 * Ends a port, started or not. Drivers free the frames of its rings only here,
 * so its pools must still exist.
 */
static void close_port(struct glue_device *device)
{
	struct glue_captured log;

	glue_memif_detach(device);
	/* DPDK would complain that its memif socket has no name any more. */
	rte_log_set_level_pattern("pmd.net.memif", RTE_LOG_EMERG);
	if (device->link->kind == GLUE_LINK_MEMIF) {
		glue_memif_close(device);
	} else if (!device->gone) {
		glue_capture_start(&log); /* libxdp logs that it seeks bpffs */
		glue_run_with_caps(stop_and_close, device);
		glue_capture_end(&log);
	}
}

static int open_device(struct glue_device *device, char *err, size_t err_len)
{
	struct glue_captured log;
	int rc = set_up_device(device, &log, err, err_len);

	if (rc == -EAGAIN)
		rc = set_up_again(device, &log, err, err_len);
	if (rc < 0)
		add_reason(device, &log, err, err_len);
	else
		rc = check_mapped(&log, err, err_len);
	if (rc == 0)
		rc = check_rings(device, &log, err, err_len);
	if (rc < 0) {
		close_port(device);
		return rc;
	}
	if (device->link->kind == GLUE_LINK_MEMIF && !device->link->server)
		glue_memif_watch(device, device->link->name);
	if (device->link->kind == GLUE_LINK_TAP)
		glue_tap_watch(device);
	if (device->link->kind == GLUE_LINK_BOND)
		glue_bond_start(device);
	glue_link_watch(device);
	glue_node_warn(device);
	explain_sharing(device);
	return 0;
}

static void close_device(struct glue_device *device)
{
	glue_memif_unwatch(device);
	glue_tap_unwatch(device);
	glue_link_unwatch(device);
	if (device->link->kind == GLUE_LINK_BOND)
		glue_bond_stop(device);
	close_port(device);
	free_memory(device);
}

/* Needs the lock. True if every link's device is open. */
static bool all_open(void)
{
	for (unsigned i = 0; glue_eal_link(i); i++)
		if (!devices[i])
			return false;
	return true;
}

/* Needs the lock. Returns a link's device, and opens it if it is not open. */
static int get_locked(unsigned index, const struct glue_port_conf *conf,
		      struct glue_device **out, char *err, size_t err_len)
{
	const struct glue_link *link = glue_eal_link(index);
	struct glue_device *device;
	char reason[400];
	uint16_t id;
	int rc;

	if (!link || !glue_eal_port_id(index, &id))
		return glue_fail(err, err_len, -ENODEV,
				 "link %s:%s: DPDK found no such port",
				 link ? glue_link_kind_name(link->kind) : "?",
				 link ? link->name : "?");
	*out = devices[index];
	if (*out)
		return 0;
	device = alloc_device(glue_eal_shards());
	if (!device)
		return glue_fail(err, err_len, -ENOMEM, "no memory for a port");
	device->id = id;
	device->index = index;
	device->link = link;
	device->node = glue_node_of_card(link);
	device->mtu = conf->mtu;
	device->n_ring = ring_size(link);
	device->asked_frames = conf->n_frames;
	rc = open_device(device, reason, sizeof(reason));
	if (rc < 0) {
		free_memory(device);
		return glue_fail(err, err_len, rc, "link %s:%s: %s",
				 glue_link_kind_name(link->kind), link->name,
				 reason);
	}
	*out = devices[index] = device;
	if (all_open())
		glue_eal_links_open();
	return 0;
}

int glue_device_get(unsigned index, const struct glue_port_conf *conf,
		    struct glue_device **out, char *err, size_t err_len)
{
	int rc;

	pthread_mutex_lock(&devices_lock);
	rc = get_locked(index, conf, out, err, err_len);
	if (rc == 0)
		(*out)->n_open++;
	pthread_mutex_unlock(&devices_lock);
	return rc;
}

bool glue_device_is_last(struct glue_device *device)
{
	bool last;

	pthread_mutex_lock(&devices_lock);
	last = device->n_open == 1;
	pthread_mutex_unlock(&devices_lock);
	return last;
}

void glue_device_put(struct glue_device *device)
{
	pthread_mutex_lock(&devices_lock);
	if (--device->n_open == 0) {
		devices[device->index] = NULL;
		close_device(device);
	}
	pthread_mutex_unlock(&devices_lock);
}
