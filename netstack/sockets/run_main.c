/*
 * A program that was not written for coronet: main() becomes a coroutine.
 *
 * coronet-run preloads this library. The C library calls main() by way of
 * __libc_start_main(), which is put here in its place: it opens a stack, gives
 * main() a coroutine with a stack as large as the kernel would give it, and
 * runs the loop on the thread that the program believes to be its own. Whatever
 * main() waits in by the calls of this library, the loop turns meanwhile.
 *
 * A program ends by exit(), on main()'s coroutine. The handler below runs
 * behind the program's own, closes what is open as the kernel would, and waits
 * until the peers have what was written; then the loop ends, closes the stack,
 * and takes exit() to its end.
 */
#include "netstack/sockets/run.h"

#include <argp.h>
#include <dirent.h>
#include <dlfcn.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define WORDS_MAX     256
#define LOOK_NS	      INT64_C(1000000)
#define STALLED_NS    INT64_C(10000000000) /* of what is still to be sent */
#define BEGUN_NS      INT64_C(1000000000)  /* for the loop to get a turn */
#define STACK_DEFAULT (64ul << 20) /* where the limit says "unlimited" */
#define STACK_MAX     (1ul << 30)

typedef int (*main_fn)(int argc, char **argv, char **envp);

static struct {
	main_fn main;
	int argc, status;
	char **argv, **envp;
	size_t stack_size;
	uintptr_t stack_top;
} the;

/* ---- the options ---- */

enum { OPT_SOCKETS = 0x5000 };

static const struct argp_option options[] = {
	{"sockets", OPT_SOCKETS, "PREFIXES", 0, "", 0},
	{0},
};

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = state->input;
		return 0;
	case OPT_SOCKETS:
		return net_sockets_addrs(arg) == 0 ? 0 : EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* CORONET_RUN has them, each behind a byte that no option contains. */
static int split(char *text, char **words)
{
	int n = 0;

	words[n++] = "coronet-run";
	for (char *word = strtok(text, "\x1f"); word && n < WORDS_MAX;
	     word = strtok(NULL, "\x1f"))
		words[n++] = word;
	return n;
}

/* The programs that this one starts are the kernel's. */
static void leave_environment(void)
{
	const char *rest = getenv("CORONET_RUN_PRELOAD");

	if (rest && *rest)
		setenv("LD_PRELOAD", rest, 1);
	else
		unsetenv("LD_PRELOAD");
	unsetenv("CORONET_RUN_PRELOAD");
	unsetenv("CORONET_RUN");
}

static void fail(const char *why)
{
	fprintf(stderr, "coronet-run: %s\n", why);
	_exit(1);
}

/* ---- descriptors ---- */

/* Calls fn with each that is open. */
static void each_fd(void (*fn)(int fd, void *arg), void *arg)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && fd != dirfd(dir))
			fn(fd, arg);
	}
	if (dir)
		closedir(dir);
}

#define FDS_NOTED 1024

static void note(int fd, void *arg)
{
	bool *open = arg;

	if (fd < FDS_NOTED)
		open[fd] = true;
}

static void reserve(int fd, void *arg)
{
	const bool *open = arg;

	if (fd >= FDS_NOTED || !open[fd])
		net_whole_reserve(fd);
}

/* ---- the end ---- */

static void stop_here(void)
{
	net_whole.ending = true;
	net_stack_stop(net_whole.stack);
	for (;;)
		coro_park();
}

/* Until the peers have everything, or nothing more goes. */
static void deliver(void)
{
	int64_t until = coro_sched_clock(coro_sched_self()) + STALLED_NS;
	struct net_stats stats;
	uint64_t sent = 0;

	for (;;) {
		int64_t now = coro_sched_clock(coro_sched_self());

		net_stack_stats(net_whole.stack, &stats);
		if (net_stack_delivered(net_whole.stack) || now > until)
			return;
		if (stats.tx_bytes != sent)
			until = now + STALLED_NS;
		sent = stats.tx_bytes;
		coro_sleep_ns(LOOK_NS);
	}
}

/* ---- exit() of another thread ---- */

static struct {
	sem_t begun, done;
} others_end;

static void *close_and_deliver(void *arg)
{
	net_sockets_close_all();
	deliver();
	sem_post(&others_end.done);
	return NULL;
}

static void begin_to_close(void *arg)
{
	const struct coro_attr attr = {.name = "exit"};

	net_whole.ending = true; /* main() does nothing more */
	sem_post(&others_end.begun);
	if (coro_spawn(net_whole.sched, &attr, close_and_deliver, NULL, NULL) <
	    0)
		sem_post(&others_end.done);
}

