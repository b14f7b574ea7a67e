/*
 * coronet-proxy: a TCP proxy on coronet: the stack, its doors, the backends'
 * health, statistics and the end. What happens to one client is in
 * coronet_proxy_session.c.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "apps/common/coronet_shutdown.h"
#include "apps/proxy/proxy_proto.h"

#define SAY_NS 10000000000 /* what may recur by the thousand: so often */

struct proxy proxy;

/* ---- doors ---- */

static bool full(void)
{
	return proxy.sessions >= proxy.opts.max_clients;
}

/* Until a session ends: what comes meanwhile stays in the backlog. */
static int wait_for_room(struct proxy_door *door)
{
	int err = 0;

	while (err == 0 && full() && door->listener) {
		door->waiting = coro_self();
		err = coro_park();
		door->waiting = NULL;
	}
	return door->listener ? err : -ECANCELED;
}

/* A coroutine a listening address: accepts until its listener is closed. */
static void *accept_clients(void *arg)
{
	struct proxy_door *door = arg;
	bool wait = proxy.opts.over_limit == PROXY_OVER_WAIT;
	struct net_conn *conn;

	for (;;) {
		if (wait && full() && wait_for_room(door) < 0)
			return NULL;
		if (net_accept(door->listener, &conn) < 0)
			return NULL;
		if (full() && !wait) {
			proxy.counters.over_limit++;
			net_abort(conn);
			continue;
		}
		proxy.counters.accepted++;
		session_start(conn);
	}
}

void proxy_session_ended(void)
{
	for (unsigned i = 0; i < proxy.n_doors; i++)
		if (proxy.doors[i].waiting)
			coro_unpark(proxy.doors[i].waiting);
	shutdown_progress();
}

static int open_door(const struct net_addr *addr)
{
	struct proxy_door *door = &proxy.doors[proxy.n_doors];
	char text[NET_ADDR_TEXT_MAX];
	const struct net_limits limits = {.clients_per_source =
						  proxy.opts.max_source};
	int err = net_listen(proxy.stack, addr, 0, &door->listener);

	if (err == 0)
		err = net_listener_limit(door->listener, &limits);
	if (err == 0)
		err = net_spawn(proxy.stack, "accept", accept_clients, door);
	if (err < 0) {
		fprintf(stderr, "coronet-proxy: listening on %s: %s\n",
			net_addr_format(addr, text, sizeof(text)),
			strerror(-err));
		return err;
	}
	printf("%s %s", proxy.n_doors ? "," : "listening on",
	       net_addr_format(addr, text, sizeof(text)));
	proxy.n_doors++;
	return 0;
}

static int open_doors(void)
{
	int err = 0;

	if (proxy.opts.port)
		err = open_door(&net_addr_any(proxy.opts.port));
	for (unsigned i = 0; i < proxy.opts.n_listens && err == 0; i++) {
		struct net_addr addr;

		net_addr_parse(proxy.opts.listen_texts[i], -1, &addr);
		err = open_door(&addr);
	}
	if (err == 0)
		printf("\n");
	fflush(stdout);
	return err;
}

/* ---- health ---- */

/* A backend that wants PROXY headers gets one that says "only me". */
static void say_goodbye(struct net_conn *conn)
{
	static const struct proxy_addrs nobody;
	char header[PROXY_WRITE_MAX];

	if (proxy.opts.send_proxy)
		net_send_all(
			conn, header,
			proxy_write(proxy.opts.send_proxy, &nobody, header));
	net_close(conn);
}

static int check_backend(int i)
{
	int64_t timeout_ns = proxy.opts.connect_timeout_ns;
	struct net_dial_opts dial = {0};
	struct net_conn *conn;
	int err;

	if (timeout_ns > proxy.opts.health_interval_ns)
		timeout_ns = proxy.opts.health_interval_ns;
	dial.timeout_ms = (unsigned)(timeout_ns / 1000000);
	err = net_dial(proxy.stack, &proxy.backends[i], &dial, &conn);
	if (err == 0)
		say_goodbye(conn);
	return err;
}

