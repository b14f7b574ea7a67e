/*
 * epoll-load: the load generator on the kernel's TCP, coronet-load's twin.
 *
 * Threads (epoll_load_worker.c) have a part of the connections each:
 * non-blocking sockets, one edge-triggered epoll set. A request is one send and
 * one recv; the events of up to 256 connections come from one epoll_wait.
 * Latency is taken at each answer, not once a batch: a batch of 256 takes long
 * enough to matter.
 *
 * This is the conductor: it starts the threads, gathers what they have counted,
 * waits for signals, and reports.
 */
#include <argp.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "apps/common/sys.h"
#include "apps/load/epoll_load_priv.h"
#include "apps/load/report.h"

#define SPARE_FILES  14
#define WORKER_FILES 2 /* of each, beside its sockets */

struct load load;

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	/* The second one does not wait for the report. */
	if (stop)
		_exit(1);
	stop = 1;
}

/*
 * Signals are unblocked only while the conductor waits, so that none is missed.
 * Threads that are made from now on block them.
 */
static void catch_signals(sigset_t *while_waiting)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, while_waiting);
	sigdelset(while_waiting, SIGINT);
	sigdelset(while_waiting, SIGTERM);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void gather_workers(struct load_stats *stats)
{
	for (uint32_t i = 0; i < load.n_started; i++)
		worker_gather(&load.workers[i]);
}

/* Waits until something is due, all slots are tried, or a signal comes. */
static void wait_for_news(const sigset_t *while_waiting)
{
	struct load_stats *stats = &load.stats;
	struct pollfd settled = {.fd = load.all_settled, .events = POLLIN};
	int64_t wait_ns = stats->wake_ns - sys_now_ns();
	struct timespec wait = {0};
	uint64_t count;

	if (wait_ns > 0) {
		wait.tv_sec = wait_ns / OPT_NS_PER_S;
		wait.tv_nsec = wait_ns % OPT_NS_PER_S;
	}
	if (ppoll(&settled, 1, &wait, while_waiting) > 0 &&
	    read(load.all_settled, &count, sizeof(count)) == sizeof(count))
		gather_workers(stats);
}

/* Moves the run on to its end. */
static void lead_run(const sigset_t *while_waiting)
{
	struct load_stats *stats = &load.stats;

	while (load_stats_tick(stats, sys_now_ns())) {
		wait_for_news(while_waiting);
		if (stop)
			load_stats_interrupt(stats, sys_now_ns());
	}
}

/* Returns 0 or -errno; the caller ends those that have started in any case. */
static int start_workers(void)
{
	int err = 0;

	for (; load.n_started < load.n_workers && err == 0; load.n_started++) {
		struct worker *worker = &load.workers[load.n_started];

		err = -pthread_create(&worker->thread, NULL, worker_main,
				      worker);
		if (err)
			break;
	}
	return err;
}

/* 0, or -errno: then there is nothing to report. */
static int run_load(void)
{
	sigset_t while_waiting;
	uint32_t i;
	int err;

	catch_signals(&while_waiting);
	load_stats_start(&load.stats, &load.opts, "epoll-load", sys_now_ns());
	load.stats.gather = gather_workers;
	for (i = 0; i < load.n_workers; i++)
		worker_follow(&load.workers[i]);
	err = start_workers();
	if (err == 0)
		lead_run(&while_waiting);
	else
		load_stats_interrupt(&load.stats, sys_now_ns());
	for (i = 0; i < load.n_started; i++)
		pthread_join(load.workers[i].thread, NULL);
	sigprocmask(SIG_SETMASK, &while_waiting, NULL);
	return err;
}

/* Ends the program if a context of TLS cannot be made. */
static void set_up_tls(void)
{
	const struct load_opts *from = &load.opts;
	const struct socket_tls_opts opts = {
		.ca = from->tls_ca,
		.ciphers = from->tls_ciphers[0] ? from->tls_ciphers : NULL,
		.suites = from->tls_suites[0] ? from->tls_suites : NULL,
		.resumes = from->tls_resume,
		.alpn = from->http_path ? "http/1.1" : NULL,
	};

	if (!from->tls)
		return;
	load.tls = socket_tls_client(&opts, "epoll-load");
	if (!load.tls)
		exit(OPT_EXIT_USAGE);
}

static int set_up(void)
{
	size_t bytes;
	uint32_t i;
	int err = 0;

	load.n_workers = load_parts(&load.opts, load.threads.n);
	load.unsettled = load.opts.conns;
	load.all_settled = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (load.all_settled < 0)
		return -errno;
	bytes = load.n_workers * sizeof(*load.workers);
	load.workers = aligned_alloc(_Alignof(struct worker), bytes);
	if (!load.workers)
		return -ENOMEM;
	memset(load.workers, 0, bytes);
	for (i = 0; i < load.n_workers && err == 0; i++)
		err = worker_init(&load.workers[i], i);
	load.n_workers = i;
	return err;
}

static void tear_down(void)
{
	uint32_t i;

	for (i = 0; load.workers && i < load.n_workers; i++)
		worker_fini(&load.workers[i]);
	if (load.all_settled >= 0)
		close(load.all_settled);
	socket_tls_free(load.tls);
	free(load.workers);
}

/* Too many connections for the limit of open files is a wrong value. */
static void check_files(const struct argp_state *state)
{
	uint64_t files = sys_raise_files();
	uint64_t spare = SPARE_FILES + (uint64_t)WORKER_FILES * load.threads.n;
	char conns[24], expected[96];

	if (load.opts.conns + spare <= files)
		return;
	snprintf(conns, sizeof(conns), "%u", load.opts.conns);
	snprintf(expected, sizeof(expected),
		 "at most %ju: this process may open %ju files (ulimit -Hn)",
		 (uintmax_t)(files > spare ? files - spare : 0),
		 (uintmax_t)files);
	opt_refuse_or_exit(state, "--conns", conns, expected, "--conns 64");
}

/* Resolves the target, if it is a name, to its first address. */
static void find_target(void)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct load_opts *opts = &load.opts;
	struct addrinfo *found = NULL;
	char port[8];
	int err;

	if (!opts->target_host[0])
		return;
	snprintf(port, sizeof(port), "%u", opts->target.port);
	err = getaddrinfo(opts->target_host, port, &hints, &found);
	if (err) {
		fprintf(stderr, "epoll-load: --target '%s': %s\n",
			opts->target_text, gai_strerror(err));
		exit(1);
	}
	memcpy(&opts->target.addr, found->ai_addr, found->ai_addrlen);
	opts->target.addr_len = found->ai_addrlen;
	freeaddrinfo(found);
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &load.opts;
		state->child_inputs[1] = &load.threads;
		return 0;
	case ARGP_KEY_SUCCESS:
		check_files(state);
		find_target();
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&load_opts_argp, 0, NULL, 0},
		{&epoll_threads_argp, 0, "Threads:", 20},
		{0},
	};
	static const struct argp argp = {
		.parser = parse_key,
		.children = children,
		.doc = "Loads a TCP echo server through the kernel's sockets "
		       "and epoll, and reports rates and latencies."
		       "\v" LOAD_HELP_STATUS,
	};
	int err, status = 1;

	opts_set_version("epoll-load");
	if (argp_parse(&argp, argc, argv, 0, NULL, NULL))
		return OPT_EXIT_USAGE;
	set_up_tls();
	err = set_up();
	if (err == 0)
		err = run_load();
	if (err == 0)
		status = load_report(&load.stats);
	else
		fprintf(stderr, "epoll-load: cannot start: %s\n",
			strerror(-err));
	tear_down();
	return status;
}
