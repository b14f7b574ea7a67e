/*
 * One client of coronet-httpd: reading requests, answering, closing.
 *
 * Requests are parsed where the NIC put them. Only one that came in pieces is
 * gathered, in memory that an idle connection does not hold.
 */
#include "apps/httpd/coronet_httpd_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common/opts.h"
#include "apps/httpd/conditions.h"

#define BODY_MAX   (1u << 20)	 /* of a request: skipped, never used */
#define GRACE_NS   OPTS_NS_PER_S /* for a first request, while draining */
#define PIECES_MIN 512		 /* bytes; doubled as more come */

/*
 * The pieces of a request that has begun and is not whole. They grow as it
 * does: those who begin many requests and end none are to get little memory.
 */
struct pieces {
	struct http_head head; /* how far it has been read */
	size_t len, room;
	unsigned n; /* how many there were */
	char bytes[];
};

/* What a connection's coroutine knows; on its own stack. */
struct client {
	struct httpd_shard *shard;
	struct net_conn *conn;
	struct pieces *pieces; /* of a request that is not whole, or NULL */
	uint64_t skip;	       /* bytes of a body that are yet to come */
	uint64_t skipped;      /* of a chunked one */
	bool in_chunks;
	bool gave_up;	   /* sending: the client took nothing for too long */
	unsigned answered; /* requests */
	struct http_chunks chunks;
};

/* RFC 9110 6.6.1; formatted once a second. */
static const char *date(struct httpd_shard *shard)
{
	time_t now = time(NULL);

	if (now != shard->date_s) {
		http_write_date(now, shard->date);
		shard->date_s = now;
	}
	return shard->date;
}

static const char *reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 206:
		return "Partial Content";
	case 301:
		return "Moved Permanently";
	case 304:
		return "Not Modified";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 408:
		return "Request Timeout";
	case 412:
		return "Precondition Failed";
	case 413:
		return "Content Too Large";
	case 414:
		return "URI Too Long";
	case 416:
		return "Range Not Satisfiable";
	case 417:
		return "Expectation Failed";
	case 431:
		return "Request Header Fields Too Large";
	case 501:
		return "Not Implemented";
	default:
		return "HTTP Version Not Supported";
	}
}

/* All of it, however slowly, as long as some goes: 0 or a negative errno. */
static int send_all(struct client *c, struct iovec *iov, unsigned n)
{
	struct net_conn *conn = c->conn;

	while (n) {
		uint32_t unacked = shutdown_unacked(conn);
		long taken;

		if (iov->iov_len == 0) {
			iov++;
			n--;
			continue;
		}
		net_set_write_deadline(conn, net_now_ns(c->shard->stack) +
						     httpd.send_ns);
		taken = net_sendv(conn, iov, n);
		if (taken == -ETIMEDOUT && shutdown_unacked(conn) &&
		    shutdown_unacked(conn) != unacked)
			continue; /* too little for there to be room */
		if (taken < 0)
			return (int)taken;
		for (; n && (size_t)taken >= iov->iov_len; iov++, n--)
			taken -= (long)iov->iov_len;
		if (n) {
			iov->iov_base = (char *)iov->iov_base + taken;
			iov->iov_len -= (size_t)taken;
		}
	}
	return 0;
}

/* What is to be said to a request. */
struct reply {
	int status;
	bool body;		    /* false: its fields alone */
	const struct file *file;    /* NULL: the status in words */
	const struct file_body *as; /* the form of it that is sent */
	const char *path;	    /* 301: as it came */
	size_t path_len;
	unsigned n; /* ranges; 0: all of it */
	struct http_range ranges[HTTP_RANGES_MAX];
};

/* Fields that tell a form of a file from others (RFC 9110 15.3.7, 15.4.5). */
static int write_validators(const struct reply *reply, char *out, size_t room)
{
	const struct file *file = reply->file;
	const char *coding = reply->as == file->gzip	 ? "gzip"
			     : reply->as == file->brotli ? "br"
							 : NULL;
	char modified[HTTP_DATE_BYTES];

	http_write_date(file->modified, modified);
	return snprintf(
		out, room, "ETag: %s\r\nLast-Modified: %s\r\n%s%s%s%s",
		reply->as->etag, modified,
		file->gzip || file->brotli ? "Vary: Accept-Encoding\r\n" : "",
		coding && reply->status == 206 ? "Content-Encoding: " : "",
		coding && reply->status == 206 ? coding : "",
		coding && reply->status == 206 ? "\r\n" : "");
}

