/*
 * The budget of memory: what connections and coroutines may take together, so
 * that the whole process stays within --memory.
 *
 * What counts is what the system has given: chunks of slabs that hold objects,
 * and coro's memory. The latter never goes back: what coroutines no longer use
 * is taken off the whole. What the process took before the first connection,
 * frames and rings included, is measured when the stack opens and again when it
 * begins to run, and taken off.
 *
 *   up to a half         every connection has whole buffers
 *   up to seven eighths  send buffers and receive windows shrink in proportion
 *                        to what is left; an announced window is never taken
 *                        back, it opens less
 *   beyond               no new connection is taken, and those that hold most
 *                        are reset, those that make no progress first
 *   all of it            allocations fail, but for what ACKs and RSTs are made
 *                        of, which have the last sixteenth
 *
 * The greediest are found by a sweep over the hash, some of it every
 * millisecond: the first sums up how much connections hold by powers of two,
 * the second resets from the power on that makes up for the excess.
 */
#include "netstack/net_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB	      (UINT64_C(1) << 20)
#define LEAST	      (16 * MIB) /* for connections; the stack opens with it */
#define DEFAULT_LEAST (64 * MIB)
/* Chunks kept free, parts of huge pages, the stacks that coroutines share. */
#define HEADROOM    (14 * MIB)
#define TICK_NS	    INT64_C(1000000)
#define TRIM_NS	    INT64_C(5000000)
#define POOL_NS	    INT64_C(500000000)
#define FLOOR_BYTES 8192u /* of a window or send buffer */

/* Bounds of a millisecond's part of a sweep. */
#define SWEEP_BUCKETS 16384u
#define SWEEP_CONNS   512u
#define SWEEP_RESETS  64u

#define LOOK_AT_PIECES 16u

#define CLASSES	     24u   /* powers of two of bytes held */
#define OWN_BYTES    1024u /* of a connection that holds nothing else */
#define VICTIM_CLASS 10u   /* stuck with anything, or moving 8 KiB */
#define ACTIVE_STEPS 3u	   /* who makes progress counts as an eighth */

static struct {
	uint64_t max;	   /* bytes for slabs and coroutines; 0: no bound */
	uint64_t asked;	   /* --memory, or its default */
	uint64_t headroom; /* beside what was resident */
	int64_t next_trim_ns, next_pool_ns;
	uint64_t tx_no_frame; /* of all ports, when last looked at */
	uint64_t refused;     /* allocations, when last looked at */

	bool sweeping, resetting;
	uint32_t bucket;	/* next to be looked at */
	uint64_t held[CLASSES]; /* bytes, by class */
	unsigned from_class;	/* is reset */
	uint64_t excess;	/* bytes, still to be freed */
} budget;

uint64_t net_budget_elsewhere(void)
{
	return net_the.sched ? coro_sched_memory(net_the.sched) : 0;
}

/* What coroutines have left behind serves coroutines again, and nobody else. */
static uint64_t idle_elsewhere(void)
{
	uint64_t live =
		net_the.sched ? coro_sched_memory_live(net_the.sched) : 0;

	return net_budget_elsewhere() - LWIP_MIN(live, net_budget_elsewhere());
}

static uint64_t used(void)
{
	return net_mem_bytes() + net_budget_elsewhere() - idle_elsewhere();
}

/* Of which `used` is a part. */
static uint64_t whole(void)
{
	return budget.max - LWIP_MIN(idle_elsewhere(), budget.max);
}

/* ---- what each connection may have ---- */

static uint32_t share(uint64_t most)
{
	uint64_t all = whole(), half = all / 2, full = all - all / 8;
	uint64_t now = used();

	if (!budget.max || now <= half)
		return (uint32_t)most;
	if (now >= full)
		return FLOOR_BYTES;
	return (uint32_t)LWIP_MAX(most * (full - now) / (full - half),
				  FLOOR_BYTES);
}

static bool chunks_are_full(void)
{
	return budget.max && used() > whole() - whole() / 8;
}

/*
 * Chunks are what counts, but a chunk may be held by one object: while the
 * objects themselves are few, newcomers find room between them.
 */
static bool is_full(void)
{
	return chunks_are_full() &&
	       net_mem_live_bytes() + used() - net_mem_bytes() > whole() / 2;
}

/* Coroutines may take three quarters, since they keep what they have taken. */
static void bound_coroutines(void)
{
	uint64_t slabs = LWIP_MIN(net_mem_bytes(), budget.max);
	uint64_t most = budget.max - budget.max / 4;

	if (!net_the.sched)
		return;
	coro_sched_limit_memory(net_the.sched,
				budget.max ? LWIP_MIN(budget.max - slabs, most)
					   : SIZE_MAX);
}

