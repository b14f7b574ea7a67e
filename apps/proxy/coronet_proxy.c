/*
 * coronet-proxy: a TCP proxy on coronet: its shards, their doors, the backends'
 * health, statistics and the end. What happens to one client is in
 * coronet_proxy_session.c.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/proxy_proto.h"

#define SAY_NS 10000000000 /* what may recur by the thousand: so often */

struct proxy proxy;

/* ---- doors ---- */

static bool full(void)
{
	return session_limit_full(&proxy.limit);
}

/* A coroutine a listening address: accepts until its listener is closed. */
static void *accept_clients(void *arg)
{
	struct proxy_door *door = arg;
	struct proxy_shard *shard = door->shard;
	bool wait = proxy.opts.over_limit == PROXY_OVER_WAIT;
	struct net_conn *conn;

	for (;;) {
		int err = 0;

		if (wait && full() && session_limit_wait(&door->waiter) < 0)
			return NULL;
		if (net_accept(door->listener, &conn) < 0)
			return NULL;
		/* Another shard may have been faster. */
		while (err == 0 && !session_limit_take(&proxy.limit))
			err = wait ? session_limit_wait(&door->waiter) : -EBUSY;
		if (err < 0) {
			counters_add(&shard->counters.over_limit, 1);
			net_abort(conn);
			continue;
		}
		counters_add(&shard->counters.accepted, 1);
		if (session_start(shard, conn) < 0)
			session_limit_give(&shard->limit);
	}
}

void proxy_session_ended(struct proxy_shard *shard)
{
	counters_set(&shard->counters.sessions, shard->counters.sessions - 1);
	session_limit_give(&shard->limit);
	shutdown_progress(&shard->shutdown);
}

static int open_door(struct proxy_shard *shard, const struct net_addr *addr)
{
	struct proxy_door *door = &shard->doors[shard->n_doors];
	char text[NET_ADDR_TEXT_MAX];
	const struct net_limits limits = {.clients_per_source =
						  proxy.opts.max_source};
	int err = net_listen(shard->stack, addr, 0, &door->listener);

	door->shard = shard;
	session_limit_add(&shard->limit, &door->waiter);
	if (err == 0)
		err = net_listener_limit(door->listener, &limits);
	if (err == 0)
		err = net_spawn(shard->stack, "accept", accept_clients, door);
	if (err < 0) {
		fprintf(stderr, "coronet-proxy: listening on %s: %s\n",
			net_addr_format(addr, text, sizeof(text)),
			strerror(-err));
		return err;
	}
	shard->n_doors++;
	return 0;
}

/* Address number i to listen on: false beyond the last. */
static bool listen_addr(unsigned i, struct net_addr *out)
{
	if (proxy.opts.port && i-- == 0) {
		*out = net_addr_any(proxy.opts.port);
		return true;
	}
	if (i >= proxy.opts.n_listens)
		return false;
	net_addr_parse(proxy.opts.listen_texts[i], -1, out);
	return true;
}

static int open_doors(struct proxy_shard *shard)
{
	struct net_addr addr;
	int err = 0;

	for (unsigned i = 0; err == 0 && listen_addr(i, &addr); i++)
		err = open_door(shard, &addr);
	return err;
}

