/*
 * The beginning of a session: the PROXY header, the handshake of TLS or the
 * ClientHello with which the client may have to begin, the choice of a backend,
 * the connection to it, and what the backend is sent before the client's own
 * bytes.
 *
 * While a session waits for a backend it holds none of the NIC's frames: bytes
 * that have already arrived are copied.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/client_hello.h"
#include "apps/proxy/coronet_proxy_tls.h"

#define LOOK_NS INT64_C(200000000) /* between looks of a waiting session */

/* Notes why the session ends, unless it has been ended already. */
static void set_end(struct session *s, enum access_end end)
{
	if (!s->failed)
		s->end = end;
}

/* ---- admission ---- */

void proxy_addrs_of(const struct net_conn *conn, struct proxy_addrs *out)
{
	struct net_addr src = net_peer_addr(conn), dst = net_local_addr(conn);

	out->family = src.family;
	out->src_port = src.port;
	out->dst_port = dst.port;
	memcpy(out->src, src.ip, sizeof(out->src));
	memcpy(out->dst, dst.ip, sizeof(out->dst));
}

bool proxy_expects_header(const struct proxy_shard *shard,
			  const struct proxy_addrs *addrs)
{
	const struct proxy_config *config = shard->config;

	return config->opts.accept_proxy &&
	       access_list_allows(&config->steer.proxy_from, addrs->family,
				  addrs->src);
}

bool proxy_admits(struct proxy_shard *shard, const struct proxy_addrs *addrs,
		  enum access_end *end)
{
	const struct steer_opts *steer = &shard->config->steer;

	if (!access_list_allows(&steer->clients, addrs->family, addrs->src)) {
		counters_add(&shard->counters.denied, 1);
		*end = ACCESS_DENIED;
		return false;
	}
	if (steer->source_rate &&
	    source_rate_over(proxy.rate, addrs->family, addrs->src,
			     steer->source_rate, net_now_ns(shard->stack))) {
		counters_add(&shard->counters.over_rate, 1);
		*end = ACCESS_RATE;
		return false;
	}
	return true;
}

/* ---- the PROXY header ---- */

/* Adds bytes to what the backend gets first. */
static int keep_early(struct session *s, const void *data, size_t len)
{
	size_t room = s->early_room ? s->early_room : 512;
	char *early;

	while (room < s->early_len + len)
		room *= 2;
	if (len && room > s->early_room) {
		early = realloc(s->early, room);
		if (!early)
			return -ENOMEM;
		s->early = early;
		s->early_room = room;
	}
	if (len)
		memcpy(s->early + s->early_len, data, len);
	s->early_len += len;
	return 0;
}

static void drop_early(struct session *s)
{
	free(s->early);
	free(s->tlvs);
	s->early = NULL;
	s->tlvs = NULL;
	s->early_len = s->early_room = s->tlvs_len = 0;
}

/* Keeps a header's TLVs, if a backend is to get them. */
static int keep_tlvs(struct session *s, const void *header, size_t len)
{
	const uint8_t *tlvs = proxy_tlvs(header, len, &s->tlvs_len);

	if (s->shard->config->opts.send_proxy != 2)
		s->tlvs_len = 0;
	if (s->tlvs_len == 0)
		return 0;
	s->tlvs = malloc(s->tlvs_len);
	if (!s->tlvs) {
		s->tlvs_len = 0;
		return -ENOMEM;
	}
	memcpy(s->tlvs, tlvs, s->tlvs_len);
	return 0;
}

/*
 * Reads the bytes of a header, and none that follow it: those may be TLS's.
 * Returns how many, or a negative errno.
 */
static long read_exactly(struct net_conn *conn, uint8_t *buf, size_t len)
{
	long n = net_recv_full(conn, buf, len);

	return n >= 0 && n < (long)len ? -EPROTO : n;
}

static long read_bytes(struct net_conn *conn, uint8_t buf[PROXY_V2_MAX])
{
	size_t rest;
	long n = read_exactly(conn, buf, 1);

	if (n == 1 && buf[0] == 'P') {
		n = net_recv_until(conn, buf + 1, PROXY_V1_MAX - 1, "\n", 1);
		return n > 0 ? 1 + n : n == -EMSGSIZE || n >= 0 ? -EPROTO : n;
	}
	if (n == 1 && buf[0] != '\r')
		return -EPROTO;
	if (n == 1)
		n = read_exactly(conn, buf + 1, PROXY_V2_HEADER - 1);
	if (n < 0)
		return n;
	rest = (size_t)buf[PROXY_V2_HEADER - 2] << 8 | buf[PROXY_V2_HEADER - 1];
	if (PROXY_V2_HEADER + rest > PROXY_V2_MAX)
		return -EPROTO;
	n = rest ? read_exactly(conn, buf + PROXY_V2_HEADER, rest) : 0;
	return n < 0 ? n : (long)(PROXY_V2_HEADER + rest);
}

