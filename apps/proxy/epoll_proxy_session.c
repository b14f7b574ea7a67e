/*
 * One client's session: two sockets, and the bytes that one of them did not
 * take.
 *
 * A piece is one recv and one send through the worker's buffer; only bytes that
 * the receiver does not take are kept, in memory allocated for them, and their
 * sender is not read from until they have gone. A short read counts as the
 * edge, which saves the call that would return EAGAIN. A sender that fills the
 * buffer sends in bulk: from then on its bytes go through the worker's pipe
 * without a copy, until few come.
 */
#include "apps/proxy/epoll_proxy_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SPLICE_SIZE  (512u << 10) /* bytes through the pipe at a time */
#define SPLICE_WORTH (16u << 10)  /* fewer: copying is as fast */
#define ROUNDS	     8		  /* bufferfuls of one event, for fairness */
#define INTEREST     (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define HUNG_UP	     (EPOLLRDHUP | EPOLLHUP | EPOLLERR)

static struct session *session_of(struct side *side)
{
	size_t at = side->source.kind == SOURCE_CLIENT
			    ? offsetof(struct session, client)
			    : offsetof(struct session, server);

	return (struct session *)(void *)((char *)side - at);
}

/* ---- lists ---- */

static int64_t limit_of(enum session_state state)
{
	switch (state) {
	case SESSION_HEADER:
		return config.opts.proxy_timeout_ns;
	case SESSION_CONNECTING:
		return config.opts.connect_timeout_ns;
	case SESSION_CARRYING:
		return config.opts.idle_timeout_ns ? config.opts.idle_timeout_ns
						   : INT64_MAX / 2;
	case SESSION_STATES:
		break;
	}
	return 0;
}

/* All sessions of a list have one limit: the last to come is the last due. */
static void list_append(struct worker *w, struct session *s)
{
	struct session_list *list = &w->lists[s->state];

	s->due_ns = s->active_ns + limit_of(s->state);
	s->next = NULL;
	s->prev = list->last;
	if (list->last)
		list->last->next = s;
	else
		list->first = s;
	list->last = s;
}

static void list_remove(struct worker *w, struct session *s)
{
	struct session_list *list = &w->lists[s->state];

	*(s->prev ? &s->prev->next : &list->first) = s->next;
	*(s->next ? &s->next->prev : &list->last) = s->prev;
}

static void set_state(struct worker *w, struct session *s,
		      enum session_state state)
{
	list_remove(w, s);
	w->headers -= s->state == SESSION_HEADER;
	s->state = state;
	s->active_ns = w->now_ns;
	list_append(w, s);
}

/* ---- the end ---- */

static void side_close(struct side *side, bool reset)
{
	static const struct linger now = {.l_onoff = 1};

	if (side->source.fd >= 0) {
		if (reset)
			setsockopt(side->source.fd, SOL_SOCKET, SO_LINGER, &now,
				   sizeof(now));
		close(side->source.fd);
	}
	side->source.fd = -1;
	free(side->kept);
	side->kept = NULL;
}

/* Events of this batch may still point at the session: it is freed after it. */
static void session_end(struct worker *w, struct session *s, bool reset)
{
	if (s->dead)
		return;
	s->dead = true;
	list_remove(w, s);
	w->headers -= s->state == SESSION_HEADER;
	sources_remove(&w->sources, s->source);
	side_close(&s->client, reset);
	side_close(&s->server, reset);
	if (s->backend >= 0)
		balance_end(&w->balance, s->backend);
	s->next = w->dead;
	w->dead = s;
	w->sessions--;
	if (!w->accepting && !w->draining && !w->retry_ns)
		worker_set_accepting(w, true);
}

void session_fail(struct worker *w, struct session *s)
{
	session_end(w, s, true);
}

/* ---- carrying ---- */

/* Keeps bytes of `from` for the other side: 0 or -ENOMEM. */
static int side_keep(struct side *from, const void *data, uint32_t len)
{
	from->kept = malloc(len);
	if (!from->kept)
		return -ENOMEM;
	memcpy(from->kept, data, len);
	from->from = 0;
	from->to = len;
	return 0;
}

