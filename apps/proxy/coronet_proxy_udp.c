/*
 * UDP clients: the datagrams of one client's address and port to one listener
 * are a session, which has a backend and a socket connected to it. The
 * session's datagrams go to that backend, and the backend's go back.
 *
 * No coroutine runs here while datagrams are carried: each socket calls a
 * function as one arrives (struct net_udp_watch), which sends it on at once. If
 * the link has no room, the datagram is dropped and counted, as by a router.
 *
 * A session ends once it has been idle for --udp-timeout or has had the answers
 * that --udp-responses expects, or when it makes room for a new one. Ends are
 * the timer's work, since a socket must not be closed while it calls.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <coronet/net_udp.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/udp_table.h"

/* Datagrams that are received at once. */
#define BATCH 32

/* Sessions among which one is looked for whose port a new one can have. */
#define PORT_LOOKS 64

/* Sessions that end after an idle time of this while the program drains. */
#define DRAIN_NS INT64_C(1000000000)

struct udp_listener {
	struct udp_carrier *carrier;
	struct net_udp *udp;
	struct net_udp_watch watch;
	int number; /* of its rate */
};

struct udp_session {
	struct udp_entry entry; /* in the table, unless the session is over */
	struct udp_listener *listener;
	struct net_udp *server;
	struct net_udp_watch watch;
	struct backend *backend; /* counted there; a reference */
	uint64_t sticky;	 /* its client in proxy.sticky; 0: none */
	int64_t begin_ns;
	uint64_t bytes_to, bytes_from;
	uint32_t n_to, n_from; /* datagrams */
	bool is_refused;       /* the backend has no socket at its port */
	bool is_over;	       /* it is in the carrier's list */
	enum access_end end;
	struct udp_session *next_over;
};

/* The UDP part of a shard. */
struct udp_carrier {
	struct proxy_shard *shard;
	struct udp_table table;
	struct udp_session *over; /* to be freed by the timer */
	struct coro_timer timer;
	unsigned max;	 /* sessions */
	bool is_drained; /* no session begins */
	unsigned n_listeners;
	struct udp_listener listeners[PROXY_MAX_LISTENS];
};

/* ---- the end of a session ---- */

static void arm_timer(struct udp_carrier *carrier, int64_t at_ns)
{
	coro_timer_arm(coro_sched_self(), &carrier->timer, at_ns);
}

/* Takes a session out of the table; the timer frees it. */
static void finish_session(struct udp_carrier *carrier, struct udp_session *s,
			   enum access_end end)
{
	struct proxy_counters *counters = &carrier->shard->counters;

	udp_table_remove(&carrier->table, &s->entry);
	counters_set(&counters->udp_sessions, carrier->table.n);
	s->is_over = true;
	s->end = end;
	s->next_over = carrier->over;
	carrier->over = s;
	arm_timer(carrier, net_now_ns(carrier->shard->stack));
}

__attribute__((noinline)) static void
log_session(const struct proxy_shard *shard, const struct udp_session *s)
{
	const struct net_addr *src = &s->entry.client, *dst = &s->entry.local;
	struct access_record record = {
		.begin_ns = s->begin_ns,
		.end_ns = net_now_ns(shard->stack),
		.connect_ns = -1,
		.bytes_to = s->bytes_to,
		.bytes_from = s->bytes_from,
		.addrs = {.family = src->family,
			  .src_port = src->port,
			  .dst_port = dst->port},
		.end = s->end,
	};

	memcpy(record.addrs.src, src->ip, sizeof(record.addrs.src));
	memcpy(record.addrs.dst, dst->ip, sizeof(record.addrs.dst));
	strcpy(record.backend, s->backend->name);
	access_log_add(proxy.log, shard->index, &record);
}

static void free_session(struct proxy_shard *shard, struct udp_session *s)
{
	if (proxy.log)
		log_session(shard, s);
	net_udp_close(s->server);
	session_leave_backend(s->backend, s->sticky, s->bytes_to,
			      s->bytes_from);
	free(s);
}

static void free_finished(struct udp_carrier *carrier)
{
	while (carrier->over) {
		struct udp_session *s = carrier->over;

		carrier->over = s->next_over;
		free_session(carrier->shard, s);
	}
}

