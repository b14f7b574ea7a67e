/*
 * Runs a request on a shard: a step is posted to it and does a slice of the
 * work each round until it reports that it is done. The requesting thread
 * sleeps.
 *
 * A net_ask has two owners, the requesting thread and the shard. If the thread
 * gives up after a timeout, the shard frees it later.
 */
#include "netstack/control/control_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STALL_MAX_MS 2000 /* without progress */
#define LOOK_MS	     10	  /* how soon a waiter sees that the program ends */

static struct {
	_Atomic unsigned n_shards;
	_Atomic bool shut;
} asking;

void net_ask_open(unsigned n_shards)
{
	atomic_store(&asking.shut, false);
	atomic_store(&asking.n_shards, n_shards);
}

void net_ask_shut(void)
{
	atomic_store(&asking.shut, true);
	atomic_store(&asking.n_shards, 0);
}

bool net_ask_is_shut(void)
{
	return atomic_load(&asking.shut);
}

unsigned net_ask_shards(void)
{
	return atomic_load(&asking.n_shards);
}

struct net_ask *net_ask_new(net_ask_step step, size_t bytes)
{
	struct net_ask *ask = calloc(1, sizeof(*ask) + bytes);

	if (!ask)
		return NULL;
	ask->step = step;
	atomic_init(&ask->refs, 1);
	sem_init(&ask->done, 0, 0);
	return ask;
}

void net_ask_put(struct net_ask *ask)
{
	if (atomic_fetch_sub(&ask->refs, 1) != 1)
		return;
	sem_destroy(&ask->done);
	free(ask);
}

static void finish_ask(struct net_ask *ask, int err)
{
	ask->err = err;
	sem_post(&ask->done);
	net_ask_put(ask);
}

/* Runs on the shard's thread. It posts itself again for the next round. */
static void take_step(void *arg)
{
	struct net_ask *ask = arg;
	int err;

	atomic_fetch_add_explicit(&ask->slices, 1, memory_order_relaxed);
	if (atomic_load(&ask->abandoned) || ask->step(ask->data)) {
		finish_ask(ask, 0);
		return;
	}
	err = net_post(net_here()->shard, take_step, ask);
	if (err < 0)
		finish_ask(ask, err);
}

/* Waits; 0: it is done. A busy shard takes its time, slice by slice. */
static int await_answer(struct net_ask *ask)
{
	unsigned slices = 0, seen;

	for (int waited = 0; waited < STALL_MAX_MS; waited += LOOK_MS) {
		struct timespec until;

		if (atomic_load(&asking.shut))
			return -ESHUTDOWN;
		seen = atomic_load_explicit(&ask->slices, memory_order_relaxed);
		if (seen != slices)
			waited = 0;
		slices = seen;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += LOOK_MS * 1000000L;
		if (until.tv_nsec >= 1000000000L) {
			until.tv_nsec -= 1000000000L;
			until.tv_sec++;
		}
		if (sem_clockwait(&ask->done, CLOCK_MONOTONIC, &until) == 0)
			return ask->err;
	}
	return -ETIMEDOUT;
}

int net_ask_run(struct net_ask *ask, unsigned shard)
{
	unsigned n = net_ask_shards();
	int err;

	if (shard >= n)
		return n ? -EINVAL : -EAGAIN;
	atomic_fetch_add(&ask->refs, 1);
	err = net_post(shard, take_step, ask);
	if (err < 0) {
		net_ask_put(ask);
		return err;
	}
	err = await_answer(ask);
	if (err == -ETIMEDOUT || err == -ESHUTDOWN)
		atomic_store(&ask->abandoned, true);
	return err;
}

/*
 * Returns 0, or an error of the change, which it copies back, or with *asked
 * set an error of the asking.
 */
static int change_shard(unsigned shard, net_ask_step step,
			struct net_change *change, size_t bytes, bool *asked)
{
	struct net_ask *ask = net_ask_new(step, bytes);
	int err;

	*asked = false;
	if (!ask)
		return -ENOMEM;
	memcpy(ask->data, change, bytes);
	err = net_ask_run(ask, shard);
	*asked = err < 0;
	if (err == 0) {
		memcpy(change, ask->data, bytes);
		err = change->err;
	}
	net_ask_put(ask);
	return err;
}

int net_ask_change(net_ask_step step, struct net_change *change, size_t bytes,
		   int *unasked)
{
	unsigned n = net_ask_shards();
	bool asked;
	int err;

	*unasked = 0;
	if (n == 0)
		return -EAGAIN;
	for (unsigned i = n; i-- > 0;) {
		err = change_shard(i, step, change, bytes, &asked);
		if (err == 0)
			continue;
		*unasked = asked ? (int)i : -1;
		change->add = !change->add;
		for (unsigned back = i + 1; back < n; back++)
			change_shard(back, step, change, bytes, &(bool){false});
		change->add = !change->add;
		return err;
	}
	return 0;
}
