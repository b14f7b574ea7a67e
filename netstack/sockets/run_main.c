/*
 * Start and end of an unchanged program, into which coronet-run has preloaded
 * this library.
 *
 * The C library calls main() by __libc_start_main(), which this file replaces:
 * it opens a stack, leaves it so that any thread may enter (baton.c), and calls
 * main().
 *
 * A program ends by exit(). The handler below runs after the program's own,
 * closes open sockets as the kernel would, waits until the peers have
 * acknowledged the written data, and closes the stack.
 *
 * If main() ends by pthread_exit(), the C library calls exit() when the last
 * thread has ended. The stack's threads never do. So the end of main()'s thread
 * starts one that waits until the program's threads have ended, and then calls
 * exit() in their place.
 */
#include "netstack/sockets/run.h"
#include "netstack/sockets/whole.h"

#include <argp.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX  256
#define LOOK_NS	   INT64_C(1000000)
#define STALLED_NS INT64_C(10000000000) /* for bytes still to be sent */
#define LAST_NS	   50000000L		/* between two looks at the threads */

typedef int (*main_fn)(int argc, char **argv, char **envp);

static struct {
	main_fn main;
	char *text;	    /* coronet-run's words */
	bool late;	    /* a child opens the stack */
	pthread_key_t ends; /* runs main_ends() */
	sigset_t mask;	    /* of main()'s thread at its end */
} the;

/* ---- the options ---- */

enum { OPT_SOCKETS = 0x5000, OPT_CHILDREN, OPT_IN_CHILD };

static const struct argp_option options[] = {
	{"sockets", OPT_SOCKETS, "PREFIXES", 0, "", 0},
	{"children", OPT_CHILDREN, NULL, 0, "", 0},
	{"in-child", OPT_IN_CHILD, NULL, 0, "", 0},
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
	case OPT_CHILDREN:
	case OPT_IN_CHILD:
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Splits CORONET_RUN's words; a byte that no option contains follows each. */
static int split_words(char *text, char **words)
{
	int n = 0;

	words[n++] = "coronet-run";
	for (char *word = strtok(text, "\x1f"); word && n < WORDS_MAX;
	     word = strtok(NULL, "\x1f"))
		words[n++] = word;
	return n;
}

/* Restores the environment, so that child programs use the kernel's sockets. */
static void leave_environment(void)
{
	const char *rest = getenv("CORONET_RUN_PRELOAD");

	if (rest && *rest)
		setenv("LD_PRELOAD", rest, 1);
	else
		unsetenv("LD_PRELOAD");
	unsetenv("CORONET_RUN_PRELOAD");
	unsetenv("CORONET_RUN_PID");
	unsetenv("CORONET_RUN_IN_CHILD");
	unsetenv("CORONET_RUN");
}

/* ---- programs in front of the program ---- */

static bool is_one_of(const char *name, const char *const *names)
{
	while (*names && strcmp(name, *names) != 0)
		names++;
	return *names;
}

/*
 * Returns whether this program becomes another one by exec() in the same
 * process. The stack is for that one.
 */
static bool stands_in_front(void)
{
	static const char *const shells[] = {"sh",  "dash", "bash",
					     "ksh", "zsh",  NULL};
	static const char *const others[] = {
		"env",	   "nice",    "nohup",	 "ionice",  "chrt",   "taskset",
		"numactl", "setpriv", "prlimit", "unshare", "stdbuf", NULL};

	char exe[PATH_MAX] = "";
	const char *name;

	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
		return false;
	name = basename(exe);
	if (!is_one_of(name, shells))
		return is_one_of(name, others);
	if (!getenv("CORONET_RUN_CHILDREN"))
		fprintf(stderr,
			"coronet-run: %s is a shell: a program that it "
			"replaces itself with (exec) uses the stack; programs "
			"that it starts use the stack only with --children\n",
			name);
	return true;
}

static bool is_another_process(void)
{
	const char *pid = getenv("CORONET_RUN_PID");

	return !getenv("CORONET_RUN_CHILDREN") &&
	       (!pid || atoi(pid) != getpid());
}

/* Exits with 2 in a child: servers do not replace a child that ends with 2. */
static void fail_run(const char *why)
{
	fprintf(stderr, "coronet-run: %s\n", why);
	_exit(the.late ? 2 : 1);
}

/* ---- descriptors ---- */

/* Calls fn with each descriptor that is open. */
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

static void note_fd(int fd, void *arg)
{
	bool *open = arg;

	if (fd < FDS_NOTED)
		open[fd] = true;
}

static void reserve_fd(int fd, void *arg)
{
	const bool *open = arg;

	if (fd >= FDS_NOTED || !open[fd])
		net_whole_reserve(fd);
}

/* ---- the end of the program ---- */

/* Waits until the peers have everything, or nothing more goes. */
static void await_delivery(void)
{
	struct net_stack *stack = net_whole.stack;
	int64_t until = coro_sched_clock(net_whole.sched) + STALLED_NS;
	struct net_stats stats;
	uint64_t sent = 0;

	for (;;) {
		int64_t now = coro_sched_clock(net_whole.sched);

		net_stack_stats(stack, &stats);
		if (net_stack_delivered(stack) || now > until)
			return;
		if (stats.tx_bytes != sent)
			until = now + STALLED_NS;
		sent = stats.tx_bytes;
		net_stack_rest(stack, net_stack_turn(stack), now + LOOK_NS);
	}
}

/* Keeps the baton from here on, so that no other thread calls any more. */
static void at_exit(int status, void *arg)
{
	if (net_is_child() || net_caller.state != NET_OUTSIDE)
		return;
	net_streams_flush();
	net_whole_step_in();
	net_sockets_close_all();
	net_caller.state = NET_TURNING;
	await_delivery();
	net_stack_stop(net_whole.stack);
	net_stack_run(net_whole.stack);
	net_whole_close();
	net_run_left();
}

static void at_quick_end(void)
{
	if (net_whole.keeper && !net_whole.closed && !net_is_child() &&
	    !net_fd_shares_memory() && net_caller.state == NET_OUTSIDE)
		net_whole_end();
}

/* Also called in signal handlers, and by children. */
NET_HOOK void _exit(int status)
{
	at_quick_end();
	net_real()->_exit(status);
	__builtin_unreachable();
}

NET_HOOK void _Exit(int status)
{
	_exit(status);
}

/* ---- the end of main() by pthread_exit() ---- */

/* The first thread of a process stays as a zombie until the others have ended.
 * The state follows the name, which is in parentheses (proc(5)). */
static bool main_has_ended(void)
{
	FILE *file = fopen("/proc/self/stat", "re");
	char text[64] = "";
	const char *name_end;

	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	name_end = strrchr(text, ')');
	return name_end && strncmp(name_end, ") Z", 3) == 0;
}

static void *exit_after_last(void *arg)
{
	const struct timespec pause = {.tv_nsec = LAST_NS};

	while (!main_has_ended() || net_whole_has_threads())
		net_real()->nanosleep(&pause, NULL);
	pthread_sigmask(SIG_SETMASK, &the.mask, NULL);
	exit(0);
}

/* Called when main()'s thread ends, unless the program does. */
static void main_ends(void *arg)
{
	pthread_t thread;
	sigset_t all;

	if (net_is_child())
		return;
	sigfillset(&all); /* signals are for the program's threads */
	pthread_sigmask(SIG_SETMASK, &all, &the.mask);
	if (net_real()->pthread_create(&thread, NULL, exit_after_last, NULL) ==
	    0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &the.mask, NULL);
}

/* ---- the beginning ---- */

/* The program has all signals that come; fails the program with one line. */
static struct net_stack *open_stack(struct net_opts *opts)
{
	struct net_stack *stack;
	sigset_t all, mask;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	if (net_stack_open(opts, &stack) < 0)
		fail_run(opts->error);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return stack;
}

void net_run_open(void)
{
	static char *words[WORDS_MAX + 1];
	static struct net_opts opts;
	static bool open[FDS_NOTED];
	const struct argp_child children[] = {{&net_argp, 0, NULL, 0}, {0}};
	const struct argp argp = {options,  parse_one, NULL, NULL,
				  children, NULL,      NULL};
	struct net_stack *stack;

	net_run_signals_save();
	net_whole_note_threads(true);
	each_fd(note_fd, open);
	net_opts_init(&opts);
	opts.poll = NET_POLL_ADAPTIVE; /* the program computes, too */
	opts.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) *
			    (uint64_t)sysconf(_SC_PAGESIZE);
	if (net_parse_args(&argp, split_words(the.text, words), words, &opts,
			   &opts) < 0)
		fail_run(opts.error);
	stack = open_stack(&opts);
	net_whole_note_threads(false);
	if (net_whole_begin(stack) < 0 || net_run_children_begin() < 0)
		fail_run(strerror(ENOMEM));
	net_run_exec_begin();
	each_fd(reserve_fd, open);
	on_exit(at_exit, NULL);
	at_quick_exit(at_quick_end);
	net_run_signals_begin();
	net_sockets_given = NULL;
	net_stack_leave(stack);
	if (gettid() == getpid() &&
	    pthread_key_create(&the.ends, main_ends) == 0)
		pthread_setspecific(the.ends, &the);
	if (net_whole_keeper() < 0)
		fail_run("no thread can be made (ulimit -u, pids.max)");
}

