/*
 * The watchdog: names the coroutine that keeps all others of its shard waiting.
 *
 * One thread checks the loop of each shard a few times within the limit. If two
 * checks a limit apart find one coroutine in the same turn, it blocks the loop:
 * nothing is received, sent or timed meanwhile. If it computes, according to
 * the thread's CPU time, a signal to the loop's thread interrupts it once, to
 * find where it is. A coroutine that blocks the thread in a system call is not
 * interrupted, since the call would return early. If the thread neither
 * computes nor sleeps, the machine is busy with other programs and no coroutine
 * is to blame.
 *
 * The signal is SIGURG, which is ignored by default; a handler that was
 * installed before still gets all other SIGURGs. The log's own thread writes
 * the line. The loop itself does nothing for the watchdog.
 */
#include "netstack/program/log.h"
#include "netstack/program/program.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define LOOKS_A_LIMIT	4
#define NS_PER_S	INT64_C(1000000000)
#define CAPTURE_WAIT_NS (NS_PER_S / 10)

struct turn {
	unsigned number; /* coro_sched_turn() */
	bool running;	 /* a coroutine was */
	unsigned looks;	 /* since then, and at how many the thread slept */
	unsigned asleep;
	int64_t since_ns;  /* when it was first seen */
	int64_t cpu_ns;	   /* the thread's CPU time then */
	int64_t report_ns; /* after how long to say it next */
};

/* A shard's loop, as its thread has registered it. */
struct loop {
	struct net_stack *stack;
	pthread_t thread;
	pid_t tid;
	clockid_t clock; /* of its CPU time */
	struct turn turn;
	int64_t next_line_ns;
};

static struct {
	cpu_set_t cpus; /* of the thread that opened the program, unpinned */
	bool has_cpus;
	int64_t limit_ns;
	pthread_mutex_t lock; /* guards what follows */
	struct loop loops[NET_MAX_SHARDS];
	unsigned n;
	pthread_t thread; /* runs while n is not 0 */
	sem_t stop, captured;
	struct sigaction old;
	_Atomic unsigned looks;
	_Atomic bool asked; /* the signal handler is to fill these */
	char who[320];
	_Atomic uintptr_t pc; /* stored last, loaded first */
} dog = {.lock = PTHREAD_MUTEX_INITIALIZER};

unsigned net_watchdog_looks(void)
{
	return atomic_load(&dog.looks);
}

static int64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) < 0)
		return 0;
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* Does the loop's thread sleep in the kernel? */
static bool loop_sleeps(const struct loop *loop)
{
	char path[64], text[256], *state;
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", loop->tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (n <= 0)
		return false;
	text[n] = '\0';
	state = strrchr(text, ')'); /* the name before it may hold anything */
	return state && (state[2] == 'S' || state[2] == 'D');
}

/* ---- capturing the call stack ---- */

/* Runs on the loop's thread. */
static void on_signal(int signo, siginfo_t *info, void *context)
{
	const ucontext_t *at = context;
	const struct coro *co;
	int saved = errno;

	if (!atomic_exchange(&dog.asked, false)) {
		if (dog.old.sa_flags & SA_SIGINFO)
			dog.old.sa_sigaction(signo, info, context);
		else if (dog.old.sa_handler != SIG_DFL &&
			 dog.old.sa_handler != SIG_IGN)
			dog.old.sa_handler(signo);
		return;
	}
	co = coro_sched_running(net_here()->sched);
	dog.who[0] = '\0';
	if (co)
		coro_describe(co, context, dog.who, sizeof(dog.who));
	atomic_store(&dog.pc, (uintptr_t)at->uc_mcontext.gregs[REG_RIP]);
	sem_post(&dog.captured);
	errno = saved;
}

/*
 * Fills dog.who; returns where the coroutine is, or 0 if it has yielded
 * meanwhile. ThreadSanitizer does not know that sem_clockwait() orders what was
 * before the sem_post(), but it knows that loading `pc` does.
 */
static uintptr_t capture_coro(const struct loop *loop)
{
	struct timespec until;
	int64_t until_ns = read_clock(CLOCK_MONOTONIC) + CAPTURE_WAIT_NS;
	uintptr_t pc;
	int err;

	until.tv_sec = until_ns / NS_PER_S;
	until.tv_nsec = until_ns % NS_PER_S;
	atomic_store(&dog.asked, true);
	if (pthread_kill(loop->thread, SIGURG) != 0)
		return 0;
	do {
		err = sem_clockwait(&dog.captured, CLOCK_MONOTONIC, &until);
	} while (err < 0 && errno == EINTR);
	/* If the handler comes after all, it finds that nobody asks; if it has
	 * begun, it ends soon. */
	if (err < 0 && !atomic_exchange(&dog.asked, false))
		while (sem_wait(&dog.captured) < 0)
			;
	pc = atomic_load(&dog.pc);
	return err == 0 && dog.who[0] ? pc : 0;
}

/* ---- checks of the loops ---- */

static bool log_computing(const struct loop *loop, int64_t held_ns)
{
	char place[200];
	uintptr_t pc = capture_coro(loop);

	if (pc == 0)
		return false;
	net_log_of(
		NET_COMPONENT_WATCHDOG, NET_LOG_WARNING,
		"coronet: watchdog: %s has kept all others waiting for %.3f s, "
		"at %s; let it coro_yield(), or give the work to a thread",
		dog.who, (double)held_ns / 1e9,
		net_code_name(pc, place, sizeof(place)));
	return true;
}

/*
 * Nothing that this reads changes while the loop's thread sleeps. False: it has
 * woken up meanwhile.
 */
