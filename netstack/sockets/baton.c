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
 * The baton is biased: a thread that has taken it BIAS_CALLS times while no
 * other thread wanted it keeps it between its calls, and takes it again without
 * an atomic operation. A thread that wants it revokes the bias: after
 * membarrier(2) it sees whether the holder is in a call, which will then pass
 * the baton on at its end. Otherwise it passes the baton on itself.
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
#include "netstack/sockets/whole.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#include <unistd.h>

#define KEEPER_NS  INT64_C(1000000)
#define BIAS_CALLS 64u
#define BIASES	   64u /* threads beyond them take turns without a bias */

_Thread_local struct net_caller net_caller;

/*
 * What a thread with a bias shows to the others. It outlives the thread: one
 * that revokes the bias may look at it later. It cannot be biased again before
 * that thread has had the baton.
 */
struct net_bias {
	_Alignas(64) _Atomic bool in_call;
	_Atomic bool retains; /* the baton, between calls; the thread that
				 clears it passes the baton on */
	bool used;	      /* a thread's; belongs to the baton's holder */
};

static struct {
	/* The baton: tickets that were drawn, and whose turn it is. */
	_Alignas(64) _Atomic uint32_t drawn;
	_Alignas(64) _Atomic uint32_t serving;
	_Alignas(64) _Atomic(struct net_bias *) biased_to; /* or NULL */
	/* The fields that follow belong to its holder. */
	const struct net_caller *last; /* took it last */
	unsigned n_last; /* its calls in a row, while no other wanted it */
	struct net_bias biases[BIASES];
	_Atomic uint64_t turns;
	_Atomic(struct net_waiter *) poller; /* turns the loop; or NULL */
	LIST_HEAD(, net_waiter) asleep;	     /* the others that wait */
	_Atomic bool keeper_sleeps;	     /* until the poller leaves */
	sem_t keeper;
	LIST_HEAD(, net_caller) callers;
	bool cancels;	    /* pthread_cancel() has been called */
	_Atomic int fatal;  /* a signal that ends the program */
	pthread_key_t ends; /* runs end_caller() */
	bool can_bias;
	_Atomic bool closing;	   /* the loop has ended */
	_Atomic unsigned n_waking; /* threads that are waking the loop */
} baton;

static void do_nothing(void *arg)
{
}

/*
 * The holder may sleep in the loop. Also in signal handlers. coro_post() is a
 * cancellation point, at which a ticket of the thread would be lost.
 */
static void wake_loop(void)
{
	int cancels;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
	atomic_fetch_add(&baton.n_waking, 1);
	if (!atomic_load(&baton.closing))
		coro_post(net_whole.sched, do_nothing, NULL);
	atomic_fetch_sub(&baton.n_waking, 1);
	pthread_setcancelstate(cancels, NULL);
}

static long call_futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL,
		       NULL, 0);
}

/* ---- the baton ---- */

static bool is_wanted(void)
{
	return atomic_load(&baton.drawn) != atomic_load(&baton.serving) + 1;
}

static void pass_on(void)
{
	uint32_t next = atomic_fetch_add(&baton.serving, 1) + 1;

	if (unlikely(atomic_load(&baton.drawn) != next))
		call_futex(&baton.serving, FUTEX_WAKE, INT_MAX);
}

static bool is_biased_to(const struct net_bias *bias)
{
	return atomic_load_explicit(&baton.biased_to, memory_order_relaxed) ==
	       bias;
}

/* Takes the bias away from its holder. Called by a thread with a ticket. */
static void revoke_bias(void)
{
	struct net_bias *bias = atomic_exchange(&baton.biased_to, NULL);

	if (!bias)
		return;
	/* Orders the holder's last store to in_call before the load here. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	if (!atomic_load(&bias->in_call) &&
	    atomic_exchange(&bias->retains, false))
		pass_on();
}

static void wait_for(uint32_t ticket)
{
	uint32_t now;

	revoke_bias();
	if (atomic_load(&baton.serving) != ticket)
		wake_loop();
	while ((now = atomic_load(&baton.serving)) != ticket)
		call_futex(&baton.serving, FUTEX_WAIT, now);
}

static void enter_stack(void)
{
	if (net_caller.entered) /* under a bias that was revoked since */
		net_stack_leave(net_whole.stack);
	net_stack_enter(net_whole.stack);
	net_caller.entered = true;
	net_sockets_given = net_whole.owner;
}