/* Sends what was kept: 0, -EAGAIN or another -errno. */
static int side_flush(struct side *from, const struct side *to)
{
	while (from->from < from->to) {
		ssize_t n = send(to->source.fd, from->kept + from->from,
				 from->to - from->from, MSG_NOSIGNAL);

		if (n < 0)
			return -errno;
		from->from += (uint32_t)n;
	}
	free(from->kept);
	from->kept = NULL;
	return 0;
}

/* Takes out of the pipe what the receiver did not: 0 or -errno. */
static int keep_from_pipe(const struct worker *w, struct side *from, size_t len)
{
	from->kept = malloc(len);
	if (!from->kept)
		return -ENOMEM;
	from->from = from->to = 0;
	while (from->to < len) {
		ssize_t n =
			read(w->pipe[0], from->kept + from->to, len - from->to);

		if (n <= 0)
			return -EIO; /* what went in comes out */
		from->to += (uint32_t)n;
	}
	return 0;
}

/*
 * Like carry_piece(), for one pipeful. The pipe is empty before and after;
 * after an error that leaves bytes in it the worker makes a new one.
 */
static ssize_t carry_spliced(struct worker *w, struct side *from,
			     const struct side *to)
{
	unsigned flags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
	ssize_t n = splice(from->source.fd, NULL, w->pipe[1], NULL, SPLICE_SIZE,
			   flags);
	ssize_t sent;
	int err;

	if (n <= 0)
		return n < 0 ? -errno : 0;
	from->bulk = n >= (ssize_t)SPLICE_WORTH;
	sent = splice(w->pipe[0], NULL, to->source.fd, NULL, (size_t)n, flags);
	if (sent == n)
		return n;
	err = sent < 0 && errno != EAGAIN ? -errno : 0;
	if (err == 0)
		err = keep_from_pipe(w, from,
				     (size_t)(n - (sent < 0 ? 0 : sent)));
	if (err == 0)
		return n;
	worker_new_pipe(w);
	return err;
}

/* Carries one bufferful. Returns what recv() gave, or -errno. */
static ssize_t carry_piece(struct worker *w, struct side *from,
			   const struct side *to)
{
	ssize_t n, sent;

	if (from->bulk && w->pipe[0] >= 0)
		return carry_spliced(w, from, to);
	n = recv(from->source.fd, w->buf, BUF_SIZE, 0);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	from->bulk = n == (ssize_t)BUF_SIZE;
	sent = send(to->source.fd, w->buf, (size_t)n, MSG_NOSIGNAL);
	if (sent == n)
		return n;
	if (sent < 0 && errno != EAGAIN)
		return -errno;
	if (sent < 0)
		sent = 0;
	if (side_keep(from, w->buf + sent, (uint32_t)(n - sent)) < 0)
		return -ENOMEM;
	return n;
}

/*
 * Carries bytes in one direction as far as they go now. Returns 0, 1 (stopped
 * for fairness), or -errno.
 */
static int carry_bytes(struct worker *w, struct session *s, struct side *from,
		       struct side *to, uint64_t *bytes)
{
	for (int i = 0; i < ROUNDS; i++) {
		bool spliced = from->bulk && w->pipe[0] >= 0;
		ssize_t n;
		int err = from->kept ? side_flush(from, to) : 0;

		if (err)
			return err == -EAGAIN ? 0 : err;
		/* The second of the two ends is the session's end: close(). */
		if (from->eof && !to->shut) {
			to->shut = true;
			if (!from->shut)
				shutdown(to->source.fd, SHUT_WR);
		}
		if (from->eof || !from->readable)
			return 0;
		n = carry_piece(w, from, to);
		if (n == -EAGAIN) {
			from->readable = false;
			return 0;
		}
		if (n < 0)
			return (int)n;
		s->active_ns = w->now_ns;
		*bytes += (uint64_t)n;
		from->eof = n == 0;
		/*
		 * A short read has emptied the socket, unless a FIN follows;
		 * with a pipe, that may have been full.
		 */
		if (n > 0 && n < (ssize_t)BUF_SIZE && !from->hung_up &&
		    !spliced)
			from->readable = false;
	}
	return 1;
}

