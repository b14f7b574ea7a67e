/*
 * Receiving datagrams in a loop that outlives errors.
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
