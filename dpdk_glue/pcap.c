/*
 * Starts and stops captures, and writes the captured frames to a file on a
 * thread of its own.
 *
 * libpcap runs the filters, since rte_bpf of DPDK 22.11 misjudges `tcp[13] = 2`
 * and crashes on `tcp[tcpflags] & tcp-syn != 0`.
 */
#include "dpdk_glue/pcap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include <rte_ethdev.h>
#include <rte_ring.h>

#include "dpdk_glue/burst_sync.h"
#include "dpdk_glue/glue_priv.h"
#include "dpdk_glue/pcap_priv.h"
#include "dpdk_glue/pcapng.h"
#include "dpdk_glue/thread.h"
#include "dpdk_glue/vlan.h"

#define WAITING	  1024u /* frames that may wait for the file */
#define WRITE_MAX 64u	/* written at once */
#define NAP_NS	  2000000
#define SYNC_NS	  100000000 /* a burst ends by then, if that cannot be seen */
#define PATH_ROOM sizeof(((struct glue_pcap_status *)0)->path)

struct glue_pcap {
	struct rte_mempool *pool;
	struct rte_ring *ring;
	struct bpf_program filter;	      /* no instruction: all frames */
	int64_t epoch_ns;		      /* of glue_now_ns() */
	int fd;				      /* the file's, or -1 */
	uint8_t interfaces[RTE_MAX_ETHPORTS]; /* in the file, by port */
	uint64_t max_bytes, max_packets;
	uint32_t snap;
	_Atomic uint64_t packets, bytes, dropped;
	_Atomic int stop; /* requested */
	void (*ended)(const struct glue_pcap_status *status);
};

struct glue_pcap *glue_pcap_now;

/* Start, stop and status by any thread: the lock is held while those run. */
static struct {
	pthread_mutex_t lock;
	pthread_t thread;
	bool joinable;
	struct glue_pcap *pcap; /* while its thread runs */
	struct glue_pcap_status last;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- on the polling threads ---- */

/* Filters by a frame's first segment, which has all headers. */
static bool filter_accepts(const struct glue_pcap *pcap,
			   const struct rte_mbuf *m)
{
	const struct pcap_pkthdr header = {.caplen = m->data_len,
					   .len = m->pkt_len};

	return !pcap->filter.bf_len ||
	       pcap_offline_filter(&pcap->filter, &header,
				   rte_pktmbuf_mtod(m, const uint8_t *)) != 0;
}

static struct rte_mbuf *copy_of(struct glue_pcap *pcap, uint16_t port,
				const struct rte_mbuf *m,
				struct glue_pcapng_frame *seen)
{
	struct rte_mbuf *copy = NULL;

	if (!filter_accepts(pcap, m))
		return NULL;
	seen->interface = pcap->interfaces[port];
	if (seen->interface != GLUE_PCAPNG_NO_INTERFACE)
		copy = glue_pcapng_copy(m, pcap->pool, pcap->snap, seen);
	if (!copy)
		pcap->dropped++;
	return copy;
}

static uint64_t now_of(const struct glue_pcap *pcap)
{
	return (uint64_t)(pcap->epoch_ns + glue_now_ns());
}

static void queue_up(struct glue_pcap *pcap, struct rte_mbuf **copies,
		     unsigned n)
{
	unsigned taken =
		rte_ring_enqueue_burst(pcap->ring, (void **)copies, n, NULL);

	if (taken < n) {
		pcap->dropped += n - taken;
		rte_pktmbuf_free_bulk(copies + taken, n - taken);
	}
}

__attribute__((cold, noinline)) void glue_pcap_rx(struct glue_pcap *pcap,
						  uint16_t port, uint16_t queue,
						  struct rte_mbuf **bufs,
						  uint16_t n)
{
	struct glue_pcapng_frame seen = {.ns = now_of(pcap), .queue = queue};
	struct rte_mbuf *copies[GLUE_BURST];
	unsigned taken = 0;

	for (uint16_t i = 0; i < n; i++) {
		copies[taken] = copy_of(pcap, port, bufs[i], &seen);
		taken += copies[taken] != NULL;
	}
	queue_up(pcap, copies, taken);
}

/* Frames that the port refuses come again, and are in the file only then. */
__attribute__((cold, noinline)) uint16_t
glue_pcap_tx(struct glue_pcap *pcap, uint16_t port, uint16_t queue,
	     struct rte_mbuf **bufs, uint16_t want)
{
	struct glue_pcapng_frame seen = {
		.ns = now_of(pcap), .queue = queue, .outbound = true};
	struct rte_mbuf *copies[GLUE_BURST];
	unsigned taken = 0;
	uint16_t sent;

