/*
 * The shards of a program: each is a thread with a stack of its own.
 *
 * The thread that opens the program is shard 0. It opens the others one after
 * another, each on its own thread, and closes those that are open when one
 * fails. Until net_stack_run() they only run posted functions. When the program
 * stops, each drains by itself, and continues to receive for the others until
 * all have drained. net_stack_close() closes each on its own thread.
 *
 * The shards share `program`: all of it except the atomics is written only
 * while no other shard runs.
 */
#include "netstack/program/capture.h"
#include "netstack/program/log.h"
#include "netstack/program/privileges.h"
#include "netstack/shard/shard.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <coronet/coro_io.h>

#define WAIT_NAP_NS 200000 /* between two looks of a shard that waits */

enum phase { PHASE_WAIT, PHASE_RUN, PHASE_CLOSE };

static struct {
	unsigned n; /* shards that are open */
	struct member {
		pthread_t thread;
		struct net_stack *stack;
		sem_t opened;
		int err;
	} shards[NET_MAX_SHARDS];
	struct net_opts *opts; /* while they open */
	_Atomic int phase;     /* enum phase */
	_Atomic unsigned undrained;
	_Atomic int stop;
	bool checks;	/* net_opts.check */
	unsigned lcore; /* DPDK's number of the thread that has entered */
} program;

bool net_program_checks(void)
{
	return program.checks;
}

/* ---- the numbers of shards ---- */

unsigned net_stack_shard(const struct net_stack *stack)
{
	return stack->shard;
}

unsigned net_stack_shards(const struct net_stack *stack)
{
	return stack->n_shards;
}

struct net_stack *net_stack_here(void)
{
	return net_here()->sched ? net_here() : NULL;
}

static struct coro_sched *sched_of(unsigned shard)
{
	return shard < program.n ? program.shards[shard].stack->sched : NULL;
}

int net_post(unsigned shard, void (*fn)(void *arg), void *arg)
{
	struct coro_sched *sched = sched_of(shard);

	if (!fn || !sched)
		return -EINVAL;
	return coro_post(sched, fn, arg);
}

static enum phase phase_now(void)
{
	return (enum phase)atomic_load_explicit(&program.phase,
						memory_order_acquire);
}

/* ---- calling another shard ---- */

/* A call before the shards run: there is no coroutine, so the thread waits. */
struct early_call {
	coro_fn fn;
	void *arg, *result;
	sem_t done;
};

static void run_early(void *arg)
{
	struct early_call *call = arg;

	call->result = call->fn(call->arg);
	sem_post(&call->done);
}

static int call_early(unsigned shard, coro_fn fn, void *arg, void **result)
{
	struct early_call call = {.fn = fn, .arg = arg};
	int err = 0;

	sem_init(&call.done, 0, 0);
	if (shard == net_here()->shard)
		run_early(&call);
	else
		err = net_post(shard, run_early, &call);
	while (err == 0 && sem_wait(&call.done) < 0)
		; /* a signal came */
	sem_destroy(&call.done);
	if (err == 0 && result)
		*result = call.result;
	return err;
}

int net_call(unsigned shard, coro_fn fn, void *arg, void **result)
{
	struct coro_sched *sched = sched_of(shard);

	if (!fn || !sched)
		return -EINVAL;
	if (!coro_self() && net_here()->sched && phase_now() == PHASE_WAIT)
		return call_early(shard, fn, arg, result);
	return coro_call(sched, fn, arg, result);
}

/* ---- a shard's thread ---- */

/* Runs what is posted; nothing is received, since nothing listens yet. */
static void wait_while(struct net_stack *stack, enum phase phase)
{
	static const struct timespec nap = {.tv_nsec = WAIT_NAP_NS};

	while (phase_now() == phase) {
		stack->now_ns = glue_now_ns();
		coro_sched_round(stack->sched);
		coro_sched_advance(stack->sched, stack->now_ns);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
	}
}

static void run_shard(struct net_stack *stack)
{
	net_shard_run(stack);
	atomic_fetch_sub(&program.undrained, 1);
	while (atomic_load(&program.undrained))
		net_stack_round(stack);
}

static int enter_shard(const struct member *me, struct net_opts *opts)
{
	unsigned shard = (unsigned)(me - program.shards);
	int err = glue_thread_enter(shard, opts->error, sizeof(opts->error));

	if (err < 0)
		return err;
	err = net_shard_open(opts, shard);
	if (err < 0)
		glue_thread_leave();
	return err;
}

