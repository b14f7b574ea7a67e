#include "apps/common/drain.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#define ACCEPT_ROUNDS 64
#define LOOK_NS	      5000000 /* whether a peer took bytes: so often */

static const struct drain_plan *plan;
static struct coro_sched *sched;
static struct coro_wake wake;
static struct coro *drainer; /* waits for a signal, then for the last */
static volatile sig_atomic_t signalled;
static bool begun;

void drain_progress(void)
{
	if (begun && drainer)
		coro_unpark(drainer);
}

bool drain_begun(void)
{
	return begun;
}

static void on_wake(struct coro_wake *unused)
{
	if (drainer)
		coro_unpark(drainer);
}

static void on_signal(int signo)
{
	if (signalled)
		_exit(1);
	signalled = 1;
	coro_wake_post(sched, &wake);
}

static void *drain(void *arg)
{
	struct sigaction action = {.sa_handler = on_signal};
	int64_t until_ns;

	drainer = coro_self();
	sched = coro_sched_self();
	coro_wake_init(&wake, on_wake);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	while (!signalled)
		coro_park();
	begun = true;
	plan->begin();
	net_log("%s: draining %u %s", plan->program, plan->left(), plan->what);
	until_ns = net_now_ns(plan->stack) + plan->timeout_ns;
	while (plan->left() && coro_park_until(until_ns) == 0)
		;
	drainer = NULL;
	net_stack_stop(plan->stack);
	return NULL;
}

int drain_start(const struct drain_plan *the_plan)
{
	plan = the_plan;
	return net_spawn(plan->stack, "drain", drain, NULL);
}

/*
 * A client whose handshake is done has been told that somebody is there. Those
 * who come meanwhile are taken as well: a bounded number of rounds.
 */
void drain_close(struct net_listener *listener, bool (*takes)(void))
{
	for (int i = 0; i < ACCEPT_ROUNDS && takes(); i++) {
		struct net_poll_item item = {.listener = listener,
					     .events = NET_READABLE};

		if (net_poll(&item, 1, 0) <= 0 || coro_yield() < 0)
			break;
	}
	net_listener_close(listener);
}

int drain_flush(struct net_conn *conn, int64_t patience_ns)
{
	struct net_stack *stack = net_conn_stack(conn);
	int64_t until_ns = CORO_FOREVER;
	uint32_t before = 0;
	struct net_conn_stats now;
	int err = 0;

	while (err == 0) {
		if (net_conn_stats(conn, &now) < 0 ||
		    now.state == NET_TCP_CLOSED)
			return -ENOTCONN;
		if (now.unsent == 0)
			return 0;
		if (before == 0) {
			err = coro_yield(); /* nearly always that is all */
		} else {
			if (net_now_ns(stack) >= until_ns)
				return -ETIMEDOUT;
			err = coro_sleep_ns(LOOK_NS);
		}
		if (now.unsent != before && patience_ns)
			until_ns = net_now_ns(stack) + patience_ns;
		before = now.unsent;
	}
	return err;
}
