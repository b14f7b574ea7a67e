/*
 * Whole programs: threads that take turns at running the stack.
 *
 * The program's threads stay ordinary ones. A call on a socket takes the baton
 * (baton.h), and releases it when it returns. A call that has to wait becomes
 * the poller: it runs the loop until its event comes. If another thread wants
 * the baton, the poller releases it between two turns and stands aside while
 * the other thread makes call after call, so that they do not hand it over at
 * each. Other calls that have to wait sleep until the poller finds their event,
 * or leaves; then one of them becomes the poller.
 *
 * While no call waits, the keeper runs the loop: a thread of this library that
 * checks every millisecond whether another thread has run a turn since. If none
 * has, it runs turns until a thread wants the baton. While a call waits, it
 * sleeps.
 *
 * No thread is cancelled in the stack, whatever its cancellation type. A
 * waiting call of a thread that pthread_cancel() names ends with -ECANCELED,
 * and the thread after it.
 *
 * A signal that arrives while its thread is in the stack is noted, and its
 * handler runs when the thread has left: at the end of the call, or in a wait,
 * which it then ends or lets go on. So a handler may make any call, and may
 * leave by longjmp().
 */
#include "netstack/sockets/baton.h"

#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define KEEPER_NS INT64_C(1000000)
/* The poller stands aside until no other thread has made a call for ASIDE_NS,
 * and no longer than ASIDE_MAX_NS. */
#define ASIDE_NS     INT64_C(10000)
#define ASIDE_MAX_NS INT64_C(100000)

#define EXITS	 (-1)	  /* the program calls _exit() */
#define EXIT_NS	 1000000L /* between two looks whether the stack is closed */
#define EXIT_MAX 2000	  /* looks; the loop takes a second to drain */

static struct {
	/* These fields, unless atomic, belong to the baton's holder. */
	_Atomic uint64_t turns;
	_Atomic(struct net_waiter *) poller; /* turns the loop; or NULL */
	LIST_HEAD(, net_waiter) asleep;	     /* the others that wait */
	_Atomic bool keeper_sleeps;	     /* until the poller leaves */
	sem_t keeper;
	LIST_HEAD(, net_caller) callers;
	_Atomic int fatal;    /* a signal that ends the program; or EXITS */
	_Atomic bool ended;   /* it has closed the stack */
	pthread_key_t ends;   /* runs end_caller() */
	_Atomic bool closing; /* the loop has ended */
	_Atomic unsigned n_waking; /* threads that are waking the loop */
} loop;

static void do_nothing(void *arg)
{
}

/*
 * The holder may sleep in the loop. Also in signal handlers. coro_post() is a
 * cancellation point, at which a ticket of the thread would be lost.
 */
void net_whole_wake_loop(void)
{
	int cancels;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
	atomic_fetch_add(&loop.n_waking, 1);
	if (!atomic_load(&loop.closing))
		coro_post(net_whole.sched, do_nothing, NULL);
	atomic_fetch_sub(&loop.n_waking, 1);
	pthread_setcancelstate(cancels, NULL);
}

/* Sleeps, and then looks for frames: the driver's signal for them goes to the
 * keeper, perhaps later. */
static void sleep_in_turn(unsigned work, int64_t until_ns)
{
	net_stack_rest(net_whole.stack, work, until_ns);
	if (net_whole.look_for_frames)
		net_whole.look_for_frames(0);
}

/* Turns the loop once; calls that the loop makes go to the kernel. */
static void run_turn(bool may_idle, int64_t until_ns)
{
	uint8_t was = net_caller.state;
	unsigned work;

	net_caller.state = NET_TURNING;
	atomic_store_explicit(&loop.turns, loop.turns + 1,
			      memory_order_relaxed);
	work = net_stack_turn(net_whole.stack);
	if (may_idle && !net_baton_is_wanted() &&
	    !atomic_load(&net_caller.noted))
		sleep_in_turn(work, until_ns);
	net_caller.state = was;
}

/* ---- waiting ---- */