static void leave_stack(void)
{
	net_sockets_given = NULL;
	net_caller.entered = false;
	net_stack_leave(net_whole.stack);
}

static void disable_cancels(void)
{
	if (net_caller.cancels_off)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &net_caller.cancels);
	net_caller.cancels_off = true;
}

static void take_baton(void)
{
	uint32_t ticket = atomic_fetch_add(&baton.drawn, 1);

	if (unlikely(atomic_load(&baton.serving) != ticket))
		wait_for(ticket);
	if (baton.cancels)
		disable_cancels();
	if (baton.last != &net_caller) {
		baton.last = &net_caller;
		baton.n_last = 0;
	}
	enter_stack();
}

/* Gives up the bias. Called in a call, so that no other thread passes the baton
 * on. */
static void drop_bias(struct net_bias *bias)
{
	if (bias && atomic_load(&bias->retains)) {
		atomic_store(&bias->retains, false);
		atomic_store(&baton.biased_to, NULL);
	}
}

static void give_baton(void)
{
	drop_bias(net_caller.bias);
	leave_stack();
	pass_on();
}

/* ---- calls ---- */

static struct net_bias *new_bias(void)
{
	if (!net_caller.unbiased)
		for (unsigned i = 0; i < BIASES; i++)
			if (!baton.biases[i].used) {
				baton.biases[i].used = true;
				return &baton.biases[i];
			}
	net_caller.unbiased = true;
	return NULL;
}

/* Biases the baton to this thread, at the end of a call. */
static void bias_to_me(void)
{
	if (!net_caller.bias && !(net_caller.bias = new_bias()))
		return;
	atomic_store(&net_caller.bias->in_call, true);
	atomic_store(&net_caller.bias->retains, true);
	atomic_store(&baton.biased_to, net_caller.bias);
	/* A thread that drew a ticket before it could see the bias waits. */
	if (is_wanted())
		atomic_store(&baton.biased_to, NULL);
}