/*
 * Reads the PROXY header the client has to begin with. Returns 0 or a negative
 * errno. The buffer is on the stack: a header nearly always comes whole.
 */
static int read_header(struct session *s)
{
	uint8_t buf[PROXY_V2_MAX];
	long n = read_bytes(s->client, buf);

	if (n < 0)
		return (int)n;
	if (proxy_parse(buf, (size_t)n, &s->addrs) != n)
		return -EPROTO;
	return keep_tlvs(s, buf, (size_t)n);
}

/* Reads the beginning of a session, which counts as half open meanwhile. */
static int begin_part(struct session *s, int (*read)(struct session *s),
		      int64_t limit_ns, enum access_end late)
{
	int err;

	session_watch(s, limit_ns, late);
	pending_enter(&s->shard->half_open, &s->pending);
	err = read(s);
	pending_leave(&s->shard->half_open, &s->pending);
	if (err == 0)
		session_watch(s, 0, late);
	return err;
}

/*
 * Copies what has arrived with the header, so that its frame is not held while
 * a backend is dialed.
 */
static int keep_arrived(struct session *s)
{
	struct net_view view;
	long n = 0;
	int err;

	if (net_ready(s->client, NET_READABLE) & NET_READABLE)
		n = net_recv_view(s->client, &view);
	if (n <= 0) /* an end is found again */
		return (int)n;
	err = keep_early(s, view.data, view.len);
	net_view_release(s->client, &view);
	return err;
}

static int take_header(struct session *s)
{
	struct proxy_addrs own = s->addrs;
	int err;

	s->addrs = (struct proxy_addrs){0};
	err = begin_part(s, read_header,
			 s->shard->config->opts.proxy_timeout_ns,
			 ACCESS_HEADER_TIMEOUT);
	if (s->addrs.family == 0)
		s->addrs = own;
	if (err < 0) {
		counters_add(&s->shard->counters.bad_header, 1);
		set_end(s, ACCESS_BAD_HEADER);
		return err;
	}
	if (!proxy_admits(s->shard, &s->addrs, &s->end))
		return -EACCES;
	return s->expects_tls ? 0 : keep_arrived(s);
}

/* ---- TLS ---- */

static int take_tls(struct session *s)
{
	/* The context ends a handshake that takes too long. */
	return begin_part(s, proxy_tls_accept, 0, ACCESS_HELLO_TIMEOUT);
}

/* ---- the ClientHello ---- */

static int read_on(struct session *s, struct client_hello *hello)
{
	enum client_hello_result result =
		client_hello_feed(hello, s->early, s->early_len);
	struct net_view view;
	long n;

	while (result == CLIENT_HELLO_MORE) {
		int err;

		n = net_recv_view(s->client, &view);
		if (n <= 0)
			return n < 0 ? (int)n : -EPROTO;
		result = client_hello_feed(hello, view.data, view.len);
		err = keep_early(s, view.data, view.len);
		net_view_release(s->client, &view);
		if (err < 0)
			return err;
	}
	if (result != CLIENT_HELLO_NAME)
		return 0;
	s->server_name = strdup(hello->name);
	return s->server_name ? 0 : -ENOMEM;
}

/* Reads until the server's name is known, or that there is none. */
static int read_hello(struct session *s)
{
	/* Not on the stack, which is copied while others run. */
	struct client_hello *hello = malloc(sizeof(*hello));
	int err;

	if (!hello)
		return -ENOMEM;
	client_hello_init(hello);
	err = read_on(s, hello);
	free(hello);
	return err;
}

static int take_hello(struct session *s)
{
	int err = begin_part(s, read_hello,
			     s->shard->config->steer.hello_timeout_ns,
			     ACCESS_HELLO_TIMEOUT);

	if (err < 0) {
		counters_add(&s->shard->counters.bad_hello, 1);
		set_end(s, ACCESS_BAD_HELLO);
	}
	return err;
}

/* ---- the PROXY header for a backend ---- */

