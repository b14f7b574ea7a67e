/*
 * coronet-httpd: a small HTTP/1.1 server on coronet: GET and HEAD of files in
 * memory, keep-alive and pipelining, one coroutine per connection. This file
 * has its options, listeners, statistics and shutdown; coronet_httpd_client.c
 * serves one client's connection, coronet_httpd_answer.c writes the responses.
 */
#include "apps/httpd/coronet_httpd_priv.h"

#include <argp.h>
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "apps/common/coronet_line_log.h"
#include "apps/common/coronet_shards.h"
#include "apps/common/log_signal.h"
#include "apps/common/opts.h"
#include "apps/common/readable.h"

#define DEFAULT_TYPES "/etc/mime.types"
/* From this size on, the bytes of a changed file go back to the system. */
#define MMAP_FROM (256 << 10)

#define NAP_NS	  (OPT_NS_PER_S / 100)
#define SETTLE_NS (OPT_NS_PER_S / 10) /* after which a file has settled */

static_assert(SITE_SHARDS_MAX >= NET_MAX_SHARDS, "each has its answers");

struct httpd httpd;

/* Static, since the signal handler walks along those that were started. */
static struct httpd_shard shards[NET_MAX_SHARDS];

/* The counters of all shards; each is right, but at its own moment. */
static struct httpd_counters sum_counters(void)
{
	struct httpd_counters sum = {0};

	for (unsigned i = 0; i < net_stack_shards(net_stack_here()); i++)
		counters_sum(&sum, &shards[i].counters, sizeof(sum));
	return sum;
}

/* ---- draining ---- */

static bool takes_clients(void *shard)
{
	return true;
}

static void stop_listening(void *arg)
{
	struct httpd_shard *shard = arg;

	httpd_hurry(shard);
	shutdown_close_listeners(&shard->shutdown, shard->listeners,
				 shard->n_listeners, takes_clients);
}

static unsigned visits_left(void *arg)
{
	const struct httpd_shard *shard = arg;

	return (unsigned)shard->counters.open;
}

static unsigned all_visits_left(void)
{
	return (unsigned)sum_counters().open;
}

/* ---- statistics ---- */

/* Logs the program's statistics, on the first shard. */
static void *log_stats(void *arg)
{
	struct httpd_shard *shard = arg;
	int64_t was_ns = net_now_ns(shard->stack), now_ns;
	struct httpd_counters was = sum_counters();
	struct net_stats stacks = {0};

	while (coro_sleep_ns((int64_t)(httpd.net.stats_s * 1e9)) == 0) {
		struct httpd_counters now;

		net_program_stats(&stacks); /* or those of last time */
		now = sum_counters();
		now_ns = net_now_ns(shard->stack);
		net_log("httpd: %llu clients, +%llu, %llu partial requests, "
			"%.0f requests/s; in total %llu requests refused, %llu "
			"displaced, %llu clients lost during a response, %llu "
			"SYNs over the limit",
			(unsigned long long)now.open,
			(unsigned long long)(now.clients - was.clients),
			(unsigned long long)now.half_open,
			(double)(now.requests - was.requests) * 1e9 /
				(double)(now_ns - was_ns),
			(unsigned long long)now.refused,
			(unsigned long long)now.displaced,
			(unsigned long long)now.gave_up,
			(unsigned long long)stacks.clients_refused);
		if (httpd_log_lost())
			net_log("httpd: in total %llu lines of the access log "
				"lost",
				(unsigned long long)httpd_log_lost());
		was = now;
		was_ns = now_ns;
	}
	return NULL;
}

/* ---- starting ---- */

#define AT(member) OPT_AT(struct httpd, member)
#define MIN_NS	   (OPT_NS_PER_S / 100)
#define MOST	   4000000 /* clients */