static void *shard_main(void *arg)
{
	struct member *me = arg;
	struct net_stack *stack;

	me->err = enter_shard(me, program.opts);
	stack = net_here();
	me->stack = stack;
	if (me->err < 0) {
		sem_post(&me->opened);
		return NULL;
	}
	sem_post(&me->opened);
	wait_while(stack, PHASE_WAIT);
	if (phase_now() == PHASE_RUN)
		run_shard(stack);
	wait_while(stack, PHASE_RUN);
	net_shard_close(stack);
	glue_thread_leave();
	return NULL;
}

/* ---- statistics ---- */

/*
 * For --stats: each shard counts its own, and the last one has shard 0 write
 * the lines. Until then, those of the next interval wait.
 */
static struct {
	struct net_stats now[NET_MAX_SHARDS], was[NET_MAX_SHARDS];
	_Atomic unsigned left; /* shards, and the lines; 0: they are written */
	int64_t asked_ns, was_ns;
} counted;

static void log_counted(void *arg)
{
	if (phase_now() == PHASE_RUN)
		net_stats_log(net_here(), counted.now, counted.was, program.n,
			      (double)(counted.asked_ns - counted.was_ns) /
				      1e9);
	memcpy(counted.was, counted.now, sizeof(counted.was));
	counted.was_ns = counted.asked_ns;
	atomic_store(&counted.left, 0);
}

/* A shard whose inbox is full has no new figures, or there are no lines. */
static void settle_one(void)
{
	if (atomic_fetch_sub(&counted.left, 1) != 2)
		return;
	if (net_here()->shard == 0)
		log_counted(NULL);
	else if (net_post(0, log_counted, NULL) < 0)
		atomic_store(&counted.left, 0);
}

static void count_here(void *arg)
{
	struct net_stack *stack = net_here();

	net_stack_stats(stack, &counted.now[stack->shard]);
	settle_one();
}

void net_shards_say_stats(struct net_stack *stack)
{
	stack->next_stats_ns = stack->now_ns + stack->stats_ns;
	if (atomic_load(&counted.left)) /* the watchdog names a stuck shard */
		return;
	counted.asked_ns = stack->now_ns;
	atomic_store(&counted.left, program.n + 1);
	for (unsigned i = 1; i < program.n; i++)
		if (net_post(i, count_here, NULL) < 0)
			settle_one();
	count_here(NULL);
}

struct sum {
	struct net_stats shards[NET_MAX_SHARDS];
	unsigned n;
};

static void *count_into(void *arg)
{
	struct sum *sum = arg;

	net_stack_stats(net_here(), &sum->shards[net_here()->shard]);
	return NULL;
}

int net_program_stats(struct net_stats *out)
{
	struct sum *sum = calloc(1, sizeof(*sum));
	int err = 0;

	NET_CHECK_THREAD();
	if (!sum)
		return -ENOMEM;
	for (unsigned i = 0; err == 0 && i < program.n; i++)
		err = net_call(i, count_into, sum, NULL);
	if (err == 0)
		net_stats_sum(out, sum->shards, program.n);
	free(sum);
	return err;
}

/* ---- opening and closing ---- */

/* Signals are for shard 0, whose calls they may interrupt. */
static int start_thread(struct member *me)
{
	sigset_t all, before;
	char name[16];
	int err;

	sem_init(&me->opened, 0, 0);
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGABRT);
	sigdelset(&all, SIGTRAP);
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	sigdelset(&all, SIGURG); /* the watchdog's */
	pthread_sigmask(SIG_BLOCK, &all, &before);
	err = pthread_create(&me->thread, NULL, shard_main, me);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		snprintf(program.opts->error, sizeof(program.opts->error),
			 "shard %u of %u: no thread can be made (ulimit -u, "
			 "pids.max): %s",
			 program.n, program.opts->shards, strerror(err));
		return -err;
	}
	snprintf(name, sizeof(name), "shard-%u", program.n);
	pthread_setname_np(me->thread, name);
	while (sem_wait(&me->opened) < 0)
		;
	if (me->err < 0)
		pthread_join(me->thread, NULL);
	return me->err;
}

/* Closes the shards that have opened, except shard 0. */
static void close_others(void)
{
	atomic_store(&program.phase, PHASE_CLOSE);
	for (unsigned i = 1; i < program.n; i++)
		pthread_join(program.shards[i].thread, NULL);
	for (unsigned i = 1; i < program.n; i++)
		sem_destroy(&program.shards[i].opened);
	program.n = 1;
}

static unsigned requested_shards(const struct net_opts *opts)
{
	if (opts->shards)
		return opts->shards;
	return opts->n_lcores ? opts->n_lcores : 1;
}

