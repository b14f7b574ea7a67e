/*
 * A thread's part of a load run: a range of its connections, with their
 * requests of the open loop's even stream (load_stats.h). Any thread may call
 * this.
 */
#pragma once

#include <stdint.h>

#include "apps/load/load_opts.h"
#include "apps/load/load_stats.h"

struct load_part {
	uint32_t first; /* number of its first connection in the run */
	uint32_t count; /* at least 1 */
};

/* Returns how many of n threads have connections. */
static inline unsigned load_parts(const struct load_opts *opts, unsigned n)
{
	return n < opts->conns ? n : opts->conns;
}

/*
 * Part k of n, which load_parts() has returned. Sizes differ by at most one.
 */
static inline struct load_part load_part_of(const struct load_opts *opts,
					    unsigned k, unsigned n)
{
	uint64_t conns = opts->conns;
	uint32_t first = (uint32_t)(conns * k / n);
	uint32_t end = (uint32_t)(conns * (k + 1) / n);

	return (struct load_part){.first = first, .count = end - first};
}

/*
 * Returns how many of the part's connections the ramp allows to have been
 * opened.
 */
static inline uint32_t load_part_may_open(const struct load_part *part,
					  const struct load_stats *stats,
					  int64_t now_ns)
{
	uint64_t all = load_stats_may_open(stats, now_ns);
	uint64_t conns = stats->opts->conns;

	return (uint32_t)((all * part->count + conns - 1) / conns);
}

/*
 * Returns when the part's request number `turn` (from 0) is due. It belongs to
 * the part's connection turn % count.
 */
static inline int64_t load_part_due(const struct load_part *part,
				    const struct load_stats *stats,
				    uint64_t turn)
{
	return load_turn_due(stats, turn / part->count * stats->opts->conns +
					    part->first + turn % part->count);
}

/* The part's first request that is due at now_ns or later, approximately. */
static inline uint64_t load_part_turn_at(const struct load_part *part,
					 const struct load_stats *stats,
					 int64_t now_ns)
{
	uint64_t turn = load_turn_at(stats, now_ns);
	uint64_t round = turn / stats->opts->conns;
	uint64_t at = turn % stats->opts->conns;

	if (at < part->first)
		at = 0;
	else if (at - part->first < part->count)
		at -= part->first;
	else
		at = part->count;
	return round * part->count + at;
}