static const struct opt rows[] = {
	{"port", OPT_NUMBER, AT(port), "PORT", "80", 1, 65535,
	 .help = "Listen on this port"},
	{"root", OPT_TEXT, AT(root), "PATH",
	 .help = "Serve this file at /, or this directory's files, read into "
		 "memory (default: a built-in page)"},
	{"mime-types", OPT_TEXT, AT(types), "FILE",
	 .help = "File of media types by file name extension, in addition to "
		 "the built-in ones (default " DEFAULT_TYPES ", if it exists)"},
	{"rescan", OPT_SECONDS, AT(rescan_ns), "SECONDS", "1", MIN_NS,
	 OPT_DAY_NS, .or_zero = true,
	 .help = "Check the files of --root for changes at this interval; 0: "
		 "only on SIGHUP"},
	{"access-log", OPT_CUSTOM, AT(access_log), LINE_LOG_ARG,
	 .read = line_log_read, .expected = LINE_LOG_EXPECTED,
	 .example = "/var/log/coronet/access",
	 .help = "Log one line per response to a file or a FIFO (reopened on "
		 "SIGUSR1), to a syslog server, or to the local one, as in "
		 "unix:/dev/log"},
	{"access-log-format", OPT_CHOICE, AT(log_form), "common|combined|json",
	 "combined",
	 .help = "Write the lines of --access-log in the Common Log Format, "
		 "with Referer and User-Agent as well, or as JSON objects"},
#if HTTPD_TLS
	{"tls-cert", OPT_CUSTOM, AT(tls.pairs), "FILE",
	 .read = tls_pairs_read_cert, .expected = TLS_PAIRS_EXPECTED,
	 .example = "/etc/coronet/example.com.pem",
	 .help = "Serve HTTPS as well, with the certificate of this PEM file, "
		 "which those that lead to its CA follow; repeatable: the name "
		 "that a client asks for chooses one, else it gets the first; "
		 "SIGHUP reads the files again"},
	{"tls-key", OPT_CUSTOM, AT(tls.pairs), "FILE",
	 .read = tls_pairs_read_key, .expected = TLS_PAIRS_EXPECTED,
	 .example = "/etc/coronet/example.com.key",
	 .help = "PEM file with the key of the --tls-cert before it (default: "
		 "the file of the certificate)"},
	TLS_PAIRS_OCSP(AT(tls.pairs)),
	TLS_PAIRS_TICKETS(AT(tls.ticket_keys)),
	TLS_PAIRS_KEY_LOG(AT(tls.key_log)),
	TLS_PAIRS_OFFLOAD(AT(tls.offload)),
	{"tls-port", OPT_NUMBER, AT(tls.port), "PORT", "443", 1, 65535,
	 .help = "Listen on this port for HTTPS"},
	{"max-handshakes", OPT_NUMBER, AT(tls.max_handshakes), "N", "1024", 1,
	 MOST,
	 .help = "Maximum number of TLS handshakes at a time; connections "
		 "beyond it are reset"},
	{"redirect", OPT_FLAG, AT(tls.redirects),
	 .help = "Redirect requests on --port to HTTPS"},
	{"hsts", OPT_SECONDS, AT(tls.hsts_ns), "SECONDS", "0", OPT_NS_PER_S,
	 731 * OPT_DAY_NS, .or_zero = true, .example = "31536000",
	 .help = "Have browsers use HTTPS only, for this long "
		 "(Strict-Transport-Security); 0: do not"},
#endif
	{"idle-timeout", OPT_SECONDS, AT(idle_ns), "SECONDS", "60", MIN_NS,
	 OPT_DAY_NS,
	 .help = "Close connections that are idle for this long between "
		 "requests"},
	{"header-timeout", OPT_SECONDS, AT(header_ns), "SECONDS", "10", MIN_NS,
	 OPT_DAY_NS,
	 .help = "Time allowed for a request and its body to arrive"},
	{"send-timeout", OPT_SECONDS, AT(send_ns), "SECONDS", "30", MIN_NS,
	 OPT_DAY_NS,
	 .help = "Reset connections that acknowledge no byte of a response for "
		 "this long"},
	{"drain-timeout", OPT_SECONDS, AT(shutdown.timeout_ns), "SECONDS", "30",
	 MIN_NS, OPT_DAY_NS,
	 .help = "Time that responses may continue after SIGTERM"},
	{"max-clients", OPT_NUMBER, AT(limits.clients), "N", "100000", 1, MOST,
	 .help = "Maximum number of clients at a time; further SYNs are "
		 "dropped, and the clients' TCP retries"},
	{"max-clients-per-source", OPT_NUMBER, AT(limits.clients_per_source),
	 "N", NULL, 1, MOST, .example = "1000",
	 .help = "Maximum number of clients of one IPv4 address or IPv6 /64 "
		 "(default: half of --max-clients, at least 1024)"},
	{"max-half-open", OPT_NUMBER, AT(half_open.max), "N", "4096", 1, MOST,
	 .help = "Maximum number of incomplete requests; beyond it the oldest "
		 "request is answered with 408"},
};