static int64_t idle_limit_ns(const struct udp_carrier *carrier)
{
	int64_t limit_ns = carrier->shard->config->steer.udp_timeout_ns;

	return carrier->is_drained && limit_ns > DRAIN_NS ? DRAIN_NS : limit_ns;
}

/* Ends what is idle, frees what has ended, and looks again in time. */
static void on_timer(struct coro_timer *timer)
{
	struct udp_carrier *carrier =
		(void *)((char *)timer - offsetof(struct udp_carrier, timer));
	int64_t now_ns = net_now_ns(carrier->shard->stack);
	int64_t limit_ns = idle_limit_ns(carrier);
	struct udp_entry *oldest;

	while ((oldest = TAILQ_FIRST(&carrier->table.by_use)) &&
	       oldest->used_ns + limit_ns <= now_ns)
		finish_session(carrier, (struct udp_session *)oldest,
			       ACCESS_DONE);
	free_finished(carrier);
	if (oldest)
		arm_timer(carrier, oldest->used_ns + limit_ns);
	else
		coro_timer_cancel(coro_sched_self(), timer);
	if (carrier->is_drained)
		shutdown_progress(&carrier->shard->shutdown);
}

/* ---- from the backend ---- */

/* The backend has answered: it is there. */
static void count_first_answer(struct udp_carrier *carrier,
			       const struct udp_session *s)
{
	struct proxy_shard *shard = carrier->shard;
	int i = pool_find(shard->pool, s->backend);

	if (i >= 0)
		pool_connected(shard->pool, (unsigned)i);
	backend_count_time(&s->backend->response,
			   net_now_ns(shard->stack) - s->begin_ns);
}

static void send_to_client(struct udp_session *s,
			   const struct net_datagram *got)
{
	struct udp_carrier *carrier = s->listener->carrier;
	struct proxy_counters *counters = &carrier->shard->counters;
	struct net_datagram out = {.data = got->data,
				   .len = got->len,
				   .peer = s->entry.client,
				   .local = s->entry.local};

	if (s->n_from == 0)
		count_first_answer(carrier, s);
	s->n_from++;
	if (net_udp_send_batch(s->listener->udp, &out, 1) < 0) {
		counters_add(&counters->udp_dropped, 1);
		return;
	}
	counters_add(&counters->udp_from, 1);
	counters_add(&counters->bytes_from, got->len);
	backend_carried(&s->backend->bytes_from, s->bytes_from,
			s->bytes_from + got->len, false);
	s->bytes_from += got->len;
}

/* Counts a failure of the backend; its session ends with the next datagram. */
static void note_refusal(struct udp_carrier *carrier, struct udp_session *s)
{
	struct proxy_shard *shard = carrier->shard;
	int i = pool_find(shard->pool, s->backend);

	if (s->is_refused)
		return;
	s->is_refused = true;
	backend_count_failure(s->backend, -ECONNREFUSED);
	if (i >= 0 &&
	    pool_failed(shard->pool, (unsigned)i, net_now_ns(shard->stack)))
		net_log("coronet-proxy: backend %s refused %u sessions in a "
			"row: ejected for %g s",
			s->backend->name, shard->pool->rules.eject_after,
			(double)shard->pool->rules.eject_ns / 1e9);
}

static bool has_its_answers(const struct udp_carrier *carrier,
			    const struct udp_session *s)
{
	unsigned each = carrier->shard->config->steer.udp_responses;

	return each && s->n_from >= (uint64_t)each * s->n_to;
}

/* Called after each datagram or ICMP error from a session's backend. */
static void on_server(struct net_udp *udp, struct net_udp_watch *watch)
{
	struct udp_session *s =
		(void *)((char *)watch - offsetof(struct udp_session, watch));
	struct udp_carrier *carrier = s->listener->carrier;
	struct net_datagram got[BATCH];
	int n;

	while ((n = net_udp_recv_batch(udp, got, BATCH)) != -EAGAIN) {
		if (n == -ECONNREFUSED)
			note_refusal(carrier, s);
		else if (n < 0)
			return;
		for (int i = 0; i < n; i++)
			send_to_client(s, &got[i]);
		if (n > 0)
			net_udp_release(udp, got, (unsigned)n);
	}
	if (s->is_over || s->is_refused || s->n_from == 0)
		return;
	if (has_its_answers(carrier, s))
		finish_session(carrier, s, ACCESS_DONE);
	else
		udp_table_use(&carrier->table, &s->entry,
			      net_now_ns(carrier->shard->stack));
}