/* Writes the session's unique ID: its length, 0 if it has none. */
static size_t format_id(const struct session *s, char *out, size_t len)
{
	if (s->id == 0)
		return 0;
	return (size_t)snprintf(out, len, "%016llx-%x-%llx",
				(unsigned long long)proxy.instance,
				s->shard->index, (unsigned long long)s->id);
}

/* Sends a header with TLVs: from the heap, as it may be 2 KiB. */
static int send_tlvs(struct session *s, struct net_conn *conn)
{
	uint8_t *header = malloc(PROXY_V2_WRITE_MAX);
	char id[ACCESS_LOG_ID_MAX];
	const struct proxy_extra extra = {
		.tlvs = s->tlvs,
		.tlvs_len = s->tlvs_len,
		.id = id,
		.id_len = format_id(s, id, sizeof(id)),
		.tls = s->tls,
		.server_name = s->server_name,
	};
	long n;

	if (!header)
		return -ENOMEM;
	n = (long)proxy_write_tlvs(&s->addrs, &extra, header);
	n = net_send_all(conn, header, (size_t)n);
	free(header);
	return n < 0 ? (int)n : 0;
}

static int send_header(struct session *s, struct net_conn *conn)
{
	int version = s->shard->config->opts.send_proxy;
	char header[PROXY_WRITE_MAX];
	long n;

	if (version == 0)
		return 0;
	if (version == 2 && (s->tlvs_len || s->id || s->tls))
		return send_tlvs(s, conn);
	n = net_send_all(conn, header, proxy_write(version, &s->addrs, header));
	return n < 0 ? (int)n : 0;
}

/* ---- a backend ---- */

/* The backends of one pool that were tried for a session. */
struct attempt {
	struct pool *pool; /* a reference */
	uint64_t tried;
	int index; /* the backend that was chosen */
	bool any;  /* one has been tried */
};

/* Takes the current pool: after a reload all backends may be tried again. */
static void take_pool(struct session *s, struct attempt *a)
{
	if (a->pool == s->shard->pool)
		return;
	pool_unref(a->pool);
	a->pool = pool_ref(s->shard->pool);
	a->tried = 0;
}

/* Finds what the session may have of the current pool. */
static struct pool_wish make_wish(struct session *s, struct attempt *a)
{
	struct pool_wish wish = {
		.hash = balance_hash(s->addrs.src, 16),
		.now_ns = net_now_ns(s->shard->stack),
	};
	int kept;

	take_pool(s, a);
	wish.tried = a->tried;
	wish.allowed = pool_for_name(a->pool, s->server_name);
	s->sticky = proxy_sticky_find(s->shard, a->pool, &s->addrs, &wish);
	kept = pool_kept(a->pool, &wish);
	if (kept >= 0)
		wish.allowed = UINT64_C(1) << kept;
	s->waiter.allowed = wish.allowed;
	return wish;
}

/*
 * Takes a backend that no session ahead of this one waits for. waiter NULL: the
 * session is not in the queue.
 */
static int try_take(struct session *s, struct attempt *a,
		    const struct queue_waiter *waiter)
{
	struct queue_shard *queue = &s->shard->queue;
	struct pool_wish wish = make_wish(s, a);
	uint64_t wanted = queue_wanted(queue, waiter, wish.allowed);
	int i;

	wish.allowed &= ~wanted;
	if (waiter)
		queue_look(queue);
	i = pool_take(a->pool, &s->shard->cursor, &wish);
	if (i == -ENOENT && wanted)
		i = -EAGAIN; /* it may have those that others wait for */
	if (waiter && i == -EAGAIN)
		queue_pass(waiter);
	if (i >= 0)
		proxy_sticky_put(s->shard, a->pool, s->sticky, &wish,
				 (unsigned)i);
	return i;
}

/* Has the client gone with a RST? One that has sent a FIN may still wait. */
static bool is_gone(const struct net_conn *client)
{
	struct net_conn_stats now;

	return net_conn_stats(client, &now) < 0 || now.state == NET_TCP_CLOSED;
}

/*
 * Blocks until it may be the session's turn: 0, -ETIMEDOUT, -ECONNRESET or
 * -ECANCELED. Looks at intervals whether the client is gone or the program
 * ends, since neither wakes a waiter.
 */