static int write_range(const struct reply *reply, unsigned i, char *out,
		       size_t room)
{
	return snprintf(out, room,
			"Content-Type: %s\r\nContent-Range: bytes "
			"%" PRIu64 "-%" PRIu64 "/%zu\r\n",
			reply->file->type, reply->ranges[i].first,
			reply->ranges[i].last, reply->as->len);
}

static uint64_t range_len(const struct reply *reply, unsigned i)
{
	return reply->ranges[i].last - reply->ranges[i].first + 1;
}

/* What stands before a part of an answer in several (RFC 9110 14.6). */
static int write_part(const struct reply *reply, unsigned i, char *out,
		      size_t room)
{
	int n = snprintf(out, room, "\r\n--%s\r\n", httpd.boundary);

	n += write_range(reply, i, out + n, room - (size_t)n);
	return n + snprintf(out + n, room - (size_t)n, "\r\n");
}

#define PART_ROOM 384 /* bytes, of one part's fields or of the last line */

static int write_last_part(char *out)
{
	return snprintf(out, PART_ROOM, "\r\n--%s--\r\n", httpd.boundary);
}

/* The fields of a status that do not stand in a file's. */
static int write_ranges(const struct reply *reply, char *out, size_t room)
{
	char part[PART_ROOM];
	uint64_t bytes = 0;
	int n;

	for (unsigned i = 0; i < reply->n; i++)
		bytes += range_len(reply, i);
	if (reply->n == 1) {
		n = write_range(reply, 0, out, room);
	} else {
		for (unsigned i = 0; i < reply->n; i++)
			bytes += (uint64_t)write_part(reply, i, part,
						      sizeof(part));
		bytes += (uint64_t)write_last_part(part);
		n = snprintf(out, room,
			     "Content-Type: multipart/byteranges; "
			     "boundary=%s\r\n",
			     httpd.boundary);
	}
	return n + snprintf(out + n, room - (size_t)n,
			    "Content-Length: %" PRIu64 "\r\n", bytes);
}

/* Each part on its own: there may be many, and none is short. */
static int send_parts(struct client *c, const struct reply *reply)
{
	char text[PART_ROOM];
	int err = 0;

	for (unsigned i = 0; err == 0 && i < reply->n; i++) {
		int n = write_part(reply, i, text, sizeof(text));
		struct iovec iov[2] = {
			{text, (size_t)n},
			{(char *)reply->as->data + reply->ranges[i].first,
			 (size_t)range_len(reply, i)}};

		err = send_all(c, iov, 2);
	}
	if (err == 0) {
		struct iovec last = {text, (size_t)write_last_part(text)};

		err = send_all(c, &last, 1);
	}
	return err;
}

#define HEAD_ROOM 640 /* bytes of what is written for one answer */

/* The status line and all fields but those that a file keeps ready. */
static size_t write_head(struct client *c, const struct reply *reply,
			 size_t text_len, char *out)
{
	int n = snprintf(out, HEAD_ROOM,
			 "HTTP/1.1 %d %s\r\nDate: %s\r\n"
			 "Server: coronet\r\n%s",
			 reply->status, reason(reply->status), date(c->shard),
			 reply->status == 405 ? "Allow: GET, HEAD\r\n" : "");

	if (reply->status == 200)
		return (size_t)n;
	if (reply->status == 206 || reply->status == 304)
		n += write_validators(reply, out + n, HEAD_ROOM - (size_t)n);
	if (reply->status == 206)
		n += write_ranges(reply, out + n, HEAD_ROOM - (size_t)n);
	if (reply->status == 416)
		n += snprintf(out + n, HEAD_ROOM - (size_t)n,
			      "Content-Range: bytes */%zu\r\n", reply->as->len);
	if (reply->status != 206 && reply->status != 304)
		n += snprintf(out + n, HEAD_ROOM - (size_t)n,
			      "Content-Type: text/plain\r\n"
			      "Content-Length: %zu\r\n%s",
			      text_len,
			      reply->status == 301 ? "Location: " : "");
	return (size_t)n;
}

/* The body, if it is in one piece. */
static struct iovec body_of(const struct reply *reply, char *text,
			    size_t text_len)
{
	if (!reply->body || reply->status == 304 || reply->n > 1)
		return (struct iovec){0};
	if (reply->status == 200)
		return (struct iovec){(char *)reply->as->data, reply->as->len};
	if (reply->status == 206)
		return (struct iovec){(char *)reply->as->data +
					      reply->ranges[0].first,
				      (size_t)range_len(reply, 0)};
	return (struct iovec){text, text_len};
}