static void begin_call(void)
{
	struct net_bias *bias = net_caller.bias;

	if (!bias) {
		take_baton();
		return;
	}
	atomic_store_explicit(&bias->in_call, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (likely(is_biased_to(bias))) {
		net_sockets_given = net_whole.owner; /* it has not left */
	} else if (atomic_load(&bias->retains) &&
		   atomic_exchange(&bias->retains, false)) {
		enter_stack(); /* and pass the baton on at the end */
	} else {
		take_baton();
	}
}

/* Ends a call without passing the baton on: the thread stays in the stack. */
static void retain_baton(struct net_bias *bias)
{
	net_sockets_given = NULL;
	atomic_store_explicit(&bias->in_call, false, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(!is_biased_to(bias)) &&
	    atomic_exchange(&bias->retains, false)) {
		leave_stack();
		pass_on();
	}
}

static void end_call(void)
{
	struct net_bias *bias = net_caller.bias;

	if (!bias || !is_biased_to(bias)) {
		if (is_wanted())
			baton.n_last = 0;
		else if (++baton.n_last >= BIAS_CALLS && baton.can_bias)
			bias_to_me();
		bias = net_caller.bias;
	}
	if (bias &&
	    atomic_load_explicit(&bias->retains, memory_order_relaxed)) {
		retain_baton(bias);
		return;
	}
	leave_stack();
	if (bias)
		atomic_store_explicit(&bias->in_call, false,
				      memory_order_release);
	pass_on();
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
	atomic_store_explicit(&baton.turns, baton.turns + 1,
			      memory_order_relaxed);
	work = net_stack_turn(net_whole.stack);
	if (may_idle && !is_wanted() && !atomic_load(&net_caller.noted))
		sleep_in_turn(work, until_ns);
	net_caller.state = was;
}

/* ---- waiting ---- */

/* Wakes the next poller: another call that waits, or else the keeper. */
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

static void poll_until(struct net_waiter *me, int64_t deadline_ns)
{
	atomic_store(&baton.poller, me);
	while (may_wait_on(me, deadline_ns)) {
		if (is_wanted()) {
			give_baton();
			take_baton();
		} else {
			run_turn(true, deadline_ns);
		}
	}
	atomic_store(&baton.poller, NULL);
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

static void sleep_until(struct net_waiter *me, int64_t deadline_ns)
{
	int64_t left_ns = deadline_ns - coro_sched_clock(net_whole.sched);

	disable_cancels(); /* sem_wait() is a cancellation point */
	me->asleep = true;
	LIST_INSERT_HEAD(&baton.asleep, me, sleeping);
	give_baton();
	if (deadline_ns == CORO_FOREVER)
		sem_wait(&net_caller.sem);
	else
		wait_limited(&net_caller.sem, left_ns);
	take_baton();
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
	if (is_wanted()) {
		give_baton();
		take_baton();
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
	pthread_setspecific(baton.ends, &net_caller);
	net_caller.thread = pthread_self();
	net_caller.begun = true;
	LIST_INSERT_HEAD(&baton.callers, &net_caller, link);
}

void net_whole_step_in(void)
{
	if (unlikely(net_caller.set_type)) {
		/* glibc 2.36 acts on a cancellation that it has sent even if
		 * the thread has disabled cancellation since. */
		net_caller.set_type(PTHREAD_CANCEL_DEFERRED, NULL);
		disable_cancels();
	}
	net_caller.state = NET_CALLING;
	begin_call();
	if (unlikely(baton.cancels))
		disable_cancels();
	if (unlikely(!net_caller.begun))
		begin_caller();
}

void net_whole_step_out(void)
{
	bool cancels_off = net_caller.cancels_off;
	int cancels = net_caller.cancels;

	net_caller.cancels_off = false;
	end_call();
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
	baton.cancels = true; /* other threads see it in take_baton() */
	LIST_FOREACH(caller, &baton.callers, link)
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
	struct net_bias *bias = net_caller.bias;

	if (net_whole.closed)
		return;
	net_caller.unbiased = true;
	net_whole_step_in();
	LIST_REMOVE(&net_caller, link);
	if (bias) {
		drop_bias(bias);
		atomic_store(&bias->in_call, false);
		bias->used = false;
		net_caller.bias = NULL;
	}
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
	if (!baton.poller && !is_wanted()) {
		atomic_store(&baton.poller, &me);
		while (!is_wanted() && !atomic_load(&baton.fatal))
			run_turn(true, CORO_FOREVER);
		atomic_store(&baton.poller, NULL);
		wake_next_poller();
	}
	net_whole_step_out();
}

/* Sleeps while a call waits and polls: the keeper has nothing to do then. */
static void sleep_while_polled(void)
{
	atomic_store(&baton.keeper_sleeps, true);
	if (!atomic_load(&baton.poller) &&
	    atomic_exchange(&baton.keeper_sleeps, false))
		return;
	sem_wait(&baton.keeper);
}

void net_whole_close(void)
{
	atomic_store(&baton.closing, true);
	while (atomic_load(&baton.n_waking))
		sched_yield();
	net_whole.closed = true;
	net_stack_close(net_whole.stack);
}

/* Closes all connections before a signal ends the program, as a kernel does. */
static void end_by(int signo)
{
	net_whole_step_in();
	net_stack_stop(net_whole.stack);
	net_caller.state = NET_TURNING;
	net_stack_run(net_whole.stack);
	net_whole_close();
	net_whole.default_action(signo);
}

static void *keep_baton(void *arg)
{
	uint64_t seen = 0;

	net_caller.unbiased = true;
	net_whole_take_signals();
	sem_post(arg);
	for (;;) {
		wait_limited(&baton.keeper, KEEPER_NS);
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

static bool has_membarrier(void)
{
	return syscall(SYS_membarrier,
		       MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
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
	err = pthread_key_create(&baton.ends, end_caller);
	if (err)
		return -err;
	baton.can_bias = has_membarrier();
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
	atomic_store(&baton.fatal, signo);
	sem_post(&baton.keeper);
	wake_loop();
}

void net_whole_note(int signo)
{
	atomic_fetch_or(&net_caller.noted, UINT64_C(1) << (signo - 1));
	if (net_caller.begun)
		sem_post(&net_caller.sem);
	wake_loop();
}
