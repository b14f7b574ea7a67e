/*
 * When memory is short: which connections are reset. Connections and coroutines
 * may use (mem/budget.c) --memory minus the memory of the process before the
 * first connection, frames and rings included. That is measured when the stack
 * opens and again when it begins to run.
 *
 *   up to a half         every connection has whole buffers
 *   up to seven eighths  send buffers and receive windows shrink in proportion
 *                        to what is left; an announced window is never taken
 *                        back, it opens less
 *   beyond               no new connection is taken, and those that hold most
 *                        are reset, those that make no progress first
 *   all of it            allocations fail, except for ACKs and RSTs, which have
 *                        the last sixteenth
 *
 * The largest connections are found by sweeps over the hash table, and over the
 * connections that have ended with unread bytes, a part every millisecond. The
 * first sweep sums up by powers of two how much connections hold; the second
 * resets those from the power on that makes up for the excess.
 */
#include "netstack/shard/shard.h"

#include "netstack/conn/end.h"
#include "netstack/conn/ended.h"
#include "netstack/conn/tls.h"
#include "netstack/program/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB	      (UINT64_C(1) << 20)
#define LEAST	      (16 * MIB) /* for a shard's connections, to open */
#define DEFAULT_LEAST (64 * MIB)
#define SHARD_OWN     (3 * MIB) /* of a shard that opens, frames apart */
/* Chunks kept free, parts of huge pages, the stacks that coroutines share. */
#define HEADROOM (14 * MIB)
#define TICK_NS	 INT64_C(1000000)
#define TRIM_NS	 INT64_C(5000000)
#define POOL_NS	 INT64_C(500000000)

/* Bounds of a millisecond's part of a sweep. */
#define SWEEP_BUCKETS 16384u
#define SWEEP_CONNS   512u
#define SWEEP_RESETS  64u

#define LOOK_AT_PIECES 16u

#define CLASSES	     24u   /* powers of two of bytes held */
#define OWN_BYTES    1024u /* of a connection that holds nothing else */
#define VICTIM_CLASS 10u   /* stuck with anything, or moving 8 KiB */
#define ACTIVE_STEPS 3u	   /* one that makes progress counts as an eighth */

static NET_SHARD_VAR struct {
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
} shortage;
#define shortage NET_SHARD(shortage)

/* ---- memory that a connection holds ---- */

/* Do queued bytes lie in lent memory, so that only the headers are ours? */
static bool has_lent_data(const struct tcp_pcb *pcb)
{
	const struct tcp_seg *seg = pcb->unacked ? pcb->unacked : pcb->unsent;

	return seg && seg->p->next &&
	       seg->p->next->type_internal == (uint8_t)PBUF_ROM;
}

/* Looks at no more than the beginning of a long queue. */
static uint64_t unread_by(const struct net_conn *conn)
{
	const struct pbuf *p = net_rxq_head(conn);
	uint32_t max = net_rcv_max(&conn->pcb);
	uint64_t bytes = 0;

	for (unsigned i = 0; p && i < LOOK_AT_PIECES; i++) {
		bytes += net_is_frame(p) ? p->len : net_mem_size(p);
		p = net_rxq_next(conn, p);
	}
	return p ? LWIP_MAX(bytes, max - LWIP_MIN(conn->pcb.rcv_wnd, max))
		 : bytes;
}

static uint64_t held_by(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const struct coro *co = conn->reader ? conn->reader : conn->writer;
	uint64_t bytes = OWN_BYTES;

	if (net_is_tls(conn))
		bytes += net_conn_tls(conn)->held;
	if (!conn->pcb_live) /* only this can be freed */
		return bytes + unread_by(conn);
	bytes += (uint64_t)pcb->snd_queuelen * 256;
	if (pcb->state >= ESTABLISHED && !has_lent_data(pcb))
		bytes += net_send_queued(pcb);
	bytes += net_ooseq_bytes(conn);
	if (conn->orphaned)
		return bytes;
	bytes += (uint64_t)conn->n_views * 1024;
	return bytes + unread_by(conn) + (co ? coro_stack_high_water(co) : 0);
}

