/*
 * One client's session: two coroutines, one per direction.
 *
 * The first coroutine begins the session (coronet_proxy_begin.c), then carries
 * bytes from the client; the second carries bytes from the backend. A piece is
 * received as a view and sent as that view, and the next piece is received only
 * when the other side has room for it. There is no other back-pressure. The end
 * of one direction is passed on and the other continues; when both have ended,
 * both connections are closed. An error resets both at once, so that neither
 * side takes a part for the whole.
 *
 * A session lies on the heap, since its coroutines and its timer share it. It
 * owns both connections; a pointer is NULL once its connection is gone. A
 * coroutine that was blocked in a call on a connection that the other coroutine
 * reset gets -EBADF, and looks at `failed` before it uses either connection
 * again.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the backend that a client keeps ---- */

uint64_t proxy_sticky_find(const struct proxy_shard *shard,
			   const struct pool *pool,
			   const struct proxy_addrs *addrs,
			   struct pool_wish *wish)
{
	int64_t life_ns = shard->config->steer.sticky_ns;
	uint64_t client;

	if (life_ns == 0)
		return 0;
	client = sticky_client(proxy.sticky, addrs->family, addrs->src,
			       pool_group(pool, wish->allowed));
	wish->kept = sticky_find(proxy.sticky, client, wish->now_ns, life_ns);
	return client;
}

void proxy_sticky_put(struct proxy_shard *shard, const struct pool *pool,
		      uint64_t client, const struct pool_wish *wish,
		      unsigned index)
{
	uint32_t number = pool->entries[index].backend->number;

	if (client == 0)
		return;
	if (number == wish->kept)
		counters_add(&shard->counters.sticky_hits, 1);
	if (sticky_put(proxy.sticky, client, number, wish->now_ns,
		       shard->config->steer.sticky_ns))
		counters_add(&shard->counters.sticky_displaced, 1);
}

/* ---- life ---- */

void session_fail(struct session *s, enum access_end end)
{
	if (!s->failed)
		s->end = end;
	s->failed = true;
	if (s->client)
		net_abort(s->client);
	if (s->server)
		net_abort(s->server);
	s->client = s->server = NULL;
}

/* Out of line: its record would be on the stack while bytes are carried. */
__attribute__((noinline)) static void log_session(const struct session *s)
{
	struct access_record record = {
		.begin_ns = s->begin_ns,
		.end_ns = net_now_ns(s->shard->stack),
		.queue_ns = s->queue_ns,
		.connect_ns = s->connect_ns,
		.bytes_to = s->bytes_to,
		.bytes_from = s->bytes_from,
		.addrs = s->addrs,
		.end = s->end,
		.retries = s->retries,
	};

	if (s->backend)
		strcpy(record.backend, s->backend->name);
	if (s->server_name)
		snprintf(record.server_name, sizeof(record.server_name), "%s",
			 s->server_name);
	if (s->tls)
		record.tls = *s->tls;
	if (s->id)
		snprintf(record.id, sizeof(record.id), "%016llx-%x-%llx",
			 (unsigned long long)proxy.instance, s->shard->index,
			 (unsigned long long)s->id);
	access_log_add(proxy.log, s->shard->index, &record);
}

void session_leave_backend(struct backend *backend, uint64_t sticky,
			   uint64_t bytes_to, uint64_t bytes_from)
{
	if (sticky)
		sticky_use(proxy.sticky, sticky, backend->number,
			   net_now_ns(net_stack_here()));
	backend_carried(&backend->bytes_to, bytes_to, bytes_to, true);
	backend_carried(&backend->bytes_from, bytes_from, bytes_from, true);
	backend_release(backend);
	queue_kick(&proxy.queue);
	backend_unref(backend);
}

/* It counts as a session until its last bytes have been acknowledged. */
static void session_end(struct session *s)
{
	struct proxy_shard *shard = s->shard;
	int64_t timeout_ns = shard->config->opts.idle_timeout_ns;

	coro_timer_cancel(coro_sched_self(), &s->timer);
	if (proxy.log)
		log_session(s);
	/* Close the backend's first, since others may wait for it. */
	if (s->server)
		shutdown_close_conn(&s->closing, s->server, timeout_ns);
	if (s->backend)
		session_leave_backend(s->backend, s->sticky, s->bytes_to,
				      s->bytes_from);
	s->backend = NULL;
	if (s->client)
		shutdown_close_conn(&s->closing, s->client, timeout_ns);
	free(s->server_name);
	free(s->tls);
	s->next_free = shard->free;
	shard->free = s;
	proxy_session_ended(shard);
}

