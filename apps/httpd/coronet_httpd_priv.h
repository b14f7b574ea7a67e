/*
 * Private to coronet-httpd: definitions that its files share.
 *
 * coronet_httpd.c has the options, the listeners, the statistics and the
 * shutdown; coronet_httpd_client.c serves one client's connection,
 * coronet_httpd_answer.c writes the responses, coronet_httpd_log.c logs them,
 * coronet_httpd_tls.c has HTTPS, coronet_httpd_metrics.c the metrics. The state
 * of a shard is in its struct httpd_shard, which its thread alone uses, except
 * the counters, which others read. The state of the program is in struct httpd:
 * it is constant once the shards run, except the loader (site.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include <coronet/net.h>

#include "apps/common/coronet_shutdown.h"
#include "apps/common/counters.h"
#include "apps/common/pending.h"
#include "apps/httpd/conditions.h"
#include "apps/httpd/coronet_httpd_tls.h"
#include "apps/httpd/files.h"
#include "apps/httpd/http_log.h"
#include "apps/httpd/site.h"

/* The shared state of a connection; on the heap, since others point to it. */
struct visit {
	struct httpd_shard *shard;
	struct net_conn *conn;
	struct coro *co;
	struct shutdown_closing closing;
	struct pending pending;	  /* while its request is partial */
	struct coro_timer timer;  /* while file bytes are lent to it */
	uint32_t acked;		  /* by its client, at the last check */
	uint64_t unsent;	  /* bytes of a response that failed */
	struct http_log_tls *tls; /* owned; NULL: not logged */
	bool idle;		  /* waits for a request */
	bool fresh;		  /* waits for its first request */
	bool displaced;		  /* its request was displaced */
	bool has_tls;
	struct visit *next, **pprev;
};

#define HTTPD_STATUSES 16 /* number of statuses used in responses */

struct httpd_counters {
	uint64_t open;	    /* clients now */
	uint64_t half_open; /* of these clients: with a partial request */
	uint64_t clients, requests;
	uint64_t refused;   /* requests that were malformed or late */
	uint64_t displaced; /* partial requests that others displaced */
	uint64_t gave_up;   /* clients: a response could not be sent */
	uint64_t answers[HTTPD_STATUSES]; /* by httpd_status() */
};

struct httpd_shard {
	struct net_stack *stack;
	struct net_listener *listeners[2];
	unsigned n_listeners;
	struct net_tls *tls; /* of new connections */
	struct visit *visits;
	struct pending_list half_open;
	struct site_here site;
	char date[HTTP_DATE_BYTES]; /* of the second date_s */
	time_t date_s;
	struct shutdown shutdown;
	_Alignas(64) struct httpd_counters counters;
};

struct httpd {
	struct net_opts net;
	uint16_t port;
	struct httpd_tls tls;
	const char *root;
	int64_t idle_ns, header_ns, send_ns;
	struct net_limits limits;
	struct pending_limit half_open; /* of all shards */
	const char *types;		/* --mime-types; NULL: none are read */
	int64_t rescan_ns;		/* 0: files are read once */
	const char *access_log;		/* NULL: none */
	enum http_log_form log_form;
	struct line_log *log; /* NULL: none */
	struct site_loader loader;
	char boundary[25]; /* between the parts of an answer in ranges */
	struct shutdown_plan shutdown;
};

extern struct httpd httpd;

#define HTTPD_LOCATION_PARTS 4

/* The response to a request; points into the site that it comes from. */
struct httpd_reply {
	int status;
	bool body;		    /* false: only the header fields */
	struct site *site;	    /* the site of the file; NULL: none */
	const struct file *file;    /* NULL: send the status as text */
	const struct file_body *as; /* the form of the file to send */
	struct iovec location[HTTPD_LOCATION_PARTS]; /* of a redirect */
	unsigned n; /* ranges; 0: the whole file */
	struct http_range ranges[HTTP_RANGES_MAX];
};

/*
 * Fills in the response, except reply->body. head: the bytes of the request's
 * head. redirects: to the same over HTTPS.
 */
void httpd_choose(struct httpd_reply *reply, const struct files *files,
		  const char *head, const struct http_request *request,
		  bool redirects);
/*
 * Sends the response. keep: the request, if the connection stays open after it;
 * else NULL. Returns 0 or a negative errno. Not inlined, so that its buffer is
 * not on the stack of an idle connection.
 */
int httpd_answer(struct visit *visit, const struct httpd_reply *reply,
		 const struct http_request *keep);

/* The bytes of a response's body that were sent, if httpd_answer() has returned
 * err. */
uint64_t httpd_body_sent(const struct visit *visit,
			 const struct httpd_reply *reply, int err);

/* Prepares a visit's timer, for httpd_answer(). */
void httpd_answer_init(struct visit *visit);

/* Opens the log of --access-log. Returns 0, or -EINVAL after a line on standard
 * error. */
int httpd_log_open(void);
/* Lines of it that are lost so far. Any thread. */
uint64_t httpd_log_lost(void);

/* A request for the access log: the bytes that there are of its head. */
struct httpd_logged {
	int64_t begin_ns;
	const char *head;
	size_t len;
	unsigned number; /* of the connection's requests */
};

/* Logs a request; there must be a log. err: why its response was not sent as a
 * whole, a negative errno or -1 if the client has closed; 0: it was. */
void httpd_log_line(const struct visit *visit,
		    const struct httpd_logged *request, int status,
		    uint64_t bytes, int err);

/* The status that answers[i] counts. */
int httpd_status(unsigned i);

/* Adds the metrics of NET_MAX_SHARDS shards, including unused ones. */
int httpd_metrics_add(const struct httpd_shard *shards);

/* Serve a client over TCP, or TLS: a net_handler whose argument is the shard.
 */
void httpd_serve(struct net_conn *conn, void *shard);
void httpd_serve_tls(struct net_conn *conn, void *shard);

/* Called when draining begins: shortens the wait of idle clients. */
void httpd_hurry(struct httpd_shard *shard);

/* Ends a visit's request, when half_open exceeds its limit. */
void httpd_displace(struct pending *item);
