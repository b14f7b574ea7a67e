/*
 * Keeps memif links alive. Private to dpdk_glue/.
 *
 * As a server: a thread a link runs the relay (memif_relay.h), which keeps
 * strangers from DPDK and makes a removed socket again.
 *
 * As a client: DPDK connects once, when the port starts, and fails to start it
 * without a server, which is therefore waited for. Later, while the link is
 * down, DPDK's interrupt thread looks five times a second whether a server
 * listens at the path, and then stops and starts the port. The polling threads
 * leave the port alone meanwhile (n_active is 0).
 *
 * Queues: DPDK's server refuses a client that has more rings than it, and reads
 * a client's first rings twice where the client has fewer. So the relay counts
 * the rings of each client, before DPDK hears that it is connected, and only so
 * many queues are polled; and its greeting tells clients of this kind how many
 * it has.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

/*
 * DPDK listens at inner_path; clients of links[index] are to find it at path,
 * and be told of n_queues; the file there has this mode. Returns 0 or
 * -errno: of a socket call, -EAGAIN or -ENOMEM (no thread).
 */
int glue_memif_serve(unsigned index, const char *path, const char *inner_path,
		     mode_t mode, unsigned n_queues);

/*
 * A server's device, which is told how many queues each client has, until it is
 * detached; with any other device both do nothing.
 */
void glue_memif_attach(struct glue_device *device);
void glue_memif_detach(struct glue_device *device);

/*
 * Starts the port of a device, of any kind of link. A memif client that cannot
 * connect retries for 10 s at most. Returns 0, or
 * -errno with one line in err: what keeps a client from its server, or what
 * DPDK returns.
 */
int glue_memif_start(const struct glue_device *device, char *err,
		     size_t err_len);

/* How many queues the server at a path has; 0 if it does not say so. */
unsigned glue_memif_ask(const char *path);

/* Ends every relay; the paths are removed. */
void glue_memif_unserve(void);

/*
 * Looks after a client's device, opened and started, until unwatched. The path
 * is borrowed for as long. Does nothing where membarrier(2) is missing: then
 * the port cannot be stopped under the polling threads.
 */
void glue_memif_watch(struct glue_device *device, const char *path);

/* Not while the device is being closed by another thread. */
void glue_memif_unwatch(struct glue_device *device);

/*
 * Stops and closes the device, on DPDK's interrupt thread: that one handles a
 * peer's farewell, and both would free the control channel.
 */
void glue_memif_close(struct glue_device *device);
