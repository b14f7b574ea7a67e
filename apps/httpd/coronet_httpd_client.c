/*
 * One client of coronet-httpd: reads requests and detects their end.
 * coronet_httpd_answer.c writes the responses.
 *
 * Requests are parsed in the frames in which they arrived. Only a request that
 * arrived in pieces is copied together, in memory that an idle connection does
 * not hold.
 */
#include "apps/httpd/coronet_httpd_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common/opts.h"
#include "apps/httpd/conditions.h"

#define BODY_MAX   (1u << 20)	/* of a request: skipped, never used */
#define GRACE_NS   OPT_NS_PER_S /* for a first request, while draining */
#define PIECES_MIN 512		/* bytes; doubled as more come */

/*
 * Buffers a partial request, and grows with it: clients that begin many
 * requests and end none get little memory.
 */
struct pieces {
	struct http_head head; /* how far it has been read */
	int64_t begin_ns;      /* when the request began */
	size_t len, room;
	unsigned n; /* how many there were */
	char bytes[];
};

/* The state of a connection's coroutine, on its own stack. */
struct client {
	struct httpd_shard *shard;
	struct net_conn *conn;
	struct visit *visit;
	struct pieces *pieces; /* of a request that is not whole, or NULL */
	uint64_t skip;	       /* bytes of a body that are yet to come */
	uint64_t skipped;      /* of a chunked one */
	bool in_chunks;
	bool gave_up;	   /* sending: the client took nothing for too long */
	unsigned answered; /* requests */
	struct http_chunks chunks;
};

static void set_half_open(struct visit *visit, bool begun)
{
	struct httpd_shard *shard = visit->shard;

	if (begun)
		pending_enter(&shard->half_open, &visit->pending);
	else
		pending_leave(&shard->half_open, &visit->pending);
	counters_set(&shard->counters.half_open, shard->half_open.n);
}

/* When a request began whose head is there. */
static int64_t request_begin(const struct client *c)
{
	return c->pieces ? c->pieces->begin_ns : net_now_ns(c->shard->stack);
}

/*
 * Sends an answer and writes its line into the access log, which there must be.
 * Not inlined, so that without a log its arguments are not kept.
 */
__attribute__((noinline)) static int
answer_logged(struct client *c, const struct httpd_reply *reply,
	      const struct http_request *keep, const char *head, size_t len)
{
	struct httpd_logged request = {request_begin(c), head, len,
				       c->answered};
	int err = httpd_answer(c->visit, reply, keep);

	httpd_log_line(c->visit, &request, reply->status,
		       httpd_body_sent(c->visit, reply, err), err);
	if (c->pieces) /* another request may follow in them */
		c->pieces->begin_ns = net_now_ns(c->shard->stack);
	return err;
}

/*
 * Sends an answer; keep is httpd_answer()'s. head: the bytes of the request's
 * head that are there. Returns whether all was taken.
 */
static bool answer_client(struct client *c, const struct httpd_reply *reply,
			  const struct http_request *keep, const char *head,
			  size_t len)
{
	int err;

	/* A client that downloads slowly has nothing to complete. */
	set_half_open(c->visit, false);
	err = !httpd.log ? httpd_answer(c->visit, reply, keep)
			 : answer_logged(c, reply, keep, head, len);
	c->gave_up |= err < 0;
	return err == 0;
}

/* May the connection go on after an answer of this status? */
static bool may_go_on(int status)
{
	return status < 400 || status == 404 || status == 412 || status == 416;
}

/*
 * Answers one request, whose head is given. Returns whether the connection goes
 * on. Its body, if it has one, is left to be skipped. Out of line, so that the
 * reply is not part of what an idle connection has on its stack.
 */
__attribute__((noinline)) static bool
take_request(struct client *c, const struct http_request *request,
	     const char *head)
{
	struct httpd_reply reply = {.body = request->method != HTTP_HEAD};
	bool has_body = request->chunked || request->body_len;
	struct site_here *here = &c->shard->site;
	struct site *site = site_get(here);
	bool keep, taken;

	reply.site = site;
	if (request->body_len > BODY_MAX)
		reply.status = 413;
	else
		httpd_choose(&reply, &site->files, head, request,
			     httpd.tls.redirects && !c->visit->has_tls);
	/* The client may wait for "100 Continue", or send a body unasked. */
	keep = request->keep_alive && may_go_on(reply.status) &&
	       !(request->expects && has_body) &&
	       !shutdown_begun(&c->shard->shutdown);
	c->skip = request->body_len;
	c->in_chunks = request->chunked;
	c->answered++;
	counters_add(&c->shard->counters.requests, 1);
	c->chunks = (struct http_chunks){0};
	c->skipped = 0;
	/* Nobody reads beyond the end of a head that is right. */
	taken = answer_client(c, &reply, keep ? request : NULL, head,
			      HTTP_HEAD_MAX);
	site_put(here, site);
	return taken && keep;
}