/* No port or memory of our own is left: that says nothing of the backend. */
static bool is_our_fault(int err)
{
	return err == -EADDRNOTAVAIL || err == -ENOMEM;
}

void proxy_dial_failed(int i, int err)
{
	struct balance_backend *backend = &proxy.balance.backends[i];
	int64_t now_ns = net_now_ns(proxy.stack);

	balance_failed(&proxy.balance, i);
	if (!is_our_fault(err) || now_ns < proxy.say_ns)
		return;
	proxy.say_ns = now_ns + SAY_NS;
	net_log("coronet-proxy: %s to backend %s (%u connections)",
		err == -ENOMEM ? "no memory, or --max-conns reached, for "
				 "another connection"
			       : "no local port left for another connection",
		backend->name, backend->active);
}

/* A coroutine a backend: connects at intervals, from the start on. */
static void *watch_backend(void *arg)
{
	int i = (int)(intptr_t)arg;
	struct balance_backend *backend = &proxy.balance.backends[i];

	do {
		int err = check_backend(i);

		if (net_stack_stopping(proxy.stack))
			break;
		if (is_our_fault(err))
			proxy_dial_failed(i, err);
		else if (balance_report(&proxy.balance, i, err == 0))
			net_log("coronet-proxy: backend %s is %s",
				backend->name, err ? "down" : "up");
	} while (coro_sleep_ns(proxy.opts.health_interval_ns) == 0);
	return NULL;
}

static int start_checks(void)
{
	int err = 0;

	if (proxy.opts.health_interval_ns == 0)
		return 0;
	for (unsigned i = 0; i < proxy.balance.n && err == 0; i++)
		err = net_spawn(proxy.stack, "health", watch_backend,
				(void *)(intptr_t)i);
	return err;
}

/* ---- statistics ---- */

static void *say_stats(void *arg)
{
	int64_t every_ns = (int64_t)(proxy.net.stats_s * 1e9);
	struct proxy_counters was = proxy.counters;
	struct net_stats stack;

	while (coro_sleep_ns(every_ns) == 0) {
		const struct proxy_counters *now = &proxy.counters;
		double s = proxy.net.stats_s;

		net_stack_stats(proxy.stack, &stack);
		net_log("proxy: %u sessions, +%llu, to backends %.2f, from "
			"them %.2f Gbit/s, %u of %u backends up; in all %llu "
			"retries, %llu without backend, %llu broken, %llu "
			"idle, %llu bad headers, %llu over the limit, %llu "
			"displaced, %llu SYNs over a source's limit",
			proxy.sessions,
			(unsigned long long)(now->accepted - was.accepted),
			(double)(now->bytes_to - was.bytes_to) * 8e-9 / s,
			(double)(now->bytes_from - was.bytes_from) * 8e-9 / s,
			balance_up(&proxy.balance), proxy.balance.n,
			(unsigned long long)now->retries,
			(unsigned long long)now->no_backend,
			(unsigned long long)now->broken,
			(unsigned long long)now->idle,
			(unsigned long long)now->bad_header,
			(unsigned long long)now->over_limit,
			(unsigned long long)proxy.half_open.displaced,
			(unsigned long long)stack.clients_refused);
		was = *now;
	}
	return NULL;
}

/* ---- the end ---- */

static bool takes_clients(void)
{
	return !full();
}

static unsigned sessions_left(void)
{
	return proxy.sessions;
}

static void close_doors(void)
{
	struct net_listener *listeners[PROXY_MAX_LISTENS + 1];

	for (unsigned i = 0; i < proxy.n_doors; i++)
		listeners[i] = proxy.doors[i].listener;
	shutdown_close_listeners(listeners, proxy.n_doors, takes_clients);
	for (unsigned i = 0; i < proxy.n_doors; i++) {
		proxy.doors[i].listener = NULL;
		if (proxy.doors[i].waiting)
			coro_unpark(proxy.doors[i].waiting);
	}
}

/* ---- starting ---- */

