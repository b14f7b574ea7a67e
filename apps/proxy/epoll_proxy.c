/*
 * epoll-proxy: coronet-proxy's twin, a TCP proxy on the kernel's stack.
 *
 * It is written to be as fast as the kernel permits: each thread has listeners
 * of its own (SO_REUSEPORT), one edge-triggered epoll set and one buffer for
 * all its sessions, and shares nothing with the others. The main thread waits
 * for signals and for the threads. While the proxy drains, it accepts no
 * client; sessions continue until they end or the time is up.
 */
#include "apps/proxy/epoll_proxy_priv.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/common/sys.h"

#define BATCH	     256
#define ACCEPT_BATCH 64
#define BACKLOG	     65535 /* the kernel lowers it to somaxconn */
#define NO_FILES_NS  100000000

struct config config;

static int drain_event = -1; /* readable from the first signal on */
static int done_event = -1;  /* counts the workers that have ended */
static struct worker *workers;

/* ---- accepting ---- */

void worker_set_accepting(struct worker *w, bool on)
{
	w->accepting = on;
	if (on)
		w->retry_ns = 0;
	for (unsigned i = 0; i < w->n_listeners; i++) {
		struct epoll_event event = {.events = on ? EPOLLIN : 0,
					    .data.ptr = &w->listeners[i]};

		epoll_ctl(w->epoll, EPOLL_CTL_MOD, w->listeners[i].fd, &event);
	}
}

