/*
 * One client's session: two coroutines, one a direction.
 *
 * The first reads the PROXY header if there has to be one, chooses a backend
 * and connects, then carries bytes from the client; the second carries those
 * of the backend. A piece is received as a view and given away as one, and the
 * next is not received before the other side had room for it: that is all the
 * back-pressure there is to it. The end of one direction is passed on and the
 * other goes on; when both are over, both connections are closed. Whatever
 * breaks resets both at once, so that neither side takes half for all.
 *
 * A session lies on the heap, as its coroutines and its timer share it. Both
 * connections are its own; NULL once gone. A coroutine that was blocked in a
 * call on a connection which the other one reset gets -EBADF and looks at
 * `failed` before it touches either again.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/proxy_proto.h"

struct session {
	struct proxy_shard *shard;
	struct net_conn *client, *server;
	struct session *next_free;
	struct coro_timer timer;
	struct shutdown_closing closing;
	int64_t active_ns;	  /* when a byte moved last */
	int64_t limit_ns;	  /* that may pass without one */
	uint64_t unacked;	  /* by both peers, when last looked at */
	struct proxy_addrs addrs; /* what the client's header said */
	struct pending pending;	  /* while its PROXY header is not whole */
	char *early; /* bytes that came with the PROXY header; or NULL */
	size_t early_len;
	int backend; /* -1: not counted at any */
	uint8_t coroutines;
	bool failed;
};

/* ---- life ---- */

/* Resets what is left of the session; its coroutines notice. */
static void session_fail(struct session *s)
{
	s->failed = true;
	if (s->client)
		net_abort(s->client);
	if (s->server)
		net_abort(s->server);
	s->client = s->server = NULL;
}

/* It counts as a session until its last bytes have been acknowledged. */
static void session_end(struct session *s)
{
	struct proxy_shard *shard = s->shard;

	coro_timer_cancel(coro_sched_self(), &s->timer);
	if (s->client)
		shutdown_close_conn(&s->closing, s->client,
				    proxy.opts.idle_timeout_ns);
	if (s->server)
		shutdown_close_conn(&s->closing, s->server,
				    proxy.opts.idle_timeout_ns);
	if (s->backend >= 0)
		balance_end(&shard->balance, s->backend);
	s->next_free = shard->free;
	shard->free = s;
	proxy_session_ended(shard);
}

/*
 * Bytes that were taken from one side move on as the other acknowledges them,
 * which nobody tells the session: it looks, four times in the limit.
 */
static void look_for_progress(struct session *s, int64_t now_ns)
{
	uint64_t unacked = (uint64_t)shutdown_unacked(s->client) +
			   shutdown_unacked(s->server);

	if (unacked != s->unacked)
		s->active_ns = now_ns;
	s->unacked = unacked;
}

static void arm(struct session *s, int64_t now_ns)
{
	int64_t due_ns = s->active_ns + s->limit_ns;

	if (due_ns > now_ns + s->limit_ns / 4)
		due_ns = now_ns + s->limit_ns / 4;
	coro_timer_arm(coro_sched_self(), &s->timer, due_ns);
}

/* Armed a few times in the limit, not at every byte. */
static void on_timer(struct coro_timer *timer)
{
	struct session *s =
		(struct session *)(void *)((char *)timer -
					   offsetof(struct session, timer));
	int64_t now_ns = net_now_ns(s->shard->stack);

	if (s->failed)
		return;
	if (s->server)
		look_for_progress(s, now_ns);
	if (now_ns - s->active_ns < s->limit_ns) {
		arm(s, now_ns);
		return;
	}
	if (s->server)
		counters_add(&s->shard->counters.idle, 1);
	session_fail(s);
}

static void watch(struct session *s, int64_t limit_ns)
{
	s->limit_ns = limit_ns;
	s->active_ns = net_now_ns(s->shard->stack);
	s->unacked = 0;
	if (limit_ns)
		arm(s, s->active_ns);
	else
		coro_timer_cancel(coro_sched_self(), &s->timer);
}

/* ---- carrying ---- */

/* Carries bytes one way until that way ends, and passes the end on. */
static void carry(struct session *s, struct net_conn *from, struct net_conn *to,
		  uint64_t *bytes)
{
	struct net_view view;
	long n;

	while ((n = net_recv_view(from, &view)) > 0) {
		s->active_ns = net_now_ns(s->shard->stack);
		n = net_send_view(to, &view);
		if (n < 0)
			break;
		s->active_ns = net_now_ns(s->shard->stack);
		counters_add(bytes, (uint64_t)n);
	}
	if (s->failed)
		return;
	if (n == 0)
		n = net_shutdown(to, NET_SHUT_WR);
	if (n < 0) {
		counters_add(&s->shard->counters.broken, 1);
		session_fail(s);
	}
}

static void *carry_back(void *arg)
{
	struct session *s = arg;

	/* The other direction may have broken before this one began. */
	if (!s->failed)
		carry(s, s->server, s->client, &s->shard->counters.bytes_from);
	if (--s->coroutines == 0)
		session_end(s);
	return NULL;
}

/* ---- beginning ---- */

/*
 * Keeps what came with the PROXY header. Copied: the view may be a frame of the
 * NIC's, and connecting to a backend that does not answer takes seconds.
 */
