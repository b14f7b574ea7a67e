/*
 * The control plane: a socket that speaks the protocol of DPDK's telemetry, a
 * page for Prometheus, and the thread that serves both.
 *
 * On polling threads it runs only the steps of net_ask, which are posted there
 * and bounded, and the coroutines that serve the page on the stack's own
 * network (scrape.c). Without requests it costs nothing. The control thread
 * touches no state of a shard.
 */
#pragma once

#include "netstack/api/api.h"

/*
 * Opens the sockets of opts->control and opts->metrics, before DPDK pins the
 * thread. Without either it does nothing. Returns 0, or -errno with opts->error
 * set.
 */
int net_control_open(struct net_opts *opts);
/*
 * Returns whether a program with opts->control could start now, or beside the
 * one that uses the socket; nothing is opened. Returns 0, or -errno with one
 * clear line in err.
 */
int net_control_check(const struct net_opts *opts, char *err, size_t err_len);
/*
 * Called when the shards are open but do not run yet: enables requests to them,
 * and makes them listen if opts->metrics is an address of the stack. Returns 0,
 * or -errno with opts->error set.
 */
int net_control_ready(struct net_opts *opts, unsigned n_shards);
/*
 * Called when shard 0 makes no more rounds: requests that wait for a shard fail
 * with -ESHUTDOWN soon, and later requests are refused.
 */
void net_ask_shut(void);
/* Ends the thread, closes every connection, removes the socket. */
void net_control_close(void);