/* ---- a new session ---- */

/* The client's address alone: all that admission and --sticky look at. */
static struct proxy_addrs addrs_of(const struct net_datagram *got)
{
	struct proxy_addrs addrs = {.family = got->peer.family};

	memcpy(addrs.src, got->peer.ip, sizeof(addrs.src));
	return addrs;
}

/* Whether a client may begin a session; counted if not. */
static bool admits_client(struct proxy_shard *shard,
			  const struct net_datagram *got)
{
	const struct proxy_addrs addrs = addrs_of(got);
	enum access_end end;

	return proxy_admits(shard, &addrs, &end);
}

/*
 * Chooses a backend, one in `tried` only if there is no other, and counts the
 * session there. Returns its index or a negative errno. With UDP nobody waits
 * for a backend: if the one that a client keeps is full, it gets another one
 * for this session.
 */
static int choose_backend(struct proxy_shard *shard,
			  const struct net_datagram *got, uint64_t tried,
			  uint64_t *sticky)
{
	const struct proxy_addrs addrs = addrs_of(got);
	struct pool_wish wish = {
		.hash = balance_hash(got->peer.ip, 16),
		.allowed = pool_for_name(shard->pool, NULL),
		.tried = tried,
		.now_ns = net_now_ns(shard->stack),
	};
	int i;

	*sticky = proxy_sticky_find(shard, shard->pool, &addrs, &wish);
	i = pool_take(shard->pool, &shard->cursor, &wish);
	if (i == -EAGAIN && wish.kept) {
		*sticky = wish.kept = 0;
		i = pool_take(shard->pool, &shard->cursor, &wish);
	}
	if (i < 0 && tried) {
		wish.tried = 0;
		i = pool_take(shard->pool, &shard->cursor, &wish);
	}
	if (i >= 0)
		proxy_sticky_put(shard, shard->pool, *sticky, &wish,
				 (unsigned)i);
	return i;
}

/* Ends a session that makes room for a new one. */
static void displace(struct udp_carrier *carrier, struct udp_session *s)
{
	counters_add(&carrier->shard->counters.udp_displaced, 1);
	finish_session(carrier, s, ACCESS_DISPLACED);
}

/* Discards what a socket has received. */
static void forget_received(struct net_udp *udp)
{
	struct net_datagram got[BATCH];
	int n;

	while ((n = net_udp_recv_batch(udp, got, BATCH)) > 0 ||
	       n == -ECONNREFUSED)
		if (n > 0)
			net_udp_release(udp, got, (unsigned)n);
}

/*
 * No port is left for another socket to this address, so the session that has
 * been idle longest gives its own up, and ends. Answers to it that are still
 * under way will go to the new session's client, as with any port that is used
 * again. Returns whether there was one.
 */
static bool take_server(struct udp_session *s, const struct net_addr *addr)
{
	struct udp_carrier *carrier = s->listener->carrier;
	struct udp_entry *entry = TAILQ_FIRST(&carrier->table.by_use);

	for (unsigned i = 0; entry && i < PORT_LOOKS; i++) {
		struct udp_session *old = (struct udp_session *)entry;
		struct net_addr peer = net_udp_peer_addr(old->server);

		if (peer.family == addr->family && peer.port == addr->port &&
		    memcmp(peer.ip, addr->ip, sizeof(peer.ip)) == 0) {
			s->server = old->server;
			old->server = NULL;
			forget_received(s->server);
			displace(carrier, old);
			return true;
		}
		entry = TAILQ_NEXT(entry, by_use);
	}
	return false;
}

/* Opens a socket that is connected to the backend. */
static int open_server(struct udp_session *s, const struct net_addr *addr)
{
	struct net_addr any = {.family = addr->family};
	int err = net_udp_open(s->listener->carrier->shard->stack, &any, NULL,
			       &s->server);

	if (err == 0)
		err = net_udp_connect(s->server, addr);
	if (err < 0)
		net_udp_close(s->server);
	if (err == -EADDRNOTAVAIL && take_server(s, addr))
		err = 0;
	if (err == 0)
		net_udp_set_watch(s->server, &s->watch);
	return err;
}