static int check_shards(struct net_opts *opts)
{
	if (requested_shards(opts) > opts->max_shards) {
		snprintf(opts->error, sizeof(opts->error),
			 "%u shards (--lcores, --shards): this program runs on "
			 "%u; start it with --lcore N",
			 requested_shards(opts), opts->max_shards);
		return -EINVAL;
	}
	if (opts->n_lcores && requested_shards(opts) > opts->n_lcores) {
		snprintf(opts->error, sizeof(opts->error),
			 "--shards %u: --lcores names %u CPU%s, but each shard "
			 "needs a CPU of its own; name more CPUs, or none",
			 opts->shards, opts->n_lcores,
			 opts->n_lcores == 1 ? "" : "s");
		return -EINVAL;
	}
	return 0;
}

int net_stack_open(struct net_opts *opts, struct net_stack **out)
{
	unsigned n = requested_shards(opts);
	struct net_stack *stack;
	int err;

	opts->error[0] = '\0';
	if (net_stacks_open()) {
		snprintf(
			opts->error, sizeof(opts->error),
			"a stack is open already: a process can have only one");
		return -EALREADY;
	}
	err = check_shards(opts);
	if (err == 0 && opts->check)
		err = net_check_replaced(opts);
	if (err < 0)
		return err;
	program.checks = opts->check;
	atomic_store(&program.phase, PHASE_WAIT);
	atomic_store(&program.stop, 0);
	program.opts = opts;
	program.n = 0;
	opts->shards = n;
	err = net_program_open(opts);
	if (err < 0)
		return err;
	err = net_shard_open(opts, 0);
	if (err < 0)
		goto close_program;
	stack = net_here();
	program.shards[0].stack = stack;
	for (program.n = 1; program.n < n; program.n++) {
		err = start_thread(&program.shards[program.n]);
		if (err < 0)
			goto close_shards;
	}
	err = net_capture_open(opts);
	if (err == 0)
		err = net_control_ready(opts, program.n);
	if (err == 0)
		err = net_privileges_drop(opts);
	if (err < 0)
		goto close_shards;
	atomic_store(&program.undrained, n);
	program.opts = NULL;
	memset(&counted, 0, sizeof(counted));
	counted.was_ns = stack->now_ns;
	*out = stack;
	return 0;

close_shards:
	net_control_close(); /* while the shards are there to be asked */
	close_others();
	net_shard_close(stack);
close_program:
	net_program_close();
	net_explain(opts, err);
	return err;
}

void net_stack_close(struct net_stack *stack)
{
	NET_CHECK_STACK(stack);
	net_control_close(); /* while the shards are there to be asked */
	close_others();
	net_shard_close(stack);
	net_program_close();
}

/* ---- running ---- */

static void on_signal(int signo)
{
	if (atomic_exchange(&program.stop, 1))
		_exit(1);
}

void net_stack_stop(struct net_stack *stack)
{
	atomic_store(&program.stop, 1);
}

bool net_stack_stopping(const struct net_stack *stack)
{
	return atomic_load_explicit(&program.stop, memory_order_relaxed);
}

struct signals {
	struct sigaction was_int, was_term;
};

static void catch_signals(struct signals *signals)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, &signals->was_int);
	sigaction(SIGTERM, &action, &signals->was_term);
}

static void restore_signals(const struct signals *signals)
{
	sigaction(SIGINT, &signals->was_int, NULL);
	sigaction(SIGTERM, &signals->was_term, NULL);
}

int net_stack_run(struct net_stack *stack)
{
	struct signals signals;

	NET_CHECK_STACK(stack);
	if (program.checks) {
		printf("the options are valid\n");
		return 0;
	}
	catch_signals(&signals);
	atomic_store(&program.phase, PHASE_RUN);
	run_shard(stack);
	net_ask_shut();
	restore_signals(&signals);
	return 0;
}

/* ---- threads that take turns ---- */

void net_stack_leave(struct net_stack *stack)
{
	NET_CHECK_STACK(stack);
	if (phase_now() == PHASE_WAIT) {
		net_budget_start();
		atomic_store(&program.phase, PHASE_RUN);
	}
	coro_sched_leave(stack->sched);
	program.lcore = glue_thread_hand_over();
	net_shard_enter(NULL);
}

int net_stack_enter(struct net_stack *stack)
{
	if (net_here()->sched || coro_sched_enter(stack->sched) < 0)
		return -EEXIST;
	net_shard_enter(stack);
	glue_thread_take_over(program.lcore);
	return 0;
}