	for (uint16_t i = 0; i < want; i++)
		copies[i] = copy_of(pcap, port, bufs[i], &seen);
	sent = rte_eth_tx_burst(port, queue, bufs, want);
	for (uint16_t i = 0; i < want; i++) {
		if (i < sent && copies[i])
			copies[taken++] = copies[i];
		else
			rte_pktmbuf_free(copies[i]);
	}
	queue_up(pcap, copies, taken);
	return sent;
}

/* ---- the writing thread ---- */

static bool is_full(const struct glue_pcap *pcap, uint64_t packets,
		    uint64_t bytes)
{
	return bytes > pcap->max_bytes ||
	       (pcap->max_packets && packets > pcap->max_packets);
}

/* Writes all or none. Returns 0, or an errno with the file as it was before. */
static int write_whole(struct glue_pcap *pcap, struct rte_mbuf **bufs,
		       unsigned n, uint64_t bytes)
{
	struct iovec pieces[WRITE_MAX];
	ssize_t written;
	int error;

	for (unsigned i = 0; i < n; i++)
		pieces[i] = (struct iovec){rte_pktmbuf_mtod(bufs[i], void *),
					   bufs[i]->data_len};
	written = writev(pcap->fd, pieces, (int)n);
	error = written < 0 ? errno : ENOSPC;
	if (written == (ssize_t)bytes) {
		pcap->bytes += bytes;
		pcap->packets += n;
		return 0;
	}
	if (ftruncate(pcap->fd, (off_t)pcap->bytes) < 0 ||
	    lseek(pcap->fd, (off_t)pcap->bytes, SEEK_SET) < 0)
		return errno;
	return error;
}

/* Writes those that there is room for, one by one if not all can be written. */
static enum glue_pcap_end write_burst(struct glue_pcap *pcap,
				      struct rte_mbuf **bufs, unsigned n,
				      int *error)
{
	uint64_t bytes = 0;
	unsigned fit = 0;

	while (fit < n && !is_full(pcap, pcap->packets + fit + 1,
				   pcap->bytes + bytes + bufs[fit]->pkt_len))
		bytes += bufs[fit++]->pkt_len;
	if (fit && write_whole(pcap, bufs, fit, bytes) != 0) {
		*error = 0;
		for (unsigned i = 0; i < fit && *error == 0; i++)
			*error = write_whole(pcap, &bufs[i], 1,
					     bufs[i]->pkt_len);
		if (*error)
			return GLUE_PCAP_FAILED;
	}
	return fit < n || (pcap->max_packets &&
			   pcap->packets == pcap->max_packets)
		       ? GLUE_PCAP_FULL
		       : GLUE_PCAP_RUNS;
}

/* Ends the capture and waits until every burst has seen that. */
static void leave_bursts(void)
{
	static const struct timespec nap = {.tv_nsec = SYNC_NS};

	__atomic_store_n(&glue_pcap_now, NULL, __ATOMIC_RELEASE);
	if (glue_sync_works())
		glue_sync_wait();
	else
		nanosleep(&nap, NULL);
}

static void free_pcap(struct glue_pcap *pcap)
{
	struct rte_mbuf *m;

	if (pcap->fd >= 0)
		close(pcap->fd);
	while (pcap->ring && rte_ring_dequeue(pcap->ring, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(pcap->ring);
	rte_mempool_free(pcap->pool);
	pcap_freecode(&pcap->filter);
	free(pcap);
}

static enum glue_pcap_end write_all(struct glue_pcap *pcap, int *error)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};
	enum glue_pcap_end end = GLUE_PCAP_RUNS;
	bool last = false;

	while (end == GLUE_PCAP_RUNS) {
		struct rte_mbuf *bufs[WRITE_MAX];
		unsigned n = rte_ring_dequeue_burst(pcap->ring, (void **)bufs,
						    WRITE_MAX, NULL);

		if (n) {
			end = write_burst(pcap, bufs, n, error);
			rte_pktmbuf_free_bulk(bufs, n);
		} else if (last) {
			end = GLUE_PCAP_STOPPED;
		} else if (pcap->stop) {
			leave_bursts();
			last = true; /* the ring gets no more frames */
		} else {
			nanosleep(&nap, NULL);
		}
	}
	return end;
}

static void *write_main(void *arg)
{
	struct glue_pcap *pcap = arg;
	struct glue_pcap_status status;
	void (*ended)(const struct glue_pcap_status *) = pcap->ended;
	enum glue_pcap_end end;
	int error = 0;

	end = write_all(pcap, &error);
	leave_bursts();
	pthread_mutex_lock(&captures.lock);
	captures.last.packets = pcap->packets;
	captures.last.bytes = pcap->bytes;
	captures.last.dropped = pcap->dropped;
	captures.pcap = NULL;
	pthread_mutex_unlock(&captures.lock);
	free_pcap(pcap); /* the file is complete */
	pthread_mutex_lock(&captures.lock);
	captures.last.end = end;
	captures.last.error = error;
	status = captures.last;
	pthread_mutex_unlock(&captures.lock);
	if (ended)
		ended(&status);
	return NULL;
}

/* ---- starting ---- */

static int compile_filter(struct glue_pcap *pcap, const char *text, char *err,
			  size_t err_len)
{
	const char *name;
	size_t len;
	pcap_t *dead;
	int rc = 0;

	if (!text || !*text)
		return 0;
	len = glue_filter_find_name(text, &name);
	if (len)
		return glue_fail(err, err_len, -EINVAL,
				 "capture: the filter '%s': '%.*s' is not a "
				 "word of tcpdump's filters, and host names "
				 "are not looked up; write the address",
				 text, (int)len, name);
	dead = pcap_open_dead(DLT_EN10MB, 65535);
	if (!dead)
		return glue_fail(err, err_len, -ENOMEM,
				 "capture: no memory for a filter");
	if (pcap_compile(dead, &pcap->filter, text, 1, PCAP_NETMASK_UNKNOWN) !=
	    0) {
		memset(&pcap->filter, 0, sizeof(pcap->filter));
		rc = glue_fail(err, err_len, -EINVAL,
			       "capture: the filter '%s': %s; expected a "
			       "filter in tcpdump's syntax, as in tcp port 80",
			       text, pcap_geterr(dead));
	}
	pcap_close(dead);
	return rc;
}

static void start_clock(struct glue_pcap *pcap)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	pcap->epoch_ns =
		now.tv_sec * INT64_C(1000000000) + now.tv_nsec - glue_now_ns();
}