static int check_options(void *base, struct opt_error *error)
{
	struct net_limits *limits = &((struct httpd *)base)->limits;

	if (limits->clients_per_source == 0)
		limits->clients_per_source = opts_source_limit(limits->clients);
	return httpd_tls_check(base, error);
}

OPT_SET(httpd_opts, rows, 0x2000, check_options)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &httpd.net;
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return httpd_opts_parse(key, arg, state);
	}
}

/* Runs on each shard's thread, outside any coroutine. Returns 0 or -errno. */
static void *listen_here(void *arg)
{
	struct net_stack *stack = net_stack_here();
	struct httpd_shard *shard = arg;
	int err;

	shard->stack = stack;
	shard->site.shard = net_stack_shard(stack);
	site_use(&shard->site, httpd.loader.newest);
	pending_init(&shard->half_open, &httpd.half_open, httpd_displace);
	err = net_listen(stack, &net_addr_any(httpd.port), 0,
			 &shard->listeners[0]);
	if (err < 0)
		return (void *)(intptr_t)err;
	shard->n_listeners = 1;
	net_listener_limit(shard->listeners[0], &httpd.limits);
	net_listener_serve(shard->listeners[0], httpd_serve, shard);
	return (void *)(intptr_t)httpd_tls_listen(shard);
}

/*
 * Runs on each shard's thread, once all shards listen: a signal handler may
 * wake any shard that has got so far, so none may close early because another
 * one failed.
 */
static void *await_signal_here(void *arg)
{
	struct httpd_shard *shard = arg;

	return (void *)(intptr_t)shutdown_start(
		&shard->shutdown, &httpd.shutdown, shard->stack, shard);
}

/* ---- files that change ---- */

static void log_line(const char *line)
{
	net_log_seldom("httpd: %s", line);
}

/* Runs on each shard's thread, outside any coroutine. */
static void use_site(void *site)
{
	site_use(&shards[net_stack_shard(net_stack_here())].site, site);
}

/* Passes the loader's site to all shards; false: the program ends. */
static bool give_next(struct net_stack *stack)
{
	struct site *next = site_take_next(&httpd.loader);
	unsigned i = 0;

	while (next && i < net_stack_shards(stack)) {
		if (net_post(i, use_site, next) == 0)
			i++;
		else if (coro_sleep_ns(NAP_NS) < 0)
			return false;
	}
	return true;
}

/* Waits until --rescan has passed or SIGHUP comes; false: the program ends. */
static bool await_look(struct net_stack *stack)
{
	int64_t until_ns = httpd.rescan_ns && httpd.loader.runs
				   ? net_now_ns(stack) + httpd.rescan_ns
				   : CORO_FOREVER;
	int err = 0;

	while (err == 0 && !hangup_came())
		err = coro_park_until(until_ns);
	return err == 0 || err == -ETIMEDOUT;
}