/*
 * Sends an answer; keep: the request after which the connection stays open, or
 * NULL. Returns 0 or a negative errno. Out of line, so that its buffer is not
 * part of what an idle connection has on its stack.
 */
__attribute__((noinline)) static int answer(struct client *c,
					    const struct reply *reply,
					    const struct http_request *keep)
{
	static const char *const ends[] = {"Connection: close\r\n\r\n", "\r\n",
					   "Connection: keep-alive\r\n\r\n"};
	const char *end = ends[!keep ? 0 : keep->minor ? 1 : 2];
	char head[HEAD_ROOM], text[64];
	struct iovec iov[6];
	size_t text_len;
	unsigned n = 0;
	int err;

	text_len = (size_t)snprintf(text, sizeof(text), "%d %s\n",
				    reply->status, reason(reply->status));
	iov[n++] = (struct iovec){head, write_head(c, reply, text_len, head)};
	if (reply->status == 200)
		iov[n++] = (struct iovec){(char *)reply->as->fields,
					  reply->as->fields_len};
	if (reply->status == 301) {
		iov[n++] = (struct iovec){(char *)reply->path, reply->path_len};
		iov[n++] = (struct iovec){"/\r\n", 3};
	}
	iov[n++] = (struct iovec){(char *)end, strlen(end)};
	iov[n++] = body_of(reply, text, text_len);
	err = send_all(c, iov, n);
	if (err == 0 && reply->body && reply->n > 1)
		err = send_parts(c, reply);
	c->gave_up |= err < 0;
	return err;
}

/* The status and the file of a request that was understood. */
static int look_up(const struct http_request *request, const char *path,
		   const struct file **file)
{
	char decoded[FILES_PATH_MAX];
	long n;

	if (request->method == HTTP_KNOWN)
		return 405;
	if (request->method == HTTP_UNKNOWN)
		return 501;
	if (request->path_len == 0) { /* "http://host" */
		*file = files_find(&httpd.files, "/", 1);
		return *file ? 200 : 404;
	}
	n = http_decode(path, request->path_len, decoded, sizeof(decoded));
	if (n == -400)
		return 400;
	if (n < 0)
		return 404;
	*file = files_find(&httpd.files, decoded, (size_t)n);
	if (*file)
		return 200;
	return files_is_folder(&httpd.files, decoded, (size_t)n) ? 301 : 404;
}

/* Which form of a file that is there, which part, or that it is not needed. */
static void choose(struct reply *reply, const char *head,
		   const struct http_request *request)
{
	const struct file *file = reply->file;
	enum http_coding coding =
		http_choose_coding(head, request,
				   (file->gzip ? HTTP_GZIP : 0u) |
					   (file->brotli ? HTTP_BROTLI : 0u));
	struct http_validators validators = {.modified = file->modified};

	reply->as = coding == HTTP_GZIP	    ? file->gzip
		    : coding == HTTP_BROTLI ? file->brotli
					    : &file->own;
	validators.etag = reply->as->etag;
	reply->status = http_check_conditions(head, request, &validators);
	if (reply->status == 200)
		reply->status = http_read_ranges(head, request, &validators,
						 reply->as->len, reply->ranges,
						 &reply->n);
}

/* Whether what follows on the connection can still be told apart, and is due.
 */
static bool may_go_on(int status)
{
	return status < 400 || status == 404 || status == 412 || status == 416;
}

/*
 * Answers one request, whose head is given. Returns whether the connection goes
 * on. Its body, if it has one, is left to be skipped. Out of line, as answer().
 */
__attribute__((noinline)) static bool
take_request(struct client *c, const struct http_request *request,
	     const char *head)
{
	const char *path = head + request->path;
	struct reply reply = {.body = request->method != HTTP_HEAD,
			      .path = path,
			      .path_len = request->path_len};
	bool has_body = request->chunked || request->body_len;
	bool keep;

	reply.status = look_up(request, path, &reply.file);
	if (request->body_len > BODY_MAX)
		reply.status = 413;
	if (reply.status == 200)
		choose(&reply, head, request);
	/* It may wait for a "100 Continue" that does not come, or not wait. */
	keep = request->keep_alive && may_go_on(reply.status) &&
	       !(request->expects && has_body) &&
	       !shutdown_begun(&c->shard->shutdown);
	c->skip = request->body_len;
	c->in_chunks = request->chunked;
	c->answered++;
	counters_add(&c->shard->counters.requests, 1);
	c->chunks = (struct http_chunks){0};
	c->skipped = 0;
	return answer(c, &reply, keep ? request : NULL) == 0 && keep;
}

