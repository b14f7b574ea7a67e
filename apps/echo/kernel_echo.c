/*
 * Options, listeners, threads and signals of the echo servers on the kernel.
 */
#include "apps/echo/kernel_echo.h"

#include <argp.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/common/epoll_threads.h"
#include "apps/common/opts.h"
#include "apps/common/socket_tls.h"
#include "apps/common/sys.h"

#define BACKLOG 65535 /* the kernel lowers it to somaxconn */

struct thread {
	pthread_t thread;
	uint32_t index;
	void *worker;
};

static struct config {
	const struct kernel_echo *server;
	struct opt_endpoint listen;
	const char *addr_text;
	uint16_t port;
	bool udp;
	struct tls_pairs pairs; /* certificates; without any, no TLS */
	struct epoll_threads threads;
} config;

SSL_CTX *kernel_echo_tls;

static int done_event = -1; /* counts the threads that have ended */

static const struct kernel_echo *worker_kind(void)
{
	return config.udp ? config.server->udp : config.server;
}

static void *thread_main(void *arg)
{
	struct thread *thread = arg;
	uint64_t one = 1;

	epoll_threads_pin(&config.threads, thread->index);
	worker_kind()->serve(thread->worker);
	if (write(done_event, &one, sizeof(one)) != sizeof(one))
		abort();
	return NULL;
}

static int set_flag(int fd, int level, int flag)
{
	int on = 1;

	return setsockopt(fd, level, flag, &on, sizeof(on)) ? -errno : 0;
}

/*
 * Opens a listening socket, the first or one more on the same port; returns its
 * number or -errno. With SO_REUSEPORT a second server would share the port
 * unnoticed, so the first listener is bound without it, and sets it once the
 * port is ours.
 */
