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
 *      for sending. If the pool is still empty after GRACE_NS, the views of its
 *      frames are counted, and a sweep looks for the connection that holds most
 *      of these frames.
 *   3. The shards bid. The one with the greatest holder sweeps once more, and
 *      resets the first connection that holds about as many frames. Then step 2
 *      begins again, on every shard.
 *
 * So the program resets one connection per GRACE_NS, whichever shard has it. A
 * shard that stands still loses its bid after that time.
 */
#include "netstack/shard/shard.h"

#include <limits.h>
#include <string.h>

#include "netstack/api/api.h"
#include "netstack/conn/end.h"
#include "netstack/conn/ended.h"
#include "netstack/program/log.h"
#include "netstack/tcp/tcp.h"

/* Bounds of a millisecond's part of a sweep. */
#define SWEEP_BUCKETS 4096u
#define SWEEP_CONNS   256u
#define SWEEP_VIEWS   4096u

#define GRACE_MS 100u
#define GRACE_NS (GRACE_MS * INT64_C(1000000))

/* How long a bid waits for higher ones: sweeps take different times. */
#define BID_MS 50u

/* Connections that hold fewer frames than this are not reset. */
#define VICTIM_FRAMES 16u

enum phase { IDLE, COPY, WAIT, COUNT, SEARCH, BID, RESET };

/*
 * The highest bid, or when a connection was last reset. While shards run it is
 * written only by compare-and-swap, and read only while a pool is empty.
 *
 *   bits 0 to 7    the bidder's shard plus 1; 0: there is no bid
 *   bits 8 to 31   frames that its connection holds
 *   bits 32 to 63  the time, in ms
 */
static uint64_t highest; /* atomic */

static NET_SHARD_VAR struct {
	enum phase phase;
	uint32_t bucket;      /* the next one of the sweep; COUNT: slot */
	unsigned most_frames; /* that a connection was seen to hold */
	int64_t waits_ns;     /* since when it waits for frames to return */
	uint64_t bid;	      /* this shard's, in BID and RESET */
} sweep;
#define sweep NET_SHARD(sweep)

/*
 * Views of scarce frames, by a hash of their connection: no fewer than it has,
 * and rarely more. A connection has no room for a count of its own.
 */
#define VIEW_CELLS_SHIFT 10
static NET_SHARD_VAR uint8_t view_cells[1u << VIEW_CELLS_SHIFT];
#define view_cells NET_SHARD(view_cells)

/* Notes the empty pools of each port; returns whether there are any. */
static bool any_empty_pool(void)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < net_here()->n_ports; i++) {
		struct net_port *port = &net_here()->ports[i];

		port->empty_pools = glue_port_empty_pools(port->glue);
		any |= port->empty_pools;
	}
	return any != 0;
}

static uint8_t *view_cell(const struct net_conn *conn)
{
	uint32_t line = (uint32_t)((uintptr_t)conn / 64);

	/* by Knuth's multiplier */
	return &view_cells[line * 2654435761u >> (32 - VIEW_CELLS_SHIFT)];
}

static void count_view(const struct net_conn *conn, const struct pbuf *p)
{
	uint8_t *cell = view_cell(conn);

	if (*cell < NET_VIEWS_FRAMES && net_is_scarce_frame(p))
		(*cell)++;
}

/* Frames of empty pools that a connection's views hold. */
static unsigned frames_in_views(const struct net_conn *conn)
{
	return LWIP_MIN(conn->n_views, *view_cell(conn));
}

/* Frames of empty pools that a connection holds. */
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
	return n + frames_in_views(conn) + net_rxq_frames(conn);
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

/* ---- bids ---- */

static uint64_t make_bid(unsigned frames, unsigned bidder)
{
	return (uint64_t)net_now_ms() << 32 |
	       (uint64_t)LWIP_MIN(frames, 0xffffffu) << 8 | bidder;
}

static unsigned bidder_here(void)
{
	return net_here()->shard + 1;
}

/* The clocks of shards differ by the length of a round. */
static bool is_older(uint64_t bid, uint32_t ms)
{
	uint32_t age = net_now_ms() - (uint32_t)(bid >> 32);

	return age >= ms && -age >= ms;
}

