/*
 * The control plane: a socket that speaks the protocol of DPDK's telemetry, a
 * page for Prometheus, and the thread that serves both.
 *
 * Nothing of it runs on a polling thread but the steps of net_ask, which are
 * posted there and bounded, and coroutines that serve the page on the stack's
 * own network (scrape.c), so a program that nobody asks pays nothing. The
 * thread touches no state of a shard.
 */
#pragma once

#include "netstack/api/api.h"

/*
 * Opens what opts->control and opts->metrics name, before DPDK pins the thread.
 * Returns 0, or -errno with opts->error set. Without either it does nothing.
 */
int net_control_open(struct net_opts *opts);
/*
 * The shards are open and do not run yet: they can be asked from now on, and
 * listen where opts->metrics is an address of the stack's. Returns 0, or -errno
 * with opts->error set.
 */
int net_control_ready(struct net_opts *opts, unsigned n_shards);
/* Ends the thread, closes every connection, removes the socket. */
void net_control_close(void);