/* After the coroutine that catches signals has begun: it may end us at once. */
static void *say_listening(void *arg)
{
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr addr;

	for (unsigned i = 0; listen_addr(i, &addr); i++)
		printf("%s %s", i ? "," : "listening on",
		       net_addr_format(&addr, text, sizeof(text)));
	printf("\n");
	fflush(stdout);
	return NULL;
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

static int check_backend(struct proxy_shard *shard, int i)
{
	int64_t timeout_ns = proxy.opts.connect_timeout_ns;
	struct net_dial_opts dial = {0};
	struct net_conn *conn;
	int err;

	if (timeout_ns > proxy.opts.health_interval_ns)
		timeout_ns = proxy.opts.health_interval_ns;
	dial.timeout_ms = (unsigned)(timeout_ns / 1000000);
	err = net_dial(shard->stack, &proxy.backends[i], &dial, &conn);
	if (err == 0)
		say_goodbye(conn);
	return err;
}

/* No port or memory of our own is left: that says nothing of the backend. */
static bool is_our_fault(int err)
{
	return err == -EADDRNOTAVAIL || err == -ENOMEM;
}

void proxy_dial_failed(struct proxy_shard *shard, int i, int err)
{
	int64_t now_ns = net_now_ns(shard->stack), say_ns = proxy.say_ns;

	balance_failed(&shard->balance, i);
	if (!is_our_fault(err) || now_ns < say_ns ||
	    !atomic_compare_exchange_strong(&proxy.say_ns, &say_ns,
					    now_ns + SAY_NS))
		return;
	net_log("coronet-proxy: %s to backend %s (%llu connections)",
		err == -ENOMEM ? "no memory, or --max-conns reached, for "
				 "another connection"
			       : "no local port left for another connection",
		shard->balance.backends[i].name,
		(unsigned long long)balance_active(&shard->balance, i));
}

/* A coroutine a backend: connects at intervals, from the start on. */
static void *watch_backend(void *arg)
{
	const struct proxy_check *check = arg;
	struct proxy_shard *shard = check->shard;
	int i = check->backend;

	do {
		int err = check_backend(shard, i);

		if (net_stack_stopping(shard->stack))
			break;
		if (is_our_fault(err))
			proxy_dial_failed(shard, i, err);
		else if (balance_report(&shard->balance, i, err == 0))
			net_log("coronet-proxy: backend %s is %s",
				shard->balance.backends[i].name,
				err ? "down" : "up");
	} while (coro_sleep_ns(proxy.opts.health_interval_ns) == 0);
	return NULL;
}

/* The checks that are this shard's: the backends are dealt out. */
static int start_checks(struct proxy_shard *shard)
{
	unsigned first = (unsigned)(shard - proxy.shards);
	int err = 0;

	if (proxy.opts.health_interval_ns == 0)
		return 0;
	for (unsigned i = first; i < proxy.opts.n_backends && err == 0;
	     i += proxy.n_shards) {
		proxy.checks[i] = (struct proxy_check){shard, (int)i};
		err = net_spawn(shard->stack, "health", watch_backend,
				&proxy.checks[i]);
	}
	return err;
}

/* ---- statistics ---- */

/* The counters of all shards; each is right, if not of the same moment. */
static struct proxy_counters total(void)
{
	struct proxy_counters sum = {0};

	for (unsigned i = 0; i < proxy.n_shards; i++)
		counters_sum(&sum, &proxy.shards[i].counters, sizeof(sum));
	return sum;
}

/* The program's, from the first shard. */
static void *say_stats(void *arg)
{
	const struct balance *balance = &proxy.shards[0].balance;
	double s = proxy.net.stats_s;
	struct proxy_counters was = total();
	struct net_stats stack;

	while (coro_sleep_ns((int64_t)(s * 1e9)) == 0) {
		const struct proxy_counters now = total();

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
			balance_up(balance), balance->n,
			(unsigned long long)now.retries,
			(unsigned long long)now.no_backend,
			(unsigned long long)now.broken,
			(unsigned long long)now.idle,
			(unsigned long long)now.bad_header,
			(unsigned long long)now.over_limit,
			(unsigned long long)now.displaced,
			(unsigned long long)stack.clients_refused);
		was = now;
	}
	return NULL;
}

/* ---- the end ---- */

static bool takes_clients(void *shard)
{
	return !full();
}

static unsigned sessions_left(void *arg)
{
	const struct proxy_shard *shard = arg;

	return (unsigned)shard->counters.sessions;
}

static unsigned all_sessions_left(void)
{
	return proxy.limit.sessions;
}