void net_budget_changed(void)
{
	net_the.snd_most = share(TCP_SND_BUF);
	net_the.rcv_most =
		LWIP_MAX(share(TCP_WND), LWIP_MIN(2 * net_the.mtu, TCP_WND));
	net_the.memory_full = is_full();
	bound_coroutines();
}

void net_budget_set(uint64_t bytes)
{
	budget.max = bytes;
	net_mem_set_max(bytes ? bytes : UINT64_MAX);
	net_budget_changed();
}

/* ---- what a connection holds ---- */

/* Queued bytes lie in memory that was lent; their headers alone are ours. */
static bool lends(const struct tcp_pcb *pcb)
{
	const struct tcp_seg *seg = pcb->unacked ? pcb->unacked : pcb->unsent;

	return seg && seg->p->next &&
	       seg->p->next->type_internal == (u8_t)PBUF_ROM;
}

/* Of a long queue no more than the beginning is looked at. */
static uint64_t unread_by(const struct net_conn *conn)
{
	const struct pbuf *p = net_rxq_head(conn);
	uint64_t bytes = 0;

	for (unsigned i = 0; p && i < LOOK_AT_PIECES; i++) {
		bytes += net_is_frame(p) ? p->len : net_mem_size(p);
		p = net_rxq_next(conn, p);
	}
	return p ? LWIP_MAX(bytes, TCP_WND - LWIP_MIN(conn->pcb.rcv_wnd,
						      (u32_t)TCP_WND))
		 : bytes;
}

static uint64_t held_by(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const struct coro *co = conn->reader ? conn->reader : conn->writer;
	uint64_t bytes = OWN_BYTES;

	bytes += (uint64_t)pcb->snd_queuelen * 256;
	if (pcb->state >= ESTABLISHED && !lends(pcb))
		bytes += pcb->snd_lbb - pcb->lastack;
	bytes += (uint64_t)conn->ooseq_held * 1024;
	if (conn->orphaned)
		return bytes;
	bytes += (uint64_t)conn->n_views * 1024;
	return bytes + unread_by(conn) + (co ? coro_stack_high_water(co) : 0);
}

/* Bytes wait for its peer, which takes none, or for its handler. */
static bool is_stuck(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (!conn->orphaned && conn->rx_tail)
		return true;
	return (pcb->unsent || pcb->unacked) &&
	       (pcb->persist_backoff || pcb->nrtx || pcb->snd_wnd < pcb->mss);
}

static unsigned class_of(const struct net_conn *conn, uint64_t bytes)
{
	unsigned class = 63 - (unsigned)__builtin_clzll(bytes);

	if (!is_stuck(conn))
		class -= ACTIVE_STEPS;
	return LWIP_MIN(class, CLASSES - 1);
}
static_assert(OWN_BYTES >= 1u << ACTIVE_STEPS, "no class is below 0");

/* ---- sweeping ---- */

static void reset(struct net_conn *conn, uint64_t bytes)
{
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr peer = net_peer_addr(conn);
	struct net_watch *watch = conn->watched ? conn->watch : NULL;

	net_the.stats.memory_resets++;
	net_log_seldom("coronet: memory is short (%" PRIu64 " of %" PRIu64
		       " MiB): reset %s, which held %" PRIu64 " KiB",
		       used() / MIB, whole() / MIB,
		       net_addr_format(&peer, text, sizeof(text)), bytes >> 10);
	conn->pcb.callback_arg = NULL;
	conn->err = -ENOBUFS;
	net_rxq_clear(conn);
	tcp_abort(&conn->pcb); /* whoever waits is woken, and may be gone */
	if (watch)
		watch->fn(conn, watch);
}

/*
 * One bucket; how many connections were looked at. After a reset the bucket is
 * another, and is begun again.
 */
static unsigned sweep_bucket(struct net_conn *conn, unsigned *resets)
{
	unsigned n = 0;

	for (; conn; conn = conn->hash_next, n++) {
		uint64_t bytes = held_by(conn);
		unsigned class = class_of(conn, bytes);

		if (!budget.resetting) {
			budget.held[class] += bytes;
		} else if (class >= budget.from_class && budget.excess) {
			budget.excess -= LWIP_MIN(bytes, budget.excess);
			budget.bucket--;
			++*resets;
			reset(conn, bytes);
			break;
		}
	}
	return n;
}

/* The first sweep has seen all: which of them are too many. */
static void choose_victims(void)
{
	uint64_t enough = whole() - whole() / 4, sum = 0;
	unsigned class = CLASSES;

	budget.excess = used() > enough ? used() - enough : 0;
	while (class > VICTIM_CLASS && sum < budget.excess)
		sum += budget.held[--class];
	budget.from_class = class;
	budget.resetting = true;
	budget.bucket = 0;
}

/*
 * Also where the chunks hold little, if what is asked for finds no room between
 * that: only their owners' end empties whole chunks.
 */
