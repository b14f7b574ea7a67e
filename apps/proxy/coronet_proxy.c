/*
 * coronet-proxy: a TCP proxy on coronet: its shards, their listeners,
 * statistics and the end. coronet_proxy_priv.h says what else there is.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "apps/common/coronet_line_log.h"
#include "apps/common/coronet_shards.h"
#include "apps/common/log_signal.h"

#define LOG_INTERVAL_NS                                                        \
	10000000000 /* minimum interval between repeated log lines */

/* While a client waits for its listener's rate. */
#define RATE_NAP_NS INT64_C(50000000)

struct proxy proxy;

/* ---- listeners ---- */

static bool is_full(void)
{
	return session_limit_full(&proxy.limit);
}

/* Logs a client that was turned away. Out of line: the record is large. */
__attribute__((noinline)) static void
log_refused(struct proxy_shard *shard, const struct proxy_addrs *addrs,
	    enum access_end end)
{
	struct access_record record = {.addrs = *addrs,
				       .begin_ns = net_now_ns(shard->stack),
				       .end_ns = net_now_ns(shard->stack),
				       .connect_ns = -1,
				       .end = end};

	access_log_add(proxy.log, shard->index, &record);
}

/*
 * Returns whether the client may come in; else resets it. A client that has to
 * begin with a PROXY header may: the address in that is checked later.
 */
static bool lets_in(struct proxy_shard *shard, struct net_conn *conn)
{
	struct proxy_addrs addrs;
	enum access_end end;

	proxy_addrs_of(conn, &addrs);
	if (proxy_expects_header(shard, &addrs) ||
	    proxy_admits(shard, &addrs, &end))
		return true;
	if (proxy.log)
		log_refused(shard, &addrs, end);
	net_abort(conn);
	return false;
}

int64_t proxy_over_rate(const struct proxy_shard *shard, int number)
{
	const struct proxy_rate *rate;

	if (number < 0)
		return 0;
	rate = &shard->config->rates[number];
	if (rate->per_s == 0)
		return 0;
	return rate_bucket_take(&proxy.listener_rates[number].full_ns,
				rate->per_s, rate->burst,
				net_now_ns(shard->stack));
}

/*
 * Waits until the listener's rate allows an accepted client: 0, -ECONNRESET
 * (the client has gone) or -ECANCELED (the program drains or ends). Looks at
 * intervals, since the rate may change and other shards may be faster.
 */
static int wait_for_rate(struct proxy_listener *listener,
			 const struct net_conn *conn, int64_t wait_ns)
{
	struct proxy_shard *shard = listener->shard;

	counters_add(&shard->counters.rate_waits, 1);
	do {
		if (coro_sleep_ns(wait_ns < RATE_NAP_NS ? wait_ns
							: RATE_NAP_NS) < 0 ||
		    shutdown_begun(&shard->shutdown))
			return -ECANCELED;
		if (net_ready(conn, 0) & NET_FAILED)
			return -ECONNRESET;
		wait_ns = proxy_over_rate(shard, listener->number);
	} while (wait_ns > 0);
	return 0;
}

/* Applies the listener's rate. Returns 0, or the client is to be reset. */
static int obey_rate(struct proxy_listener *listener,
		     const struct net_conn *conn, bool wait)
{
	struct proxy_shard *shard = listener->shard;
	int64_t wait_ns = proxy_over_rate(shard, listener->number);
	struct proxy_addrs addrs;

	if (wait_ns == 0)
		return 0;
	if (wait)
		return wait_for_rate(listener, conn, wait_ns);
	counters_add(&shard->counters.over_listener, 1);
	proxy_addrs_of(conn, &addrs);
	if (proxy.log)
		log_refused(shard, &addrs, ACCESS_LISTENER_RATE);
	return -EBUSY;
}