static struct udp_session *make_session(struct udp_listener *listener,
					const struct net_datagram *got,
					struct pool_entry *entry)
{
	struct udp_carrier *carrier = listener->carrier;
	int64_t now_ns = net_now_ns(carrier->shard->stack);
	struct udp_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->listener = listener;
	s->backend = backend_ref(entry->backend);
	s->entry.client = got->peer;
	s->entry.local = got->local;
	s->begin_ns = now_ns;
	s->watch.fn = on_server;
	if (open_server(s, &entry->addr) < 0) {
		backend_unref(s->backend);
		free(s);
		return NULL;
	}
	udp_table_add(&carrier->table, &s->entry, now_ns);
	if (!coro_timer_armed(&carrier->timer))
		arm_timer(carrier, now_ns + idle_limit_ns(carrier));
	return s;
}

/* Whether the listener's rate allows one more session; counted if not. */
static bool obeys_rate(const struct udp_listener *listener)
{
	struct proxy_shard *shard = listener->carrier->shard;

	if (proxy_over_rate(shard, listener->number) == 0)
		return true;
	counters_add(&shard->counters.over_listener, 1);
	return false;
}

/*
 * Begins a session of the datagram's client, or counts why there is none.
 * moves: it had one with a backend that has failed.
 */
static struct udp_session *begin_session(struct udp_listener *listener,
					 const struct net_datagram *got,
					 bool moves, uint64_t tried)
{
	struct udp_carrier *carrier = listener->carrier;
	struct proxy_shard *shard = carrier->shard;
	struct udp_session *s;
	uint64_t sticky;
	int i;

	if (carrier->is_drained || !admits_client(shard, got) ||
	    (!moves && !obeys_rate(listener)))
		return NULL;
	i = choose_backend(shard, got, tried, &sticky);
	if (i < 0) {
		counters_add(&shard->counters.no_backend, 1);
		return NULL;
	}
	if (carrier->table.n >= carrier->max)
		displace(carrier, (struct udp_session *)TAILQ_FIRST(
					  &carrier->table.by_use));
	s = make_session(listener, got, &shard->pool->entries[i]);
	if (!s) {
		backend_release(shard->pool->entries[i].backend);
		counters_add(&shard->counters.no_backend, 1);
		return NULL;
	}
	s->sticky = sticky;
	counters_add(&shard->counters.udp_begun, 1);
	counters_set(&shard->counters.udp_sessions, carrier->table.n);
	return s;
}

/* ---- from the client ---- */

/* The backend's bit in the pool, if it is there. */
static uint64_t bit_of(const struct pool *pool, const struct backend *backend)
{
	int i = pool_find(pool, backend);

	return i < 0 ? 0 : UINT64_C(1) << i;
}

/*
 * A client that sends all the time would keep its session with a backend that
 * was removed, which nobody checks any more: it ends after --udp-timeout.
 */
static bool is_left_behind(const struct udp_session *s)
{
	const struct proxy_shard *shard = s->listener->carrier->shard;
	int64_t gone_ns = s->backend->gone_ns;

	return gone_ns && net_now_ns(shard->stack) - gone_ns >=
				  shard->config->steer.udp_timeout_ns;
}

/* A backend that refuses or fails its checks is left for another one. */
static bool has_to_move(const struct udp_session *s)
{
	return s->is_refused || !s->backend->up || is_left_behind(s);
}

static struct udp_session *session_of(struct udp_listener *listener,
				      const struct net_datagram *got)
{
	struct udp_carrier *carrier = listener->carrier;
	struct udp_session *s = (struct udp_session *)udp_table_find(
		&carrier->table, &got->peer, &got->local);
	uint64_t tried = 0;

	if (s && !has_to_move(s))
		return s;
	if (s) {
		tried = bit_of(carrier->shard->pool, s->backend);
		finish_session(carrier, s, ACCESS_SERVER_RESET);
	}
	return begin_session(listener, got, s != NULL, tried);
}