/* O_NONBLOCK is for pipes, which would block us here. */
static int open_file(struct glue_pcap *pcap, const char *path, char *err,
		     size_t err_len)
{
	struct stat st;
	ssize_t bytes;

	pcap->fd =
		open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
	if (pcap->fd < 0 && errno != ENXIO)
		return glue_fail(err, err_len, -errno,
				 "capture: cannot write '%s': %s", path,
				 strerror(errno));
	if (pcap->fd < 0 || fstat(pcap->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return glue_fail(err, err_len, -EINVAL,
				 "capture: '%s' is not a plain file; name one",
				 path);
	if (ftruncate(pcap->fd, 0) < 0)
		return glue_fail(err, err_len, -errno,
				 "capture: cannot write '%s': %s", path,
				 strerror(errno));
	bytes = glue_pcapng_begin(pcap->fd, pcap->snap, pcap->interfaces);
	if (bytes == -ENODEV)
		return glue_fail(err, err_len, -ENODEV,
				 "capture: there is no port yet");
	if (bytes < 0)
		return glue_fail(err, err_len, (int)bytes,
				 "capture: cannot write '%s': %s", path,
				 strerror((int)-bytes));
	if ((uint64_t)bytes > pcap->max_bytes)
		return glue_fail(err, err_len, -EINVAL,
				 "capture: %llu bytes are too few for the "
				 "file's header, which has %lld",
				 (unsigned long long)pcap->max_bytes,
				 (long long)bytes);
	pcap->bytes = (uint64_t)bytes;
	return 0;
}

static int alloc_buffers(struct glue_pcap *pcap, char *err, size_t err_len)
{
	pcap->pool = rte_pktmbuf_pool_create_by_ops(
		"pcap", WAITING + 4 * WRITE_MAX, 0, 0,
		glue_pcapng_mbuf_bytes(pcap->snap), SOCKET_ID_ANY,
		"ring_mp_mc");
	pcap->ring = pcap->pool ? rte_ring_create("pcap", WAITING,
						  SOCKET_ID_ANY, RING_F_SC_DEQ)
				: NULL;
	if (!pcap->ring)
		return glue_fail(err, err_len, -ENOMEM,
				 "capture: no memory for %u frames of %u bytes",
				 WAITING, pcap->snap);
	return 0;
}

static int check_limits(const struct glue_pcap_conf *conf, char *err,
			size_t err_len)
{
	if (!conf->path || !*conf->path || strlen(conf->path) >= PATH_ROOM)
		return glue_fail(err, err_len, -EINVAL,
				 "capture: a path has 1 to %zu characters",
				 PATH_ROOM - 1);
	if (conf->snap_bytes > GLUE_PCAP_SNAP_MAX)
		return glue_fail(err, err_len, -EINVAL,
				 "capture: snap=%u; expected at most %u",
				 conf->snap_bytes, GLUE_PCAP_SNAP_MAX);
	return 0;
}

int glue_pcap_check(const struct glue_pcap_conf *conf, char *err,
		    size_t err_len)
{
	struct glue_pcap pcap = {0};
	int rc = check_limits(conf, err, err_len);

	if (rc == 0)
		rc = compile_filter(&pcap, conf->filter, err, err_len);
	pcap_freecode(&pcap.filter);
	return rc;
}

static int start_locked(const struct glue_pcap_conf *conf, char *err,
			size_t err_len)
{
	struct glue_pcap *pcap;
	int rc;

	if (captures.last.end == GLUE_PCAP_RUNS)
		return glue_fail(err, err_len, -EBUSY,
				 "capture: a capture into '%s' is running; "
				 "stop it first",
				 captures.last.path);
	if (captures.joinable)
		pthread_join(captures.thread, NULL);
	captures.joinable = false;
	rc = check_limits(conf, err, err_len);
	if (rc < 0)
		return rc;
	pcap = calloc(1, sizeof(*pcap));
	if (!pcap)
		return glue_fail(err, err_len, -ENOMEM, "capture: no memory");
	pcap->fd = -1;
	pcap->max_bytes = conf->max_bytes;
	pcap->max_packets = conf->max_packets;
	pcap->snap = conf->snap_bytes ? conf->snap_bytes
				      : glue_eal_mtu() + RTE_ETHER_HDR_LEN +
						GLUE_TAG_BYTES;
	pcap->ended = conf->ended;
	rc = compile_filter(pcap, conf->filter, err, err_len);
	if (rc == 0)
		rc = alloc_buffers(pcap, err, err_len);
	if (rc == 0)
		rc = open_file(pcap, conf->path, err, err_len);
	if (rc < 0)
		goto free_all;
	start_clock(pcap);
	captures.last = (struct glue_pcap_status){.end = GLUE_PCAP_RUNS};
	strcpy(captures.last.path, conf->path);
	captures.pcap = pcap;
	__atomic_store_n(&glue_pcap_now, pcap, __ATOMIC_RELEASE);
	rc = glue_thread_start(&captures.thread, "capture", write_main, pcap);
	if (rc == 0) {
		captures.joinable = true;
		return 0;
	}
	leave_bursts();
	captures.pcap = NULL;
	captures.last.end = GLUE_PCAP_NONE;
	glue_fail(err, err_len, rc, "capture: no thread can be made: %s",
		  strerror(-rc));
free_all:
	free_pcap(pcap);
	return rc;
}

int glue_pcap_start(const struct glue_pcap_conf *conf, char *err,
		    size_t err_len)
{
	int rc;

	pthread_mutex_lock(&captures.lock);
	rc = start_locked(conf, err, err_len);
	pthread_mutex_unlock(&captures.lock);
	return rc;
}

void glue_pcap_stop(void)
{
	pthread_mutex_lock(&captures.lock);
	if (captures.pcap)
		captures.pcap->stop = 1;
	pthread_mutex_unlock(&captures.lock);
}

void glue_pcap_status(struct glue_pcap_status *out)
{
	pthread_mutex_lock(&captures.lock);
	*out = captures.last;
	if (captures.pcap) {
		out->packets = captures.pcap->packets;
		out->bytes = captures.pcap->bytes;
		out->dropped = captures.pcap->dropped;
	}
	pthread_mutex_unlock(&captures.lock);
}

void glue_pcap_close(void)
{
	bool joinable;

	glue_pcap_stop();
	pthread_mutex_lock(&captures.lock);
	joinable = captures.joinable;
	captures.joinable = false;
	pthread_mutex_unlock(&captures.lock);
	if (joinable)
		pthread_join(captures.thread, NULL);
}
