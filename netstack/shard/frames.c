/*
 * Frees frames when the frames of a link run out.
 *
 * Connections hold received frames up to a limit, and copy data beyond it
 * (conn/rxq.c), so that frames are left for receiving. If a pool still runs
 * empty, every shard whose link receives into it acts, since any of them may
 * hold its frames:
 *
 *   1. A sweep over all connections, and those that have ended with unread
 *      bytes, copies the frames that they hold into memory, a part every
 *      millisecond.
 *   2. Frames that cannot be copied are held by handlers, as views, or queued
 *   for sending. If the pool is still empty after GRACE_NS, a sweep
 *      looks for the connection that holds most frames, and the next one resets
 *      the first that holds about as many; then step 2 begins again.
 */
#include "netstack/shard/shard.h"

#include <string.h>

#include "netstack/api/api.h"
#include "netstack/conn/end.h"
#include "netstack/conn/ended.h"
#include "netstack/program/log.h"
#include "netstack/tcp/tcp.h"

/* Bounds of a millisecond's part of a sweep. */
#define SWEEP_BUCKETS 4096u
#define SWEEP_CONNS   256u

#define GRACE_NS INT64_C(100000000)

/* Connections that hold fewer frames than this are not reset. */
#define VICTIM_FRAMES 16u

enum phase { IDLE, COPY, WAIT, SEARCH, RESET };

static NET_SHARD_VAR struct {
	enum phase phase;
	uint32_t bucket;      /* the next one of the sweep */
	unsigned most_frames; /* that a connection was seen to hold */
	int64_t waits_ns;     /* since when it waits for frames to return */
} sweep;
#define sweep NET_SHARD(sweep)

static bool any_exhausted(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		if (glue_port_frames_exhausted(net_here()->ports[i].glue))
			return true;
	return false;
}

static unsigned frames_held(const struct net_conn *conn)
{
	unsigned n;

	if (!conn->pcb_live) /* a reset does not take its views away */
		return net_rxq_frames(conn);
	n = net_ooseq_frames(conn);
	if (net_send_lends_frames(conn))
		n += conn->pcb.snd_queuelen;
	if (conn->orphaned)
		return n;
	return n + LWIP_MIN(conn->n_views, NET_VIEWS_FRAMES) +
	       net_rxq_frames(conn);
}

static void reset_holder(struct net_conn *conn, unsigned frames)
{
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr peer = net_peer_addr(conn);

	net_log_seldom_of(NET_COMPONENT_MEMORY,
			  "coronet: a link has no free frames: reset %s, whose "
			  "handler holds %u",
			  net_addr_format(&peer, text, sizeof(text)), frames);
	net_shortage_reset(conn);
}

/* The frames of a reset connection return when its handler does. */
static void begin_wait(void)
{
	sweep.phase = WAIT;
	sweep.waits_ns = net_here()->now_ns;
}

/* Returns whether it was reset, which ends the sweep. */
static bool sweep_conn(struct net_conn *conn)
{
	unsigned frames;

	if (sweep.phase == COPY) {
		net_rxq_copy_frames(conn);
		if (conn->pcb_live)
			net_ooseq_copy_frames(conn);
		return false;
	}
	frames = frames_held(conn);
	if (sweep.phase == SEARCH) {
		sweep.most_frames = LWIP_MAX(sweep.most_frames, frames);
		return false;
	}
	if (frames < sweep.most_frames / 2 || frames < VICTIM_FRAMES)
		return false;
	begin_wait();
	reset_holder(conn, frames);
	return true;
}

/*
 * Sweeps one bucket, which a reset changes. Returns how many connections were
 * looked at.
 */
static unsigned sweep_bucket(struct net_conn *conn)
{
	unsigned n = 0;

	for (; conn; conn = conn->pcb.hash_next, n++)
		if (sweep_conn(conn))
			break;
	return n;
}

/*
 * Sweeps a part of the connections that have ended; returns whether these were
 * the last.
 */
static bool sweep_ended(unsigned conns)
{
	struct net_conn *conn;

	while (conns++ < SWEEP_CONNS) {
		conn = net_ended_next(NET_ENDED_FRAMES);
		if (!conn || sweep_conn(conn))
			return true;
	}
	return false;
}

static void begin_sweep(enum phase phase)
{
	sweep.phase = phase;
	sweep.bucket = 0;
	net_ended_begin(NET_ENDED_FRAMES);
	if (phase == SEARCH)
		sweep.most_frames = 0;
}

static void end_sweep(void)
{
	switch (sweep.phase) {
	case COPY:
		begin_wait();
		break;
	case SEARCH:
		begin_sweep(sweep.most_frames >= VICTIM_FRAMES ? RESET : IDLE);
		break;
	case RESET: /* the holder has let go meanwhile */
		sweep.phase = WAIT;
		break;
	case IDLE:
	case WAIT:
		break;
	}
}

static void sweep_some(void)
{
	uint32_t end = LWIP_MIN(sweep.bucket + SWEEP_BUCKETS,
				net_here()->bucket_mask + 1);
	unsigned conns = 0;

	while (sweep.bucket < end && conns < SWEEP_CONNS && sweep.phase != WAIT)
		conns += sweep_bucket(net_here()->buckets[sweep.bucket++]);
	if (sweep.phase == WAIT ||
	    (sweep.bucket > net_here()->bucket_mask && sweep_ended(conns)))
		end_sweep();
}

void net_frames_tick(void)
{
	bool exhausted = any_exhausted();

	if (exhausted)
		net_udp_copy_frames();
	switch (sweep.phase) {
	case IDLE:
		if (exhausted)
			begin_sweep(COPY);
		break;
	case WAIT:
		if (!exhausted)
			sweep.phase = IDLE;
		else if (net_here()->now_ns >= sweep.waits_ns + GRACE_NS)
			begin_sweep(SEARCH);
		break;
	case COPY:
	case SEARCH:
	case RESET:
		sweep_some();
		break;
	}
}

void net_frames_fini(void)
{
	memset(&sweep, 0, sizeof(sweep));
}
