/*
 * Receiving datagrams in a loop that outlives errors, and answering them
 * without waiting.
 */
#include "apps/common/datagrams.h"

#include <errno.h>
#include <stdbool.h>

#include <coronet/coro.h>

#include "apps/common/counters.h"

static bool ends_loop(int err)
{
	return err == -ECANCELED || err == -EBADF || err == -EINVAL ||
	       err == -EPERM;
}

int datagrams_recv(struct net_udp *udp, struct net_datagram *datagrams,
		   unsigned n, uint64_t *errors)
{
	int64_t pause_ns = DATAGRAMS_PAUSE_MIN_NS;
	int rc;

	for (;;) {
		rc = net_udp_recv_batch(udp, datagrams, n);
		if (rc > 0 || ends_loop(rc))
			return rc;
		counters_add(errors, 1);
		rc = coro_sleep_ns(pause_ns);
		if (rc < 0)
			return rc;
		pause_ns *= 2;
		if (pause_ns > DATAGRAMS_PAUSE_MAX_NS)
			pause_ns = DATAGRAMS_PAUSE_MAX_NS;
	}
}

static void ignore_event(struct net_udp *udp, struct net_udp_watch *watch)
{
}

int datagrams_send(struct net_udp *udp, const struct net_datagram *datagrams,
		   unsigned n)
{
	/* Calls on a socket with a watch do not wait; this one is constant. */
	static struct net_udp_watch watch = {.fn = ignore_event};
	int rc;

	net_udp_set_watch(udp, &watch);
	rc = net_udp_send_batch(udp, datagrams, n);
	net_udp_set_watch(udp, NULL);
	return rc;
}
