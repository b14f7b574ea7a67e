/*
 * Whole programs: threads that take turns at running the stack.
 *
 * The program's threads stay ordinary ones. A thread that runs the stack or
 * uses its sockets holds the baton: a ticket lock, whose holder has entered the
 * stack (net_stack_enter()). A call on a socket takes the baton, and releases
 * it when it returns. A call that has to wait becomes the poller: it runs the
 * loop until its event comes. If another thread wants the baton, the poller
 * releases it between two turns. Other calls that have to wait sleep until the
 * poller finds their event, or leaves; then one of them becomes the poller.
 *
 * While no call waits, the keeper runs the loop: a thread of this library that
 * checks every millisecond whether another thread has run a turn since. If none
 * has, it runs turns until a thread wants the baton. While a call waits, it
 * sleeps.
 *
 * A signal that arrives while its thread is in the stack is noted, and its
 * handler runs when the thread has left: at the end of the call, or in a wait,
 * which it then ends or lets go on. So a handler may make any call, and may
 * leave by longjmp().
 */
#include "netstack/sockets/sockets_priv.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KEEPER_NS INT64_C(1000000)

_Thread_local struct net_caller net_caller;

static struct {
	/* The baton: tickets that were drawn, and whose turn it is. */
	_Alignas(64) _Atomic uint32_t drawn;
	_Alignas(64) _Atomic uint32_t serving;
	/* What follows belongs to its holder. */
	_Atomic uint64_t turns;
	_Atomic(struct net_waiter *) poller; /* turns the loop; or NULL */
	LIST_HEAD(, net_waiter) asleep;	     /* the others that wait */
	_Atomic bool keeper_sleeps;	     /* until the poller leaves */
	sem_t keeper;
	_Atomic int fatal; /* a signal that ends the program */
} baton;

static void nothing(void *arg)
{
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL,
		       NULL, 0);
}

/* ---- the baton ---- */

static void hold(uint32_t ticket)
{
	uint32_t now;

	/* Its holder may sleep in the loop. */
	if (atomic_load(&baton.serving) != ticket)
		coro_post(net_whole.sched, nothing, NULL);
	while ((now = atomic_load(&baton.serving)) != ticket)
		futex(&baton.serving, FUTEX_WAIT, now);
}

static void take(void)
{
	uint32_t ticket = atomic_fetch_add(&baton.drawn, 1);

	if (__builtin_expect(atomic_load(&baton.serving) != ticket, 0))
		hold(ticket);
	net_stack_enter(net_whole.stack);
	net_sockets_given = net_whole.owner;
}

static bool is_wanted(void)
{
	return atomic_load_explicit(&baton.drawn, memory_order_relaxed) !=
	       atomic_load_explicit(&baton.serving, memory_order_relaxed) + 1;
}

static void give(void)
{
	uint32_t next;

	net_sockets_given = NULL;
	net_stack_leave(net_whole.stack);
	next = atomic_fetch_add(&baton.serving, 1) + 1;
	if (__builtin_expect(atomic_load(&baton.drawn) != next, 0))
		futex(&baton.serving, FUTEX_WAKE, INT_MAX);
}

/* The signal for what has ended it goes to the keeper, perhaps later. */
static void rest(unsigned work, int64_t until_ns)
{
	net_stack_rest(net_whole.stack, work, until_ns);
	if (net_whole.look_for_frames)
		net_whole.look_for_frames(0);
}

/* The loop's own calls are the kernel's. */
static void turn(bool may_rest, int64_t until_ns)
{
	uint8_t was = net_caller.state;
	unsigned work;

	net_caller.state = NET_TURNING;
	atomic_store_explicit(&baton.turns, baton.turns + 1,
			      memory_order_relaxed);
	work = net_stack_turn(net_whole.stack);
	if (may_rest && !is_wanted() && !atomic_load(&net_caller.noted))
		rest(work, until_ns);
	net_caller.state = was;
}

/* ---- waiting ---- */

/* There is no poller: another call that waits becomes it, or the keeper. */
static void wake_next_poller(void)
{
	struct net_waiter *next = LIST_FIRST(&baton.asleep);

	if (next)
		sem_post(&next->caller->sem);
	else if (atomic_exchange(&baton.keeper_sleeps, false))
		sem_post(&baton.keeper);
}

void net_waiters_wake(struct net_waitq *waitq)
{
	struct net_waiter *waiter;

	LIST_FOREACH(waiter, &waitq->threads, queue)
	{
		if (!waiter->woken && waiter->asleep)
			sem_post(&waiter->caller->sem);
		waiter->woken = true;
	}
}

static bool may_wait_on(const struct net_waiter *me, int64_t deadline_ns)
{
	return !me->woken && !atomic_load(&net_caller.noted) &&
	       coro_sched_clock(net_whole.sched) < deadline_ns;
}

static void poll_until(struct net_waiter *me, int64_t deadline_ns)
{
	atomic_store(&baton.poller, me);
	while (may_wait_on(me, deadline_ns)) {
		if (is_wanted()) {
			give();
			take();
		} else {
			turn(true, deadline_ns);
		}
	}
	atomic_store(&baton.poller, NULL);
}

/* Until it is posted, a signal comes, or some time has passed. */
static void wait_at_most(sem_t *sem, int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	sem_clockwait(sem, CLOCK_MONOTONIC, &until);
}

