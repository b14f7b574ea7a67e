/*
 * Keeps memif links alive. Private to dpdk_glue/.
 *
 * As a server: a thread per link runs the relay (memif_relay.h), which protects
 * DPDK from faulty clients and recreates a removed socket.
 *
 * As a client: DPDK connects once, when the port starts, and fails without a
 * server; so the program waits for a server first. Later, while the link is
 * down, DPDK's interrupt thread checks five times a second whether a server
 * listens at the path, and if so stops and starts the port, with as many queues
 * as the server has, if that is known.
 *
 * During a handshake polling threads do not use the port of either end
 * (n_active is 0): DPDK's bursts look for their ring before they look whether
 * the other end is connected, and one that is interrupted in between would use
 * an address from before the rings were mapped.
 *
 * Queues: DPDK's server refuses a client that has more rings than itself, and
 * reads a client's first rings twice if the client has fewer. So the relay
 * counts the rings of each client, and only that number of queues is polled.
 * For clients that are coronet programs, its greeting announces its number of
 * queues.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

/*
 * Starts the relay of links[index]: DPDK listens at inner_path, clients connect
 * at path, whose file gets this mode, and the greeting announces n_queues.
 * Returns 0 or -errno: of a socket call, -EAGAIN or -ENOMEM (no thread).
 */
int glue_memif_serve(unsigned index, const char *path, const char *inner_path,
		     mode_t mode, unsigned n_queues);

/*
 * Attach a server's device to its relay, which sets how many queues each client
 * has, and detach it. With any other device both do nothing.
 */
void glue_memif_attach(struct glue_device *device);
void glue_memif_detach(struct glue_device *device);

/*
 * Starts the port of a device, of any kind of link. A memif client that cannot
 * connect retries for 10 s at most. Returns 0, or -errno with one line in err:
 * why a client cannot reach its server, or DPDK's error.
 */
int glue_memif_start(const struct glue_device *device, char *err,
		     size_t err_len);

/* Returns how many queues the server at a path announces; 0: none. */
unsigned glue_memif_ask(const char *path);

/* Ends every relay and removes its path. */
void glue_memif_unserve(void);

/*
 * Reconnects a client's device, which is open and started, until
 * glue_memif_unwatch(). The path is borrowed until then. Does nothing without
 * membarrier(2), since the port could not be stopped while threads poll it.
 */
void glue_memif_watch(struct glue_device *device, const char *path);

/* Ends glue_memif_watch(). Not while another thread closes the device. */
void glue_memif_unwatch(struct glue_device *device);

/*
 * Stops and closes the device on DPDK's interrupt thread. That thread also
 * handles the disconnect of a peer, and two threads could both free the control
 * channel.
 */
void glue_memif_close(struct glue_device *device);
