/*
 * coronet-httpd: a small HTTP/1.1 server on coronet: GET and HEAD of files in
 * memory, keep-alive and pipelining, one coroutine a connection. Here are its
 * options, listener, statistics and end; coronet_httpd_client.c is a client's
 * connection.
 */
#include "apps/httpd/coronet_httpd_priv.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "apps/common/opts.h"

#define MAX_CLIENTS   100000
#define MAX_HALF_OPEN 4096

struct httpd httpd;

/* ---- the end ---- */

static bool takes_clients(void)
{
	return true;
}

static void stop_listening(void)
{
	httpd_hurry();
	shutdown_close_listeners(&httpd.listener, 1, takes_clients);
}

static unsigned visits_left(void)
{
	return httpd.n_visits;
}

/* ---- statistics ---- */

static void *say_stats(void *arg)
{
	double s = httpd.net.stats_s;
	struct httpd_counters was = httpd.counters;
	struct net_stats stack;

	while (coro_sleep_ns((int64_t)(s * 1e9)) == 0) {
		const struct httpd_counters *now = &httpd.counters;

		net_stack_stats(httpd.stack, &stack);
		net_log("httpd: %u clients, +%llu, %u with half a request, "
			"%.0f requests/s; in all %llu requests refused, %llu "
			"displaced, %llu clients gave up on, %llu SYNs over "
			"the limit",
			httpd.n_visits,
			(unsigned long long)(now->clients - was.clients),
			httpd.half_open.n,
			(double)(now->requests - was.requests) / s,
			(unsigned long long)now->refused,
			(unsigned long long)httpd.half_open.displaced,
			(unsigned long long)now->gave_up,
			(unsigned long long)stack.clients_refused);
		was = *now;
	}
	return NULL;
}

/* ---- starting ---- */

enum {
	OPT_PORT = 0x2000,
	OPT_ROOT,
	OPT_IDLE,
	OPT_HEADER,
	OPT_SEND,
	OPT_DRAIN,
	OPT_MAX_CLIENTS,
	OPT_MAX_SOURCE,
	OPT_MAX_HALF_OPEN
};

static const struct argp_option options[] = {
	{"port", OPT_PORT, "PORT", 0, "Listen on this port (default 80)", 0},
	{"root", OPT_ROOT, "PATH", 0,
	 "Serve this file at /, or the files of this folder, read into memory "
	 "once (default: a page of its own)",
	 0},
	{"idle-timeout", OPT_IDLE, "SECONDS", 0,
	 "Close a connection without requests after so long (default 60)", 0},
	{"header-timeout", OPT_HEADER, "SECONDS", 0,
	 "A request that has begun, its body too, has to be whole by then "
	 "(default 10)",
	 0},
	{"send-timeout", OPT_SEND, "SECONDS", 0,
	 "Give up a connection that takes no byte of its answer for so long "
	 "(default 30)",
	 0},
	{"drain-timeout", OPT_DRAIN, "SECONDS", 0,
	 "How long answers may go on after SIGTERM (default 30)", 0},
	{"max-clients", OPT_MAX_CLIENTS, "N", 0,
	 "Clients at a time; SYNs beyond are dropped, to come again (default "
	 "100000)",
	 0},
	{"max-clients-per-source", OPT_MAX_SOURCE, "N", 0,
	 "The same for each IPv4 address or IPv6 /64 (default: half of "
	 "--max-clients, 1024 at least)",
	 0},
	{"max-half-open", OPT_MAX_HALF_OPEN, "N", 0,
	 "Requests that have begun and not ended; beyond, the oldest is "
	 "answered 408 (default 4096)",
	 0},
	{0},
};

static unsigned count(const struct argp_state *state, const char *option,
		      const char *arg)
{
	char example[64];

	snprintf(example, sizeof(example), "%s 1000", option);
	return (unsigned)opts_number(state, option, arg, 1, 4000000, example);
}

