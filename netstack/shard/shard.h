/*
 * A shard: its loop, its statistics, and the choice of connections to reset
 * when memory is short.
 */
#pragma once

#include "netstack/control/control.h"

/* ---- stack.c ---- */
/*
 * Opens what the shards share: the log, DPDK. Returns 0, or -errno with
 * opts->error set.
 */
int net_program_open(struct net_opts *opts);
void net_program_close(void);
/* Describes err in opts->error, unless opts->error is set already. */
void net_explain(struct net_opts *opts, int err);
/*
 * Opens the shard of this thread, one of opts->shards. Returns 0 or -errno,
 * with opts->error set if errno alone does not explain the error.
 */
int net_shard_open(struct net_opts *opts, unsigned shard);
void net_shard_close(struct net_stack *stack);
/*
 * Makes the calling thread run the shard from now on; NULL: no shard. No other
 * thread may run that shard.
 */
void net_shard_enter(struct net_stack *stack);
/* Runs the shard until the program stops and this shard has drained. */
void net_shard_run(struct net_stack *stack);
/*
 * One turn of the loop: rx, run, output, timers, tx. Returns the work it found.
 */
unsigned net_stack_work(struct net_stack *stack);
/* net_stack_work(), and then net_idle(). */
void net_stack_round(struct net_stack *stack);

/* ---- idle.c ---- */
/* Called once the links are open. */
void net_idle_start(struct net_stack *stack);
/* Ends a round that did `work`; may sleep, at most until until_ns. */
void net_idle(struct net_stack *stack, unsigned work, int64_t until_ns);

/* ---- checks.c ---- */
/*
 * For opts->check: checks the options of what the program would share with
 * others, and puts memory in its place. Returns 0 or -errno; for a wrong option
 * that is -EINVAL, with opts->error set.
 */
int net_check_replaced(struct net_opts *opts);

/* ---- shards.c ---- */
/* Returns whether the program only checks its options. */
bool net_program_checks(void);
/*
 * On shard 0, when statistics are due: collects those of all shards and logs
 * them.
 */
void net_shards_say_stats(struct net_stack *stack);

/* ---- stats.c ---- */
/* Called once the shard is open: notes how much memory the process holds. */
void net_stats_start(void);
uint64_t net_resident_kib(void); /* hugepages included; reads a file */
/*
 * Logs a line for all n shards together and, if n > 1, one for each. now: their
 * counters; was: their counters s seconds ago.
 */
void net_stats_log(const struct net_stack *stack, const struct net_stats *now,
		   const struct net_stats *was, unsigned n, double s);
void net_stats_sum(struct net_stats *out, const struct net_stats *shards,
		   unsigned n);

/* ---- shortage.c ---- */
/*
 * Called when the stack has allocated everything that it needs. Returns 0, or
 * -ENOMEM if --memory is too small.
 */
int net_budget_open(struct net_opts *opts);
void net_budget_fini(void);
/*
 * Called once the program is set up: memory that it has allocated so far is not
 * charged to the stack.
 */
void net_budget_start(void);
void net_budget_tick(void); /* when next_budget_ns has come */
/* Resets a connection to free memory or frames; its calls return -ENOBUFS. */
void net_shortage_reset(struct net_conn *conn);

/* ---- carrier.c ---- */
void net_carrier_tick(void); /* every millisecond */

/* ---- frames.c ---- */
void net_frames_tick(void); /* every millisecond */
void net_frames_fini(void);