static bool wait_for(sem_t *sem, int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ns / 1000000000;
	while (sem_clockwait(sem, CLOCK_MONOTONIC, &until) < 0)
		if (errno != EINTR)
			return false;
	return true;
}

/* main() may be in what the loop knows nothing of, and then nobody closes. */
static void close_from_another(void)
{
	if (!net_whole.owner->socks)
		return;
	sem_init(&others_end.begun, 0, 0);
	sem_init(&others_end.done, 0, 0);
	if (coro_post(net_whole.sched, begin_to_close, NULL) == 0 &&
	    wait_for(&others_end.begun, BEGUN_NS))
		wait_for(&others_end.done, 6 * STALLED_NS);
}

/* ---- exit() ---- */

static void at_exit(int status, void *arg)
{
	if (net_forked || net_whole.ending)
		return;
	the.status = status;
	if (net_is_another()) {
		close_from_another();
		return;
	}
	if (coro_self() != net_whole.main)
		return;
	net_whole.unrestartable = false;
	net_sockets_close_all();
	deliver();
	stop_here();
}

/* ---- the beginning ---- */

bool net_run_on_stack(const void *at)
{
	return (uintptr_t)at < the.stack_top &&
	       the.stack_top - (uintptr_t)at <= the.stack_size;
}

static void *program(void *arg)
{
	char here;

	/* Some of it is above this. */
	the.stack_top = (uintptr_t)&here + 4096;
	net_run_signals_begin();
	exit(the.main(the.argc, the.argv, the.envp));
}

static size_t stack_size(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) < 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return STACK_DEFAULT;
	if (limit.rlim_cur < 64 * 1024)
		return 64 * 1024;
	return limit.rlim_cur < STACK_MAX ? limit.rlim_cur : STACK_MAX;
}

static int run(int argc, char **argv, char **envp)
{
	static char *words[WORDS_MAX + 1];
	static struct net_opts opts;
	static bool open[FDS_NOTED];
	const struct argp_child children[] = {{&net_argp, 0, NULL, 0}, {0}};
	const struct argp argp = {options,  parse_one, NULL, NULL,
				  children, NULL,      NULL};
	struct coro_attr attr = {.name = program_invocation_short_name,
				 .stack = CORO_STACK_PRIVATE,
				 .save_fp = true};
	char *text = getenv("CORONET_RUN");
	struct net_stack *stack;
	sigset_t all, mask;

	the.argc = argc;
	the.argv = argv;
	the.envp = envp;
	if (!text)
		return the.main(argc, argv, envp);
	net_run_signals_save();
	each_fd(note, open);
	text = strdup(text);
	leave_environment();
	the.envp = environ;
	net_opts_init(&opts);
	opts.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) *
			    (uint64_t)sysconf(_SC_PAGESIZE);
	if (!text ||
	    net_parse_args(&argp, split(text, words), words, &opts, &opts) < 0)
		fail(opts.error);
	/* The stack's threads leave the program's signals to it. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	if (net_stack_open(&opts, &stack) < 0)
		fail(opts.error);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	net_whole_note_threads();
	if (net_whole_begin(stack) < 0)
		fail(strerror(ENOMEM));
	each_fd(reserve, open);
	attr.stack_size = the.stack_size = stack_size();
	if (coro_spawn(net_whole.sched, &attr, program, NULL, &net_whole.main) <
	    0)
		fail(strerror(ENOMEM));
	on_exit(at_exit, NULL);
	net_stack_run(stack);
	net_stack_close(stack);
	net_whole.on = false;
	if (net_run_signal())
		net_run_signal_default(net_run_signal());
	exit(the.status);
}

typedef int (*start_fn)(main_fn main, int argc, char **argv, void (*init)(void),
			void (*fini)(void), void (*rtld_fini)(void),
			void *stack_end);

NET_HOOK int __libc_start_main(main_fn main, int argc, char **argv,
			       void (*init)(void), void (*fini)(void),
			       void (*rtld_fini)(void), void *stack_end);
NET_HOOK int __libc_start_main(main_fn main, int argc, char **argv,
			       void (*init)(void), void (*fini)(void),
			       void (*rtld_fini)(void), void *stack_end)
{
	start_fn real = (start_fn)dlsym(RTLD_NEXT, "__libc_start_main");

	the.main = main;
	return real(run, argc, argv, init, fini, rtld_fini, stack_end);
}
