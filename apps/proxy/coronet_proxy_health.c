/*
 * The backends' health: one shard has a coroutine for each backend, which
 * connects at intervals and, if check= says so, sends a request and compares
 * the response; or it sends a datagram.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <coronet/net_udp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/coronet_proxy_tls.h"

/* Bytes of an answer that are looked at. */
#define ANSWER_MAX 1024

/* State of a coroutine; on the heap, as it lives as long as the backend. */
struct check {
	struct check *next, **pprev; /* of the shard's */
	struct proxy_shard *shard;
	struct coro *co;	 /* NULL until it runs */
	struct backend *backend; /* a reference */
	struct net_addr addr;
	struct proxy_config *config; /* a reference; or NULL */
	struct backend_spec spec;
	uint16_t id; /* of the last DNS query */
	char host[BACKEND_AUTHORITY_MAX];
	char answer[ANSWER_MAX];
};

/* A backend that wants PROXY headers gets one that says "only me". */
static long send_header(const struct check *check, struct net_conn *conn)
{
	static const struct proxy_addrs nobody;
	int version = check->config->opts.send_proxy;
	char header[PROXY_WRITE_MAX];

	if (!version)
		return 0;
	return net_send_all(conn, header,
			    proxy_write(version, &nobody, header));
}

/* Reads the status line of an answer: 0 for 2xx and 3xx. */
static int read_status(struct check *check, struct net_conn *conn)
{
	long n = net_recv_until(conn, check->answer, sizeof(check->answer),
				"\n", 1);

	if (n <= 0)
		return n < 0 ? (int)n : -EPROTO;
	/* HTTP/1.1 200 OK (RFC 9112 4) */
	if (n < 13 || memcmp(check->answer, "HTTP/1.", 7) != 0 ||
	    check->answer[8] != ' ')
		return -EPROTO;
	return check->answer[9] == '2' || check->answer[9] == '3' ? 0 : -EPROTO;
}

static int ask_http(struct check *check, struct net_conn *conn)
{
	int n = snprintf(check->answer, sizeof(check->answer),
			 "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: "
			 "coronet-proxy\r\nConnection: close\r\n\r\n",
			 check->spec.path, check->host);
	long err = net_send_all(conn, check->answer, (size_t)n);

	return err < 0 ? (int)err : read_status(check, conn);
}

static int ask_expected(struct check *check, struct net_conn *conn)
{
	size_t len = 0, wanted = strlen(check->spec.expect);
	long n = 0;

	if (check->spec.send[0])
		n = net_send_all(conn, check->spec.send,
				 strlen(check->spec.send));
	while (n >= 0 && len < sizeof(check->answer)) {
		n = net_recv(conn, check->answer + len,
			     sizeof(check->answer) - len);
		if (n <= 0)
			break;
		len += (size_t)n;
		if (memmem(check->answer, len, check->spec.expect, wanted))
			return 0;
	}
	return n < 0 ? (int)n : -EPROTO;
}

static int ask_backend(struct check *check, struct net_conn *conn,
		       int64_t until_ns)
{
	long err = send_header(check, conn);

	if (err >= 0 && check->spec.tls)
		err = proxy_tls_connect(check->config, &check->spec, conn,
					until_ns);
	if (err < 0)
		return (int)err;
	if (check->spec.check == BACKEND_CHECK_HTTP)
		return ask_http(check, conn);
	if (check->spec.check == BACKEND_CHECK_EXPECT)
		return ask_expected(check, conn);
	return 0;
}

/* ---- by UDP ---- */

/* A query for the root's name servers (RFC 1035 4.1), whose ID is `id`. */
static size_t write_query(const struct check *check, uint8_t *out)
{
	static const uint8_t rest[] = {0, 0, 0, 1, 0, 0, 0, 0,
				       0, 0, 0, 0, 2, 0, 1};

	out[0] = (uint8_t)(check->id >> 8);
	out[1] = (uint8_t)check->id;
	memcpy(out + 2, rest, sizeof(rest));
	return 2 + sizeof(rest);
}

