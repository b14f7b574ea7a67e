/*
 * The baton of whole programs: a lock that their threads take turns at. Its
 * holder has entered the stack (net_stack_enter()).
 *
 * It is a ticket lock. A thread that wants it spins for SPIN_NS before it
 * sleeps: the holder is mostly between two turns by then, and to wake a thread
 * on another CPU takes longer.
 *
 * The baton is biased: a thread that has taken it BIAS_CALLS times while no
 * other thread wanted it keeps it between its calls, and takes it again without
 * an atomic operation. A thread that wants it revokes the bias: after
 * membarrier(2) it sees whether the holder is in a call, which will then pass
 * the baton on at its end. Otherwise it passes the baton on itself.
 */
#include "netstack/sockets/baton.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS	   INT64_C(20000)
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
	/* Tickets that were drawn, whose turn it is, and the threads that wait
	 * for theirs in the kernel. */
	_Alignas(64) _Atomic uint32_t drawn;
	_Alignas(64) _Atomic uint32_t serving;
	_Atomic uint32_t sleepers;
	_Alignas(64) _Atomic(struct net_bias *) biased_to; /* or NULL */
	/* The fields that follow belong to the baton's holder. */
	const struct net_caller *last; /* took it last */
	unsigned n_last; /* its calls in a row, while no other wanted it */
	struct net_bias biases[BIASES];
	bool can_bias;
} baton;

static long call_futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL,
		       NULL, 0);
}

bool net_baton_is_wanted(void)
{
	return atomic_load(&baton.drawn) != atomic_load(&baton.serving) + 1;
}

static void pass_on(void)
{
	atomic_fetch_add(&baton.serving, 1);
	if (unlikely(atomic_load(&baton.sleepers) != 0))
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
	int64_t begin;

	revoke_bias();
	if (atomic_load(&baton.serving) != ticket)
		net_whole_wake_loop();
	begin = net_clock_ns();
	while ((now = atomic_load(&baton.serving)) != ticket) {
		if (net_clock_ns() - begin < SPIN_NS) {
			sched_yield();
			continue;
		}
		atomic_fetch_add(&baton.sleepers, 1);
		call_futex(&baton.serving, FUTEX_WAIT, now);
		atomic_fetch_sub(&baton.sleepers, 1);
	}
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

void net_disable_cancels(void)
{
	if (net_caller.cancels_off)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &net_caller.cancels);
	net_caller.cancels_off = true;
}

void net_baton_take(void)
{
	uint32_t ticket = atomic_fetch_add(&baton.drawn, 1);

	if (unlikely(atomic_load(&baton.serving) != ticket))
		wait_for(ticket);
	if (net_whole.cancels)
		net_disable_cancels();
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

void net_baton_give(void)
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
	if (net_baton_is_wanted())
		atomic_store(&baton.biased_to, NULL);
}

void net_baton_begin(void)
{
	struct net_bias *bias = net_caller.bias;

	if (!bias) {
		net_baton_take();
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
		net_baton_take();
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

void net_baton_end(void)
{
	struct net_bias *bias = net_caller.bias;

	if (!bias || !is_biased_to(bias)) {
		if (net_baton_is_wanted())
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

void net_baton_forget(void)
{
	struct net_bias *bias = net_caller.bias;

	net_caller.unbiased = true;
	if (!bias)
		return;
	drop_bias(bias);
	atomic_store(&bias->in_call, false);
	bias->used = false;
	net_caller.bias = NULL;
}

uint32_t net_baton_tickets(void)
{
	return atomic_load(&baton.drawn);
}

void net_baton_allow_bias(void)
{
	baton.can_bias =
		syscall(SYS_membarrier,
			MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}