/* ---- time ---- */

/* Returns up to where the peer has acknowledged; 0: there is none. */
static uint32_t acked_to(const struct net_conn *conn)
{
	struct net_conn_stats now;

	return !conn || net_conn_stats(conn, &now) < 0 ? 0 : now.snd_una;
}

/*
 * A side that acknowledges bytes is alive; bytes that are queued for it say
 * nothing about it. Nothing notifies the session of acknowledgements, so it
 * looks, four times in the limit.
 */
static void look_for_acks(struct session *s, int64_t now_ns)
{
	uint32_t client = acked_to(s->client);
	uint32_t server = acked_to(s->server);

	if (client != s->client_acked)
		s->client_ns = now_ns;
	if (server != s->server_acked)
		s->server_ns = now_ns;
	s->client_acked = client;
	s->server_acked = server;
}

/* Applies a limit that has begun at since_ns: sets *end if it has passed, and
 * lowers *due_ns to when to look at it. */
static void apply_limit(int64_t since_ns, int64_t limit_ns,
			enum access_end which, int64_t now_ns, int64_t *due_ns,
			enum access_end *end)
{
	int64_t at_ns = since_ns + limit_ns, look_ns = now_ns + limit_ns / 4;

	if (limit_ns == 0)
		return;
	if (at_ns <= now_ns)
		*end = which;
	if (at_ns > look_ns)
		at_ns = look_ns;
	if (at_ns < *due_ns)
		*due_ns = at_ns;
}

/* Returns when to look again or CORO_FOREVER; sets *end if a limit passed. */
static int64_t next_look(const struct session *s, int64_t now_ns,
			 enum access_end *end)
{
	const struct steer_opts *steer = &s->shard->config->steer;
	int64_t moved_ns =
		s->client_ns > s->server_ns ? s->client_ns : s->server_ns;
	int64_t due_ns = CORO_FOREVER;

	apply_limit(moved_ns, s->limit_ns, s->limit_end, now_ns, &due_ns, end);
	if (!s->carries)
		return due_ns;
	apply_limit(s->client_ns, steer->client_timeout_ns,
		    ACCESS_CLIENT_TIMEOUT, now_ns, &due_ns, end);
	apply_limit(s->server_ns, steer->server_timeout_ns,
		    ACCESS_SERVER_TIMEOUT, now_ns, &due_ns, end);
	if (s->half_closed)
		apply_limit(moved_ns, steer->half_closed_timeout_ns,
			    ACCESS_HALF_CLOSED_TIMEOUT, now_ns, &due_ns, end);
	return due_ns;
}

/* Arms the timer a few times in the limit, not at every byte. */
static void arm_timer(struct session *s, int64_t now_ns)
{
	enum access_end end = ACCESS_ENDS;
	int64_t due_ns = next_look(s, now_ns, &end);

	if (end != ACCESS_ENDS)
		due_ns = now_ns;
	if (due_ns == CORO_FOREVER)
		coro_timer_cancel(coro_sched_self(), &s->timer);
	else
		coro_timer_arm(coro_sched_self(), &s->timer, due_ns);
}

static void on_timer(struct coro_timer *timer)
{
	struct session *s =
		(struct session *)(void *)((char *)timer -
					   offsetof(struct session, timer));
	int64_t now_ns = net_now_ns(s->shard->stack);
	enum access_end end = ACCESS_ENDS;

	if (s->failed)
		return;
	if (s->carries)
		look_for_acks(s, now_ns);
	next_look(s, now_ns, &end);
	if (end == ACCESS_ENDS) {
		arm_timer(s, now_ns);
		return;
	}
	if (s->carries)
		counters_add(&s->shard->counters.idle, 1);
	session_fail(s, end);
}

void session_watch(struct session *s, int64_t limit_ns, enum access_end end)
{
	int64_t now_ns = net_now_ns(s->shard->stack);

	s->limit_ns = limit_ns;
	s->limit_end = end;
	s->client_ns = s->server_ns = now_ns;
	s->client_acked = acked_to(s->client);
	s->server_acked = acked_to(s->server);
	arm_timer(s, now_ns);
}

/* ---- carrying ---- */

/* One direction of a session. */
struct direction {
	struct net_conn *from, *to;
	int64_t *from_ns; /* when it moved last */
	uint64_t *bytes, *counter;
	_Atomic uint64_t *backend_bytes; /* of the backend */
	struct backend_times *response;	 /* to its first byte; or NULL */
	enum access_end from_reset, to_reset;
};

static void break_direction(struct session *s, long err, enum access_end end)
{
	counters_add(&s->shard->counters.broken, 1);
	session_fail(s, err == -ECANCELED ? ACCESS_STOPPED : end);
}