/* Is it what the check waits for? */
static bool is_answer(const struct check *check, const uint8_t *got, size_t len)
{
	if (check->spec.check == BACKEND_CHECK_UDP)
		return memmem(got, len, check->spec.expect,
			      strlen(check->spec.expect));
	return len >= 12 && got[0] == (uint8_t)(check->id >> 8) &&
	       got[1] == (uint8_t)check->id && got[2] & 0x80;
}

/* Sends a datagram and waits for the answer, if there has to be one. */
static int ask_datagram(struct check *check, struct net_udp *udp)
{
	uint8_t *answer = (uint8_t *)check->answer;
	size_t len = strlen(check->spec.send);
	long n;

	if (check->spec.check == BACKEND_CHECK_DNS)
		len = write_query(check, answer);
	else
		memcpy(answer, check->spec.send, len);
	n = net_udp_send(udp, NULL, answer, len);
	while (n >= 0) {
		n = net_udp_recv(udp, answer, sizeof(check->answer), NULL);
		if (n >= 0 && is_answer(check, answer, (size_t)n))
			return 0;
	}
	/* Without an answer to wait for, only a refusal is a failure. */
	if (n == -ETIMEDOUT && check->spec.check == BACKEND_CHECK_UDP &&
	    !check->spec.expect[0])
		return 0;
	return (int)n;
}

static int check_by_udp(struct check *check)
{
	const struct net_addr any = {.family = check->addr.family};
	struct net_udp *udp;
	int err = net_udp_open(check->shard->stack, &any, NULL, &udp);

	if (err < 0)
		return err;
	check->id = (uint16_t)(check->id * 25173 + 13849);
	err = net_udp_connect(udp, &check->addr);
	if (err == 0)
		err = ask_datagram(check, udp);
	net_udp_close(udp);
	return err;
}

/* ---- the check ---- */

/* Runs the whole check within the time that is left for it. */
static int check_backend(struct check *check, int64_t timeout_ns)
{
	const struct net_dial_opts dial = {
		.timeout_ms = (unsigned)(timeout_ns / 1000000)};
	struct net_stack *stack = check->shard->stack;
	int64_t until_ns = net_now_ns(stack) + timeout_ns;
	struct net_conn *conn;
	int err;

	coro_deadline_set(until_ns);
	if (check->spec.check == BACKEND_CHECK_UDP ||
	    check->spec.check == BACKEND_CHECK_DNS) {
		err = check_by_udp(check);
		coro_deadline_set(CORO_FOREVER);
		return err;
	}
	err = net_dial(stack, &check->addr, &dial, &conn);
	if (err == 0) {
		err = ask_backend(check, conn, until_ns);
		net_close(conn);
	}
	coro_deadline_set(CORO_FOREVER);
	return err;
}

/* i: the backend's index in the pool, or -ENOENT. */
static bool is_checked(const struct proxy_shard *shard, int i)
{
	return i >= 0 &&
	       shard->pool->entries[i].spec.check != BACKEND_CHECK_NONE &&
	       shard->config->opts.health_interval_ns != 0;
}

/* Takes the backend's settings from the pool. False: stop checking it. */
static bool prepare_check(struct check *check)
{
	const struct proxy_shard *shard = check->shard;
	int i = pool_find(shard->pool, check->backend);
	const struct pool_entry *entry;

	if (!is_checked(shard, i))
		return false;
	entry = &shard->pool->entries[i];
	config_unref(check->config);
	check->config = config_ref(shard->config);
	check->spec = entry->spec;
	check->addr = entry->addr;
	backend_spec_authority(&entry->spec, check->addr.port, check->host);
	return true;
}