static uint64_t highest_bid(void)
{
	return __atomic_load_n(&highest, __ATOMIC_ACQUIRE);
}

static bool replace_bid(uint64_t old, uint64_t new)
{
	return __atomic_compare_exchange_n(&highest, &old, new, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Whether this shard may bid with a connection that holds this many frames. */
static bool may_bid(uint64_t seen, unsigned frames)
{
	unsigned bidder = seen & 0xff;

	return is_older(seen, GRACE_MS) || bidder == bidder_here() ||
	       (bidder && frames > (seen >> 8 & 0xffffff));
}

/* Another shard's bid may come in between, at most one of each shard. */
static bool place_bid(void)
{
	uint64_t seen;

	sweep.bid = make_bid(sweep.most_frames, bidder_here());
	do {
		seen = highest_bid();
		if (!may_bid(seen, sweep.most_frames))
			return false;
	} while (!replace_bid(seen, sweep.bid));
	return true;
}

/* Keeps the bid from becoming old; returns false if it was replaced. */
static bool renew_bid(void)
{
	uint64_t bid = make_bid(sweep.most_frames, bidder_here());

	if (!replace_bid(sweep.bid, bid))
		return false;
	sweep.bid = bid;
	return true;
}

/* Ends the bid with a reset; returns false if it was replaced. */
static bool claim_reset(void)
{
	return replace_bid(sweep.bid, make_bid(0, 0));
}

/* ---- sweeps ---- */

/* Returns whether the sweep ends: conn was reset, or the bid was replaced. */
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
	if (claim_reset())
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
	if (phase == COUNT)
		memset(view_cells, 0, sizeof(view_cells));
}

static void end_sweep(void)
{
	switch (sweep.phase) {
	case COPY:
		begin_wait();
		break;
	case SEARCH:
		if (sweep.most_frames < VICTIM_FRAMES)
			sweep.phase = IDLE;
		else if (place_bid())
			sweep.phase = BID;
		else
			begin_wait();
		break;
	case RESET: /* the holder has let go meanwhile */
		replace_bid(sweep.bid, 0);
		sweep.phase = WAIT;
		break;
	case IDLE:
	case WAIT:
	case COUNT:
	case BID:
		break;
	}
}

static void count_some_views(void)
{
	if (!net_views_visit(&sweep.bucket, SWEEP_VIEWS, count_view))
		begin_sweep(SEARCH);
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

/* Frames have returned: nothing more is copied or reset. */
static void end_shortage(void)
{
	if (sweep.phase == BID || sweep.phase == RESET)
		replace_bid(sweep.bid, 0);
	sweep.phase = IDLE;
}

/* Searches when frames had their time to return, also since a reset. */
static void end_grace(void)
{
	if (net_here()->now_ns >= sweep.waits_ns + GRACE_NS &&
	    may_bid(highest_bid(), UINT_MAX))
		begin_sweep(COUNT);
}

static void await_bids(void)
{
	if (highest_bid() != sweep.bid)
		begin_wait();
	else if (is_older(sweep.bid, net_here()->n_shards > 1 ? BID_MS : 0))
		begin_sweep(RESET);
}

static void act_on_shortage(void)
{
	switch (sweep.phase) {
	case IDLE:
		begin_sweep(COPY);
		break;
	case WAIT:
		end_grace();
		break;
	case BID:
		await_bids();
		break;
	case RESET:
		if (renew_bid())
			sweep_some();
		else
			begin_wait();
		break;
	case COUNT:
		count_some_views();
		break;
	case COPY:
	case SEARCH:
		sweep_some();
		break;
	}
}

void net_frames_tick(void)
{
	if (any_empty_pool()) {
		net_udp_copy_frames();
		act_on_shortage();
	} else if (sweep.phase == COPY) {
		sweep_some(); /* leaves frames for the next burst */
	} else {
		end_shortage();
	}
}

void net_frames_fini(void)
{
	memset(&sweep, 0, sizeof(sweep));
	/* Other shards are closing, too, and the next clock may differ. */
	__atomic_store_n(&highest, 0, __ATOMIC_RELEASE);
}