/* Do bytes wait for its peer, which takes none, or for its handler? */
static bool is_stuck(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (!conn->orphaned && conn->rx_tail)
		return true;
	return (pcb->unsent || pcb->unacked) &&
	       (pcb->persist_on || pcb->nrtx || pcb->snd_wnd < pcb->mss);
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

void net_shortage_reset(struct net_conn *conn)
{
	net_here()->stats.memory_resets++;
	net_conn_discard(conn, -ENOBUFS, NET_END_MEMORY);
}

static void reset_conn(struct net_conn *conn, uint64_t bytes)
{
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr peer = net_peer_addr(conn);

	net_log_seldom_of(NET_COMPONENT_MEMORY,
			  "coronet: memory is short (%" PRIu64 " of %" PRIu64
			  " MiB): reset %s, which held %" PRIu64 " KiB",
			  net_budget_used() / MIB, net_budget_whole() / MIB,
			  net_addr_format(&peer, text, sizeof(text)),
			  bytes >> 10);
	net_shortage_reset(conn);
}

/* Counts or resets a connection; returns whether it was reset. */
static bool sweep_conn(struct net_conn *conn)
{
	uint64_t bytes = held_by(conn);
	unsigned class = class_of(conn, bytes);

	if (!shortage.resetting) {
		shortage.held[class] += bytes;
		return false;
	}
	if (class < shortage.from_class || !shortage.excess)
		return false;
	shortage.excess -= LWIP_MIN(bytes, shortage.excess);
	reset_conn(conn, bytes);
	return true;
}

/*
 * Sweeps one bucket; returns how many connections were looked at. After a reset
 * the bucket is another, and is begun again.
 */
static unsigned sweep_bucket(struct net_conn *conn, unsigned *resets)
{
	unsigned n = 0;

	for (; conn; conn = conn->pcb.hash_next, n++) {
		if (sweep_conn(conn)) {
			shortage.bucket--;
			++*resets;
			break;
		}
	}
	return n;
}

/*
 * Sweeps a part of the connections that have ended; returns whether these were
 * the last.
 */
static bool sweep_ended(unsigned conns, unsigned resets)
{
	struct net_conn *conn;

	while (conns++ < SWEEP_CONNS && resets < SWEEP_RESETS) {
		conn = net_ended_next(NET_ENDED_MEMORY);
		if (!conn)
			return true;
		if (conn->rx_tail)
			resets += sweep_conn(conn);
	}
	return false;
}

/* Returns the bytes that must go to leave room for a while. */
static uint64_t excess_now(void)
{
	uint64_t enough = net_budget_whole() - net_budget_whole() / 4;
	uint64_t now = net_budget_used();

	return now > enough ? now - enough : 0;
}

/* After the first sweep, which has seen all, chooses classes to reset. */
static void choose_victims(void)
{
	unsigned class = CLASSES;
	uint64_t sum = 0;

	shortage.excess = excess_now();
	while (class > VICTIM_CLASS && sum < shortage.excess)
		sum += shortage.held[--class];
	shortage.from_class = class;
	shortage.resetting = true;
	shortage.bucket = 0;
	net_ended_begin(NET_ENDED_MEMORY);
}

/*
 * Returns whether memory is short. That is so as well if chunks hold little,
 * but allocations find no room in them: only resets empty whole chunks.
 */
static bool must_sweep(void)
{
	uint64_t refused = shortage.refused;

	shortage.refused = net_here()->stats.memory_refused;
	return net_here()->memory_full ||
	       (net_budget_is_short() && shortage.refused != refused);
}

static void sweep_conns(void)
{
	unsigned conns = 0, resets = 0;
	uint32_t end;

	if (!shortage.sweeping) {
		if (!must_sweep())
			return;
		shortage.sweeping = true;
		shortage.resetting = false;
		shortage.bucket = 0;
		net_ended_begin(NET_ENDED_MEMORY);
		memset(shortage.held, 0, sizeof(shortage.held));
	}
	if (shortage.resetting) /* some may have gone by themselves */
		shortage.excess = LWIP_MIN(shortage.excess, excess_now());
	end = LWIP_MIN(shortage.bucket + SWEEP_BUCKETS,
		       net_here()->bucket_mask + 1);
	while (shortage.bucket < end && conns < SWEEP_CONNS &&
	       resets < SWEEP_RESETS)
		conns += sweep_bucket(net_here()->buckets[shortage.bucket++],
				      &resets);
	if (shortage.resetting && !shortage.excess)
		shortage.sweeping = false;
	else if (shortage.bucket <= net_here()->bucket_mask ||
		 !sweep_ended(conns, resets))
		return;
	else if (shortage.resetting)
		shortage.sweeping = false;
	else
		choose_victims();
}

/* ---- every millisecond ---- */

/* Reports a pool that has run empty. */
static void watch_pools(void)
{
	uint64_t no_frame = 0;

	for (unsigned i = 0; i < net_here()->n_ports; i++) {
		struct glue_port *port = net_here()->ports[i].glue;
		unsigned n = glue_port_frames_usable(port);

		no_frame += glue_port_no_frame(port);
		if (n >= GLUE_BURST)
			continue;
		net_here()->stats.pool_empty++;
		net_log_seldom_of(NET_COMPONENT_MEMORY,
				  "coronet: link %u: %u of %u frames are free, "
				  "%u are held by connections",
				  i, n, glue_port_frames(port),
				  net_here()->ports[i].frames_in);
	}
	if (no_frame != shortage.tx_no_frame)
		net_log_seldom_of(NET_COMPONENT_MEMORY,
				  "coronet: %" PRIu64
				  " frames could not be sent: "
				  "the pool was empty",
				  no_frame - shortage.tx_no_frame);
	shortage.tx_no_frame = no_frame;
}

void net_budget_tick(void)
{
	int64_t now = net_here()->now_ns;

	net_here()->next_budget_ns = now + TICK_NS;
	net_budget_changed(); /* coroutines take memory unnoticed */
	sweep_conns();
	net_frames_tick();
	net_carrier_tick();
	if (now >= shortage.next_trim_ns) {
		shortage.next_trim_ns = now + TRIM_NS;
		net_mem_trim();
	}
	if (now >= shortage.next_pool_ns) {
		shortage.next_pool_ns = now + POOL_NS;
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

/* Returns the memory limit of the process's control group, v2; 0: none. */
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

static uint64_t get_resident_bytes(void)
{
	return net_resident_kib() << 10;
}

void net_budget_fini(void)
{
	net_budget_set(0);
	memset(&shortage, 0, sizeof(shortage));
	net_frames_fini();
	net_ended_fini();
}

/* Returns what the program takes for n shards without a connection. */
static uint64_t taken_by(unsigned n)
{
	return get_resident_bytes() + n * shortage.headroom;
}

/*
 * Each shard has an equal part of what is left. The first refuses for all of
 * them, before any other runs; what they will take is not resident yet.
 */
int net_budget_open(struct net_opts *opts)
{
	unsigned n = net_here()->n_shards, later = n - 1 - net_here()->shard;
	uint64_t own, least;

	shortage.headroom =
		HEADROOM + (net_here()->bucket_mask + 1) * sizeof(void *);
	own = taken_by(n) + later * SHARD_OWN;
	least = own + n * LEAST;
	if (opts->memory_bytes && opts->memory_bytes < least &&
	    net_here()->shard == 0) {
		snprintf(opts->error, sizeof(opts->error),
			 "--memory %" PRIu64 "M: too little: the stack itself "
			 "takes %" PRIu64 " MiB%s; give %" PRIu64 "M or more",
			 opts->memory_bytes / MIB, own / MIB,
			 n > 1 ? " with so many shards" : "", least / MIB + 1);
		return -ENOMEM;
	}
	shortage.asked = opts->memory_bytes ? opts->memory_bytes
					    : LWIP_MAX(quarter_of_ram(),
						       own + n * DEFAULT_LEAST);
	net_budget_set((shortage.asked - LWIP_MIN(own, shortage.asked)) / n);
	return 0;
}

void net_budget_start(void)
{
	unsigned n = net_here()->n_shards;
	uint64_t own = taken_by(n), now = net_budget_used();

	if (!shortage.asked)
		return;
	own -= LWIP_MIN(now, own);
	if (own + n * LEAST > shortage.asked) {
		if (net_here()->shard == 0)
			net_log_of(NET_COMPONENT_MEMORY, NET_LOG_WARNING,
				   "coronet: --memory %" PRIu64
				   "M is too little: the program itself takes "
				   "%" PRIu64 " MiB; connections get %" PRIu64
				   " MiB nevertheless",
				   shortage.asked / MIB, own / MIB,
				   n * LEAST / MIB);
		net_budget_set(LEAST);
		return;
	}
	net_budget_set((shortage.asked - own) / n);
}