static int run_program(int argc, char **argv, char **envp)
{
	char *text = getenv("CORONET_RUN");

	if (!text)
		return the.main(argc, argv, envp);
	if (is_another_process()) {
		leave_environment();
		return the.main(argc, argv, environ);
	}
	if (stands_in_front())
		return the.main(argc, argv, envp);
	the.text = strdup(text);
	if (!the.text)
		fail_run(strerror(ENOMEM));
	the.late = getenv("CORONET_RUN_IN_CHILD");
	if (the.late && net_run_open_late() < 0)
		fail_run(strerror(ENOMEM));
	if (!getenv("CORONET_RUN_CHILDREN"))
		leave_environment();
	if (!the.late)
		net_run_open();
	return the.main(argc, argv, environ);
}

/* ---- threads ---- */

#define STACK_MIN ((size_t)128 << 10)

/*
 * A thread turns the loop on its own stack, which needs more than the 16 KiB
 * that a program may give it. A stack that the program has allocated itself
 * remains as it is.
 */
NET_HOOK int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			    void *(*run)(void *arg), void *arg)
{
	pthread_attr_t larger;
	void *stack = NULL;
	size_t size = STACK_MIN;

	if (!net_whole.on || net_is_child() || !attr ||
	    pthread_attr_getstacksize(attr, &size) != 0 || size >= STACK_MIN)
		return net_real()->pthread_create(thread, attr, run, arg);
	pthread_attr_getstack(attr, &stack, &size);
	larger = *attr; /* it is not destroyed, and shares what is in there */
	if ((uintptr_t)stack + size == 0) /* its end: the program set none */
		pthread_attr_setstacksize(&larger, STACK_MIN);
	return net_real()->pthread_create(thread, &larger, run, arg);
}

/* ---- main() ---- */

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
	return real(run_program, argc, argv, init, fini, rtld_fini, stack_end);
}