static void carry_both(struct worker *w, struct session *s)
{
	int up = carry_bytes(w, s, &s->client, &s->server,
			     &w->counters.bytes_to);
	int down = up < 0 ? up
			  : carry_bytes(w, s, &s->server, &s->client,
					&w->counters.bytes_from);

	if (up < 0 || down < 0) {
		w->counters.broken++;
		session_end(w, s, true);
	} else if (s->client.shut && s->server.shut) {
		session_end(w, s, false);
	} else if ((up || down) && !s->again) {
		s->again = true;
		s->next_again = w->again;
		w->again = s;
	}
}

/* ---- connecting ---- */

static int watch_side(struct worker *w, struct side *side)
{
	struct epoll_event event = {.events = INTEREST, .data.ptr = side};

	return epoll_ctl(w->epoll, EPOLL_CTL_ADD, side->source.fd, &event)
		       ? -errno
		       : 0;
}

/* Tries the next backend; without one the session has failed. */
static void connect_next(struct worker *w, struct session *s)
{
	uint64_t hash = balance_hash(s->addrs.src, 16);
	int i, err;

	while ((i = balance_choose(&w->balance, hash, s->tried)) >= 0) {
		w->counters.retries += s->tried != 0;
		s->tried |= UINT64_C(1) << i;
		err = s->server.source.fd = worker_connect(i);
		if (err >= 0)
			err = watch_side(w, &s->server);
		if (err == 0) {
			s->backend = i;
			balance_begin(&w->balance, i);
			set_state(w, s, SESSION_CONNECTING);
			return;
		}
		side_close(&s->server, true);
		worker_connect_failed(w, i, err);
	}
	w->counters.no_backend++;
	session_fail(w, s);
}

static void connect_failed(struct worker *w, struct session *s)
{
	side_close(&s->server, true);
	balance_end(&w->balance, s->backend);
	balance_failed(&w->balance, s->backend);
	s->backend = -1;
	connect_next(w, s);
}

static void connect_succeeded(struct worker *w, struct session *s)
{
	char header[PROXY_WRITE_MAX];
	size_t len;

	set_state(w, s, SESSION_CARRYING);
	if (config.opts.send_proxy) {
		len = proxy_write(config.opts.send_proxy, &s->addrs, header);
		if (side_keep(&s->client, header, (uint32_t)len) < 0) {
			session_fail(w, s);
			return;
		}
	}
	carry_both(w, s);
}

static void connecting_event(struct worker *w, struct session *s,
			     uint32_t events)
{
	/* The reason does not matter: the next one is tried in any case. */
	if (events & EPOLLERR)
		connect_failed(w, s);
	else if (events & EPOLLOUT)
		connect_succeeded(w, s);
}

/* ---- beginning ---- */

static void put_addr(const struct sockaddr_storage *from, uint8_t *family,
		     uint8_t *ip, uint16_t *port)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)from;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;

	if (from->ss_family == AF_INET) {
		*family = 4;
		memcpy(ip, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
	} else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		*family = 4;
		memcpy(ip, in6->sin6_addr.s6_addr + 12, 4);
		*port = ntohs(in6->sin6_port);
	} else {
		*family = 6;
		memcpy(ip, &in6->sin6_addr, 16);
		*port = ntohs(in6->sin6_port);
	}
}

/* Asks the kernel only if something depends on the addresses. */
static void learn_addrs(struct session *s)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);

	if (!config.opts.send_proxy && config.opts.balance != BALANCE_HASH)
		return;
	if (getpeername(s->client.source.fd, (struct sockaddr *)&addr, &len) ==
	    0)
		put_addr(&addr, &s->addrs.family, s->addrs.src,
			 &s->addrs.src_port);
	len = sizeof(addr);
	if (getsockname(s->client.source.fd, (struct sockaddr *)&addr, &len) ==
	    0)
		put_addr(&addr, &s->addrs.family, s->addrs.dst,
			 &s->addrs.dst_port);
}

/* Peeks at the header, and takes it once it is whole. */
static void read_header(struct worker *w, struct session *s)
{
	ssize_t n = recv(s->client.source.fd, w->buf, PROXY_V2_MAX, MSG_PEEK);
	long len = -EPROTO;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n > 0)
		len = proxy_parse(w->buf, (size_t)n, &s->addrs);
	if (len < 0 || (len == 0 && n == PROXY_V2_MAX) ||
	    (len == 0 && s->client.hung_up)) {
		w->counters.bad_header++;
		session_fail(w, s);
		return;
	}
	if (len == 0)
		return;
	if (recv(s->client.source.fd, w->buf, (size_t)len, 0) != len) {
		session_fail(w, s);
		return;
	}
	if (s->addrs.family == 0)
		learn_addrs(s);
	connect_next(w, s);
}

