/*
 * What the loop does after a round that found no work.
 *
 * Adaptive polling: after a number of empty rounds the thread yields the core,
 * and after many it sleeps. If the kernel can wake it for a frame (a TAP, an
 * AF_PACKET or AF_XDP socket), it sleeps until then. If the driver cannot wake
 * it, as memif's, it takes naps so short that the first packet after one waits
 * less than 50 us. Several shards pass frames to each other by rings, which
 * wake no thread: they nap as well.
 */
#include "netstack/shard/shard.h"
#include "netstack/shard_var.h"

#include <sched.h>
#include <time.h>

#include <coronet/coro_io.h>

#define SPIN_ROUNDS  256      /* empty rounds before adaptive polling sleeps */
#define NAP_NS	     20000    /* with the wake-up, below 50 us */
#define SLEEP_NS     10000000 /* at most, though a frame would wake it */
#define YIELD_ROUNDS 16	      /* empty rounds from one yield to the next */
#define ALONE_NS     3000 /* nobody else ran if a yield took less than this */
#define HOG_NS	     1000000 /* a yield that took more was to no peer */
#define WAKE_FDS     64	     /* of a link, at most */

static NET_SHARD_VAR int64_t next_yield_ns;
static NET_SHARD_VAR bool
	woken_early; /* the last sleep ended before its time */
#define next_yield_ns NET_SHARD(next_yield_ns)
#define woken_early   NET_SHARD(woken_early)

/* Does the kernel wake a sleep for everything that can come? */
static bool watch_links(struct net_stack *stack)
{
	int fds[WAKE_FDS];

	if (stack->n_shards > 1)
		return false;
	for (unsigned i = 0; i < stack->n_ports; i++) {
		unsigned n = glue_port_wake_fds(stack->ports[i].glue, fds,
						WAKE_FDS - 1);
		int kernel = net_exception_fd(&stack->ports[i]);

		if (n == 0 || n == WAKE_FDS - 1)
			return false;
		if (kernel >= 0)
			fds[n++] = kernel;
		for (unsigned j = 0; j < n; j++)
			if (coro_sched_wake_on(stack->sched, fds[j], true) < 0)
				return false;
	}
	return true;
}

void net_idle_start(struct net_stack *stack)
{
	stack->woken = stack->adaptive && watch_links(stack);
}

/* May adaptive polling leave the core to others for a moment? */
static bool may_yield_core(const struct net_stack *stack)
{
	return stack->adaptive && !net_link_loops() &&
	       !coro_sched_ready(stack->sched) &&
	       coro_sched_next_ns(stack->sched) > stack->now_ns + NAP_NS;
}

/*
 * The peer may be waiting for this very core, and then spinning only keeps it
 * from sending what we wait for. How long a yield takes shows whether others
 * want the core: while nobody does, we yield every 100 us; after a long yield,
 * we do not yield again for ten times its length.
 */
static void yield_core(void)
{
	int64_t began_ns = glue_now_ns(), took_ns;

	if (began_ns < next_yield_ns)
		return;
	sched_yield();
	took_ns = glue_now_ns() - began_ns;
	if (took_ns < ALONE_NS)
		next_yield_ns = began_ns + 100000;
	else if (took_ns > HOG_NS)
		next_yield_ns = began_ns + 11 * took_ns;
}

static void sleep_briefly(void)
{
	static const struct timespec time = {.tv_nsec = NAP_NS};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

/* Are there frames that no port took yet, or senders that wait for room? */
static bool is_sending(const struct net_stack *stack)
{
	for (unsigned i = 0; i < stack->n_ports; i++)
		if (glue_tx_pending(stack->ports[i].glue) ||
		    !TAILQ_EMPTY(&stack->ports[i].senders))
			return true;
	return false;
}

/*
 * A sleep that ends for a frame which the driver does not give, or for a socket
 * whose interface is gone, is followed by a nap: otherwise the thread would
 * spin in system calls.
 */
static void sleep_until_event(struct net_stack *stack, int64_t last_ns)
{
	int64_t now_ns = glue_now_ns(), until_ns = now_ns + NAP_NS;
	bool sleeps = stack->woken && !is_sending(stack);

	if (woken_early || (!sleeps && !coro_fd_waiting(stack->sched))) {
		woken_early = false;
		sleep_briefly();
		return;
	}
	if (sleeps)
		until_ns = LWIP_MIN(LWIP_MIN(now_ns + SLEEP_NS, last_ns),
				    coro_sched_next_ns(stack->sched));
	coro_sched_wait(stack->sched, until_ns);
	woken_early = glue_now_ns() < until_ns;
}

void net_idle(struct net_stack *stack, unsigned work, int64_t until_ns)
{
	if (work) {
		stack->empty_rounds = 0;
		woken_early = false;
	} else if (stack->empty_rounds < SPIN_ROUNDS) {
		stack->empty_rounds++;
		if (stack->empty_rounds % YIELD_ROUNDS == YIELD_ROUNDS / 2 &&
		    may_yield_core(stack))
			yield_core();
		__builtin_ia32_pause();
	} else if (may_yield_core(stack)) {
		sleep_until_event(stack, until_ns);
	}
}