static void sleep_until(struct net_waiter *me, int64_t deadline_ns)
{
	int64_t left_ns = deadline_ns - coro_sched_clock(net_whole.sched);

	me->asleep = true;
	LIST_INSERT_HEAD(&baton.asleep, me, sleeping);
	give();
	if (deadline_ns == CORO_FOREVER)
		sem_wait(&net_caller.sem);
	else
		wait_at_most(&net_caller.sem, left_ns);
	take();
	LIST_REMOVE(me, sleeping);
	me->asleep = false;
}

int net_whole_wait(struct net_waitq *waitq, int64_t deadline_ns)
{
	struct net_waiter me = {.caller = &net_caller};
	int err = 0;

	for (;;) {
		LIST_INSERT_HEAD(&waitq->threads, &me, queue);
		while (may_wait_on(&me, deadline_ns))
			if (baton.poller)
				sleep_until(&me, deadline_ns);
			else
				poll_until(&me, deadline_ns);
		LIST_REMOVE(&me, queue);
		if (!baton.poller)
			wake_next_poller();
		if (me.woken)
			return 0;
		if (!atomic_load(&net_caller.noted))
			return -ETIMEDOUT;
		err = net_whole_signals();
		if (err < 0)
			return err;
	}
}

int net_whole_turn(void)
{
	if (!net_calling())
		return 0;
	if (is_wanted()) {
		give();
		take();
	}
	turn(false, 0);
	return atomic_load(&net_caller.noted) ? net_whole_signals() : 0;
}

long net_whole_done(long r)
{
	if (r >= 0 && net_caller.batch)
		net_caller.batch--;
	else
		net_whole_turn();
	return r;
}

/* ---- calls ---- */

static void begin_caller(void)
{
	sem_init(&net_caller.sem, 0, 0);
	net_caller.begun = true;
}

void net_whole_step_in(void)
{
	if (!net_caller.begun)
		begin_caller();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &net_caller.cancels);
	net_caller.state = NET_CALLING;
	take();
}

void net_whole_step_out(void)
{
	give();
	net_caller.state = NET_OUTSIDE;
	pthread_setcancelstate(net_caller.cancels, NULL);
}

/* Whether the call may go on. */
int net_whole_signals(void)
{
	bool restarts;

	net_whole_step_out();
	restarts = net_whole.handle_signals();
	net_whole_step_in();
	return restarts && !net_caller.unrestartable ? 0 : -EINTR;
}

long net_with_baton(long a, long b, long c, long d, long e, long f,
		    net_any_fn fn)
{
	long result;
	int saved;

	net_whole_step_in();
	result = fn(a, b, c, d, e, f);
	saved = errno;
	net_whole_step_out();
	if (__builtin_expect(atomic_load(&net_caller.noted) != 0, 0))
		net_whole.handle_signals();
	errno = saved;
	return result;
}

/* ---- the keeper ---- */

static void keep_turning(void)
{
	struct net_waiter me = {.caller = &net_caller};

	net_whole_step_in();
	if (!baton.poller && !is_wanted()) {
		atomic_store(&baton.poller, &me);
		while (!is_wanted() && !atomic_load(&baton.fatal))
			turn(true, CORO_FOREVER);
		atomic_store(&baton.poller, NULL);
		wake_next_poller();
	}
	net_whole_step_out();
}

/* While a call waits, there is nothing to look after. */
static void sleep_while_polled(void)
{
	atomic_store(&baton.keeper_sleeps, true);
	if (!atomic_load(&baton.poller) &&
	    atomic_exchange(&baton.keeper_sleeps, false))
		return;
	sem_wait(&baton.keeper);
}

/* As the kernel closes the connections of a program that a signal ends. */
static void end_by(int signo)
{
	net_whole_step_in();
	net_stack_stop(net_whole.stack);
	net_caller.state = NET_TURNING;
	net_stack_run(net_whole.stack);
	net_stack_close(net_whole.stack);
	net_whole.default_action(signo);
}

static void *keep(void *arg)
{
	uint64_t seen = 0;

	net_whole_take_signals();
	sem_post(arg);
	for (;;) {
		wait_at_most(&baton.keeper, KEEPER_NS);
		if (atomic_load(&baton.fatal))
			end_by(atomic_load(&baton.fatal));
		if (atomic_load(&baton.poller))
			sleep_while_polled();
		else if (seen == atomic_load(&baton.turns))
			keep_turning();
		seen = atomic_load(&baton.turns);
	}
	return NULL;
}

int net_whole_keeper(void)
{
	pthread_attr_t attr;
	sigset_t all, mask;
	pthread_t thread;
	sem_t begun;
	int err;

	sem_init(&begun, 0, 0);
	sem_init(&baton.keeper, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask); /* they are the program's */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, keep, &begun);
	pthread_attr_destroy(&attr);
	while (err == 0 && sem_wait(&begun) < 0) {
		/* a driver's signal */
	}
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return -err;
}

/* In a signal handler. */
void net_whole_end_by(int signo)
{
	atomic_store(&baton.fatal, signo);
	sem_post(&baton.keeper);
	coro_post(net_whole.sched, nothing, NULL);
}

void net_whole_note(int signo)
{
	atomic_fetch_or(&net_caller.noted, UINT64_C(1) << (signo - 1));
	if (net_caller.begun)
		sem_post(&net_caller.sem);
	coro_post(net_whole.sched, nothing, NULL);
}