static int64_t timeout(const struct argp_state *state, const char *option,
		       const char *arg)
{
	char example[64];

	snprintf(example, sizeof(example), "%s 30", option);
	return opts_seconds(state, option, arg, OPTS_NS_PER_S / 100,
			    86400 * OPTS_NS_PER_S, example);
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opts_begin(state);
		state->child_inputs[0] = &httpd.net;
		return 0;
	case OPT_PORT:
		httpd.port = (uint16_t)opts_number(state, "--port", arg, 1,
						   65535, "--port 80");
		return 0;
	case OPT_ROOT:
		httpd.root = arg;
		return 0;
	case OPT_IDLE:
		httpd.idle_ns = timeout(state, "--idle-timeout", arg);
		return 0;
	case OPT_HEADER:
		httpd.header_ns = timeout(state, "--header-timeout", arg);
		return 0;
	case OPT_SEND:
		httpd.send_ns = timeout(state, "--send-timeout", arg);
		return 0;
	case OPT_DRAIN:
		httpd.drain_ns = timeout(state, "--drain-timeout", arg);
		return 0;
	case OPT_MAX_CLIENTS:
		httpd.limits.clients = count(state, "--max-clients", arg);
		return 0;
	case OPT_MAX_SOURCE:
		httpd.limits.clients_per_source =
			count(state, "--max-clients-per-source", arg);
		return 0;
	case OPT_MAX_HALF_OPEN:
		httpd.max_half_open = count(state, "--max-half-open", arg);
		return 0;
	case ARGP_KEY_ARG:
		opts_refuse_argument(state, arg);
	case ARGP_KEY_END:
		if (httpd.limits.clients_per_source == 0)
			httpd.limits.clients_per_source =
				opts_source_limit(httpd.limits.clients);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int run(void)
{
	static struct shutdown_plan plan = {.program = "coronet-httpd",
					    .what = "connections",
					    .begin = stop_listening,
					    .left = visits_left};
	const struct net_addr at = net_addr_any(httpd.port);
	char text[NET_ADDR_TEXT_MAX];
	int err = net_listen(httpd.stack, &at, 0, &httpd.listener);

	if (err < 0) {
		fprintf(stderr, "coronet-httpd: listening on %s: %s\n",
			net_addr_format(&at, text, sizeof(text)),
			strerror(-err));
		return err;
	}
	net_listener_limit(httpd.listener, &httpd.limits);
	net_listener_serve(httpd.listener, httpd_serve, NULL);
	plan.stack = httpd.stack;
	plan.timeout_ns = httpd.drain_ns;
	err = shutdown_start(&plan);
	if (err == 0 && httpd.net.stats_s > 0)
		err = net_spawn(httpd.stack, "stats", say_stats, NULL);
	if (err < 0)
		return err;
	printf("listening on %s\n", net_addr_format(&at, text, sizeof(text)));
	fflush(stdout);
	net_stack_run(httpd.stack);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&net_argp, 0, "Common options:", 1}, {0}};
	static const struct argp argp = {
		.options = options,
		.parser = parse_key,
		.children = children,
		.doc = "HTTP/1.1 server on coronet, for files in memory: DPDK, "
		       "lwIP, one coroutine a connection.\vWords after -- go "
		       "to DPDK's EAL.",
	};
	int err;

	httpd = (struct httpd){
		.port = 80,
		.idle_ns = 60 * OPTS_NS_PER_S,
		.header_ns = 10 * OPTS_NS_PER_S,
		.send_ns = 30 * OPTS_NS_PER_S,
		.drain_ns = 30 * OPTS_NS_PER_S,
		.limits = {.clients = MAX_CLIENTS},
		.max_half_open = MAX_HALF_OPEN,
	};
	opts_set_version("coronet-httpd");
	opts_set_place(net_config_place);
	net_opts_init(&httpd.net);
	err = net_parse_args(&argp, argc, argv, &httpd.net, &httpd);
	if (err == 0 && files_load(&httpd.files, httpd.root) < 0) {
		fprintf(stderr, "coronet-httpd: %s\n", httpd.files.error);
		return OPTS_EXIT_USAGE;
	}
	if (err == 0 && httpd.files.n_outside)
		fprintf(stderr,
			"coronet-httpd: %u symbolic links, '%s' for one, lead "
			"out of --root and are not served\n",
			httpd.files.n_outside, httpd.files.outside);
	if (err == 0)
		err = net_stack_open(&httpd.net, &httpd.stack);
	if (err == 0) {
		pending_init(&httpd.half_open, httpd.max_half_open,
			     httpd_displace);
		err = run();
		net_stack_close(httpd.stack);
	} else if (httpd.net.error[0]) {
		fprintf(stderr, "coronet-httpd: %s\n", httpd.net.error);
	}
	files_free(&httpd.files);
	return net_exit_status(err);
}