static void take_backends(void)
{
	balance_init(&proxy.balance, proxy.opts.balance, proxy.opts.rise,
		     proxy.opts.fall);
	for (unsigned i = 0; i < proxy.opts.n_backends; i++) {
		balance_add(&proxy.balance, proxy.opts.backend_texts[i]);
		net_addr_parse(proxy.opts.backend_texts[i], -1,
			       &proxy.backends[i]);
	}
	balance_ready(&proxy.balance);
}

/* Whether all bits of the host are ones, or zeros, in that network. */
static bool is_broadcast(const struct net_addr *addr,
			 const struct net_addr *own)
{
	uint32_t mask, a, b;

	memcpy(&a, addr->ip, 4);
	memcpy(&b, own->ip, 4);
	mask = own->prefix_len ? ~0u << (32 - own->prefix_len) : 0;
	mask = htonl(mask);
	return own->prefix_len < 31 && ((a ^ b) & mask) == 0 &&
	       ((a & ~mask) == ~mask || (a & ~mask) == 0);
}

/*
 * Whether a backend has an address of the stack, which does not talk to itself,
 * or is everybody in one of its networks.
 */
static bool is_own(const struct net_addr *backend)
{
	for (unsigned i = 0; i < proxy.net.n_addrs; i++) {
		const struct net_addr *own = &proxy.net.addrs[i];
		unsigned len = own->family == 4 ? 4 : 16;

		if (own->family == backend->family &&
		    memcmp(own->ip, backend->ip, len) == 0)
			return true;
		if (backend->family == 4 && own->family == 4 &&
		    is_broadcast(backend, own))
			return true;
	}
	return false;
}

static int refuse_own(void)
{
	for (unsigned i = 0; i < proxy.opts.n_backends; i++) {
		struct net_addr addr;

		net_addr_parse(proxy.opts.backend_texts[i], -1, &addr);
		if (is_own(&addr)) {
			fprintf(stderr,
				"coronet-proxy: --to '%s': expected another "
				"host, for example --to 10.9.0.2:80\n",
				proxy.opts.backend_texts[i]);
			return -EINVAL;
		}
	}
	return 0;
}

static int run(void)
{
	static struct shutdown_plan plan = {.program = "coronet-proxy",
					    .what = "sessions",
					    .begin = close_doors,
					    .left = sessions_left};
	int err;

	plan.stack = proxy.stack;
	plan.timeout_ns = proxy.opts.drain_timeout_ns;
	take_backends();
	pending_init(&proxy.half_open, proxy.opts.max_half_open,
		     session_displace);
	err = shutdown_start(&plan);
	if (err == 0)
		err = start_checks();
	if (err == 0 && proxy.net.stats_s > 0)
		err = net_spawn(proxy.stack, "stats", say_stats, NULL);
	if (err == 0)
		err = open_doors();
	if (err == 0)
		net_stack_run(proxy.stack);
	return err;
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct proxy *p = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		opts_begin(state);
		state->child_inputs[0] = &p->opts;
		state->child_inputs[1] = &p->net;
		return 0;
	case ARGP_KEY_ARG:
		opts_refuse_argument(state, arg);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&proxy_opts_argp, 0, NULL, 0},
		{&net_argp, 0, "Common options:", 1},
		{0},
	};
	static const struct argp argp = {
		.parser = parse_key,
		.children = children,
		.doc = "TCP proxy on coronet: DPDK, lwIP, two coroutines a "
		       "connection.\vWords after -- go to DPDK's EAL.",
	};
	int err;

	opts_set_version("coronet-proxy");
	opts_set_place(net_config_place);
	proxy_opts_init(&proxy.opts);
	net_opts_init(&proxy.net);
	err = net_parse_args(&argp, argc, argv, &proxy.net, &proxy);
	if (err == 0)
		err = refuse_own();
	if (err == 0)
		err = net_stack_open(&proxy.net, &proxy.stack);
	if (err < 0) {
		if (proxy.net.error[0])
			fprintf(stderr, "coronet-proxy: %s\n", proxy.net.error);
		return net_exit_status(err);
	}
	err = run();
	net_stack_close(proxy.stack);
	session_fini();
	return net_exit_status(err);
}
