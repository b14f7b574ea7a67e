/*
 * The model of a wire: which of the frames that enter one end leave at the
 * other, when, and how changed.
 *
 * A path is one direction. It knows lengths and times alone, never a frame,
 * and draws every chance from the seed: the same frames at the same times
 * meet the same fate. Each impairment draws from a sequence of its own, so
 * that another delay, say, does not lose other frames.
 *
 * A frame passes, in this order: link down, path MTU, loss, duplication; then
 * each copy by itself: the queue and the rate, delay and jitter, reordering,
 * corruption.
 * Times are ns since an origin that the caller chooses and never decrease.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WIRE_SURE      (UINT64_C(1) << 63) /* the chance of a certain event */
#define WIRE_NEVER     INT64_MAX
#define WIRE_INTACT    UINT32_MAX /* no bit is flipped */
#define WIRE_COPIES    2	  /* of one frame, at most */
#define WIRE_ETH_BYTES 14	  /* no part of a packet; never corrupted */

struct wire_conf {
	uint64_t loss, duplicate, corrupt, reorder; /* chances of WIRE_SURE */
	int64_t delay_ns;
	int64_t jitter_ns;	/* added to the delay, evenly from 0 */
	int64_t reorder_by_ns;	/* how long a reordered frame is held back */
	uint64_t rate_bps;	/* bits a second; 0: no limit */
	uint64_t queue_pkts;	/* waiting for the rate; 0: no limit */
	uint64_t queue_bytes;	/* the same in bytes; 0: no limit */
	uint64_t mark_pkts;	/* queue length that marks; 0: never */
	uint64_t mark_bytes;	/* the same in bytes; 0: never */
	int64_t down_ns, up_ns; /* the link is down in between */
	unsigned mtu;		/* bytes of IP packet that pass; 0: no limit */
	bool send_too_big;	/* to the sender of a packet over the MTU */
};

struct wire_fate {
	int64_t leaves_ns;
	uint32_t
		flip; /* the bit, counted from the frame's first; WIRE_INTACT */
	bool mark;    /* the queue is long: mark an ECN-capable packet */
};

/*
 * in_frames + duplicated = the copies that leave + too_big + lost + down +
 * queue_dropped.
 */
struct wire_stats {
	uint64_t in_frames, in_bytes;
	uint64_t lost;
	uint64_t down; /* arrived, or would have left, while down */
	uint64_t too_big;
	uint64_t duplicated;
	uint64_t queue_dropped;
	uint64_t reordered; /* of those that leave, as is the next */
	uint64_t corrupted;
};

struct wire_path;

/* A conf that changes nothing. */
void wire_conf_init(struct wire_conf *conf);

/*
 * max_pkts bounds the queue before the rate, whatever conf allows. The number
 * gives each path of one seed sequences of its own. Returns 0 or -ENOMEM; *out
 * is owned by the caller.
 */
int wire_path_open(const struct wire_conf *conf, uint64_t seed, unsigned number,
		   unsigned max_pkts, struct wire_path **out);
void wire_path_close(struct wire_path *path);

/*
 * Decides the fate of a frame of so many bytes that arrives now. Returns the
 * number of copies that leave, 0 to WIRE_COPIES, and fills in as many fates.
 */
unsigned wire_path_offer(struct wire_path *path, int64_t now_ns, unsigned bytes,
			 struct wire_fate *fates);

/* Borrowed, valid until the path closes, as is the next. */
const struct wire_conf *wire_path_conf(const struct wire_path *path);

/*
 * Applies conf to new frames. Frames under way leave when they were to leave: a
 * queue drains at the rate it was filled at, and a frame with a shorter delay
 * overtakes those under way, as on a new route.
 */
void wire_path_change(struct wire_path *path, const struct wire_conf *conf);

const struct wire_stats *wire_path_stats(const struct wire_path *path);
