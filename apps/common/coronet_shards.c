/* The shards of an appliance on coronet: calls on each of them, and SIGHUP. */
#include "apps/common/coronet_shards.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#define RETRY_NS 10000000

/* Like net_call(), but repeats a call for which memory or room is short. */
static int call_shard(unsigned shard, coro_fn fn, void *arg, void **result)
{
	int err;

	do
		err = net_call(shard, fn, arg, result);
	while ((err == -EAGAIN || err == -ENOMEM) &&
	       coro_sleep_ns(RETRY_NS) == 0);
	return err;
}

int shards_call(coro_fn fn, void *first, size_t size)
{
	void *result = NULL;
	int err = 0;

	for (unsigned i = 0; i < net_stack_shards(net_stack_here()); i++) {
		err = call_shard(i, fn, (char *)first + i * size, &result);
		if (err == 0)
			err = (int)(intptr_t)result;
		if (err < 0)
			break;
	}
	return err;
}

/* ---- SIGHUP ---- */

static struct {
	atomic_bool came;
	_Atomic(struct coro_sched *) sched; /* NULL: nobody follows yet */
	struct coro_wake wake;
	struct coro *follower;
} hangup;

static void on_wake(struct coro_wake *wake)
{
	if (hangup.follower)
		coro_unpark(hangup.follower);
}

static void on_hangup(int signo)
{
	struct coro_sched *sched = hangup.sched;

	hangup.came = true;
	if (sched)
		coro_wake_post(sched, &hangup.wake);
}

void hangup_catch(void)
{
	sigaction(SIGHUP, &(struct sigaction){.sa_handler = on_hangup}, NULL);
}

int hangup_spawn(const char *name, coro_fn fn, void *arg)
{
	const struct coro_attr attr = {.name = name,
				       .stack = CORO_STACK_PRIVATE};

	return coro_spawn(coro_sched_self(), &attr, fn, arg, NULL);
}

void hangup_follow(void)
{
	hangup.follower = coro_self();
	coro_wake_init(&hangup.wake, on_wake);
	hangup.sched = coro_sched_ref(coro_sched_self()); /* for good */
}

void hangup_unfollow(void)
{
	hangup.follower = NULL;
}

bool hangup_came(void)
{
	return hangup.came;
}

bool hangup_take(void)
{
	return atomic_exchange(&hangup.came, false);
}
