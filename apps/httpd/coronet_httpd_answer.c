/*
 * Writes coronet-httpd's responses: chooses the file, its form and its part,
 * and writes the header fields.
 */
#include "apps/httpd/coronet_httpd_priv.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* RFC 9110 6.6.1; formatted once a second. */
static const char *format_date(struct httpd_shard *shard)
{
	time_t now = time(NULL);

	if (now != shard->date_s) {
		http_write_date(now, shard->date);
		shard->date_s = now;
	}
	return shard->date;
}

/* The most frequent ones first; the last stands for all others. */
static const struct {
	int status;
	const char *reason;
} statuses[] = {{200, "OK"},
		{206, "Partial Content"},
		{301, "Moved Permanently"},
		{304, "Not Modified"},
		{400, "Bad Request"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{408, "Request Timeout"},
		{412, "Precondition Failed"},
		{413, "Content Too Large"},
		{414, "URI Too Long"},
		{416, "Range Not Satisfiable"},
		{417, "Expectation Failed"},
		{431, "Request Header Fields Too Large"},
		{501, "Not Implemented"},
		{505, "HTTP Version Not Supported"}};
static_assert(sizeof(statuses) / sizeof(statuses[0]) == HTTPD_STATUSES,
	      "a counter each");

static unsigned index_of(int status)
{
	unsigned i = 0;

	while (i < HTTPD_STATUSES - 1 && statuses[i].status != status)
		i++;
	return i;
}

static const char *get_reason(int status)
{
	return statuses[index_of(status)].reason;
}

int httpd_status(unsigned i)
{
	return statuses[i].status;
}

/* Notes what of a response was not sent; returns the error. */
__attribute__((noinline)) static int
note_unsent(struct visit *visit, const struct iovec *iov, unsigned n, long err)
{
	visit->unsent = 0;
	for (unsigned i = 0; i < n; i++)
		visit->unsent += iov[i].iov_len;
	return (int)err;
}

/* Sends all of it, however slowly, as long as some of it goes. Returns 0 or a
 * negative errno. */
static int send_all(struct visit *visit, struct iovec *iov, unsigned n)
{
	while (n) {
		uint32_t unacked = shutdown_unacked(visit->conn);
		long taken;

		if (iov->iov_len == 0) {
			iov++;
			n--;
			continue;
		}
		net_set_write_deadline(visit->conn,
				       net_now_ns(net_stack_here()) +
					       httpd.send_ns);
		taken = net_sendv(visit->conn, iov, n);
		if (taken == -ETIMEDOUT && shutdown_unacked(visit->conn) &&
		    shutdown_unacked(visit->conn) != unacked)
			continue; /* some, but too little to make room */
		if (taken < 0)
			return note_unsent(visit, iov, n, taken);
		for (; n && (size_t)taken >= iov->iov_len; iov++, n--)
			taken -= (long)iov->iov_len;
		if (n) {
			iov->iov_base = (char *)iov->iov_base + taken;
			iov->iov_len -= (size_t)taken;
		}
	}
	return 0;
}

/*
 * A file's bytes are lent from this size on: a client that reads slowly then
 * costs segments, not a copy of what it has not read.
 */
#define LENT_MIN 16384u

static uint32_t acked_to(const struct net_conn *conn)
{
	struct net_conn_stats now;

	return net_conn_stats(conn, &now) < 0 ? 0 : now.snd_una;
}

/* Checks whether the client to which bytes are lent has taken any since. */
static void on_timer(struct coro_timer *timer)
{
	struct visit *visit =
		(struct visit *)(void *)((char *)timer -
					 offsetof(struct visit, timer));
	int64_t now_ns = net_now_ns(visit->shard->stack);
	uint32_t acked = acked_to(visit->conn);

	if (acked == visit->acked) {
		net_set_write_deadline(visit->conn, now_ns);
		coro_unpark(visit->co);
		return;
	}
	visit->acked = acked;
	coro_timer_arm(coro_sched_self(), timer, now_ns + httpd.send_ns);
}

void httpd_answer_init(struct visit *visit)
{
	coro_timer_init(&visit->timer, on_timer);
}

/* note_unsent() for lent bytes: those that the client has not acknowledged.
 * was: before the first of them was queued. */
__attribute__((noinline)) static int
note_unlent(struct visit *visit, const struct iovec *body,
	    const struct net_conn_stats *was, long err)
{
	uint32_t begin = was->snd_una + was->unacked + was->unsent;
	int32_t acked = (int32_t)(acked_to(visit->conn) - begin);
	struct iovec rest = *body;

	/* With TLS the acknowledged bytes are those of its records. */
	if (acked > 0)
		rest.iov_len -= (size_t)acked < rest.iov_len ? (size_t)acked
							     : rest.iov_len;
	return note_unsent(visit, &rest, 1, err);
}

/* Like send_all(), for bytes that the site keeps until they have arrived. */
static int lend_body(struct visit *visit, const struct httpd_reply *reply,
		     const struct iovec *body)
{
	struct httpd_shard *shard = visit->shard;
	int64_t now_ns = net_now_ns(shard->stack);
	struct net_conn_stats was = {0};
	long n;

	net_conn_stats(visit->conn, &was);
	visit->acked = was.snd_una;
	net_set_write_deadline(visit->conn, CORO_FOREVER);
	coro_timer_arm(coro_sched_self(), &visit->timer,
		       now_ns + httpd.send_ns);
	n = net_send_owned(visit->conn, body->iov_base, body->iov_len,
			   site_give_back,
			   site_lend(&shard->site, reply->site));
	coro_timer_cancel(coro_sched_self(), &visit->timer);
	if (n < 0)
		return note_unlent(visit, body, &was, n);
	return 0;
}

/* Sends text, then bytes of a file, if any. */
static int send_body(struct visit *visit, const struct httpd_reply *reply,
		     struct iovec *iov, unsigned n)
{
	int err;

	if (!reply->site || iov[n - 1].iov_len < LENT_MIN)
		return send_all(visit, iov, n);
	err = send_all(visit, iov, n - 1);
	if (err == 0)
		return lend_body(visit, reply, &iov[n - 1]);
	visit->unsent += iov[n - 1].iov_len;
	return err;
}

/*
 * The fields, kept ready by a file, that distinguish its forms (RFC 9110
 * 15.3.7) and, except for 304, that say how it is coded.
 */
static struct iovec get_validators(const struct httpd_reply *reply)
{
	const struct file_body *as = reply->as;
	uint16_t end = reply->status == 304 ? as->coding_field : as->fields_len;

	return (struct iovec){(char *)as->fields + as->validators,
			      (size_t)(end - as->validators)};
}

static int write_range(const struct httpd_reply *reply, unsigned i, char *out,
		       size_t room)
{
	return snprintf(out, room,
			"Content-Type: %s\r\nContent-Range: bytes "
			"%" PRIu64 "-%" PRIu64 "/%zu\r\n",
			reply->file->type, reply->ranges[i].first,
			reply->ranges[i].last, reply->as->len);
}

static uint64_t range_len(const struct httpd_reply *reply, unsigned i)
{
	return reply->ranges[i].last - reply->ranges[i].first + 1;
}

/* Writes what precedes a part of an answer in several (RFC 9110 14.6). */
static int write_part(const struct httpd_reply *reply, unsigned i, char *out,
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

/* The bytes of an answer in several parts, from the i-th on. */
static uint64_t parts_len(const struct httpd_reply *reply, unsigned i)
{
	char text[PART_ROOM];
	uint64_t bytes = (uint64_t)write_last_part(text);

	for (; i < reply->n; i++)
		bytes += (uint64_t)write_part(reply, i, text, sizeof(text)) +
			 range_len(reply, i);
	return bytes;
}

/* Writes the fields of a status that a file does not keep ready. */
static int write_ranges(const struct httpd_reply *reply, char *out, size_t room)
{
	uint64_t bytes;
	int n;

	if (reply->n == 1) {
		bytes = range_len(reply, 0);
		n = write_range(reply, 0, out, room);
	} else {
		bytes = parts_len(reply, 0);
		n = snprintf(out, room,
			     "Content-Type: multipart/byteranges; "
			     "boundary=%s\r\n",
			     httpd.boundary);
	}
	return n + snprintf(out + n, room - (size_t)n,
			    "Content-Length: %" PRIu64 "\r\n", bytes);
}

/* Each part on its own: there may be many, and none is short. */
static int send_parts(struct visit *visit, const struct httpd_reply *reply)
{
	char text[PART_ROOM];
	int err = 0;

	for (unsigned i = 0; err == 0 && i < reply->n; i++) {
		int n = write_part(reply, i, text, sizeof(text));
		struct iovec iov[2] = {
			{text, (size_t)n},
			{(char *)reply->as->data + reply->ranges[i].first,
			 (size_t)range_len(reply, i)}};

		err = send_body(visit, reply, iov, 2);
		if (err < 0)
			visit->unsent += parts_len(reply, i + 1);
	}
	if (err == 0) {
		struct iovec last = {text, (size_t)write_last_part(text)};

		err = send_all(visit, &last, 1);
	}
	return err;
}

#define HEAD_ROOM 704 /* bytes of what is written for one answer */

/* The status line and all fields but those that a file keeps ready. */
static size_t write_head(const struct visit *visit,
			 const struct httpd_reply *reply, size_t text_len,
			 char *out)
{
	int n = snprintf(out, HEAD_ROOM,
			 "HTTP/1.1 %d %s\r\nDate: %s\r\n"
			 "Server: coronet\r\n%s%s",
			 reply->status, get_reason(reply->status),
			 format_date(visit->shard),
			 visit->has_tls ? httpd.tls.field : "",
			 reply->status == 405 ? "Allow: GET, HEAD\r\n" : "");

	if (reply->status == 200)
		return (size_t)n;
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
static struct iovec body_of(const struct httpd_reply *reply, char *text,
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

/* The bytes of a status as text: "404 Not Found\n". */
static size_t text_len_of(int status)
{
	return strlen(get_reason(status)) + 5;
}

__attribute__((noinline)) int httpd_answer(struct visit *visit,
					   const struct httpd_reply *reply,
					   const struct http_request *keep)
{
	struct httpd_shard *shard = visit->shard;
	static const char *const ends[] = {"Connection: close\r\n\r\n", "\r\n",
					   "Connection: keep-alive\r\n\r\n"};
	const char *end = ends[!keep ? 0 : keep->minor ? 1 : 2];
	char head[HEAD_ROOM], text[64];
	struct iovec iov[8];
	size_t text_len;
	unsigned n = 0;
	int err;

	counters_add(&shard->counters.answers[index_of(reply->status)], 1);
	text_len = (size_t)snprintf(text, sizeof(text), "%d %s\n",
				    reply->status, get_reason(reply->status));
	iov[n++] =
		(struct iovec){head, write_head(visit, reply, text_len, head)};
	if (reply->status == 200)
		iov[n++] = (struct iovec){(char *)reply->as->fields,
					  reply->as->fields_len};
	if (reply->status == 206 || reply->status == 304)
		iov[n++] = get_validators(reply);
	if (reply->status == 301) {
		for (unsigned i = 0; i < HTTPD_LOCATION_PARTS; i++)
			iov[n++] = reply->location[i];
		iov[n++] = (struct iovec){"\r\n", 2};
	}
	iov[n++] = (struct iovec){(char *)end, strlen(end)};
	iov[n++] = body_of(reply, text, text_len);
	err = send_body(visit, reply, iov, n);
	if (reply->body && reply->n > 1) {
		if (err < 0)
			visit->unsent += parts_len(reply, 0);
		else
			err = send_parts(visit, reply);
	}
	return err;
}

uint64_t httpd_body_sent(const struct visit *visit,
			 const struct httpd_reply *reply, int err)
{
	uint64_t bytes =
		body_of(reply, NULL, text_len_of(reply->status)).iov_len;

	if (reply->body && reply->n > 1)
		bytes = parts_len(reply, 0);
	if (err < 0) /* the header fields are the first that were sent */
		bytes -= visit->unsent < bytes ? visit->unsent : bytes;
	return bytes;
}

/* Finds the file of a request that was understood. Returns the status. */
static int look_up(const struct files *files,
		   const struct http_request *request, const char *path,
		   const struct file **file)
{
	char decoded[FILES_PATH_MAX];
	long n;

	if (request->method == HTTP_KNOWN)
		return 405;
	if (request->method == HTTP_UNKNOWN)
		return 501;
	if (request->path_len == 0) { /* "http://host" */
		*file = files_find(files, "/", 1);
		return *file ? 200 : 404;
	}
	n = http_decode(path, request->path_len, decoded, sizeof(decoded));
	if (n == -400)
		return 400;
	if (n < 0)
		return 404;
	n = http_normalize(decoded, (size_t)n);
	if (n < 0)
		return 400;
	*file = files_find(files, decoded, (size_t)n);
	if (*file)
		return 200;
	*file = files_find_folder(files, decoded, (size_t)n);
	return *file ? 301 : 404;
}

/* Chooses a file's form and part, or finds that it is not needed. */
static void choose_form(struct httpd_reply *reply, const char *head,
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

/* The bytes of a host without its port. */
static size_t host_len(const char *host, size_t len)
{
	const char *colon = memrchr(host, ':', len);

	return colon && !memchr(colon, ']', len - (size_t)(colon - host))
		       ? (size_t)(colon - host)
		       : len;
}

/* To the same host and path over HTTPS. Returns the status. */
static int redirect(struct httpd_reply *reply, const char *head,
		    const struct http_request *request)
{
	const char *host = head + request->host.at;
	size_t len = host_len(host, request->host.len);

	if (len == 0) /* no Host, of HTTP/1.0 */
		return 400;
	reply->location[0] = (struct iovec){(char *)"https://", 8};
	reply->location[1] = (struct iovec){(char *)host, len};
	reply->location[2] =
		(struct iovec){httpd.tls.suffix, strlen(httpd.tls.suffix)};
	reply->location[3] =
		(struct iovec){(char *)head + request->path,
			       (size_t)request->path_len + request->query_len};
	return 301;
}

void httpd_choose(struct httpd_reply *reply, const struct files *files,
		  const char *head, const struct http_request *request,
		  bool redirects)
{
	bool reads =
		request->method == HTTP_GET || request->method == HTTP_HEAD;

	if (redirects && reads) {
		reply->status = redirect(reply, head, request);
		return;
	}
	reply->status =
		look_up(files, request, head + request->path, &reply->file);
	if (reply->status == 200)
		choose_form(reply, head, request);
	if (reply->status == 301) { /* RFC 9110 10.2.2 leaves the form to us */
		char *location = reply->file->location;

		reply->location[0] = (struct iovec){location, strlen(location)};
		reply->location[1] = (struct iovec){
			(char *)head + request->path + request->path_len,
			request->query_len};
	}
}