static bool log_blocked(const struct loop *loop, const struct coro *co,
			int64_t held_ns)
{
	char who[320];

	coro_describe(co, NULL, who, sizeof(who));
	if (coro_sched_turn(loop->stack->sched) != loop->turn.number)
		return false;
	net_log_of(
		NET_COMPONENT_WATCHDOG, NET_LOG_WARNING,
		"coronet: watchdog: %s has kept all others waiting for %.3f s, "
		"in a system call that blocks the thread; give such calls to "
		"another thread",
		who, (double)held_ns / 1e9);
	return true;
}

static void report_loop(struct loop *loop, int64_t now_ns, int64_t cpu_ns)
{
	const struct coro *co = coro_sched_running(loop->stack->sched);
	struct turn *turn = &loop->turn;
	int64_t held_ns = now_ns - turn->since_ns;
	bool logged = false;

	if (!co || now_ns < loop->next_line_ns)
		return;
	if (2 * (cpu_ns - turn->cpu_ns) >= dog.limit_ns)
		logged = log_computing(loop, held_ns);
	else if (2 * turn->asleep >= turn->looks && loop_sleeps(loop))
		logged = log_blocked(loop, co, held_ns);
	if (!logged)
		return;
	turn->report_ns = 2 * held_ns;
	loop->next_line_ns = now_ns + NS_PER_S;
}

static void check_loop(struct loop *loop)
{
	const struct coro_sched *sched = loop->stack->sched;
	struct turn *turn = &loop->turn;
	unsigned number = coro_sched_turn(sched);
	bool running = coro_sched_running(sched) != NULL;
	int64_t now_ns = read_clock(CLOCK_MONOTONIC);
	int64_t cpu_ns = running ? read_clock(loop->clock) : 0;

	if (!running || !turn->running || number != turn->number)
		*turn = (struct turn){.number = number,
				      .running = running,
				      .since_ns = now_ns,
				      .cpu_ns = cpu_ns,
				      .report_ns = dog.limit_ns};
	turn->looks++;
	turn->asleep += running && loop_sleeps(loop);
	if (running && now_ns - turn->since_ns >= turn->report_ns)
		report_loop(loop, now_ns, cpu_ns);
	atomic_fetch_add(&dog.looks, 1);
}

static void look_at_all(void)
{
	pthread_mutex_lock(&dog.lock);
	for (unsigned i = 0; i < dog.n; i++) {
		net_observe(dog.loops[i].stack);
		check_loop(&dog.loops[i]);
	}
	pthread_mutex_unlock(&dog.lock);
}

static void *watch_loops(void *arg)
{
	int64_t pause_ns = dog.limit_ns / LOOKS_A_LIMIT;

	for (;;) {
		int64_t until_ns = read_clock(CLOCK_MONOTONIC) + pause_ns;
		struct timespec until = {until_ns / NS_PER_S,
					 until_ns % NS_PER_S};

		if (sem_clockwait(&dog.stop, CLOCK_MONOTONIC, &until) == 0)
			return NULL;
		if (errno == ETIMEDOUT)
			look_at_all();
	}
}

/* ---- life ---- */

void net_watchdog_prepare(void)
{
	dog.has_cpus = sched_getaffinity(0, sizeof(dog.cpus), &dog.cpus) == 0;
}

static int start_thread(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	pthread_attr_init(&attr);
	if (dog.has_cpus)
		pthread_attr_setaffinity_np(&attr, sizeof(dog.cpus), &dog.cpus);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&dog.thread, &attr, watch_loops, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (!err)
		pthread_setname_np(dog.thread, "watchdog");
	return -err;
}

/* Starts the watchdog for the first shard. Needs the lock. */
static int start_watching(unsigned limit_ms)
{
	struct sigaction action = {.sa_sigaction = on_signal,
				   .sa_flags = SA_SIGINFO | SA_RESTART |
					       SA_ONSTACK};
	int err;

	dog.limit_ns = (int64_t)limit_ms * 1000000;
	atomic_store(&dog.asked, false);
	sem_init(&dog.stop, 0, 0);
	sem_init(&dog.captured, 0, 0);
	if (sigaction(SIGURG, &action, &dog.old) < 0)
		return -errno;
	err = start_thread();
	if (err < 0)
		sigaction(SIGURG, &dog.old, NULL);
	return err;
}

int net_watchdog_start(struct net_stack *stack, unsigned limit_ms)
{
	struct loop loop = {.stack = stack,
			    .thread = pthread_self(),
			    .tid = (pid_t)syscall(SYS_gettid)};
	int err;

	if (limit_ms == 0)
		return 0;
	err = -pthread_getcpuclockid(loop.thread, &loop.clock);
	if (err < 0)
		return err;
	pthread_mutex_lock(&dog.lock);
	if (dog.n == 0)
		err = start_watching(limit_ms);
	if (err == 0)
		dog.loops[dog.n++] = loop;
	pthread_mutex_unlock(&dog.lock);
	return err;
}

/* Removes a stack's loop; false: it was not watched. */
static bool forget_loop(const struct net_stack *stack)
{
	unsigned i = 0;

	while (i < dog.n && dog.loops[i].stack != stack)
		i++;
	if (i == dog.n)
		return false;
	dog.loops[i] = dog.loops[--dog.n];
	return true;
}

void net_watchdog_stop(const struct net_stack *stack)
{
	bool last;

	pthread_mutex_lock(&dog.lock);
	last = forget_loop(stack) && dog.n == 0;
	pthread_mutex_unlock(&dog.lock);
	if (!last)
		return;
	sem_post(&dog.stop);
	pthread_join(dog.thread, NULL);
	sigaction(SIGURG, &dog.old, NULL);
}