static void refuse_client(int fd, uint64_t *counter)
{
	static const struct linger now = {.l_onoff = 1};

	++*counter;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

/*
 * Level-triggered: epoll reports what is left in the backlog. Returns false
 * when nothing is left, or nobody may come in.
 */
static bool accept_batch(struct worker *w, int listener)
{
	bool wait = config.opts.over_limit == PROXY_OVER_WAIT;
	struct sockaddr_storage addr;
	struct source_key source;

	for (int i = 0; i < ACCEPT_BATCH; i++) {
		socklen_t len = sizeof(addr);
		int fd;

		if (w->sessions >= w->max_sessions && wait) {
			worker_set_accepting(w, false);
			return false;
		}
		fd = accept4(listener, (struct sockaddr *)&addr, &len,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			source = source_key_of(&addr);
			if (w->sessions >= w->max_sessions)
				refuse_client(fd, &w->counters.over_limit);
			else if (sources_count(&w->sources, source) >=
				 w->max_source)
				refuse_client(fd, &w->counters.over_source);
			else
				session_start(w, fd, source);
			continue;
		}
		/* Without free files epoll would report it for ever: pause. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM) {
			worker_set_accepting(w, false);
			w->retry_ns = w->now_ns + NO_FILES_NS;
		}
		if (errno != ECONNABORTED && errno != EINTR)
			return false;
	}
	return true;
}

static int set_option(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) ? -errno
								    : 0;
}

int worker_connect(int backend)
{
	const struct opt_endpoint *to = &config.opts.backends[backend];
	int fd = socket(to->addr.ss_family,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&to->addr, to->addr_len) &&
	    errno != EINPROGRESS) {
		int err = errno;

		close(fd);
		return -err;
	}
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	return fd;
}

/* ---- a worker's life ---- */

void worker_new_pipe(struct worker *w)
{
	for (int i = 0; i < 2; i++)
		if (w->pipe[i] >= 0)
			close(w->pipe[i]);
	if (pipe2(w->pipe, O_NONBLOCK | O_CLOEXEC))
		w->pipe[0] = w->pipe[1] = -1;
	else
		fcntl(w->pipe[0], F_SETPIPE_SZ, 1 << 20); /* if allowed */
}

static void close_listeners(struct worker *w)
{
	for (unsigned i = 0; i < w->n_listeners; i++)
		close(w->listeners[i].fd);
	w->n_listeners = 0;
	w->accepting = false;
}

static void start_draining(struct worker *w)
{
	epoll_ctl(w->epoll, EPOLL_CTL_DEL, drain_event, NULL);
	/* Connections that the kernel has accepted are served as well. */
	for (unsigned i = 0; i < w->n_listeners; i++)
		while (accept_batch(w, w->listeners[i].fd))
			; /* bounded by the backlog, and by the limit */
	w->draining = true;
	close_listeners(w);
	checks_stop(w);
}

static void take_event(struct worker *w, const struct epoll_event *event)
{
	struct source *source = event->data.ptr;

	switch (source->kind) {
	case SOURCE_DRAIN:
		start_draining(w);
		break;
	case SOURCE_LISTENER:
		if (!w->draining)
			accept_batch(w, source->fd);
		break;
	case SOURCE_CLIENT:
	case SOURCE_SERVER:
		session_event(w, (struct side *)source, event->events);
		break;
	case SOURCE_CHECK:
		check_event(w, (struct check *)source);
		break;
	}
}

static int64_t pick_earlier_ns(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Milliseconds epoll may wait, rounded up. */
static int time_to_wait(const struct worker *w, int64_t other_ns)
{
	int64_t due_ns = pick_earlier_ns(sessions_due_ns(w), checks_due_ns(w));

	due_ns = pick_earlier_ns(due_ns, other_ns);
	if (w->retry_ns)
		due_ns = pick_earlier_ns(due_ns, w->retry_ns);
	if (due_ns == INT64_MAX)
		return -1;
	if (due_ns <= w->now_ns)
		return 0;
	due_ns = (due_ns - w->now_ns + 999999) / 1000000;
	return due_ns > 60000 ? 60000 : (int)due_ns;
}

static void print_stats(const struct proxy_counters *was,
			const struct proxy_counters *now, unsigned sessions)
{
	double s = (double)config.stats_ns / 1e9;

	fprintf(stderr,
		"proxy: %u sessions, +%llu, to backends %.2f, from them %.2f "
		"Gbit/s, %u of %u backends up; in all %llu retries, %llu "
		"without backend, %llu broken, %llu idle, %llu bad headers, "
		"%llu over the limit, %llu displaced, %llu over a source's "
		"limit\n",
		sessions, (unsigned long long)(now->accepted - was->accepted),
		(double)(now->bytes_to - was->bytes_to) * 8e-9 / s,
		(double)(now->bytes_from - was->bytes_from) * 8e-9 / s,
		balance_up(&workers[0].balance), workers[0].balance.n,
		(unsigned long long)now->retries,
		(unsigned long long)now->no_backend,
		(unsigned long long)now->broken, (unsigned long long)now->idle,
		(unsigned long long)now->bad_header,
		(unsigned long long)now->over_limit,
		(unsigned long long)now->displaced,
		(unsigned long long)now->over_source);
}

/* The first worker sums all up; the others' figures are as of about now. */
static void sum_stats(void)
{
	static struct proxy_counters was;
	struct proxy_counters now = {0};
	unsigned sessions = 0;

	for (uint32_t i = 0; i < config.threads.n; i++) {
		uint64_t *to = (uint64_t *)&now;
		const uint64_t *from = (const uint64_t *)&workers[i].counters;

		for (size_t k = 0; k < sizeof(now) / sizeof(*to); k++)
			to[k] += __atomic_load_n(from + k, __ATOMIC_RELAXED);
		sessions +=
			__atomic_load_n(&workers[i].sessions, __ATOMIC_RELAXED);
	}
	print_stats(&was, &now, sessions);
	was = now;
}

static void run_worker(struct worker *w)
{
	int64_t end_ns = INT64_MAX, stats_ns = INT64_MAX;
	struct epoll_event events[BATCH];

	w->now_ns = sys_now_ns();
	if (w->index == 0 && config.stats_ns)
		stats_ns = w->now_ns + config.stats_ns;
	while (!w->draining || (w->sessions && w->now_ns < end_ns)) {
		int n = epoll_wait(
			w->epoll, events, BATCH,
			time_to_wait(w, pick_earlier_ns(end_ns, stats_ns)));

		w->now_ns = sys_now_ns();
		for (int i = 0; i < n; i++)
			take_event(w, &events[i]);
		sessions_go_on(w);
		checks_run(w);
		if (w->retry_ns && w->now_ns >= w->retry_ns && !w->draining)
			worker_set_accepting(w, true);
		if (w->draining && end_ns == INT64_MAX)
			end_ns = w->now_ns + config.opts.drain_timeout_ns;
		if (w->now_ns >= stats_ns) {
			sum_stats();
			stats_ns = w->now_ns + config.stats_ns;
		}
	}
	for (int i = 0; i < SESSION_STATES; i++)
		while (w->lists[i].first)
			session_fail(w, w->lists[i].first);
	sessions_go_on(w);
	sessions_go_on(w); /* those that were on the list of the unfair, too */
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	uint64_t one = 1;

	epoll_threads_pin(&config.threads, (uint32_t)w->index);
	run_worker(w);
	if (write(done_event, &one, sizeof(one)) != sizeof(one))
		abort();
	return NULL;
}

/* ---- starting ---- */

/*
 * Opens a listening socket; returns its number or -errno. With SO_REUSEPORT a
 * second server would share the port unnoticed, so the first worker's is bound
 * without it, and sets it once the port is ours.
 */
static int open_listener(bool first, const struct opt_endpoint *at)
{
	const struct sockaddr *addr = (const struct sockaddr *)&at->addr;
	int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
	int fd = socket(addr->sa_family, type, 0);
	int err;

	if (fd < 0)
		return -errno;
	err = set_option(fd, SOL_SOCKET, first ? SO_REUSEADDR : SO_REUSEPORT,
			 1);
	if (err == 0 && bind(fd, addr, at->addr_len))
		err = -errno;
	if (err == 0 && first)
		err = set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (err == 0) /* every client's connection inherits it */
		err = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (err == 0 && listen(fd, BACKLOG))
		err = -errno;
	if (err == 0)
		return fd;
	close(fd);
	return err;
}

static int add_listener(struct worker *w, const struct opt_endpoint *at)
{
	struct source *source = &w->listeners[w->n_listeners];
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
	int fd = open_listener(w->index == 0, at);

	if (fd < 0)
		return fd;
	*source = (struct source){SOURCE_LISTENER, fd};
	w->n_listeners++;
	return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* --port: every address, IPv6 too if there is any. */
static int listen_port(struct worker *w)
{
	struct opt_endpoint any;
	int err;

	opt_parse_address("::", config.opts.port, &any);
	err = add_listener(w, &any);
	if (err != -EAFNOSUPPORT && err != -EADDRNOTAVAIL)
		return err;
	opt_parse_address("0.0.0.0", config.opts.port, &any);
	return add_listener(w, &any);
}

static int open_listeners(struct worker *w)
{
	char text[32];
	const char *at = text;
	int err = 0;

	snprintf(text, sizeof(text), "port %u", config.opts.port);
	if (config.opts.port)
		err = listen_port(w);
	for (unsigned i = 0; i < config.opts.n_listens && err == 0; i++) {
		at = config.opts.listen_texts[i];
		err = add_listener(w, &config.opts.listens[i]);
	}
	if (err < 0)
		fprintf(stderr, "epoll-proxy: listening on %s: %s\n", at,
			strerror(-err));
	return err;
}

/* A worker's part of a limit. */
static unsigned worker_share(unsigned limit)
{
	return (limit + config.threads.n - 1) / config.threads.n;
}

/* Returns 0 or -errno, which has been reported; worker_fini() must follow. */
static int worker_init(struct worker *w, int index)
{
	const struct proxy_opts *opts = &config.opts;
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &w->drain};

	w->index = index;
	w->accepting = true;
	w->pipe[0] = w->pipe[1] = -1;
	worker_new_pipe(w);
	w->max_sessions = worker_share(opts->max_clients);
	w->max_source = worker_share(opts->max_source);
	w->max_headers = worker_share(opts->max_half_open);
	w->drain = (struct source){SOURCE_DRAIN, drain_event};
	balance_init(&w->balance, opts->balance, opts->rise, opts->fall);
	for (unsigned i = 0; i < opts->n_backends; i++)
		balance_add(&w->balance, opts->backend_texts[i]);
	balance_ready(&w->balance);
	checks_start(w);
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0 ||
	    epoll_ctl(w->epoll, EPOLL_CTL_ADD, drain_event, &event)) {
		fprintf(stderr, "epoll-proxy: %s\n", strerror(errno));
		return -errno;
	}
	return open_listeners(w);
}

static void worker_fini(struct worker *w)
{
	close_listeners(w);
	checks_stop(w);
	for (int i = 0; i < 2; i++)
		if (w->pipe[i] >= 0)
			close(w->pipe[i]);
	if (w->epoll >= 0)
		close(w->epoll);
}

static void announce_listeners(void)
{
	const char *between = "listening on ";

	if (config.opts.port) {
		printf("%s*:%u", between, config.opts.port);
		between = ", ";
	}
	for (unsigned i = 0; i < config.opts.n_listens; i++) {
		printf("%s%s", between, config.opts.listen_texts[i]);
		between = ", ";
	}
	printf("\n");
	fflush(stdout);
}

static int run_workers(int signals)
{
	uint32_t started = 0;
	uint64_t one = 1;
	int err = 0;

	for (; started < config.threads.n && err == 0; started++) {
		err = -pthread_create(&workers[started].thread, NULL,
				      worker_main, &workers[started]);
		if (err)
			break;
	}
	if (err == 0)
		announce_listeners();
	else if (write(drain_event, &one, sizeof(one)) < 0)
		_exit(1);
	shutdown_wait(signals, drain_event, done_event, started);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(workers[i].thread, NULL);
	return err;
}

static int serve_all(void)
{
	uint32_t ready = 0;
	int signals, err = 0;

	workers = calloc(config.threads.n, sizeof(*workers));
	signals = shutdown_signals();
	drain_event = eventfd(0, EFD_CLOEXEC);
	done_event = eventfd(0, EFD_CLOEXEC);
	if (!workers || signals < 0 || drain_event < 0 || done_event < 0) {
		err = -errno;
		fprintf(stderr, "epoll-proxy: %s\n", strerror(-err));
		goto close_events;
	}
	while (ready < config.threads.n && err == 0) {
		err = worker_init(&workers[ready], (int)ready);
		ready++;
	}
	if (err == 0)
		err = run_workers(signals);
	for (uint32_t i = 0; i < ready; i++)
		worker_fini(&workers[i]);
close_events:
	close(done_event);
	close(drain_event);
	close(signals);
	free(workers);
	return err;
}

/* ---- options ---- */

static const struct opt rows[] = {
	{"stats", OPT_SECONDS, OPT_AT(struct config, stats_ns), "SECONDS", NULL,
	 OPT_NS_PER_S / 10, OPT_DAY_NS,
	 .help = "Log statistics at this interval (default: never)",
	 .group = 1},
};

OPT_SET(epoll_proxy_opts, rows, 0x100, NULL)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &config.opts;
		state->child_inputs[1] = &config.threads;
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return epoll_proxy_opts_parse(key, arg, state);
	}
}

/* Does the machine have that address? Then a socket can be bound to it. */
static bool is_local(const struct opt_endpoint *end)
{
	struct sockaddr_storage addr = end->addr;
	int fd = socket(addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool local;

	if (addr.ss_family == AF_INET)
		((struct sockaddr_in *)&addr)->sin_port = 0;
	else
		((struct sockaddr_in6 *)&addr)->sin6_port = 0;
	local = bind(fd, (struct sockaddr *)&addr, end->addr_len) == 0;
	if (fd >= 0)
		close(fd);
	return local;
}

/* Is a backend the proxy itself, which would connect to itself? */
static bool dials_itself(void)
{
	const struct proxy_opts *opts = &config.opts;

	for (unsigned i = 0; i < opts->n_backends; i++)
		if (proxy_opts_takes_all(opts, opts->backends[i].port) &&
		    is_local(&opts->backends[i])) {
			fprintf(stderr,
				"epoll-proxy: --to '%s': expected a backend "
				"other than the proxy, for example --to "
				"10.9.0.2:80\n",
				opts->backend_texts[i]);
			return true;
		}
	return false;
}

/*
 * A client takes two files, its backend's connection the second. Clients for
 * which there are none wait or are reset as beyond --max-clients, not by
 * chance.
 */
static void limit_clients(uint64_t files)
{
	uint64_t own = 16 + config.threads.n * (8ull + config.opts.n_backends +
						config.opts.n_listens);
	uint64_t room = files > own + 2 ? (files - own) / 2 : 1;

	if (config.opts.max_clients > room)
		config.opts.max_clients = (unsigned)room;
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&proxy_opts_argp, 0, NULL, 0},
		{&epoll_threads_argp, 0, NULL, 0},
		{0},
	};
	static const struct argp argp = {
		.options = epoll_proxy_opts_options,
		.parser = parse_key,
		.children = children,
		.help_filter = epoll_proxy_opts_help,
		.doc = "TCP proxy through the kernel's sockets and epoll. The "
		       "limits on clients are divided among the threads.",
	};

	opts_set_version("epoll-proxy");
	proxy_opts_init(&config.opts);
	config.opts.plain = true;
	if (argp_parse(&argp, argc, argv, 0, NULL, &config))
		return OPT_EXIT_USAGE;
	if (dials_itself())
		return OPT_EXIT_USAGE;
	/* splice() to a connection that was reset has no MSG_NOSIGNAL. */
	signal(SIGPIPE, SIG_IGN);
	limit_clients(sys_raise_files());
	return serve_all() ? 1 : 0;
}