/* Counts one more partial header: the oldest makes room. */
static void begin_header(struct worker *w)
{
	if (++w->headers <= w->max_headers)
		return;
	w->counters.displaced++;
	session_fail(w, w->lists[SESSION_HEADER].first);
}

void session_start(struct worker *w, int fd, struct source_key source)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s || sources_add(&w->sources, source) < 0) {
		free(s);
		close(fd);
		return;
	}
	s->source = source;
	s->client.source = (struct source){SOURCE_CLIENT, fd};
	s->server.source = (struct source){SOURCE_SERVER, -1};
	s->backend = -1;
	s->active_ns = w->now_ns;
	s->state = SESSION_HEADER;
	list_append(w, s);
	begin_header(w);
	w->sessions++;
	w->counters.accepted++;
	if (watch_side(w, &s->client) < 0) {
		session_fail(w, s);
		return;
	}
	if (config.opts.accept_proxy)
		return;
	learn_addrs(s);
	connect_next(w, s);
}

void session_event(struct worker *w, struct side *side, uint32_t events)
{
	struct session *s = session_of(side);

	if (s->dead || side->source.fd < 0)
		return;
	if (events & (EPOLLIN | HUNG_UP))
		side->readable = true;
	if (events & HUNG_UP)
		side->hung_up = true;
	switch (s->state) {
	case SESSION_HEADER:
		read_header(w, s);
		break;
	case SESSION_CONNECTING:
		if (side == &s->server)
			connecting_event(w, s, events);
		break;
	case SESSION_CARRYING:
		carry_both(w, s);
		break;
	case SESSION_STATES:
		break;
	}
}

/* ---- time ---- */

static void too_late(struct worker *w, struct session *s)
{
	switch (s->state) {
	case SESSION_HEADER:
		w->counters.bad_header++;
		session_fail(w, s);
		break;
	case SESSION_CONNECTING:
		connect_failed(w, s);
		break;
	case SESSION_CARRYING:
		w->counters.idle++;
		session_fail(w, s);
		break;
	case SESSION_STATES:
		break;
	}
}

static int64_t unacked_of(const struct side *side)
{
	int bytes = 0;

	if (side->source.fd >= 0)
		ioctl(side->source.fd, SIOCOUTQ, &bytes);
	return bytes;
}

/* Bytes that the kernel took move on as the peers acknowledge them. */
static bool has_moved(struct session *s)
{
	int64_t before = s->unacked;

	if (s->state != SESSION_CARRYING)
		return false;
	s->unacked = unacked_of(&s->client) + unacked_of(&s->server);
	return s->unacked != before;
}

/* Sessions that have moved bytes since they were appended go to the end. */
static void look_at_list(struct worker *w, struct session_list *list)
{
	struct session *s;

	while ((s = list->first) && s->due_ns <= w->now_ns) {
		if (s->active_ns + limit_of(s->state) <= w->now_ns &&
		    has_moved(s))
			s->active_ns = w->now_ns;
		if (s->active_ns + limit_of(s->state) > w->now_ns) {
			list_remove(w, s);
			list_append(w, s);
		} else {
			too_late(w, s);
		}
	}
}

void sessions_go_on(struct worker *w)
{
	struct session *list = w->again, *s;

	w->again = NULL;
	while ((s = list)) {
		list = s->next_again;
		s->again = false;
		if (!s->dead)
			carry_both(w, s);
	}
	for (int i = 0; i < SESSION_STATES; i++)
		look_at_list(w, &w->lists[i]);
	for (struct session **at = &w->dead; (s = *at);) {
		if (s->again) { /* still on that list: next time */
			at = &s->next;
			continue;
		}
		*at = s->next;
		free(s);
	}
}

int64_t sessions_due_ns(const struct worker *w)
{
	int64_t due_ns = w->again ? 0 : INT64_MAX;

	for (int i = 0; i < SESSION_STATES; i++)
		if (w->lists[i].first && w->lists[i].first->due_ns < due_ns)
			due_ns = w->lists[i].first->due_ns;
	return due_ns;
}