/* One coroutine for each listening address, until its listener is closed. */
static void *accept_clients(void *arg)
{
	struct proxy_listener *listener = arg;
	struct proxy_shard *shard = listener->shard;
	bool wait = proxy.first->opts.over_limit == PROXY_OVER_WAIT;
	struct net_conn *conn;

	for (;;) {
		int err = 0;

		if (wait && is_full() &&
		    session_limit_wait(&listener->waiter) < 0)
			return NULL;
		if (net_accept(listener->net, &conn) < 0)
			return NULL;
		if (!lets_in(shard, conn))
			continue;
		if (obey_rate(listener, conn, wait) < 0) {
			net_abort(conn);
			continue;
		}
		/* Another shard may have been faster. */
		while (err == 0 && !session_limit_take(&proxy.limit))
			err = wait ? session_limit_wait(&listener->waiter)
				   : -EBUSY;
		if (err < 0) {
			counters_add(&shard->counters.over_limit, 1);
			net_abort(conn);
			continue;
		}
		counters_add(&shard->counters.accepted, 1);
		if (session_start(shard, conn, listener->tls) < 0)
			session_limit_give(&shard->limit);
	}
}

void proxy_session_ended(struct proxy_shard *shard)
{
	counters_set(&shard->counters.sessions, shard->counters.sessions - 1);
	session_limit_give(&shard->limit);
	shutdown_progress(&shard->shutdown);
}

static int open_listener(struct proxy_shard *shard, const struct net_addr *addr,
			 bool tls, int number)
{
	struct proxy_listener *listener = &shard->listeners[shard->n_listeners];
	char text[NET_ADDR_TEXT_MAX];
	const struct net_limits limits = {.clients_per_source =
						  proxy.first->opts.max_source};
	int err = net_listen(shard->stack, addr, 0, &listener->net);

	listener->shard = shard;
	listener->tls = tls;
	listener->number = number;
	session_limit_add(&shard->limit, &listener->waiter);
	if (err == 0)
		err = net_listener_limit(listener->net, &limits);
	if (err == 0)
		err = net_spawn(shard->stack, "accept", accept_clients,
				listener);
	if (err < 0) {
		fprintf(stderr, "coronet-proxy: listening on %s: %s\n",
			net_addr_format(addr, text, sizeof(text)),
			strerror(-err));
		return err;
	}
	shard->n_listeners++;
	return 0;
}

/*
 * Finds address number i to listen on, its kind and the number of its rate:
 * false beyond the last.
 */
static bool listen_addr(unsigned i, struct net_addr *out,
			enum proxy_listen *kind, int *number)
{
	const struct proxy_opts *opts = &proxy.first->opts;

	*kind = PROXY_LISTEN_TCP;
	*number = -1;
	if (opts->port && i-- == 0) {
		*out = net_addr_any(opts->port);
		return true;
	}
	if (i >= opts->n_listens)
		return false;
	*kind = opts->listen_kinds[i];
	*number = (int)i;
	net_addr_parse(opts->listen_texts[i], -1, out);
	return true;
}

static int open_listeners(struct proxy_shard *shard)
{
	enum proxy_listen kind;
	struct net_addr addr;
	int err = 0, number;

	for (unsigned i = 0; err == 0 && listen_addr(i, &addr, &kind, &number);
	     i++)
		err = kind == PROXY_LISTEN_UDP
			      ? udp_listen(shard, &addr, number)
			      : open_listener(shard, &addr,
					      kind == PROXY_LISTEN_TLS, number);
	return err;
}

/* Runs after the coroutine that catches signals: a signal may follow it. */
static void *log_listening(void *arg)
{
	char text[NET_ADDR_TEXT_MAX];
	enum proxy_listen kind;
	struct net_addr addr;
	int number;

	for (unsigned i = 0; listen_addr(i, &addr, &kind, &number); i++)
		printf("%s %s%s", i ? "," : "listening on",
		       proxy_listen_prefix(kind),
		       net_addr_format(&addr, text, sizeof(text)));
	printf("\n");
	fflush(stdout);
	return NULL;
}