static int open_listener(bool first)
{
	const struct opt_endpoint *at = &config.listen;
	const struct sockaddr *addr = (const struct sockaddr *)&at->addr;
	int type = (config.udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK |
		   SOCK_CLOEXEC;
	int fd = socket(addr->sa_family, type, 0);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (!first)
		err = set_flag(fd, SOL_SOCKET, SO_REUSEPORT);
	else if (!config.udp) /* UDP's would share the port, too */
		err = set_flag(fd, SOL_SOCKET, SO_REUSEADDR);
	if (err == 0 && bind(fd, addr, at->addr_len))
		err = -errno;
	if (err == 0 && first)
		err = set_flag(fd, SOL_SOCKET, SO_REUSEPORT);
	if (err == 0 && config.udp)
		return fd;
	if (err == 0) /* every connection inherits it */
		err = set_flag(fd, IPPROTO_TCP, TCP_NODELAY);
	if (err == 0 && listen(fd, BACKLOG))
		err = -errno;
	if (err == 0)
		return fd;
	close(fd);
	return err;
}

/* Port 0 has become a number, which the other listeners need. */
static void learn_port(int listener)
{
	struct sockaddr_storage *addr = &config.listen.addr;
	struct sockaddr_in *in = (struct sockaddr_in *)addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
	socklen_t len = sizeof(*addr);

	getsockname(listener, (struct sockaddr *)addr, &len);
	config.listen.port = ntohs(addr->ss_family == AF_INET6 ? in6->sin6_port
							       : in->sin_port);
}

static void announce_listener(void)
{
	bool v6 = config.listen.addr.ss_family == AF_INET6;

	printf("listening on %s%s%s:%u\n", v6 ? "[" : "", config.listen.host,
	       v6 ? "]" : "", config.listen.port);
	fflush(stdout);
}

/* Opens a thread's listener and worker: 0 or -errno. */
static int thread_init(struct thread *thread, uint32_t index, int drain_event)
{
	int listener = open_listener(index == 0), err;

	if (listener < 0)
		return listener;
	if (index == 0)
		learn_port(listener);
	thread->index = index;
	err = worker_kind()->open(listener, drain_event, &thread->worker);
	if (err)
		close(listener);
	return err;
}

/* Starts the threads and waits for them: 0 or -errno. */
static int run_threads(struct thread *threads, int signals, int drain_event)
{
	uint32_t i, started;
	uint64_t one = 1;
	int err = 0;

	for (started = 0; started < config.threads.n; started++) {
		err = -pthread_create(&threads[started].thread, NULL,
				      thread_main, &threads[started]);
		if (err)
			break;
	}
	if (err == 0)
		announce_listener();
	else if (write(drain_event, &one, sizeof(one)) < 0)
		_exit(1);
	shutdown_wait(signals, drain_event, done_event, started);
	for (i = 0; i < started; i++)
		pthread_join(threads[i].thread, NULL);
	return err;
}

static int serve_all(void)
{
	struct thread *threads = calloc(config.threads.n, sizeof(*threads));
	int signals = shutdown_signals();
	int drain_event = eventfd(0, EFD_CLOEXEC);
	uint32_t ready = 0;
	int err = 0;

	done_event = eventfd(0, EFD_CLOEXEC);
	if (!threads || signals < 0 || drain_event < 0 || done_event < 0) {
		err = -errno;
		goto close_events;
	}
	while (ready < config.threads.n && err == 0) {
		err = thread_init(&threads[ready], ready, drain_event);
		ready += err == 0;
	}
	if (err == 0)
		err = run_threads(threads, signals, drain_event);
	while (ready > 0)
		worker_kind()->close(threads[--ready].worker);
close_events:
	close(done_event);
	close(drain_event);
	close(signals);
	free(threads);
	return err;
}

#define AT(member) OPT_AT(struct config, member)

static const struct opt rows[] = {
	{"addr", OPT_TEXT, AT(addr_text), "ADDRESS", "0.0.0.0",
	 .help = "Listen on this address (default {default}; :: includes "
		 "IPv6)"},
	{"port", OPT_NUMBER, AT(port), "PORT", "7777", 0, UINT16_MAX,
	 .help = "Listen on this port (default {default}; 0: any free port)"},
	{"udp", OPT_FLAG, AT(udp),
	 .help = "Echo UDP datagrams instead of TCP streams"},
#if APPS_TLS
	{"tls-cert", OPT_CUSTOM, AT(pairs), "FILE", .read = tls_pairs_read_cert,
	 .expected = TLS_PAIRS_EXPECTED, .example = "cert.pem",
	 .help = "Use TLS, with the certificate of this PEM file"},
	{"tls-key", OPT_CUSTOM, AT(pairs), "FILE", .read = tls_pairs_read_key,
	 .expected = TLS_PAIRS_EXPECTED, .example = "key.pem",
	 .help = "PEM file with the certificate's key (default: the file of "
		 "the certificate)"},
#endif
};
#define COMMON_ROWS 2 /* those that every server has */

/* Checks what is known only after all options. */
static int check_opts(void *base, struct opt_error *error)
{
	if (opt_parse_address(config.addr_text, config.port, &config.listen))
		return opt_refuse(error, "--addr", config.addr_text,
				  "an IPv4 or IPv6 address of this machine",
				  "--addr 0.0.0.0 or --addr ::");
	if (config.pairs.n > 1 || (config.pairs.n && config.udp))
		return opt_fail(error,
				"--tls-cert: expected one certificate, and no "
				"--udp");
	return 0;
}

OPT_SET(kernel_echo_opts, rows, 0x100, check_opts)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &config.threads;
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return kernel_echo_opts_parse(key, arg, state);
	}
}

int kernel_echo_main(const struct kernel_echo *server, int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&epoll_threads_argp, 0, NULL, 0},
		{0},
	};
	const struct argp argp = {
		.options = kernel_echo_opts_options,
		.parser = parse_key,
		.children = children,
		.help_filter = kernel_echo_opts_help,
		.doc = server->doc,
	};
	int err;

	config.server = server;
	if (!server->udp)
		kernel_echo_opts_options[COMMON_ROWS] = (struct argp_option){0};
	opt_set_defaults(rows, OPT_COUNT(rows), &config);
	opts_set_version(server->name);
	if (argp_parse(&argp, argc, argv, 0, NULL, &config))
		return OPT_EXIT_USAGE;
	sys_raise_files();
	if (server->check && server->check())
		return 1;
	if (config.pairs.n) {
		kernel_echo_tls =
			socket_tls_server(&config.pairs, server->name);
		if (!kernel_echo_tls)
			return OPT_EXIT_USAGE;
	}
	err = serve_all();
	socket_tls_free(kernel_echo_tls);
	if (err == 0)
		return 0;
	fprintf(stderr, "%s: cannot listen on %s port %u: %s\n", server->name,
		config.addr_text, config.port, strerror(-err));
	return 1;
}
