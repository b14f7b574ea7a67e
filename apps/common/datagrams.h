/*
 * Receiving datagrams in a loop that outlives errors, and answering them
 * without waiting.
 */
#pragma once

#include <stdint.h>

#include <coronet/net_udp.h>

#define DATAGRAMS_PAUSE_MIN_NS INT64_C(1000000)
#define DATAGRAMS_PAUSE_MAX_NS INT64_C(1000000000)

/*
 * net_udp_recv_batch() that tries again after a transient error, such as
 * -ENOBUFS: it counts the error in *errors, which other threads may read
 * (counters.h), and sleeps for a time that doubles with consecutive errors.
 * Returns how many datagrams came, 1 or more, or an error that ends the loop:
 * -ECANCELED (the stack stops, or the coroutine was cancelled), -EBADF (the
 * socket was closed), -EINVAL or -EPERM (a wrong call).
 */
int datagrams_recv(struct net_udp *udp, struct net_datagram *datagrams,
		   unsigned n, uint64_t *errors);

/*
 * net_udp_send_batch() that does not wait: it returns -EAGAIN if the link of
 * the first datagram has no room. A coroutine that answers the clients of
 * several links must not wait for one of them, whose carrier may be down. The
 * socket must have no watch.
 */
int datagrams_send(struct net_udp *udp, const struct net_datagram *datagrams,
		   unsigned n);