static bool must_sweep(void)
{
	uint64_t refused = budget.refused;

	budget.refused = net_the.stats.memory_refused;
	return net_the.memory_full ||
	       (chunks_are_full() && budget.refused != refused);
}

static void sweep(void)
{
	unsigned conns = 0, resets = 0;
	uint32_t end;

	if (!budget.sweeping) {
		if (!must_sweep())
			return;
		budget.sweeping = true;
		budget.resetting = false;
		budget.bucket = 0;
		memset(budget.held, 0, sizeof(budget.held));
	}
	end = LWIP_MIN(budget.bucket + SWEEP_BUCKETS, net_the.bucket_mask + 1);
	while (budget.bucket < end && conns < SWEEP_CONNS &&
	       resets < SWEEP_RESETS)
		conns +=
			sweep_bucket(net_the.buckets[budget.bucket++], &resets);
	if (budget.resetting && !budget.excess)
		budget.sweeping = false;
	else if (budget.bucket > net_the.bucket_mask && budget.resetting)
		budget.sweeping = false;
	else if (budget.bucket > net_the.bucket_mask)
		choose_victims();
}

/* ---- every millisecond ---- */

/* A pool that has run empty is never a matter of silence. */
static void watch_pools(void)
{
	uint64_t no_frame = 0;

	for (unsigned i = 0; i < net_the.n_ports; i++) {
		struct glue_port *port = net_the.ports[i].glue;
		unsigned n = glue_port_frames_free(port);

		no_frame += glue_port_no_frame(port);
		if (n >= GLUE_BURST)
			continue;
		net_the.stats.pool_empty++;
		net_log_seldom("coronet: link %u: %u of %u frames are free, "
			       "%u are held by connections",
			       i, n, glue_port_frames(port),
			       net_the.ports[i].frames_in);
	}
	if (no_frame != budget.tx_no_frame)
		net_log_seldom("coronet: %" PRIu64 " frames could not be sent: "
			       "the pool was empty",
			       no_frame - budget.tx_no_frame);
	budget.tx_no_frame = no_frame;
}

void net_budget_tick(void)
{
	int64_t now = net_the.now_ns;

	net_the.next_budget_ns = now + TICK_NS;
	net_budget_changed(); /* coroutines take memory without telling */
	sweep();
	if (now >= budget.next_trim_ns) {
		budget.next_trim_ns = now + TRIM_NS;
		net_mem_trim();
	}
	if (now >= budget.next_pool_ns) {
		budget.next_pool_ns = now + POOL_NS;
		watch_pools();
	}
}

/* ---- opening ---- */

static uint64_t read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	uint64_t n = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%" SCNu64, &n) != 1)
		n = 0; /* "max" */
	fclose(file);
	return n;
}

/* What the process's control group may use, version 2; 0: no limit is known. */
static uint64_t group_limit(void)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[512], path[600];
	uint64_t limit = 0;

	if (!file)
		return 0;
	while (!limit && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max",
			 line + 3);
		limit = read_number(path);
	}
	fclose(file);
	return limit;
}

static uint64_t quarter_of_ram(void)
{
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) *
		       (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t limit = group_limit();

	return (limit && limit < ram ? limit : ram) / 4;
}

static uint64_t resident(void)
{
	return net_resident_kib() << 10;
}

void net_budget_fini(void)
{
	memset(&budget, 0, sizeof(budget));
}

int net_budget_open(struct net_opts *opts)
{
	uint64_t own, least;

	budget.headroom = HEADROOM + (net_the.bucket_mask + 1) * sizeof(void *);
	own = resident() + budget.headroom;
	least = own + LEAST;
	if (opts->memory_bytes && opts->memory_bytes < least) {
		snprintf(opts->error, sizeof(opts->error),
			 "--memory %" PRIu64 "M: too little: the stack itself "
			 "takes %" PRIu64 " MiB; give %" PRIu64 "M or more",
			 opts->memory_bytes / MIB, own / MIB, least / MIB + 1);
		return -ENOMEM;
	}
	budget.asked = opts->memory_bytes ? opts->memory_bytes
					  : LWIP_MAX(quarter_of_ram(),
						     own + DEFAULT_LEAST);
	net_budget_set(budget.asked - own);
	return 0;
}

void net_budget_start(void)
{
	uint64_t own = resident() + budget.headroom, now = used();

	if (!budget.asked)
		return;
	own -= LWIP_MIN(now, own);
	if (own + LEAST > budget.asked) {
		net_log("coronet: --memory %" PRIu64 "M is too little: the "
			"program itself takes %" PRIu64 " MiB; connections "
			"have %" PRIu64 " MiB all the same",
			budget.asked / MIB, own / MIB, LEAST / MIB);
		own = budget.asked - LWIP_MIN(LEAST, budget.asked);
	}
	net_budget_set(budget.asked - own);
}

void net_budget_stats(struct net_stats *out)
{
	out->memory_bytes = used();
	out->memory_max_bytes = whole();
}