static int wait_turn(struct session *s, int64_t until_ns)
{
	struct net_stack *stack = s->shard->stack;
	int64_t look_ns = net_now_ns(stack) + LOOK_NS;
	int err = queue_wait(look_ns < until_ns ? look_ns : until_ns);

	if (net_stack_stopping(stack) || s->failed)
		return -ECANCELED;
	if (is_gone(s->client)) {
		set_end(s, ACCESS_CLIENT_RESET);
		return -ECONNRESET;
	}
	return err == -ETIMEDOUT && net_now_ns(stack) < until_ns ? 0 : err;
}

/* Waits for a backend with room. Returns its index, or a negative errno. */
static int wait_in_queue(struct session *s, struct attempt *a)
{
	struct proxy_shard *shard = s->shard;
	const struct steer_opts *steer = &shard->config->steer;
	int64_t begin_ns = net_now_ns(shard->stack);
	int64_t until_ns = begin_ns + steer->queue_timeout_ns;
	int i = -EAGAIN, err;

	if (!queue_enter(&shard->queue, &s->waiter, steer->queue)) {
		counters_add(&shard->counters.queue_full, 1);
		set_end(s, ACCESS_QUEUE_FULL);
		return -EBUSY;
	}
	counters_add(&shard->counters.queued, 1);
	do {
		i = try_take(s, a, &s->waiter);
		if (i != -EAGAIN)
			break;
		err = wait_turn(s, until_ns);
	} while (err == 0);
	queue_leave(&shard->queue, &s->waiter);
	s->queue_ns += net_now_ns(shard->stack) - begin_ns;
	if (i != -EAGAIN)
		return i;
	if (err == -ETIMEDOUT) {
		counters_add(&shard->counters.queue_timeout, 1);
		set_end(s, ACCESS_QUEUE_TIMEOUT);
	}
	return err;
}

/* Chooses a backend, which counts the session from now on. Returns 0 or a
 * negative errno. */
static int choose_backend(struct session *s, struct attempt *a)
{
	int i = try_take(s, a, NULL);

	if (i == -EAGAIN)
		i = wait_in_queue(s, a);
	if (i == -ENOENT)
		set_end(s, a->any ? ACCESS_CONNECT_FAILED : ACCESS_NO_BACKEND);
	if (i < 0)
		return i;
	a->index = i;
	a->any = true;
	a->tried |= UINT64_C(1) << i;
	s->backend = backend_ref(a->pool->entries[i].backend);
	return 0;
}

/* Called after each segment of a client whose session connects to a backend. */
static void on_client(struct net_conn *conn, struct net_watch *watch)
{
	struct session *s =
		(struct session *)(void *)((char *)watch -
					   offsetof(struct session, watch));

	if (s->left || !(net_ready(conn, 0) & NET_FAILED))
		return;
	s->left = true;
	coro_cancel(s->dialer);
}

/* Connects, and does the handshake of TLS after the PROXY header. */
static int dial_securely(struct session *s, const struct proxy_config *config,
			 const struct pool_entry *entry)
{
	int64_t timeout_ns = config->opts.connect_timeout_ns;
	int64_t until_ns = net_now_ns(s->shard->stack) + timeout_ns;
	const struct net_dial_opts dial = {
		.timeout_ms = (unsigned)(timeout_ns / 1000000)};
	struct net_conn *conn;
	int err = net_dial(s->shard->stack, &entry->addr, &dial, &conn);

	if (err < 0)
		return err;
	if (entry->spec.tls) {
		err = send_header(s, conn);
		if (err == 0)
			err = proxy_tls_connect(config, &entry->spec, conn,
						until_ns);
		s->header_sent = err == 0;
	}
	if (err < 0)
		net_abort(conn);
	else
		s->server = conn;
	return err;
}

/* The same, but -ECANCELED if the client gives up with a RST. */
static int dial_for_client(struct session *s, const struct pool_entry *entry)
{
	/* Its contexts are used while this blocks. */
	struct proxy_config *config = config_ref(s->shard->config);
	int err;

	s->watch.fn = on_client;
	s->dialer = coro_self();
	net_set_watch(s->client, &s->watch);
	s->left = net_ready(s->client, 0) & NET_FAILED;
	err = s->left ? -ECANCELED : dial_securely(s, config, entry);
	net_set_watch(s->client, NULL);
	config_unref(config);
	if (err < 0 || !s->left)
		return err;
	net_abort(s->server);
	return -ECANCELED;
}