/* Wakes the next poller: another call that waits, or else the keeper. */
static void wake_next_poller(void)
{
	struct net_waiter *next = LIST_FIRST(&loop.asleep);

	if (next)
		sem_post(&next->caller->sem);
	else if (atomic_exchange(&loop.keeper_sleeps, false))
		sem_post(&loop.keeper);
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

static bool is_cancelled(void)
{
	return net_caller.cancelled &&
	       net_caller.cancels == PTHREAD_CANCEL_ENABLE;
}

static bool may_wait_on(const struct net_waiter *me, int64_t deadline_ns)
{
	return !me->woken && !atomic_load(&net_caller.noted) &&
	       !is_cancelled() &&
	       coro_sched_clock(net_whole.sched) < deadline_ns;
}

/* Waits until sem is posted, a signal arrives or ns have passed. */
static void wait_limited(sem_t *sem, int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	sem_clockwait(sem, CLOCK_MONOTONIC, &until);
}

/*
 * Lets other threads make their calls, without the baton. Returns true if
 * another thread polls, so that this one may sleep until it is woken.
 */
static bool stand_aside(void)
{
	uint32_t drawn = net_baton_tickets(), now_drawn;
	int64_t begin = net_clock_ns(), now = begin, last = begin;

	while (!atomic_load(&loop.poller)) {
		if (sem_trywait(&net_caller.sem) == 0 ||
		    atomic_load(&net_caller.noted) || now - last > ASIDE_NS ||
		    now - begin > ASIDE_MAX_NS)
			return false;
		sched_yield();
		now = net_clock_ns();
		now_drawn = net_baton_tickets();
		if (now_drawn != drawn)
			last = now;
		drawn = now_drawn;
	}
	return true;
}

/* Sleeps while another thread polls. If none does because others want the
 * baton, stands aside for them first. */
static void sleep_until(struct net_waiter *me, int64_t deadline_ns)
{
	int64_t left_ns = deadline_ns - coro_sched_clock(net_whole.sched);
	bool is_polled = atomic_load(&loop.poller) != NULL;

	net_disable_cancels(); /* sem_wait() is a cancellation point */
	me->asleep = true;
	LIST_INSERT_HEAD(&loop.asleep, me, sleeping);
	net_baton_give();
	if (!is_polled && !stand_aside()) {
		/* this thread polls again */
	} else if (deadline_ns == CORO_FOREVER) {
		sem_wait(&net_caller.sem);
	} else {
		wait_limited(&net_caller.sem, left_ns);
	}
	net_baton_take();
	LIST_REMOVE(me, sleeping);
	me->asleep = false;
}

static void poll_until(struct net_waiter *me, int64_t deadline_ns)
{
	atomic_store(&loop.poller, me);
	while (may_wait_on(me, deadline_ns) && !net_baton_is_wanted())
		run_turn(true, deadline_ns);
	atomic_store(&loop.poller, NULL);
}

int net_whole_wait(struct net_waitq *waitq, int64_t deadline_ns)
{
	struct net_waiter me = {.caller = &net_caller};
	int err = 0;

	for (;;) {
		LIST_INSERT_HEAD(&waitq->threads, &me, queue);
		while (may_wait_on(&me, deadline_ns))
			if (loop.poller || net_baton_is_wanted())
				sleep_until(&me, deadline_ns);
			else
				poll_until(&me, deadline_ns);
		LIST_REMOVE(&me, queue);
		if (!loop.poller)
			wake_next_poller();
		if (me.woken)
			return 0;
		if (is_cancelled())
			return -ECANCELED;
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
	if (net_baton_is_wanted()) {
		net_baton_give();
		net_baton_take();
	}
	run_turn(false, 0);
	if (is_cancelled())
		return -ECANCELED;
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

static void begin_caller(void)
{
	sem_init(&net_caller.sem, 0, 0);
	pthread_setspecific(loop.ends, &net_caller);
	net_caller.thread = pthread_self();
	net_caller.begun = true;
	LIST_INSERT_HEAD(&loop.callers, &net_caller, link);
}

void net_whole_step_in(void)
{
	if (unlikely(net_caller.set_type)) {
		/* glibc 2.36 acts on a cancellation that it has sent even if
		 * the thread has disabled cancellation since. */
		net_caller.set_type(PTHREAD_CANCEL_DEFERRED, NULL);
		net_disable_cancels();
	}
	net_caller.state = NET_CALLING;
	net_baton_begin();
	if (unlikely(net_whole.cancels))
		net_disable_cancels();
	if (unlikely(!net_caller.begun))
		begin_caller();
}

void net_whole_step_out(void)
{
	bool cancels_off = net_caller.cancels_off;
	int cancels = net_caller.cancels;

	net_caller.cancels_off = false;
	net_baton_end();
	net_caller.state = NET_OUTSIDE; /* signal handlers may run now */
	if (cancels_off)
		pthread_setcancelstate(cancels, NULL);
	if (unlikely(net_caller.set_type))
		net_caller.set_type(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
}

int net_whole_cancel(pthread_t thread, int (*real_cancel)(pthread_t thread))
{
	struct net_caller *caller;
	int err;

	net_whole_step_in();
	net_whole.cancels = true; /* other threads see it in net_baton_take() */
	LIST_FOREACH(caller, &loop.callers, link)
	if (pthread_equal(caller->thread, thread)) {
		caller->cancelled = true;
		sem_post(&caller->sem);
	}
	err = real_cancel(thread);
	net_whole_step_out();
	return err;
}

int net_whole_cancel_type(int type, int *old,
			  int (*real_type)(int type, int *old))
{
	int err;

	if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
		net_caller.set_type = real_type;
	err = real_type(type, old);
	if (err == 0 && type != PTHREAD_CANCEL_ASYNCHRONOUS)
		net_caller.set_type = NULL;
	return err;
}

/* Called when a thread ends; later destructors may still make calls. */
static void end_caller(void *arg)
{
	if (net_whole.closed)
		return;
	net_whole_step_in();
	LIST_REMOVE(&net_caller, link);
	net_baton_forget();
	net_whole_step_out();
}

/* Returns whether the call may go on. */
int net_whole_signals(void)
{
	bool restarts;

	net_whole_step_out();
	restarts = net_whole.handle_signals();
	net_whole_step_in();
	return restarts && !net_caller.unrestartable ? 0 : -EINTR;
}

/* Ends the thread here if pthread_cancel() was called for it. The C library
 * unwinds its stack without returning, which AddressSanitizer has to know. */
static void test_cancel(void)
{
#if defined(__SANITIZE_ADDRESS__)
	__asan_handle_no_return();
#endif
	pthread_testcancel();
}

long net_with_baton(long a, long b, long c, long d, long e, long f,
		    net_any_fn fn)
{
	long result;
	int saved;

	if (unlikely(!net_caller.begun)) {
		net_whole_step_in(); /* net_whole_cancel() finds it now */
		net_whole_step_out();
		test_cancel();
	}
	net_whole_step_in();
	result = fn(a, b, c, d, e, f);
	saved = errno;
	net_whole_step_out();
	if (unlikely(atomic_load(&net_caller.noted) != 0))
		net_whole.handle_signals();
	if (unlikely((int)result == -1 && saved == ECANCELED))
		test_cancel();
	errno = saved;
	return result;
}

/* ---- the keeper ---- */

static void keep_turning(void)
{
	struct net_waiter me = {.caller = &net_caller};

	net_whole_step_in();
	if (!loop.poller && !net_baton_is_wanted()) {
		atomic_store(&loop.poller, &me);
		while (!net_baton_is_wanted() && !atomic_load(&loop.fatal))
			run_turn(true, CORO_FOREVER);
		atomic_store(&loop.poller, NULL);
		wake_next_poller();
	}
	net_whole_step_out();
}

/* Sleeps while a call waits and polls: the keeper has nothing to do then. */
static void sleep_while_polled(void)
{
	atomic_store(&loop.keeper_sleeps, true);
	if (!atomic_load(&loop.poller) &&
	    atomic_exchange(&loop.keeper_sleeps, false))
		return;
	sem_wait(&loop.keeper);
}

void net_whole_close(void)
{
	atomic_store(&loop.closing, true);
	while (atomic_load(&loop.n_waking))
		sched_yield();
	net_whole.closed = true;
	net_stack_close(net_whole.stack);
}

/* Closes all connections before a signal or _exit() ends the program, as a
 * kernel does. */
static void end_by(int fatal)
{
	net_whole_step_in();
	net_stack_stop(net_whole.stack);
	net_caller.state = NET_TURNING;
	net_stack_run(net_whole.stack);
	net_whole_close();
	atomic_store(&loop.ended, true);
	while (fatal == EXITS)
		pause();
	net_whole.default_action(fatal);
}

static void *keep_baton(void *arg)
{
	uint64_t seen = 0;

	net_caller.unbiased = true;
	net_whole.keeper = gettid();
	net_whole_take_signals();
	sem_post(arg);
	for (;;) {
		wait_limited(&loop.keeper, KEEPER_NS);
		if (atomic_load(&loop.fatal))
			end_by(atomic_load(&loop.fatal));
		if (atomic_load(&loop.poller))
			sleep_while_polled();
		else if (seen == atomic_load(&loop.turns))
			keep_turning();
		seen = atomic_load(&loop.turns);
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
	sem_init(&loop.keeper, 0, 0);
	err = pthread_key_create(&loop.ends, end_caller);
	if (err)
		return -err;
	net_baton_allow_bias();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask); /* they are the program's */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, keep_baton, &begun);
	pthread_attr_destroy(&attr);
	while (err == 0 && sem_wait(&begun) < 0) {
		/* a driver's signal */
	}
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return -err;
}

/* Called in a signal handler. */
void net_whole_end_by(int signo)
{
	atomic_store(&loop.fatal, signo);
	sem_post(&loop.keeper);
	net_whole_wake_loop();
}

void net_whole_end(void)
{
	const struct timespec pause = {.tv_nsec = EXIT_NS};

	net_whole_end_by(EXITS);
	for (int i = 0; i < EXIT_MAX && !atomic_load(&loop.ended); i++)
		nanosleep(&pause, NULL);
}

void net_whole_note(int signo)
{
	atomic_fetch_or(&net_caller.noted, UINT64_C(1) << (signo - 1));
	if (net_caller.begun)
		sem_post(&net_caller.sem);
	net_whole_wake_loop();
}
