/*
 * Private to coronet-httpd: what its two files share.
 *
 * coronet_httpd.c has the options, the listener, the statistics and the end;
 * coronet_httpd_client.c is one client's connection. All of it runs on the
 * stack's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include <coronet/net.h>

#include "apps/common/coronet_shutdown.h"
#include "apps/common/pending.h"
#include "apps/httpd/files.h"

#define HTTPD_DATE_LEN 29

/* What others may know of a connection: on the heap, hence. */
struct visit {
	struct net_conn *conn;
	struct coro *co;
	struct shutdown_closing closing;
	struct pending pending; /* while a request has begun and not ended */
	bool idle;		/* waits for a request */
	bool fresh;		/* and has not had one yet */
	bool displaced;		/* its request has to make room for others */
	struct visit *next, **pprev;
};

struct httpd_counters {
	uint64_t clients, requests;
	uint64_t refused; /* requests that were wrong or late */
	uint64_t gave_up; /* clients that took nothing for too long */
};

struct httpd {
	struct net_opts net;
	uint16_t port;
	const char *root;
	int64_t idle_ns, header_ns, send_ns, drain_ns;
	struct net_limits limits;
	unsigned max_half_open;
	struct files files;
	struct net_stack *stack;
	struct net_listener *listener;
	struct visit *visits;
	unsigned n_visits;
	struct pending_list half_open;
	struct httpd_counters counters;
	char date[HTTPD_DATE_LEN + 1]; /* of the second date_s */
	time_t date_s;
};

extern struct httpd httpd;

/* Serves a client: a net_handler. */
void httpd_serve(struct net_conn *conn, void *arg);

/* Draining has begun: who waits for a request waits no longer than it may. */
void httpd_hurry(void);

/* Ends a visit's request: what httpd.half_open does beyond its bound. */
void httpd_displace(struct pending *item);
