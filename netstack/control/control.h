/*
 * The control plane: a socket that speaks the protocol of DPDK's telemetry, a
 * page for Prometheus, and the thread that serves both.
 *
 * On polling threads it runs only the steps of net_ask, which are posted there
 * and bounded, and the coroutines that serve the page on the stack's own
 * network (scrape.c). A program without requests pays nothing. The control
 * thread touches no state of a shard.
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
 * The shards are open and do not run yet: requests to them work from now on,
 * and they listen if opts->metrics is an address of the stack. Returns 0, or
 * -errno with opts->error set.
 */
int net_control_ready(struct net_opts *opts, unsigned n_shards);
/* Ends the thread, closes every connection, removes the socket. */
void net_control_close(void);