/* Connects to the backend that was chosen, or releases it. */
static int dial_backend(struct session *s, struct attempt *a)
{
	struct proxy_shard *shard = s->shard;
	/* We hold the pool: its entry stays while this blocks. */
	int64_t begin_ns = net_clock_ns();
	int err = dial_for_client(s, &a->pool->entries[a->index]);

	if (err == 0) {
		net_conn_set_name(s->server, s->backend->name);
		s->connected_ns = net_clock_ns();
		s->connect_ns = s->connected_ns - begin_ns;
		backend_count_time(&s->backend->connect, s->connect_ns);
		pool_connected(a->pool, (unsigned)a->index);
		return 0;
	}
	s->server = NULL;
	backend_release(s->backend);
	queue_kick(&proxy.queue);
	if (err != -ECANCELED)
		backend_count_failure(s->backend, err);
	if (err != -ECANCELED && !proxy_dial_failed(shard, s->backend, err) &&
	    pool_failed(a->pool, (unsigned)a->index, net_now_ns(shard->stack)))
		net_log("coronet-proxy: backend %s failed %u connects in a "
			"row: ejected for %g s",
			s->backend->name, a->pool->rules.eject_after,
			(double)a->pool->rules.eject_ns / 1e9);
	backend_unref(s->backend);
	s->backend = NULL;
	return err;
}

/* May a session try one more backend? If so, counts that. */
static bool may_retry(struct session *s)
{
	struct proxy_shard *shard = s->shard;

	set_end(s, ACCESS_CONNECT_FAILED);
	if (s->retries >= shard->config->steer.retries)
		return false;
	if (!retry_budget_spend(&shard->budget)) {
		counters_add(&shard->counters.no_retry, 1);
		set_end(s, ACCESS_NO_RETRY);
		return false;
	}
	s->retries++;
	counters_add(&shard->counters.retries, 1);
	return true;
}

/* Tries backend after backend, each once: 0 or a negative errno. */
static int try_backends(struct session *s, struct attempt *a)
{
	int err;

	do {
		err = choose_backend(s, a);
		if (err < 0)
			return err;
		err = dial_backend(s, a);
	} while (err < 0 && err != -ECANCELED && may_retry(s));
	return err;
}

static int connect_backend(struct session *s)
{
	struct attempt attempt = {0};
	int err;

	retry_budget_earn(&s->shard->budget,
			  s->shard->config->steer.retry_percent);
	err = try_backends(s, &attempt);
	pool_unref(attempt.pool);
	if (err < 0 && err != -ECANCELED)
		counters_add(&s->shard->counters.no_backend, 1);
	if (err == -ECANCELED)
		set_end(s, s->left ? ACCESS_CLIENT_RESET : ACCESS_STOPPED);
	return err;
}

/* ---- the first bytes for the backend ---- */

/* Sends the header, then the first of the client's own bytes. */
static int send_first(struct session *s)
{
	long n = s->header_sent ? 0 : send_header(s, s->server);

	if (n == 0 && s->early_len) {
		n = net_send_all(s->server, s->early, s->early_len);
		if (n > 0) {
			counters_add(&s->shard->counters.bytes_to, (uint64_t)n);
			backend_carried(&s->backend->bytes_to, s->bytes_to,
					s->bytes_to + (uint64_t)n, false);
			s->bytes_to += (uint64_t)n;
		}
	}
	if (n < 0)
		set_end(s, ACCESS_SERVER_RESET);
	return n < 0 ? (int)n : 0;
}

static void keep_alive(struct session *s)
{
	unsigned idle_s = s->shard->config->steer.keepalive_s;

	if (idle_s == 0)
		return;
	net_set_keepalive(s->client, idle_s, idle_s < 3 ? 1 : idle_s / 3, 3);
	net_set_keepalive(s->server, idle_s, idle_s < 3 ? 1 : idle_s / 3, 3);
}

static int begin_carrying(struct session *s)
{
	int err = 0;

	if (proxy_expects_header(s->shard, &s->addrs))
		err = take_header(s);
	if (err == 0 && s->expects_tls)
		err = take_tls(s);
	else if (err == 0 && s->shard->pool->by_name)
		err = take_hello(s);
	if (err == 0)
		err = connect_backend(s);
	if (err < 0)
		return err;
	keep_alive(s);
	s->carries = true;
	session_watch(s, s->shard->config->opts.idle_timeout_ns,
		      ACCESS_IDLE_TIMEOUT);
	return send_first(s);
}

int session_begin(struct session *s)
{
	int err;

	if (s->shard->config->steer.unique_id)
		s->id = ++s->shard->ids;
	err = begin_carrying(s);
	drop_early(s);
	return err;
}