/*
 * Carries bytes in one direction until that ends, and passes the end on.
 * Inline, so that each direction keeps only the session on its stack.
 */
static inline __attribute__((always_inline)) void
carry_bytes(struct session *s, const struct direction *direction)
{
	struct net_view view;
	long n, sent = 0;

	while ((n = net_recv_view(direction->from, &view)) > 0) {
		*direction->from_ns = net_now_ns(s->shard->stack);
		sent = net_send_view(direction->to, &view);
		if (sent < 0)
			break;
		if (direction->response && *direction->bytes == 0)
			backend_count_time(direction->response,
					   *direction->from_ns -
						   s->connected_ns);
		backend_carried(direction->backend_bytes, *direction->bytes,
				*direction->bytes + (uint64_t)sent, false);
		*direction->bytes += (uint64_t)sent;
		counters_add(direction->counter, (uint64_t)sent);
	}
	if (s->failed)
		return;
	if (n == 0)
		sent = net_shutdown(direction->to, NET_SHUT_WR);
	if (n < 0 || sent < 0) {
		break_direction(s, n < 0 ? n : sent,
				n < 0 ? direction->from_reset
				      : direction->to_reset);
		return;
	}
	s->half_closed = true;
	arm_timer(s, net_now_ns(s->shard->stack));
}

static void carry_to(struct session *s)
{
	const struct direction direction = {s->client,
					    s->server,
					    &s->client_ns,
					    &s->bytes_to,
					    &s->shard->counters.bytes_to,
					    &s->backend->bytes_to,
					    NULL,
					    ACCESS_CLIENT_RESET,
					    ACCESS_SERVER_RESET};

	carry_bytes(s, &direction);
}

static void carry_from(struct session *s)
{
	const struct direction direction = {s->server,
					    s->client,
					    &s->server_ns,
					    &s->bytes_from,
					    &s->shard->counters.bytes_from,
					    &s->backend->bytes_from,
					    &s->backend->response,
					    ACCESS_SERVER_RESET,
					    ACCESS_CLIENT_RESET};

	carry_bytes(s, &direction);
}

static void *carry_back(void *arg)
{
	struct session *s = arg;

	/* The other direction may have broken before this one began. */
	if (!s->failed)
		carry_from(s);
	if (--s->coroutines == 0)
		session_end(s);
	return NULL;
}

/* Out of line: its buffers would be on the stack while bytes are carried. */
__attribute__((noinline)) static bool begin_session(struct session *s)
{
	const struct coro_attr attr = {.name = "from backend"};

	if (session_begin(s) < 0 || s->failed)
		return false;
	if (coro_spawn(coro_sched_self(), &attr, carry_back, s, NULL) < 0) {
		s->end = ACCESS_NO_MEMORY;
		return false;
	}
	s->coroutines++;
	return true;
}

static void *serve_session(void *arg)
{
	struct session *s = arg;

	if (begin_session(s))
		carry_to(s);
	else
		session_fail(s, s->end);
	if (--s->coroutines == 0)
		session_end(s);
	return NULL;
}

void session_displace(struct pending *item)
{
	struct session *s =
		(struct session *)(void *)((char *)item -
					   offsetof(struct session, pending));

	counters_add(&s->shard->counters.displaced, 1);
	session_fail(s, ACCESS_DISPLACED);
}

int session_start(struct proxy_shard *shard, struct net_conn *conn, bool tls)
{
	const struct coro_attr attr = {.name = "from client"};
	struct session *s = shard->free;

	if (s)
		shard->free = s->next_free;
	else
		s = malloc(sizeof(*s));
	if (!s)
		goto refuse;
	*s = (struct session){.shard = shard,
			      .client = conn,
			      .begin_ns = net_now_ns(shard->stack),
			      .connect_ns = -1,
			      .coroutines = 1,
			      .expects_tls = tls};
	proxy_addrs_of(conn, &s->addrs);
	coro_timer_init(&s->timer, on_timer);
	if (coro_spawn(coro_sched_self(), &attr, serve_session, s, NULL) < 0)
		goto give_back;
	net_conn_set_name(conn, "client"); /* without memory it has none */
	counters_add(&shard->counters.sessions, 1);
	return 0;

give_back:
	s->next_free = shard->free;
	shard->free = s;
refuse:
	net_abort(conn);
	return -ENOMEM;
}

void session_fini(struct proxy_shard *shard)
{
	while (shard->free) {
		struct session *s = shard->free;

		shard->free = s->next_free;
		free(s);
	}
}