/* Answers a request that is wrong or late, whose bytes begin at `head`. */
static bool refuse(struct client *c, int status, const char *head, size_t len)
{
	counters_add(&c->shard->counters.refused, 1);
	answer(c,
	       &(struct reply){.status = status,
			       .body = !http_asks_for_head(head, len)},
	       NULL);
	return false;
}

/* Passes over body bytes: how many of these, or -1 when it is no body. */
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
 * and in *used how many bytes are done with; the rest begins a request, which
 * *head tells how far it has been read. The first one begins as *head says.
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
			return refuse(c, (int)-n, at, len - *used);
		if (!take_request(c, &request, at))
			return false;
	}
	return true;
}

/* Room for so many bytes of a request: false without memory. */
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
 * Takes bytes that go on where the pieces end, not all of them if they are
 * many: *used tells. Returns whether the connection goes on.
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
		return false;
	p = c->pieces;
	memcpy(p->bytes + p->len, data, part);
	p->len += part;
	*used = part;
	go_on = take_bytes(c, &p->head, p->bytes, p->len, &done);
	p->n = c->answered == answered ? p->n + 1 : 1;
	if (go_on && p->n > HTTP_PIECES_MAX)
		return refuse(c, 400, p->bytes, p->len);
	p->len -= done;
	memmove(p->bytes, p->bytes + done, p->len);
	return go_on;
}

/* Keeps a request's first bytes until the rest is there. */
static bool put_aside(struct client *c, const struct http_head *head,
		      const char *data, size_t len)
{
	if (!make_room(c, len))
		return false;
	c->pieces->head = *head;
	c->pieces->n = 1;
	c->pieces->len = len; /* less than a head, says http_read_head() */
	memcpy(c->pieces->bytes, data, len);
	return true;
}

/* Takes what arrived: whether the connection goes on. */
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

/* In the middle of a request, which has to be whole in time? */
static bool has_begun(const struct client *c)
{
	return c->pieces || c->skip || c->in_chunks;
}

/*
 * Whether a client that has sent nothing for long is busy with the last answer:
 * bytes of it are still queued, and fewer than when it was asked before.
 */
static bool still_reads(const struct client *c, uint32_t *unacked)
{
	uint32_t before = *unacked;

	*unacked = shutdown_unacked(c->conn);
	return *unacked && *unacked != before;
}

/*
 * How long the next bytes may take. While draining, a client that has had an
 * answer gets none but to what it has sent already; another one may have taken
 * the handshake for an invitation, and gets the time to send its request.
 */
static int64_t deadline_of(const struct visit *visit, bool begun)
{
	int64_t patience_ns = begun ? httpd.header_ns : httpd.idle_ns;

	if (!begun && shutdown_begun(&visit->shard->shutdown)) {
		int64_t grace_ns = visit->fresh ? GRACE_NS : 0;

		if (patience_ns > grace_ns)
			patience_ns = grace_ns;
	}
	return net_now_ns(visit->shard->stack) + patience_ns;
}

static void set_half_open(struct visit *visit, bool begun)
{
	struct httpd_shard *shard = visit->shard;

	if (begun)
		pending_enter(&shard->half_open, &visit->pending);
	else
		pending_leave(&shard->half_open, &visit->pending);
	counters_set(&shard->counters.half_open, shard->half_open.n);
}

/* Receives and answers until the connection has come to its end. */
static void converse(struct client *c, struct visit *visit)
{
	bool partial = false, go_on = true;
	struct net_view view;
	unsigned answered = 0;
	uint32_t unacked = 0;
	long n = 0;

	while (go_on && !visit->displaced) {
		bool begun = has_begun(c);

		set_half_open(visit, begun);
		/* A byte more of the same request buys no time. */
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
	if ((n == -ETIMEDOUT || visit->displaced) && c->pieces)
		refuse(c, 408, c->pieces->bytes, c->pieces->len);
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
	free(visit);
	counters_set(&shard->counters.open, shard->counters.open - 1);
	shutdown_progress(&shard->shutdown);
}

void httpd_serve(struct net_conn *conn, void *arg)
{
	struct httpd_shard *shard = arg;
	struct client c = {.shard = shard, .conn = conn};
	struct visit *visit = visit_begin(shard, conn);

	if (!visit)
		return;
	converse(&c, visit);
	free(c.pieces);
	counters_add(&shard->counters.gave_up, c.gave_up);
	if (c.gave_up)
		net_abort(conn);
	else
		shutdown_close_conn(&visit->closing, conn, httpd.send_ns);
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
