/*
 * Whether the program serves, for load balancers and supervisors that ask the
 * server of --metrics.
 */
#include "netstack/control/control_priv.h"

#include <coronet/net_control.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define MAX_SOURCES 32u

static struct {
	pthread_mutex_t lock;
	unsigned n;
	struct {
		net_health_fn fn;
		void *arg;
	} all[MAX_SOURCES];
} conditions = {.lock = PTHREAD_MUTEX_INITIALIZER};

int net_health_add(net_health_fn fn, void *arg)
{
	int err = 0;

	if (!fn)
		return -EINVAL;
	pthread_mutex_lock(&conditions.lock);
	if (conditions.n < MAX_SOURCES) {
		conditions.all[conditions.n].fn = fn;
		conditions.all[conditions.n++].arg = arg;
	} else {
		err = -ENOSPC;
	}
	pthread_mutex_unlock(&conditions.lock);
	return err;
}

void net_health_forget(void)
{
	pthread_mutex_lock(&conditions.lock);
	conditions.n = 0;
	pthread_mutex_unlock(&conditions.lock);
}

/* Returns why the program's own conditions do not hold; NULL: they do. */
static const char *ask_program(void)
{
	const char *why = NULL;

	pthread_mutex_lock(&conditions.lock);
	for (unsigned i = 0; !why && i < conditions.n; i++)
		why = conditions.all[i].fn(conditions.all[i].arg);
	pthread_mutex_unlock(&conditions.lock);
	return why;
}

/* A shard that runs this goes through its loop. */
static bool answer_step(void *data)
{
	return true;
}

static int ask_shard(unsigned shard)
{
	struct net_ask *ask = net_ask_new(answer_step, 0);
	int err;

	if (!ask)
		return -ENOMEM;
	err = net_ask_run(ask, shard);
	net_ask_put(ask);
	return err;
}

bool net_health(char *why, size_t len)
{
	unsigned n = net_ask_shards();
	const char *own = n ? ask_program() : NULL;

	if (n == 0 || net_stack_stopping(NULL)) {
		snprintf(why, len, "%s",
			 net_ask_is_shut() || n ? "stopping" : "starting");
		return false;
	}
	if (own) {
		snprintf(why, len, "%s", own);
		return false;
	}
	for (unsigned i = 0; i < n; i++) {
		int err = ask_shard(i);

		if (err == 0)
			continue;
		net_control_ask_reason(i, err, why, len);
		return false;
	}
	return true;
}