/* Answers a request that is wrong or late, whose bytes begin at `head`. */
static bool refuse_request(struct client *c, int status, const char *head,
			   size_t len)
{
	counters_add(&c->shard->counters.refused, 1);
	c->answered++;
	answer_client(
		c,
		&(struct httpd_reply){.status = status,
				      .body = !http_asks_for_head(head, len)},
		NULL, head, len);
	return false;
}

/*
 * Logs a request that gets no answer. err: that of httpd_log_line(). Returns
 * false, since the connection ends.
 */
static bool abandon_request(struct client *c, int err, const char *head,
			    size_t len)
{
	if (httpd.log && http_log_has_request(head, len))
		httpd_log_line(c->visit,
			       &(struct httpd_logged){request_begin(c), head,
						      len, c->answered + 1},
			       HTTP_LOG_NO_ANSWER, 0, err);
	return false;
}

/* Skips body bytes. Returns how many of these, or -1 if they are no body. */
static long skip_body(struct client *c, const char *data, size_t len)
{
	long n;

	if (!c->in_chunks) {
		n = (long)(len < c->skip ? len : c->skip);
		c->skip -= (uint64_t)n;
		return n;
	}
	n = http_skip_chunks(&c->chunks, data, len);
	c->skipped += n > 0 ? (uint64_t)n : 0;
	if (n < 0 || c->skipped > BODY_MAX)
		return -1;
	c->in_chunks = !c->chunks.done;
	return n;
}

/*
 * Answers every request that is whole. Returns whether the connection goes on,
 * and in *used how many bytes are done with. The rest begins a request, and
 * *head says how far that has been read, as it does for the first request.
 */
static bool take_bytes(struct client *c, struct http_head *head,
		       const char *data, size_t len, size_t *used)
{
	struct http_request request;
	long n;

	for (*used = 0; *used < len; *used += (size_t)n) {
		const char *at = data + *used;

		if (c->skip || c->in_chunks) {
			n = skip_body(c, at, len - *used);
			if (n < 0)
				return false; /* it was answered already */
			continue;
		}
		n = http_read_head(head, at, len - *used, &request);
		if (n == 0)
			return true;
		*head = (struct http_head){0};
		if (n < 0)
			return refuse_request(c, (int)-n, at, len - *used);
		if (!take_request(c, &request, at))
			return false;
	}
	return true;
}

/* Makes room for len bytes of a request; false without memory. */
static bool make_room(struct client *c, size_t len)
{
	size_t room = c->pieces ? c->pieces->room : PIECES_MIN;
	struct pieces *p;

	if (c->pieces && len <= room)
		return true;
	while (room < len)
		room *= 2;
	p = realloc(c->pieces, sizeof(*p) + room);
	if (!p)
		return false;
	if (!c->pieces)
		*p = (struct pieces){0};
	p->room = room;
	c->pieces = p;
	return true;
}

/*
 * Takes bytes that continue the pieces, *used of them if they are many. Returns
 * whether the connection goes on.
 */
static bool take_piece(struct client *c, const char *data, size_t len,
		       size_t *used)
{
	size_t part = HTTP_HEAD_MAX - c->pieces->len, done;
	unsigned answered = c->answered;
	struct pieces *p;
	bool go_on;

	if (part > len)
		part = len;
	if (!make_room(c, c->pieces->len + part))
		return abandon_request(c, -ENOMEM, c->pieces->bytes,
				       c->pieces->len);
	p = c->pieces;
	memcpy(p->bytes + p->len, data, part);
	p->len += part;
	*used = part;
	go_on = take_bytes(c, &p->head, p->bytes, p->len, &done);
	p->n = c->answered == answered ? p->n + 1 : 1;
	if (go_on && p->n > HTTP_PIECES_MAX)
		return refuse_request(c, 400, p->bytes, p->len);
	p->len -= done;
	memmove(p->bytes, p->bytes + done, p->len);
	return go_on;
}

/* Keeps a request's first bytes until the rest is there. */
static bool put_aside(struct client *c, const struct http_head *head,
		      const char *data, size_t len)
{
	if (!make_room(c, len))
		return abandon_request(c, -ENOMEM, data, len);
	c->pieces->head = *head;
	c->pieces->begin_ns = net_now_ns(c->shard->stack);
	c->pieces->n = 1;
	c->pieces->len = len; /* less than a head, says http_read_head() */
	memcpy(c->pieces->bytes, data, len);
	return true;
}

/* Takes what arrived. Returns whether the connection goes on. */
static bool take_view(struct client *c, const char *data, size_t len)
{
	struct http_head head = {0};
	bool go_on = true;
	size_t used;

	while (c->pieces && len && go_on) {
		used = len;
		go_on = take_piece(c, data, len, &used);
		data += used;
		len -= used;
		if (c->pieces->len == 0) {
			free(c->pieces);
			c->pieces = NULL;
		}
	}
	if (!go_on || len == 0)
		return go_on;
	go_on = take_bytes(c, &head, data, len, &used);
	if (go_on && used < len)
		go_on = put_aside(c, &head, data + used, len - used);
	return go_on;
}

/* Is a request under way, which has to be whole in time? */
static bool has_begun(const struct client *c)
{
	return c->pieces || c->skip || c->in_chunks;
}

