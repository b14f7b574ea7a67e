/*
 * Keeps memif links alive. Private to dpdk_glue/.
 *
 * As a server: a thread a link runs the relay (memif_relay.h), which keeps
 * strangers from DPDK and makes a removed socket again.
 *
 * As a client: DPDK connects once, when the port starts. While the link is
 * down, DPDK's interrupt thread looks five times a second whether a server
 * listens at the path, and then stops and starts the port. The polling thread
 * leaves the port alone meanwhile (port->away).
 */
#pragma once

#include "dpdk_glue/port_priv.h"

/*
 * DPDK listens at inner_path; clients are to find it at path. Returns 0 or
 * -errno: of a socket call, -EAGAIN or -ENOMEM (no thread).
 */
int glue_memif_serve(const char *path, const char *inner_path);

/* Ends every relay; the paths are removed. */
void glue_memif_unserve(void);

/*
 * Looks after a client's port, opened and started, until unwatched. The path
 * is borrowed for as long. Does nothing where membarrier(2) is missing: then
 * the port cannot be stopped under the polling thread.
 */
void glue_memif_watch(struct glue_port *port, const char *path);

/* Not while the port is being closed by another thread. */
void glue_memif_unwatch(struct glue_port *port);