/* ---- backends ---- */

/* No port or memory of our own is left: that is not the backend's fault. */
static bool is_our_fault(int err)
{
	return err == -EADDRNOTAVAIL || err == -ENOMEM;
}

bool proxy_dial_failed(struct proxy_shard *shard, const struct backend *backend,
		       int err)
{
	int64_t now_ns = net_now_ns(shard->stack), say_ns = proxy.say_ns;

	if (!is_our_fault(err))
		return false;
	if (now_ns < say_ns ||
	    !atomic_compare_exchange_strong(&proxy.say_ns, &say_ns,
					    now_ns + LOG_INTERVAL_NS))
		return true;
	net_log("coronet-proxy: %s to backend %s (%u connections)",
		err == -ENOMEM ? "no memory, or --max-conns reached, for "
				 "another connection"
			       : "no local port left for another connection",
		backend->name, backend->active);
	return true;
}

/* ---- statistics ---- */

struct proxy_counters proxy_total(void)
{
	struct proxy_counters sum = {0};

	for (unsigned i = 0; i < proxy.n_shards; i++)
		counters_sum(&sum, &proxy.shards[i].counters, sizeof(sum));
	return sum;
}

/* Logs what concerns steering, unless none of it has happened. */
static void log_steering(const struct proxy_counters *now)
{
	uint64_t lost = proxy.log ? line_log_lost(proxy.log) : 0;

	if (!now->queued && !now->queue_full && !now->no_retry &&
	    !now->denied && !now->over_rate && !now->over_listener &&
	    !now->rate_waits && !now->bad_hello && !lost)
		return;
	net_log("proxy: %u wait for a backend; in all %llu queued, %llu queue "
		"timeouts, %llu queue full, %llu retries refused, %llu denied, "
		"%llu over a source's rate, %llu over a listener's, %llu that "
		"waited for it, %llu bad hellos, %llu lines of the access log "
		"lost",
		proxy.queue.n, (unsigned long long)now->queued,
		(unsigned long long)now->queue_timeout,
		(unsigned long long)now->queue_full,
		(unsigned long long)now->no_retry,
		(unsigned long long)now->denied,
		(unsigned long long)now->over_rate,
		(unsigned long long)now->over_listener,
		(unsigned long long)now->rate_waits,
		(unsigned long long)now->bad_hello, (unsigned long long)lost);
}

/* Logs what concerns UDP, unless none of it has happened. */
static void log_udp(const struct proxy_counters *now)
{
	if (!now->udp_begun && !now->udp_dropped)
		return;
	net_log("proxy: %llu UDP sessions; in all %llu begun, %llu datagrams "
		"to backends, %llu from them, %llu dropped, %llu sessions "
		"displaced",
		(unsigned long long)now->udp_sessions,
		(unsigned long long)now->udp_begun,
		(unsigned long long)now->udp_to,
		(unsigned long long)now->udp_from,
		(unsigned long long)now->udp_dropped,
		(unsigned long long)now->udp_displaced);
}

/* Logs the program's statistics, on the first shard. */
static void *log_stats(void *arg)
{
	const struct proxy_shard *shard = &proxy.shards[0];
	double s = proxy.net.stats_s;
	struct proxy_counters was = proxy_total();
	struct net_stats stack;

	while (coro_sleep_ns((int64_t)(s * 1e9)) == 0) {
		const struct proxy_counters now = proxy_total();

		if (net_program_stats(&stack) < 0)
			continue;
		net_log("proxy: %llu sessions, +%llu, to backends %.2f, from "
			"them %.2f Gbit/s, %u of %u backends up; in all %llu "
			"retries, %llu without backend, %llu broken, %llu "
			"idle, %llu bad headers, %llu over the limit, %llu "
			"displaced, %llu SYNs over a source's limit",
			(unsigned long long)now.sessions,
			(unsigned long long)(now.accepted - was.accepted),
			(double)(now.bytes_to - was.bytes_to) * 8e-9 / s,
			(double)(now.bytes_from - was.bytes_from) * 8e-9 / s,
			pool_usable(shard->pool, net_now_ns(shard->stack)),
			shard->pool->n, (unsigned long long)now.retries,
			(unsigned long long)now.no_backend,
			(unsigned long long)now.broken,
			(unsigned long long)now.idle,
			(unsigned long long)now.bad_header,
			(unsigned long long)now.over_limit,
			(unsigned long long)now.displaced,
			(unsigned long long)stack.clients_refused);
		log_steering(&now);
		log_udp(&now);
		was = now;
	}
	return NULL;
}