static void close_doors(void *arg)
{
	struct net_listener *listeners[PROXY_MAX_LISTENS + 1];
	struct proxy_shard *shard = arg;

	for (unsigned i = 0; i < shard->n_doors; i++)
		listeners[i] = shard->doors[i].listener;
	shutdown_close_listeners(&shard->shutdown, listeners, shard->n_doors,
				 takes_clients);
	for (unsigned i = 0; i < shard->n_doors; i++) {
		shard->doors[i].listener = NULL;
		session_limit_close(&shard->doors[i].waiter);
	}
}

/* ---- starting ---- */

static void take_backends(void)
{
	struct balance *first = &proxy.shards[0].balance;

	for (unsigned i = 0; i < proxy.opts.n_backends; i++)
		net_addr_parse(proxy.opts.backend_texts[i], -1,
			       &proxy.backends[i]);
	for (unsigned k = 0; k < proxy.n_shards; k++) {
		struct balance *balance = &proxy.shards[k].balance;

		balance_init(balance, proxy.opts.balance, proxy.opts.rise,
			     proxy.opts.fall);
		for (unsigned i = 0; i < proxy.opts.n_backends; i++)
			balance_add(balance, proxy.opts.backend_texts[i]);
		balance_ready(balance);
		/* Else the first client of each shard went to the same one. */
		balance->next = k % proxy.opts.n_backends;
		if (k)
			balance_join(balance, first);
	}
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

/* On the shard's thread: all that it does but run. */
static int start_shard(struct proxy_shard *shard)
{
	int err;

	shard->stack = net_stack_here();
	session_limit_join(&proxy.limit, &shard->limit);
	pending_init(&shard->half_open, &proxy.half_open, session_displace);
	err = shutdown_start(&shard->shutdown, &proxy.shutdown, shard->stack,
			     shard);
	if (err == 0)
		err = start_checks(shard);
	return err ? err : open_doors(shard);
}

/* Gives an error as a pointer, for net_call(). */
static void *start_called(void *shard)
{
	return (void *)(intptr_t)start_shard(shard);
}

/* One after another, so that one alone tells why it cannot. */
static int start_shards(void)
{
	int err = 0;

	for (unsigned i = 0; err == 0 && i < proxy.n_shards; i++) {
		void *result = NULL;

		err = net_call(i, start_called, &proxy.shards[i], &result);
		if (err == 0)
			err = (int)(intptr_t)result;
	}
	return err;
}

static int run(struct net_stack *stack)
{
	int err = start_shards();

	if (err == 0 && proxy.net.stats_s > 0)
		err = net_spawn(stack, "stats", say_stats, NULL);
	if (err == 0)
		err = net_spawn(stack, "listening", say_listening, NULL);
	if (err < 0)
		return err;
	net_stack_run(stack);
	return 0;
}

/* Their memory stays until the end: the signal handler knows of it. */
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
		.timeout_ns = proxy.opts.drain_timeout_ns,
		.begin = close_doors,
		.left = sessions_left,
		.total = all_sessions_left,
	};
	session_limit_init(&proxy.limit, proxy.opts.max_clients);
	proxy.half_open.max = proxy.opts.max_half_open;
	take_backends();
	return 0;
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
	struct net_stack *stack;
	int err;

	opts_set_version("coronet-proxy");
	opts_set_place(net_config_place);
	proxy_opts_init(&proxy.opts);
	net_opts_init(&proxy.net);
	err = net_parse_args(&argp, argc, argv, &proxy.net, &proxy);
	if (err == 0)
		err = refuse_own();
	proxy.net.max_shards = NET_MAX_SHARDS;
	if (err == 0)
		err = net_stack_open(&proxy.net, &stack);
	if (err < 0) {
		if (proxy.net.error[0])
			fprintf(stderr, "coronet-proxy: %s\n", proxy.net.error);
		return net_exit_status(err);
	}
	err = make_shards(net_stack_shards(stack));
	if (err == 0)
		err = run(stack);
	net_stack_close(stack);
	for (unsigned i = 0; proxy.shards && i < proxy.n_shards; i++) {
		session_fini(&proxy.shards[i]);
		pending_fini(&proxy.shards[i].half_open);
	}
	return net_exit_status(err);
}
