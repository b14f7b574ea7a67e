/* The model of a wire: decides which frames leave, when, and how changed. */
#include "tests/wire/model.h"

#include <errno.h>
#include <stdlib.h>

enum chance { LOSS, DUPLICATE, CORRUPT, FLIP, REORDER, JITTER, N_CHANCES };

/* A frame that waits for the rate, or is being sent. */
struct waiting {
	int64_t done_ns;
	unsigned bytes;
};

struct wire_path {
	struct wire_conf conf;
	struct wire_stats stats;
	uint64_t random[N_CHANCES];
	int64_t last_ns; /* when the last frame that is not reordered leaves */
	int64_t free_ns; /* when the rate has room for another frame */
	uint64_t rest;	 /* of free_ns, in 1/rate_bps ns */
	uint64_t waiting_bytes;
	unsigned head, tail, max_pkts; /* of waiting[], a ring */
	struct waiting waiting[];
};

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t draw_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Evenly from 0 to limit - 1; limit at least 1. */
static uint64_t draw_below(uint64_t *state, uint64_t limit)
{
	return (uint64_t)(((unsigned __int128)draw_random(state) * limit) >>
			  64);
}

static bool happens(struct wire_path *path, enum chance chance, uint64_t odds)
{
	return odds && (draw_random(&path->random[chance]) >> 1) < odds;
}

void wire_conf_init(struct wire_conf *conf)
{
	*conf = (struct wire_conf){.down_ns = WIRE_NEVER, .up_ns = WIRE_NEVER};
}

int wire_path_open(const struct wire_conf *conf, uint64_t seed, unsigned number,
		   unsigned max_pkts, struct wire_path **out)
{
	struct wire_path *path;

	path = calloc(1, sizeof(*path) + max_pkts * sizeof(*path->waiting));
	if (!path)
		return -ENOMEM;
	path->conf = *conf;
	path->max_pkts = max_pkts;
	path->last_ns = INT64_MIN;
	path->free_ns = INT64_MIN;
	/* Sequences start far apart: at hashes of the seed and the number. */
	for (unsigned i = 0; i < number; i++)
		seed = draw_random(&seed);
	for (int i = 0; i < N_CHANCES; i++)
		path->random[i] = draw_random(&seed);
	*out = path;
	return 0;
}

void wire_path_close(struct wire_path *path)
{
	free(path);
}

const struct wire_stats *wire_path_stats(const struct wire_path *path)
{
	return &path->stats;
}

const struct wire_conf *wire_path_conf(const struct wire_path *path)
{
	return &path->conf;
}

void wire_path_change(struct wire_path *path, const struct wire_conf *conf)
{
	if (conf->delay_ns != path->conf.delay_ns)
		path->last_ns = INT64_MIN;
	if (conf->rate_bps != path->conf.rate_bps)
		path->rest = 0; /* of another unit */
	path->conf = *conf;
}

static bool is_down(const struct wire_path *path, int64_t at_ns)
{
	return at_ns >= path->conf.down_ns && at_ns < path->conf.up_ns;
}

static void retire_sent(struct wire_path *path, int64_t now_ns)
{
	while (path->head != path->tail) {
		const struct waiting *w =
			&path->waiting[path->head % path->max_pkts];

		if (w->done_ns > now_ns)
			break;
		path->waiting_bytes -= w->bytes;
		path->head++;
	}
}

/* Returns whether the queue has room. The frame being sent still counts. */
static bool has_room(const struct wire_path *path, unsigned bytes)
{
	unsigned n = path->tail - path->head;

	if (n == path->max_pkts)
		return false;
	if (path->conf.queue_pkts && n >= path->conf.queue_pkts)
		return false;
	return !path->conf.queue_bytes ||
	       path->waiting_bytes + bytes <= path->conf.queue_bytes;
}

/* Returns whether the queue that a frame is about to join marks it. */
static bool is_long(const struct wire_path *path)
{
	const struct wire_conf *conf = &path->conf;

	return (conf->mark_pkts &&
		path->tail - path->head >= conf->mark_pkts) ||
	       (conf->mark_bytes && path->waiting_bytes >= conf->mark_bytes);
}