unsigned net_stack_turn(struct net_stack *stack)
{
	unsigned work;

	NET_CHECK_STACK(stack);
	work = net_stack_work(stack);
	if (stack->stats_ns && stack->now_ns >= stack->next_stats_ns)
		net_shards_say_stats(stack);
	return work;
}

void net_stack_rest(struct net_stack *stack, unsigned work, int64_t until_ns)
{
	NET_CHECK_STACK(stack);
	net_idle(stack, work, until_ns);
}

/* ---- one function for every shard ---- */

struct start {
	net_start fn;
	void *arg;
	_Atomic int err; /* of the first that failed */
};

static void start_failed(struct start *start, int err)
{
	int none = 0;

	atomic_compare_exchange_strong(&start->err, &none, err);
	net_stack_stop(net_here());
}

static void *start_coro(void *arg)
{
	struct start *start = arg;
	int err = start->fn(net_here(), start->arg);

	if (err < 0)
		start_failed(start, err);
	return NULL;
}

static void start_here(void *arg)
{
	int err = net_spawn(net_here(), "start", start_coro, arg);

	if (err < 0)
		start_failed(arg, err);
}

int net_run(struct net_opts *opts, net_start fn, void *arg)
{
	struct start start = {.fn = fn, .arg = arg};
	struct net_stack *stack;
	int err;

	if (!fn) {
		snprintf(opts->error, sizeof(opts->error),
			 "net_run: no function to start the shards with");
		return -EINVAL;
	}
	opts->max_shards = NET_MAX_SHARDS;
	err = net_stack_open(opts, &stack);
	if (err < 0)
		return err;
	if (!opts->check)
		start_here(&start);
	for (unsigned i = 1; err == 0 && !opts->check && i < program.n; i++)
		err = net_post(i, start_here, &start);
	if (err == 0)
		net_stack_run(stack);
	net_stack_close(stack);
	if (err == 0)
		err = atomic_load(&start.err);
	if (err < 0)
		net_explain(opts, err);
	return err;
}

/* ---- net_serve() ---- */

struct serving {
	struct net_addr addr;
	struct net_limits limits;
	struct net_tls *tls;
	net_handler handler;
	void *arg;
};

/* Returns an error as a pointer, for net_call(); may choose the port. */
static void *serve_here(void *arg)
{
	struct serving *serving = arg;
	struct net_listener *listener;
	int err = net_listen(net_here(), &serving->addr, 0, &listener);

	if (err < 0)
		return (void *)(intptr_t)err;
	serving->addr = net_listener_addr(listener);
	net_listener_limit(listener, &serving->limits);
	listener->tls = serving->tls;
	err = net_listener_serve(listener, serving->handler, serving->arg);
	return (void *)(intptr_t)err;
}

static int serve_everywhere(struct serving *serving)
{
	int err = 0;

	for (unsigned i = 0; err == 0 && i < program.n; i++) {
		void *result = NULL;

		err = net_call(i, serve_here, serving, &result);
		if (err == 0)
			err = (int)(intptr_t)result;
	}
	return err;
}

int net_serve_with(struct net_stack *stack, const struct net_addr *addr,
		   const struct net_limits *limits, struct net_tls *tls,
		   net_handler handler, void *arg)
{
	struct serving serving = {
		.addr = *addr, .tls = tls, .handler = handler, .arg = arg};
	char text[NET_ADDR_TEXT_MAX];
	struct signals signals;
	int err;

	if (limits)
		serving.limits = *limits;
	err = serve_everywhere(&serving);
	if (err < 0) {
		fprintf(stderr, "%s: listening on %s: %s\n",
			program_invocation_short_name,
			net_addr_format(addr, text, sizeof(text)),
			strerror(-err));
		net_stack_close(stack);
		return err;
	}
	catch_signals(&signals); /* a reader of the line may stop us at once */
	if (!program.checks)
		printf("listening on %s\n",
		       net_addr_format(&serving.addr, text, sizeof(text)));
	fflush(stdout);
	net_stack_run(stack);
	restore_signals(&signals);
	net_stack_close(stack);
	return 0;
}

int net_serve_limited(struct net_stack *stack, const struct net_addr *addr,
		      const struct net_limits *limits, net_handler handler,
		      void *arg)
{
	return net_serve_with(stack, addr, limits, NULL, handler, arg);
}

int net_serve(struct net_stack *stack, const struct net_addr *addr,
	      net_handler handler, void *arg)
{
	return net_serve_with(stack, addr, NULL, NULL, handler, arg);
}