static int keep_early(struct session *s, const struct net_view *view,
		      size_t used)
{
	s->early_len = view->len - used;
	if (s->early_len == 0)
		return 0;
	s->early = malloc(s->early_len);
	if (!s->early)
		return -ENOMEM;
	memcpy(s->early, (const char *)view->data + used, s->early_len);
	return 0;
}

/*
 * Reads the PROXY header the client has to begin with, and keeps bytes that
 * came with it. 0 or a negative errno. The buffer is the coroutine's own: a
 * header nearly always comes whole, in one piece.
 */
static int read_header(struct session *s)
{
	uint8_t buf[PROXY_V2_MAX];
	struct net_view view;
	size_t len = 0;
	long n;

	while ((n = net_recv_view(s->client, &view)) > 0) {
		size_t part = sizeof(buf) - len;
		int err = -EPROTO;

		if (part > view.len)
			part = view.len;
		memcpy(buf + len, view.data, part);
		n = proxy_parse(buf, len + part, &s->addrs);
		if (n > 0)
			err = keep_early(s, &view, (size_t)n - len);
		net_view_release(s->client, &view);
		len += part;
		if (n != 0 || len == sizeof(buf))
			return err;
	}
	return n < 0 ? (int)n : -EPROTO;
}

static void addrs_of(const struct net_conn *conn, struct proxy_addrs *out)
{
	struct net_addr src = net_peer_addr(conn), dst = net_local_addr(conn);

	out->family = src.family;
	out->src_port = src.port;
	out->dst_port = dst.port;
	memcpy(out->src, src.ip, sizeof(out->src));
	memcpy(out->dst, dst.ip, sizeof(out->dst));
}

/* Tries backend after backend, each once: 0 or a negative errno. */
static int connect_backend(struct session *s)
{
	const struct net_dial_opts dial = {
		.timeout_ms =
			(unsigned)(proxy.opts.connect_timeout_ns / 1000000)};
	struct balance *balance = &s->shard->balance;
	uint64_t tried = 0, hash = balance_hash(s->addrs.src, 16);
	int err = -EHOSTUNREACH;

	for (unsigned attempt = 0; attempt < balance->n; attempt++) {
		int i = balance_choose(balance, hash, tried);

		if (i < 0)
			break;
		tried |= UINT64_C(1) << i;
		counters_add(&s->shard->counters.retries, attempt > 0);
		/* Counted before it is there: `least` must not pile up on a
		 * backend that is slow to accept. */
		balance_begin(balance, i);
		err = net_dial(s->shard->stack, &proxy.backends[i], &dial,
			       &s->server);
		if (err == 0) {
			s->backend = i;
			return 0;
		}
		s->server = NULL;
		balance_end(balance, i);
		if (err == -ECANCELED)
			return err;
		proxy_dial_failed(s->shard, i, err);
	}
	counters_add(&s->shard->counters.no_backend, 1);
	return err;
}

static void drop_early(struct session *s)
{
	free(s->early);
	s->early = NULL;
	s->early_len = 0;
}

/* What the backend gets before the client's own bytes, and the first of them.
 */
static int send_first(struct session *s)
{
	char header[PROXY_WRITE_MAX];
	long n = 0;

	if (proxy.opts.send_proxy)
		n = net_send_all(
			s->server, header,
			proxy_write(proxy.opts.send_proxy, &s->addrs, header));
	if (n >= 0 && s->early_len) {
		n = net_send_all(s->server, s->early, s->early_len);
		if (n > 0)
			counters_add(&s->shard->counters.bytes_to, (uint64_t)n);
	}
	return n < 0 ? (int)n : 0;
}

/*
 * Up to the point where bytes flow both ways: 0 or a negative errno. Out of
 * line: its buffers must not be part of what carrying keeps on the stack.
 */
__attribute__((noinline)) static int begin(struct session *s)
{
	int err = 0;

	if (proxy.opts.accept_proxy) {
		watch(s, proxy.opts.proxy_timeout_ns);
		pending_enter(&s->shard->half_open, &s->pending);
		err = read_header(s);
		pending_leave(&s->shard->half_open, &s->pending);
		if (err < 0) {
			counters_add(&s->shard->counters.bad_header, 1);
			drop_early(s);
			return err;
		}
		watch(s, 0);
	}
	if (s->addrs.family == 0)
		addrs_of(s->client, &s->addrs);
	err = connect_backend(s);
	if (err == 0) {
		watch(s, proxy.opts.idle_timeout_ns);
		err = send_first(s);
	}
	drop_early(s);
	return err;
}

static void *serve(void *arg)
{
	struct session *s = arg;
	const struct coro_attr attr = {.name = "from backend"};

	if (begin(s) == 0 && !s->failed &&
	    coro_spawn(coro_sched_self(), &attr, carry_back, s, NULL) == 0) {
		s->coroutines++;
		carry(s, s->client, s->server, &s->shard->counters.bytes_to);
	} else {
		session_fail(s);
	}
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
	session_fail(s);
}

int session_start(struct proxy_shard *shard, struct net_conn *conn)
{
	const struct coro_attr attr = {.name = "from client"};
	struct session *s = shard->free;

	if (s)
		shard->free = s->next_free;
	else
		s = malloc(sizeof(*s));
	if (!s)
		goto refuse;
	*s = (struct session){
		.shard = shard, .client = conn, .backend = -1, .coroutines = 1};
	coro_timer_init(&s->timer, on_timer);
	if (coro_spawn(coro_sched_self(), &attr, serve, s, NULL) < 0)
		goto give_back;
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
