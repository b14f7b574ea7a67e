/*
 * The watchdog: names the coroutine that keeps all others waiting.
 *
 * A thread looks at the loop a few times within the limit. If one coroutine has
 * had the same turn at two looks a limit apart, it holds the loop: nothing
 * is received, sent or timed meanwhile. A coroutine that computes, by the
 * thread's CPU time, is interrupted once, by a signal to the loop's thread, to
 * tell where it is. One that blocks the thread in system calls is not, since
 * the call would return early. If the thread neither computes nor sleeps, the
 * machine is busy with others and no coroutine is to blame.
 *
 * The signal is SIGURG, which is ignored unless somebody handles it; a handler
 * that was there before still gets what is not ours. The line is written by the
 * log's own thread. The loop itself does nothing for any of this.
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

static struct {
	struct net_stack *stack;
	cpu_set_t cpus; /* of the thread that opened the stack, unpinned */
	bool has_cpus, runs;
	int64_t limit_ns, next_line_ns;
	pthread_t thread, loop;
	pid_t loop_tid;
	clockid_t loop_clock;
	sem_t stop, captured;
	struct sigaction old;
	_Atomic unsigned looks;
	_Atomic bool asked; /* the signal handler is to fill these */
	uintptr_t pc;
	char who[320];
} dog;

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
static bool loop_sleeps(void)
{
	char path[64], text[256], *state;
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", dog.loop_tid);
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

/* ---- where it is ---- */

/* On the loop's thread. */
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
	co = coro_sched_running(dog.stack->sched);
	dog.pc = (uintptr_t)at->uc_mcontext.gregs[REG_RIP];
	dog.who[0] = '\0';
	if (co)
		coro_describe(co, context, dog.who, sizeof(dog.who));
	sem_post(&dog.captured);
	errno = saved;
}

/* Fills dog.who and dog.pc; false: the coroutine has let go meanwhile. */
static bool capture(void)
{
	struct timespec until;
	int64_t until_ns = read_clock(CLOCK_MONOTONIC) + CAPTURE_WAIT_NS;
	int err;

	until.tv_sec = until_ns / NS_PER_S;
	until.tv_nsec = until_ns % NS_PER_S;
	atomic_store(&dog.asked, true);
	if (pthread_kill(dog.loop, SIGURG) != 0)
		return false;
	do {
		err = sem_clockwait(&dog.captured, CLOCK_MONOTONIC, &until);
	} while (err < 0 && errno == EINTR);
	/* If the handler comes after all, it finds that nobody asks; if it has
	 * begun, it ends soon. */
	if (err < 0 && !atomic_exchange(&dog.asked, false))
		while (sem_wait(&dog.captured) < 0)
			;
	return err == 0 && dog.who[0];
}

/* ---- looking ---- */

static bool say_computing(int64_t held_ns)
{
	char place[200];

	if (!capture())
		return false;
	net_log("coronet: watchdog: %s has kept all others waiting for %.3f s, "
		"at %s; let it coro_yield(), or give the work to a thread",
		dog.who, (double)held_ns / 1e9,
		net_code_name(dog.pc, place, sizeof(place)));
	return true;
}

/* Nothing that it reads changes while the thread sleeps. */
static bool say_blocked(const struct coro *co, int64_t held_ns)
{
	char who[320];

	coro_describe(co, NULL, who, sizeof(who));
	net_log("coronet: watchdog: %s has kept all others waiting for %.3f s, "
		"in a system call that blocks the thread; give such calls to "
		"another thread",
		who, (double)held_ns / 1e9);
	return true;
}

static void report(struct turn *turn, int64_t now_ns, int64_t cpu_ns)
{
	const struct coro *co = coro_sched_running(dog.stack->sched);
	int64_t held_ns = now_ns - turn->since_ns;
	bool said = false;

	if (!co || now_ns < dog.next_line_ns)
		return;
	if (2 * (cpu_ns - turn->cpu_ns) >= dog.limit_ns)
		said = say_computing(held_ns);
	else if (2 * turn->asleep >= turn->looks)
		said = say_blocked(co, held_ns);
	if (!said)
		return;
	turn->report_ns = 2 * held_ns;
	dog.next_line_ns = now_ns + NS_PER_S;
}

static void look(struct turn *turn)
{
	const struct coro_sched *sched = dog.stack->sched;
	unsigned number = coro_sched_turn(sched);
	bool running = coro_sched_running(sched) != NULL;
	int64_t now_ns = read_clock(CLOCK_MONOTONIC);
	int64_t cpu_ns = running ? read_clock(dog.loop_clock) : 0;

	if (!running || !turn->running || number != turn->number)
		*turn = (struct turn){.number = number,
				      .running = running,
				      .since_ns = now_ns,
				      .cpu_ns = cpu_ns,
				      .report_ns = dog.limit_ns};
	turn->looks++;
	turn->asleep += running && loop_sleeps();
	if (running && now_ns - turn->since_ns >= turn->report_ns)
		report(turn, now_ns, cpu_ns);
	atomic_fetch_add(&dog.looks, 1);
}

static void *watch(void *arg)
{
	int64_t pause_ns = dog.limit_ns / LOOKS_A_LIMIT;
	struct turn turn = {0};

	net_observe(dog.stack);
	for (;;) {
		int64_t until_ns = read_clock(CLOCK_MONOTONIC) + pause_ns;
		struct timespec until = {until_ns / NS_PER_S,
					 until_ns % NS_PER_S};

		if (sem_clockwait(&dog.stop, CLOCK_MONOTONIC, &until) == 0)
			return NULL;
		if (errno == ETIMEDOUT)
			look(&turn);
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
	pthread_attr_init(&attr);
	if (dog.has_cpus)
		pthread_attr_setaffinity_np(&attr, sizeof(dog.cpus), &dog.cpus);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&dog.thread, &attr, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

int net_watchdog_start(struct net_stack *stack, unsigned limit_ms)
{
	struct sigaction action = {.sa_sigaction = on_signal,
				   .sa_flags = SA_SIGINFO | SA_RESTART |
					       SA_ONSTACK};
	int err;

	if (limit_ms == 0)
		return 0;
	dog.stack = stack;
	dog.limit_ns = (int64_t)limit_ms * 1000000;
	dog.next_line_ns = 0;
	dog.loop = pthread_self();
	dog.loop_tid = (pid_t)syscall(SYS_gettid);
	atomic_store(&dog.asked, false);
	err = -pthread_getcpuclockid(dog.loop, &dog.loop_clock);
	if (err < 0)
		return err;
	sem_init(&dog.stop, 0, 0);
	sem_init(&dog.captured, 0, 0);
	if (sigaction(SIGURG, &action, &dog.old) < 0)
		return -errno;
	err = start_thread();
	if (err < 0)
		sigaction(SIGURG, &dog.old, NULL);
	dog.runs = err == 0;
	return err;
}

void net_watchdog_stop(void)
{
	if (!dog.runs)
		return;
	dog.runs = false;
	sem_post(&dog.stop);
	pthread_join(dog.thread, NULL);
	sigaction(SIGURG, &dog.old, NULL);
}
