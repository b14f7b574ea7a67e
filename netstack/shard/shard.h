/*
 * A shard: its loop, its statistics, and who goes when memory is short.
 */
#pragma once

#include "netstack/api/api.h"

/* ---- stack.c ---- */
/* One turn of the loop: rx, run, output, timers, tx, idle. */
void net_stack_round(struct net_stack *stack);

/* ---- stats.c ---- */
void net_stats_start(struct net_stack *stack);
uint64_t net_resident_kib(void); /* hugepages included; reads a file */
void net_stats_say(struct net_stack *stack);

/* ---- shortage.c ---- */
/* When all that a stack needs is there; -ENOMEM: --memory is too little. */
int net_budget_open(struct net_opts *opts);
void net_budget_fini(void);
/* The program is set up: what it took meanwhile is its own. */
void net_budget_start(void);
void net_budget_tick(void); /* when next_budget_ns has come */