/* ---- the end ---- */

static bool takes_clients(void *shard)
{
	return !is_full();
}

static unsigned sessions_left(void *arg)
{
	const struct proxy_shard *shard = arg;

	return (unsigned)(shard->counters.sessions +
			  shard->counters.udp_sessions);
}

static unsigned all_sessions_left(void)
{
	return proxy.limit.sessions + (unsigned)proxy_total().udp_sessions;
}

static void close_listeners(void *arg)
{
	struct net_listener *listeners[PROXY_MAX_LISTENS + 1];
	struct proxy_shard *shard = arg;

	udp_drain(shard);
	for (unsigned i = 0; i < shard->n_listeners; i++)
		listeners[i] = shard->listeners[i].net;
	shutdown_close_listeners(&shard->shutdown, listeners,
				 shard->n_listeners, takes_clients);
	for (unsigned i = 0; i < shard->n_listeners; i++) {
		shard->listeners[i].net = NULL;
		session_limit_close(&shard->listeners[i].waiter);
	}
}

/* ---- starting ---- */

/* Runs on the shard's thread, and starts all that the shard does. */
static int start_shard(struct proxy_shard *shard)
{
	int err;

	shard->stack = net_stack_here();
	shard->index = (unsigned)(shard - proxy.shards);
	session_limit_join(&proxy.limit, &shard->limit);
	queue_join(&proxy.queue, &shard->queue);
	retry_budget_init(&shard->budget);
	pending_init(&shard->half_open, &proxy.half_open, session_displace);
	err = shutdown_start(&shard->shutdown, &proxy.shutdown, shard->stack,
			     shard);
	if (err == 0)
		err = config_join(shard);
	return err ? err : open_listeners(shard);
}

/* Returns an error as a pointer. Shards start one after another, so that only
 * one reports why it cannot. */
static void *start_called(void *shard)
{
	return (void *)(intptr_t)start_shard(shard);
}

static int run_proxy(struct net_stack *stack)
{
	int err =
		shards_call(start_called, proxy.shards, sizeof(*proxy.shards));

	if (err == 0)
		err = proxy_control_add();
	if (err == 0)
		err = proxy_metrics_add();
	if (err == 0 && proxy.net.stats_s > 0)
		err = net_spawn(stack, "stats", log_stats, NULL);
	if (err == 0 && !proxy.net.check)
		err = net_spawn(stack, "listening", log_listening, NULL);
	if (err < 0)
		return err;
	if (!proxy.net.check) /* else names would be resolved */
		config_run();
	net_stack_run(stack);
	config_stop();
	return 0;
}

/* The shards' memory stays until the end: the signal handler uses it. */
static int make_shards(unsigned n)
{
	proxy.n_shards = n;
	proxy.shards = aligned_alloc(_Alignof(struct proxy_shard),
				     n * sizeof(*proxy.shards));
	if (!proxy.shards)
		return -ENOMEM;
	memset(proxy.shards, 0, n * sizeof(*proxy.shards));
	proxy.shutdown = (struct shutdown_plan){
		.program = "coronet-proxy",
		.what = "sessions",
		.timeout_ns = proxy.first->opts.drain_timeout_ns,
		.begin = close_listeners,
		.left = sessions_left,
		.total = all_sessions_left,
	};
	session_limit_init(&proxy.limit, proxy.first->opts.max_clients);
	proxy.half_open.max = proxy.first->opts.max_half_open;
	return 0;
}