static void send_to_server(struct udp_listener *listener,
			   const struct net_datagram *got)
{
	struct udp_carrier *carrier = listener->carrier;
	struct proxy_counters *counters = &carrier->shard->counters;
	const struct net_datagram out = {.data = got->data, .len = got->len};
	struct udp_session *s = session_of(listener, got);
	int n;

	if (!s) {
		counters_add(&counters->udp_dropped, 1);
		return;
	}
	udp_table_use(&carrier->table, &s->entry,
		      net_now_ns(carrier->shard->stack));
	n = net_udp_send_batch(s->server, &out, 1);
	if (n == -ECONNREFUSED) { /* of an earlier one; nothing was sent */
		note_refusal(carrier, s);
		send_to_server(listener, got);
		return;
	}
	if (n < 0) {
		counters_add(&counters->udp_dropped, 1);
		return;
	}
	s->n_to++;
	counters_add(&counters->udp_to, 1);
	counters_add(&counters->bytes_to, got->len);
	backend_carried(&s->backend->bytes_to, s->bytes_to,
			s->bytes_to + got->len, false);
	s->bytes_to += got->len;
}

/* Called after each datagram from a client. */
static void on_client(struct net_udp *udp, struct net_udp_watch *watch)
{
	struct udp_listener *listener =
		(void *)((char *)watch - offsetof(struct udp_listener, watch));
	struct net_datagram got[BATCH];
	int n;

	while ((n = net_udp_recv_batch(udp, got, BATCH)) > 0) {
		for (int i = 0; i < n; i++)
			send_to_server(listener, &got[i]);
		net_udp_release(udp, got, (unsigned)n);
	}
}

/* ---- listeners ---- */

static int open_listener(struct udp_carrier *carrier,
			 const struct net_addr *addr, int number)
{
	struct udp_listener *listener =
		&carrier->listeners[carrier->n_listeners];
	char text[NET_ADDR_TEXT_MAX];
	int err =
		net_udp_open(carrier->shard->stack, addr, NULL, &listener->udp);

	if (err < 0) {
		fprintf(stderr, "coronet-proxy: listening on udp:%s: %s\n",
			net_addr_format(addr, text, sizeof(text)),
			strerror(-err));
		return err;
	}
	carrier->n_listeners++;
	listener->carrier = carrier;
	listener->number = number;
	listener->watch.fn = on_client;
	net_udp_set_watch(listener->udp, &listener->watch);
	return 0;
}

static int open_carrier(struct proxy_shard *shard)
{
	unsigned max = proxy.first->steer.max_udp_sessions / proxy.n_shards;
	struct udp_carrier *carrier = calloc(1, sizeof(*carrier));

	if (!carrier)
		return -ENOMEM;
	shard->udp = carrier;
	carrier->shard = shard;
	carrier->max = max ? max : 1;
	coro_timer_init(&carrier->timer, on_timer);
	return udp_table_init(&carrier->table, carrier->max);
}

int udp_listen(struct proxy_shard *shard, const struct net_addr *addr,
	       int number)
{
	int err = shard->udp ? 0 : open_carrier(shard);

	return err ? err : open_listener(shard->udp, addr, number);
}

void udp_apply_config(struct proxy_shard *shard)
{
	if (shard->udp)
		arm_timer(shard->udp, net_now_ns(shard->stack));
}

void udp_drain(struct proxy_shard *shard)
{
	if (!shard->udp)
		return;
	shard->udp->is_drained = true;
	arm_timer(shard->udp, net_now_ns(shard->stack));
}

void udp_fini(struct proxy_shard *shard)
{
	struct udp_carrier *carrier = shard->udp;

	if (!carrier)
		return;
	while (!TAILQ_EMPTY(&carrier->table.by_use)) {
		struct udp_session *s = (struct udp_session *)TAILQ_FIRST(
			&carrier->table.by_use);

		udp_table_remove(&carrier->table, &s->entry);
		s->next_over = carrier->over;
		carrier->over = s;
	}
	while (carrier->over) {
		struct udp_session *s = carrier->over;

		carrier->over = s->next_over;
		backend_unref(s->backend);
		free(s);
	}
	udp_table_fini(&carrier->table);
	free(carrier);
	shard->udp = NULL;
}