/* Has the loader check the files, and passes the result on, as give_next(). */
static bool look_now(struct net_stack *stack)
{
	unsigned look;

	if (!give_next(stack))
		return false;
	look = site_ask(&httpd.loader);
	while (!site_has_looked(&httpd.loader, look))
		if (coro_sleep_ns(NAP_NS) < 0)
			return false;
	return give_next(stack);
}

/* A file that was written just before SIGHUP is taken by the second look. */
static bool look_twice(struct net_stack *stack)
{
	net_log("httpd: SIGHUP: the files below --root are checked for "
		"changes");
	return look_now(stack) && coro_sleep_ns(SETTLE_NS) == 0 &&
	       look_now(stack);
}

/*
 * Makes the loader check the files at the interval of --rescan and after
 * SIGHUP, and passes the site that it has loaded to all shards; SIGHUP also
 * renews the certificates. Runs on the first shard: no other thread may post to
 * a stack that is being closed.
 */
static void *follow_files(void *arg)
{
	struct net_stack *stack = arg;
	bool runs = true;

	hangup_follow();
	while (runs && await_look(stack)) {
		if (hangup_take()) {
			runs = httpd_tls_renew(shards) &&
			       (!httpd.loader.runs || look_twice(stack));
			continue;
		}
		runs = give_next(stack);
		site_ask(&httpd.loader);
	}
	hangup_unfollow();
	return NULL;
}

/* Says on which port a shard could not listen. Returns err. */
static int complain(int err)
{
	const struct httpd_shard *shard = shards;
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr at;

	while (shard < shards + NET_MAX_SHARDS - 1 &&
	       shard->n_listeners > (httpd.tls.pairs.n != 0))
		shard++;
	at = net_addr_any(shard->n_listeners ? httpd.tls.port : httpd.port);
	snprintf(httpd.net.error, sizeof(httpd.net.error),
		 "listening on %s: %s",
		 net_addr_format(&at, text, sizeof(text)), strerror(-err));
	return err;
}

static void announce(uint16_t port, const char *what)
{
	const struct net_addr at = net_addr_any(port);
	char text[NET_ADDR_TEXT_MAX];

	printf("listening on %s%s\n", net_addr_format(&at, text, sizeof(text)),
	       what);
}

static void warn_of_files(void)
{
	readable_or_warn(&httpd.net, "--root", httpd.root);
#if HTTPD_TLS
	for (unsigned i = 0; i < httpd.tls.pairs.n; i++) {
		readable_or_warn(&httpd.net, "--tls-cert",
				 httpd.tls.pairs.pairs[i].cert);
		readable_or_warn(&httpd.net, "--tls-key",
				 httpd.tls.pairs.pairs[i].key);
		readable_or_warn(&httpd.net, "--tls-ocsp",
				 httpd.tls.pairs.ocsp[i]);
	}
	readable_or_warn(&httpd.net, "--tls-ticket-keys",
			 httpd.tls.ticket_keys);
#endif
}

static int start_shards(struct net_stack *stack)
{
	int err;

	warn_of_files();
	site_set_shards(&httpd.loader, net_stack_shards(stack));
	err = shards_call(listen_here, shards, sizeof(*shards));
	if (err < 0)
		return complain(err);
	err = shards_call(await_signal_here, shards, sizeof(*shards));
	if (err == 0)
		err = httpd_metrics_add(shards);
	if (err == 0 && httpd.net.stats_s > 0)
		err = net_spawn(stack, "stats", log_stats, &shards[0]);
	if (err == 0 && (httpd.loader.runs || httpd.tls.pairs.n))
		err = hangup_spawn("files", follow_files, stack);
	if (err < 0)
		return err;
	announce(httpd.port, "");
	if (httpd.tls.pairs.n)
		announce(httpd.tls.port, " for HTTPS");
	fflush(stdout);
	return 0;
}

/* A net_start: the first shard starts all of them. */
static int start_shard(struct net_stack *stack, void *arg)
{
	int err = 0;

	if (net_stack_shard(stack) == 0)
		err = start_shards(stack);
	/* A signal that comes this early ends the program, and is no failure.
	 */
	return net_stack_stopping(stack) ? 0 : err;
}

