/*
 * Drains an appliance on coronet: one signal ends it gracefully, a second at
 * once.
 */
#include "apps/common/coronet_shutdown.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include <coronet/net_control.h>

#define HANDSHAKE_NS INT64_C(1000000000) /* how long one may take */
#define LINGER_NS    INT64_C(2000000000) /* for a FIN to be acknowledged */
#define LOOK_NS	     5000000

/*
 * State of the whole program. Shards are never taken off the list: a signal
 * handler may be walking along it on any thread.
 */
static struct {
	pthread_mutex_t lock; /* for what the signal handler does not need */
	struct shutdown *_Atomic first;
	_Atomic unsigned working;      /* shards that have something left */
	_Atomic bool announced, shown; /* in the log; at /health */
	atomic_int signalled, posted;  /* the first signal; all shards know */
} program = {.lock = PTHREAD_MUTEX_INITIALIZER};

void shutdown_progress(struct shutdown *s)
{
	if (s->begun && s->waiter)
		coro_unpark(s->waiter);
}

static void on_wake(struct coro_wake *wake)
{
	struct shutdown *s =
		(struct shutdown *)(void *)((char *)wake -
					    offsetof(struct shutdown, wake));

	if (s->waiter)
		coro_unpark(s->waiter);
}

static void on_signal(int signo)
{
	if (program.signalled)
		_exit(1);
	program.signalled = 1;
	for (struct shutdown *s = program.first; s; s = s->next)
		coro_wake_post(s->sched, &s->wake);
	program.posted = 1;
}

static void join_shutdown(struct shutdown *s)
{
	struct sigaction action = {.sa_handler = on_signal};

	s->waiter = coro_self();
	s->sched = coro_sched_ref(coro_sched_self());
	coro_wake_init(&s->wake, on_wake);
	pthread_mutex_lock(&program.lock);
	program.working++;
	s->next = program.first;
	program.first = s;
	pthread_mutex_unlock(&program.lock);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

/* The last shard that has nothing left wakes the others, which wait for it. */
static void finish_shard(struct shutdown *s)
{
	pthread_mutex_lock(&program.lock);
	if (--program.working == 0)
		for (struct shutdown *o = program.first; o; o = o->next)
			if (o != s && !o->gone)
				coro_wake_post(o->sched, &o->wake);
	pthread_mutex_unlock(&program.lock);
}

/*
 * From now on nobody posts to the shard. A shard that closes without calling
 * this, because another one could not start or the time was up, leaves its
 * reference: posting to it does nothing.
 */
static void leave_shutdown(struct shutdown *s)
{
	/* Bounded by what the signal handler still does on another thread. */
	while (!program.posted)
		coro_yield();
	pthread_mutex_lock(&program.lock);
	s->gone = true;
	coro_sched_unref(s->sched);
	pthread_mutex_unlock(&program.lock);
	s->waiter = NULL;
}

/*
 * A shard with nothing left waits for the others, since frames of their
 * connections may arrive on its queues.
 */
static void *drain_conns(void *arg)
{
	struct shutdown *s = arg;
	const struct shutdown_plan *plan = s->plan;
	int64_t until_ns;

	join_shutdown(s);
	while (!program.signalled)
		coro_park();
	s->begun = true;
	plan->begin(s->shard);
	if (!atomic_exchange(&program.announced, true))
		net_log("%s: draining %u %s", plan->program, plan->total(),
			plan->what);
	until_ns = net_now_ns(s->stack) + plan->timeout_ns;
	while (plan->left(s->shard) && coro_park_until(until_ns) == 0)
		;
	finish_shard(s);
	while (program.working && coro_park_until(until_ns) == 0)
		;
	leave_shutdown(s);
	net_stack_stop(s->stack);
	return NULL;
}

/* Reports to load balancers that clients should go elsewhere. */
static const char *check_draining(void *arg)
{
	return program.signalled ? "draining" : NULL;
}

int shutdown_start(struct shutdown *s, const struct shutdown_plan *plan,
		   struct net_stack *stack, void *shard)
{
	int err = atomic_exchange(&program.shown, true)
			  ? 0
			  : net_health_add(check_draining, NULL);

	if (err < 0)
		return err;
	*s = (struct shutdown){.plan = plan, .stack = stack, .shard = shard};
	return net_spawn(stack, "drain", drain_conns, s);
}

/*
 * A client whose handshake has begun may think that it is done, and have sent
 * its request: it is served like the clients before it.
 */
void shutdown_close_listeners(struct shutdown *s,
			      struct net_listener **listeners, unsigned n,
			      bool (*takes)(void *shard))
{
	int64_t until_ns = net_now_ns(s->stack) + HANDSHAKE_NS;
	int pending;

	do {
		pending = 0;
		for (unsigned i = 0; i < n; i++)
			if (listeners[i])
				pending += net_listener_drain(listeners[i]);
	} while (pending && takes(s->shard) &&
		 net_now_ns(s->stack) < until_ns &&
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

static void arm_timer(struct shutdown_closing *closing, int64_t now_ns,
		      int64_t timeout_ns)
{
	int64_t due_ns = closing->moved_ns + timeout_ns;
	int64_t step_ns =
		timeout_ns / 4 < LINGER_NS ? timeout_ns / 4 : LINGER_NS;

	/* Look earlier, too, so as to know when something moved last. */
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
	int64_t timeout_ns = left ? closing->timeout_ns : LINGER_NS;
	int64_t now_ns = net_now_ns(net_conn_stack(closing->conn));

	if (timeout_ns == 0)
		timeout_ns = CORO_FOREVER / 2;
	if (left != closing->left) {
		closing->left = left;
		closing->moved_ns = now_ns;
	}
	if (now_ns - closing->moved_ns >= timeout_ns)
		net_abort(closing->conn);
	else
		arm_timer(closing, now_ns, timeout_ns);
}

void shutdown_close_conn(struct shutdown_closing *closing,
			 struct net_conn *conn, int64_t timeout_ns)
{
	int64_t now_ns = net_now_ns(net_conn_stack(conn));

	*closing = (struct shutdown_closing){.conn = conn,
					     .timeout_ns = timeout_ns,
					     .moved_ns = now_ns,
					     .left = shutdown_unacked(conn)};
	coro_timer_init(&closing->timer, on_timer);
	arm_timer(closing, now_ns, LINGER_NS);
	net_close_wait(conn, CORO_FOREVER);
	coro_timer_cancel(coro_sched_self(), &closing->timer);
}