static void report_check(const struct check *check, int err)
{
	struct proxy_shard *shard = check->shard;
	int i = pool_find(shard->pool, check->backend);

	/* A reload may have removed the backend meanwhile, or its checks. */
	if (!is_checked(shard, i) ||
	    proxy_dial_failed(shard, check->backend, err))
		return;
	if (!pool_report(shard->pool, (unsigned)i, err == 0,
			 net_now_ns(shard->stack)))
		return;
	net_log("coronet-proxy: backend %s is %s", check->backend->name,
		err ? "down" : "up");
	queue_kick(&proxy.queue);
}

/*
 * Sleeps until the next check is due. A reload wakes it, since it may change
 * the interval. Returns 0, or the error of coro_park_until().
 */
static int await_turn(const struct check *check)
{
	const struct proxy_shard *shard = check->shard;
	int64_t begin_ns = net_now_ns(shard->stack);
	int err;

	do {
		if (!is_checked(shard, pool_find(shard->pool, check->backend)))
			return 0;
		err = coro_park_until(begin_ns +
				      shard->config->opts.health_interval_ns);
	} while (err == 0);
	return err == -ETIMEDOUT ? 0 : err;
}

static void end_check(struct check *check)
{
	*check->pprev = check->next;
	if (check->next)
		check->next->pprev = check->pprev;
	check->backend->checked = false;
	config_unref(check->config);
	backend_unref(check->backend);
	free(check);
}

/* Connects at intervals, from the start on, until it is cancelled. */
static void *watch_backend(void *arg)
{
	struct check *check = arg;
	struct proxy_shard *shard = check->shard;

	check->co = coro_self();
	while (prepare_check(check)) {
		int64_t interval_ns = shard->config->opts.health_interval_ns;
		int64_t timeout_ns = shard->config->opts.connect_timeout_ns;
		int err = 0;

		if (timeout_ns > interval_ns)
			timeout_ns = interval_ns;
		/* A backend without an address yet is not judged. */
		if (check->addr.family)
			err = check_backend(check, timeout_ns);
		if (net_stack_stopping(shard->stack) || coro_cancelled())
			break;
		if (check->addr.family)
			report_check(check, err);
		if (await_turn(check) < 0)
			break;
	}
	end_check(check);
	return NULL;
}

static int start_one(struct proxy_shard *shard, struct backend *backend)
{
	struct check *check = malloc(sizeof(*check));
	int err;

	if (!check)
		return -ENOMEM;
	*check = (struct check){.shard = shard,
				.next = shard->checks,
				.pprev = &shard->checks,
				.backend = backend_ref(backend)};
	if (check->next)
		check->next->pprev = &check->next;
	shard->checks = check;
	backend->checked = true;
	err = net_spawn(shard->stack, "health", watch_backend, check);
	if (err < 0)
		end_check(check);
	return err;
}

/* A backend that has gone is not kept until its next check is due. */
static void wake_checks(const struct proxy_shard *shard)
{
	for (struct check *check = shard->checks; check; check = check->next) {
		if (!check->co)
			continue;
		if (pool_find(shard->pool, check->backend) < 0)
			coro_cancel(check->co);
		else
			coro_unpark(check->co);
	}
}

/* Does this shard check the backend? It is always the same one that does. */
static bool checks_here(const struct proxy_shard *shard,
			const struct backend *backend)
{
	return balance_hash(backend->name, strlen(backend->name)) %
		       proxy.n_shards ==
	       shard->index;
}

int health_start(struct proxy_shard *shard)
{
	int err = 0;

	wake_checks(shard);
	for (unsigned i = 0; i < shard->pool->n && err == 0; i++) {
		struct backend *backend = shard->pool->entries[i].backend;

		if (!checks_here(shard, backend))
			continue;
		if (!is_checked(shard, (int)i)) {
			backend->up = true;
			backend->streak = 0;
		} else if (!backend->checked) {
			err = start_one(shard, backend);
		}
	}
	return err;
}

void health_fini(struct proxy_shard *shard)
{
	while (shard->checks)
		end_check(shard->checks);
}
