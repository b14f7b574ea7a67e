/*
 * A shard: its loop, its statistics, and who goes when memory is short.
 */
#pragma once

#include "netstack/control/control.h"

/* ---- stack.c ---- */
/* What the shards share: the log, DPDK. Returns 0, or -errno with opts->error.
 */
int net_program_open(struct net_opts *opts);
void net_program_close(void);
/* Fills in opts->error where nothing has said more of an error. */
void net_explain(struct net_opts *opts, int err);
/*
 * Opens the shard of this thread, one of opts->shards. Returns 0 or -errno,
 * with opts->error set where there is more to say than errno does.
 */
int net_shard_open(struct net_opts *opts, unsigned shard);
void net_shard_close(struct net_stack *stack);
/* This thread runs the shard from now on; NULL: it runs none. No other thread
 * may run that shard. */
void net_shard_enter(struct net_stack *stack);
/* Until the program stops and this shard has drained. */
void net_shard_run(struct net_stack *stack);
/* One turn of the loop: rx, run, output, timers, tx. How much was to do. */
unsigned net_stack_work(struct net_stack *stack);
/* The same, and then net_idle(). */
void net_stack_round(struct net_stack *stack);

/* ---- idle.c ---- */
/* Once the links are open. */
void net_idle_start(struct net_stack *stack);
/* The end of a round that did so much work; sleeps until until_ns at most. */
void net_idle(struct net_stack *stack, unsigned work, int64_t until_ns);

/* ---- shards.c ---- */
/* On shard 0, when statistics are due: asks all shards, and says them. */
void net_shards_say_stats(struct net_stack *stack);

/* ---- stats.c ---- */
void net_stats_start(struct net_stack *stack);
uint64_t net_resident_kib(void); /* hugepages included; reads a file */
/*
 * A line for all shards, and one for each of several: what n shards counted by
 * now, and had s seconds before.
 */
void net_stats_say(const struct net_stack *stack, const struct net_stats *now,
		   const struct net_stats *was, unsigned n, double s);
void net_stats_sum(struct net_stats *out, const struct net_stats *shards,
		   unsigned n);

/* ---- shortage.c ---- */
/* When all that a stack needs is there; -ENOMEM: --memory is too little. */
int net_budget_open(struct net_opts *opts);
void net_budget_fini(void);
/* The program is set up: what it took meanwhile is its own. */
void net_budget_start(void);
void net_budget_tick(void); /* when next_budget_ns has come */
/* Resets a connection for want of memory or frames; its calls say -ENOBUFS. */
void net_shortage_reset(struct net_conn *conn);

/* ---- frames.c ---- */
void net_frames_tick(void); /* every millisecond */
void net_frames_fini(void);
