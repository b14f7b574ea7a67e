#include "apps/common/coronet_shutdown.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#define HANDSHAKE_NS INT64_C(1000000000) /* how long one may take */
#define LINGER_NS    INT64_C(2000000000) /* for a FIN to be acknowledged */
#define LOOK_NS	     5000000

static const struct shutdown_plan *plan;
static struct coro_sched *sched;
static struct coro_wake wake;
static struct coro *drainer; /* waits for a signal, then for the last */
static volatile sig_atomic_t signalled;
static bool begun;

void shutdown_progress(void)
{
	if (begun && drainer)
		coro_unpark(drainer);
}

bool shutdown_begun(void)
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

int shutdown_start(const struct shutdown_plan *the_plan)
{
	plan = the_plan;
	return net_spawn(plan->stack, "drain", drain, NULL);
}

/*
 * A client whose handshake has begun may think that it is done, and have sent
 * its request: it is served like those who came before.
 */
void shutdown_close_listeners(struct net_listener **listeners, unsigned n,
			      bool (*takes)(void))
{
	int64_t until_ns = net_now_ns(plan->stack) + HANDSHAKE_NS;
	int pending;

	do {
		pending = 0;
		for (unsigned i = 0; i < n; i++)
			if (listeners[i])
				pending += net_listener_drain(listeners[i]);
	} while (pending && takes() && net_now_ns(plan->stack) < until_ns &&
		 coro_sleep_ns(LOOK_NS) == 0);
	for (unsigned i = 0; i < n; i++) {
		net_listener_close(listeners[i]);
		listeners[i] = NULL;
	}
}

uint32_t shutdown_unacked(const struct net_conn *conn)
{
	struct net_conn_stats now;

	if (!conn || net_conn_stats(conn, &now) < 0)
		return 0;
	return now.unsent + now.unacked;
}

static void arm(struct shutdown_closing *closing, int64_t now_ns,
		int64_t patience_ns)
{
	int64_t due_ns = closing->moved_ns + patience_ns;
	int64_t step_ns =
		patience_ns / 4 < LINGER_NS ? patience_ns / 4 : LINGER_NS;

	/* Not only then, so as to know when something moved last. */
	if (due_ns > now_ns + step_ns)
		due_ns = now_ns + step_ns;
	coro_timer_arm(coro_sched_self(), &closing->timer, due_ns);
}

static void on_timer(struct coro_timer *timer)
{
	struct shutdown_closing *closing =
		(struct shutdown_closing
			 *)(void *)((char *)timer -
				    offsetof(struct shutdown_closing, timer));
	uint32_t left = shutdown_unacked(closing->conn);
	int64_t patience_ns = left ? closing->patience_ns : LINGER_NS;
	int64_t now_ns = net_now_ns(plan->stack);

	if (patience_ns == 0)
		patience_ns = CORO_FOREVER / 2;
	if (left != closing->left) {
		closing->left = left;
		closing->moved_ns = now_ns;
	}
	if (now_ns - closing->moved_ns >= patience_ns)
		net_abort(closing->conn);
	else
		arm(closing, now_ns, patience_ns);
}

void shutdown_close_conn(struct shutdown_closing *closing,
			 struct net_conn *conn, int64_t patience_ns)
{
	int64_t now_ns = net_now_ns(plan->stack);

	*closing = (struct shutdown_closing){.conn = conn,
					     .patience_ns = patience_ns,
					     .moved_ns = now_ns,
					     .left = shutdown_unacked(conn)};
	coro_timer_init(&closing->timer, on_timer);
	arm(closing, now_ns, LINGER_NS);
	net_close_wait(conn, CORO_FOREVER);
	coro_timer_cancel(coro_sched_self(), &closing->timer);
}