/*
 * Loads the site of --root, and prints what is notable about its files. The
 * loader starts before any polling thread, whose CPU it would inherit. Returns
 * an exit status.
 */
static int open_site(void)
{
	uint8_t random[(sizeof(httpd.boundary) - 1) / 2];
	const char *types = httpd.types;
	const struct files *files;
	int err;

	mallopt(M_MMAP_THRESHOLD, MMAP_FROM); /* or it grows to 32 MiB */
	if (!types && access(DEFAULT_TYPES, R_OK) == 0)
		types = DEFAULT_TYPES;
	if (site_open(&httpd.loader, httpd.root, types, log_line) < 0) {
		fprintf(stderr, "coronet-httpd: %s\n", httpd.loader.error);
		return OPT_EXIT_USAGE;
	}
	files = &httpd.loader.newest->files;
	if (files->n_outside)
		fprintf(stderr,
			"coronet-httpd: %u symbolic links, '%s' for one, lead "
			"out of --root and are not served\n",
			files->n_outside, files->outside);
	if (files->n_broken)
		fprintf(stderr,
			"coronet-httpd: %u names, '%s' for one, cannot be "
			"opened (broken links, sockets, files that this user "
			"may not read) and are not served\n",
			files->n_broken, files->broken);
	if (files->n_stale)
		fprintf(stderr,
			"coronet-httpd: %u compressed files, '%s' for one, are "
			"older than the files that they were made from, and "
			"are not sent: compress again\n",
			files->n_stale, files->stale);
	randombytes_buf(random, sizeof(random));
	sodium_bin2hex(httpd.boundary, sizeof(httpd.boundary), random,
		       sizeof(random));
	if (!httpd.root)
		return 0;
	err = site_start(&httpd.loader);
	if (err < 0)
		fprintf(stderr,
			"coronet-httpd: no thread can be made to check the "
			"files for changes: %s; raise the limit of threads\n",
			strerror(-err));
	return err < 0;
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&net_argp, 0, "Common options:", 1}, {0}};
	static const struct argp argp = {
		.options = httpd_opts_options,
		.parser = parse_key,
		.children = children,
		.help_filter = httpd_opts_help,
		.doc = "HTTP/1.1 server on coronet, for files in memory: DPDK, "
		       "lwIP, one coroutine per connection.\vWords after -- go "
		       "to DPDK's EAL.",
	};
	int err, status = 0;

	/* Before the files are read, which may take long. */
	hangup_catch();
	log_signal_catch();
	signal(SIGUSR2, SIG_IGN);
	net_log_name("coronet.httpd");
	httpd = (struct httpd){
		.shutdown = {.program = "coronet-httpd",
			     .what = "connections",
			     .begin = stop_listening,
			     .left = visits_left,
			     .total = all_visits_left},
	};
	opt_set_defaults(rows, OPT_COUNT(rows), &httpd);
	opts_set_version("coronet-httpd");
	opt_use_place(net_config_place);
	net_opts_init(&httpd.net);
	err = net_parse_args(&argp, argc, argv, &httpd.net, &httpd);
	if (err == 0)
		status = httpd_tls_open();
	if (err == 0 && status == 0)
		status = open_site();
	if (err == 0 && status == 0 && httpd_log_open() < 0)
		status = OPT_EXIT_USAGE;
	if (err == 0 && status == 0)
		err = net_run(&httpd.net, start_shard, NULL);
	if (err < 0 && httpd.net.error[0])
		fprintf(stderr, "coronet-httpd: %s\n", httpd.net.error);
	for (unsigned i = 0; i < NET_MAX_SHARDS; i++)
		pending_fini(&shards[i].half_open);
	line_log_stop(httpd.log);
	site_close(&httpd.loader);
	httpd_tls_close();
	return status ? status : net_exit_status(err);
}
