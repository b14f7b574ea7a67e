/*
 * The table of counters. It has an entry for each member of struct net_stats:
 * its metric, the counter of a port that is its value, if there is one, and
 * whether `coronet-ctl shards` gets it. The sums over ports and shards, the
 * page for Prometheus and the list of shards are made from it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <coronet/net.h>
#include <coronet/net_control.h>

/* A member of struct net_stats, one value of a metric. */
struct net_counter {
	const char *label; /* the value of the metric's label; NULL: none */
	const char *name;  /* the member's, and its key in JSON */
	size_t at, bytes;  /* where it is; unsigned, 64 bits, or a net_hist */
	bool is_listed;	   /* by `coronet-ctl shards` */
	size_t port_at; /* 1 + its place in struct glue_port_stats; 0: none */
};

/* A metric with all its values. */
struct net_metric_family {
	const char *metric, *help, *label; /* label NULL: the shard alone */
	struct net_counter counters[24];   /* the first n */
	unsigned n;
	enum net_metric_type type;
	bool in_ns;	 /* the metric is in seconds */
	bool is_program; /* the program's: each shard reports the same value */
};
extern const struct net_metric_family net_metric_families[]
	__attribute__((visibility("hidden")));
extern const unsigned net_n_metric_families
	__attribute__((visibility("hidden")));

/* The value of a counter that is not a net_hist. */
uint64_t net_counter_value(const struct net_stats *stats,
			   const struct net_counter *counter);