int proxy_start_thread(void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

/* ---- the command line ---- */

/* The options that may change are read once more: config_open(). */
struct inputs {
	struct proxy_opts opts;
	struct steer_opts steer;
#if PROXY_TLS
	struct tls_opts tls;
#endif
	struct net_opts *net;
};

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct inputs *inputs = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &inputs->opts;
		state->child_inputs[1] = &inputs->steer;
		state->child_inputs[2] = inputs->net;
#if PROXY_TLS
		state->child_inputs[3] = &inputs->tls;
#endif
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {
	{&proxy_opts_argp, 0, NULL, 0},
	{&steer_opts_argp, 0, "Backends, timeouts and access:", 1},
	{&net_argp, 0, "Common options:", 3},
#if PROXY_TLS
	{&tls_opts_argp, 0, "TLS:", 2},
#endif
	{0},
};

static const struct argp the_argp = {
	.parser = parse_key,
	.children = children,
	.doc = "TCP and UDP proxy on coronet: DPDK, lwIP, two coroutines per "
	       "connection.\vOn SIGHUP the program reads the files of --config "
	       "again and applies the changes of backends, certificates, "
	       "routes and most options. On SIGUSR1 it reopens the files of "
	       "--access-log and "
	       "--log-to. Words after -- go to DPDK's EAL.",
};

static int open_log(void)
{
	const struct steer_opts *steer = &proxy.first->steer;

	if (proxy.net.check)
		return 0;
	return line_log_start(&access_log_kind, &proxy.net, steer->access_log,
			      steer->access_form, &proxy.log);
}

static int parse_args(int argc, char **argv)
{
	static struct inputs inputs;
	int err;

	opts_set_version("coronet-proxy");
	opt_use_place(net_config_place);
	proxy_opts_init(&inputs.opts);
	steer_opts_init(&inputs.steer);
#if PROXY_TLS
	tls_opts_init(&inputs.tls);
#endif
	net_opts_init(&proxy.net);
	inputs.net = &proxy.net;
	err = net_parse_args(&the_argp, argc, argv, &proxy.net, &inputs);
	steer_opts_fini(&inputs.steer);
	if (err == 0)
		err = config_open(&the_argp, argc, argv);
	if (err == 0 && !proxy.net.check)
		err = open_log();
	return err;
}

static void close_all(void)
{
	for (unsigned i = 0; proxy.shards && i < proxy.n_shards; i++) {
		struct proxy_shard *shard = &proxy.shards[i];

		session_fini(shard);
		udp_fini(shard);
		health_fini(shard);
		pending_fini(&shard->half_open);
		queue_fini(&shard->queue);
	}
	line_log_stop(proxy.log);
	config_fini();
}

int main(int argc, char **argv)
{
	struct net_stack *stack = NULL;
	int err;

	log_signal_catch();
	err = getrandom(&proxy.instance, sizeof(proxy.instance), 0) < 0
		      ? -errno
		      : parse_args(argc, argv);
	proxy.net.max_shards = NET_MAX_SHARDS;
	net_log_name("coronet.proxy");
	if (err == 0)
		err = net_stack_open(&proxy.net, &stack);
	if (err < 0) {
		if (proxy.net.error[0])
			fprintf(stderr, "coronet-proxy: %s\n", proxy.net.error);
		close_all();
		return net_exit_status(err);
	}
	config_try();
	proxy.rate = source_rate_new(4, 8);
	proxy.sticky = sticky_new();
	err = proxy.rate && proxy.sticky ? make_shards(net_stack_shards(stack))
					 : -ENOMEM;
	if (err == 0)
		err = run_proxy(stack);
	net_stack_close(stack);
	close_all();
	return net_exit_status(err);
}