/*
 * A token bucket for a single frame: frames leave one after the other at the
 * rate. Their times are kept to the fraction of a ns, so that the rate is exact
 * in the long run.
 */
static bool pass_rate(struct wire_path *path, int64_t now_ns, unsigned bytes,
		      struct wire_fate *fate)
{
	fate->leaves_ns = now_ns;
	fate->mark = false;
	if (!path->conf.rate_bps)
		return true;
	retire_sent(path, now_ns);
	if (!has_room(path, bytes))
		return false;
	fate->mark = is_long(path);
	if (path->free_ns < now_ns) {
		path->free_ns = now_ns;
		path->rest = 0;
	}
	path->rest += (uint64_t)bytes * 8 * 1000000000;
	path->free_ns += (int64_t)(path->rest / path->conf.rate_bps);
	path->rest %= path->conf.rate_bps;
	path->waiting[path->tail++ % path->max_pkts] =
		(struct waiting){.done_ns = path->free_ns, .bytes = bytes};
	path->waiting_bytes += bytes;
	fate->leaves_ns = path->free_ns;
	return true;
}

/* Jitter alone does not reorder: an early frame waits for the one before. */
static int64_t add_delay(struct wire_path *path, int64_t at_ns)
{
	at_ns += path->conf.delay_ns;
	if (path->conf.jitter_ns)
		at_ns +=
			(int64_t)draw_below(&path->random[JITTER],
					    (uint64_t)path->conf.jitter_ns + 1);
	return at_ns < path->last_ns ? path->last_ns : at_ns;
}

/*
 * The Ethernet header is not corrupted: a NIC drops a frame with a wrong CRC,
 * and a wrong address would merely lose the frame.
 */
static uint32_t choose_bit(struct wire_path *path, unsigned bytes)
{
	unsigned first = bytes > WIRE_ETH_BYTES ? WIRE_ETH_BYTES : 0;

	if (bytes == 0)
		return WIRE_INTACT;
	return first * 8 +
	       (uint32_t)draw_below(&path->random[FLIP], (bytes - first) * 8);
}

/* Decides whether one copy leaves, when, and how changed. */
static bool pass_frame(struct wire_path *path, int64_t now_ns, unsigned bytes,
		       struct wire_fate *fate)
{
	bool held_back;

	if (!pass_rate(path, now_ns, bytes, fate)) {
		path->stats.queue_dropped++;
		return false;
	}
	fate->leaves_ns = add_delay(path, fate->leaves_ns);
	held_back = happens(path, REORDER, path->conf.reorder);
	if (held_back)
		fate->leaves_ns += path->conf.reorder_by_ns;
	else
		path->last_ns = fate->leaves_ns;
	if (is_down(path, fate->leaves_ns)) {
		path->stats.down++;
		return false;
	}
	path->stats.reordered += held_back;
	fate->flip = WIRE_INTACT;
	if (happens(path, CORRUPT, path->conf.corrupt)) {
		fate->flip = choose_bit(path, bytes);
		path->stats.corrupted++;
	}
	return true;
}

unsigned wire_path_offer(struct wire_path *path, int64_t now_ns, unsigned bytes,
			 struct wire_fate *fates)
{
	unsigned copies = 1, n = 0;

	path->stats.in_frames++;
	path->stats.in_bytes += bytes;
	if (is_down(path, now_ns)) {
		path->stats.down++;
		return 0;
	}
	if (path->conf.mtu && bytes > path->conf.mtu + WIRE_ETH_BYTES) {
		path->stats.too_big++;
		return 0;
	}
	if (happens(path, LOSS, path->conf.loss)) {
		path->stats.lost++;
		return 0;
	}
	if (happens(path, DUPLICATE, path->conf.duplicate)) {
		path->stats.duplicated++;
		copies = WIRE_COPIES;
	}
	for (unsigned i = 0; i < copies; i++)
		n += pass_frame(path, now_ns, bytes, &fates[n]);
	return n;
}