/*
 * Is a client that has sent nothing for long busy with the last answer? Bytes
 * of it are queued then, and not as many as at the last call.
 */
static bool still_reads(const struct client *c, uint32_t *unacked)
{
	uint32_t before = *unacked;

	*unacked = shutdown_unacked(c->conn);
	return *unacked && *unacked != before;
}

/*
 * Returns the deadline of the next bytes. While draining, a client that has had
 * an answer gets answers only to what it has sent already; a new one may have
 * taken the handshake for an invitation, and gets the time to send its request.
 */
static int64_t deadline_of(const struct visit *visit, bool begun)
{
	int64_t timeout_ns = begun ? httpd.header_ns : httpd.idle_ns;

	if (!begun && shutdown_begun(&visit->shard->shutdown)) {
		int64_t grace_ns = visit->fresh ? GRACE_NS : 0;

		if (timeout_ns > grace_ns)
			timeout_ns = grace_ns;
	}
	return net_now_ns(visit->shard->stack) + timeout_ns;
}

/* Receives and answers until the connection has come to its end. */
static void serve_requests(struct client *c, struct visit *visit)
{
	bool partial = false, go_on = true;
	struct net_view view;
	unsigned answered = 0;
	uint32_t unacked = 0;
	long n = 0;

	while (go_on && !visit->displaced) {
		bool begun = has_begun(c);

		set_half_open(visit, begun);
		/* More bytes of the same request buy no time. */
		if (!begun || !partial || c->answered != answered)
			net_set_read_deadline(c->conn,
					      deadline_of(visit, begun));
		partial = begun;
		answered = c->answered;
		visit->idle = !begun;
		n = net_recv_view(c->conn, &view);
		visit->idle = false;
		if (n == -ETIMEDOUT && !begun &&
		    !shutdown_begun(&visit->shard->shutdown) &&
		    still_reads(c, &unacked))
			continue;
		if (n <= 0)
			break;
		visit->fresh = false;
		go_on = take_view(c, view.data, view.len);
		net_view_release(c->conn, &view);
	}
	set_half_open(visit, false);
	if (!c->pieces)
		return;
	if (n == -ETIMEDOUT || visit->displaced)
		refuse_request(c, 408, c->pieces->bytes, c->pieces->len);
	else if (n <= 0)
		abandon_request(c, n ? (int)n : -1, c->pieces->bytes,
				c->pieces->len);
}

static struct visit *visit_begin(struct httpd_shard *shard,
				 struct net_conn *conn)
{
	struct visit *visit = malloc(sizeof(*visit));

	if (!visit)
		return NULL;
	*visit = (struct visit){.shard = shard,
				.conn = conn,
				.co = coro_self(),
				.fresh = true,
				.next = shard->visits,
				.pprev = &shard->visits};
	if (visit->next)
		visit->next->pprev = &visit->next;
	shard->visits = visit;
	httpd_answer_init(visit);
	counters_add(&shard->counters.open, 1);
	counters_add(&shard->counters.clients, 1);
	return visit;
}

static void visit_end(struct visit *visit)
{
	struct httpd_shard *shard = visit->shard;

	*visit->pprev = visit->next;
	if (visit->next)
		visit->next->pprev = visit->pprev;
	free(visit->tls);
	free(visit);
	counters_set(&shard->counters.open, shard->counters.open - 1);
	shutdown_progress(&shard->shutdown);
}

static void serve_visit(struct visit *visit)
{
	struct client c = {
		.shard = visit->shard, .conn = visit->conn, .visit = visit};

	serve_requests(&c, visit);
	free(c.pieces);
	counters_add(&c.shard->counters.gave_up, c.gave_up);
	if (c.gave_up)
		net_abort(c.conn);
	else
		shutdown_close_conn(&visit->closing, c.conn, httpd.send_ns);
}

void httpd_serve(struct net_conn *conn, void *shard)
{
	struct visit *visit = visit_begin(shard, conn);

	if (!visit)
		return;
	serve_visit(visit);
	visit_end(visit);
}

void httpd_serve_tls(struct net_conn *conn, void *shard)
{
	struct visit *visit = visit_begin(shard, conn);
	bool accepted;

	if (!visit)
		return;
	visit->has_tls = true;
	net_set_read_deadline(conn, deadline_of(visit, false));
	visit->idle = true; /* for httpd_hurry() */
	accepted = httpd_tls_accept(visit);
	visit->idle = false;
	if (accepted)
		serve_visit(visit);
	visit_end(visit);
}

void httpd_hurry(struct httpd_shard *shard)
{
	for (struct visit *v = shard->visits; v; v = v->next)
		if (v->idle) {
			net_set_read_deadline(v->conn, deadline_of(v, false));
			coro_unpark(v->co);
		}
}

void httpd_displace(struct pending *item)
{
	struct visit *visit =
		(struct visit *)(void *)((char *)item -
					 offsetof(struct visit, pending));

	visit->displaced = true;
	counters_add(&visit->shard->counters.displaced, 1);
	net_set_read_deadline(visit->conn, net_now_ns(visit->shard->stack));
	coro_unpark(visit->co);
}
