/*
 * Private to coronet-dns: definitions that its files share.
 *
 * coronet_dns.c has the options, the start, reloads and the shutdown;
 * coronet_dns_serve.c answers over UDP and TCP, coronet_dns_metrics.c has the
 * metrics. The state of a shard is in its struct dns_shard, which its thread
 * alone uses, except the counters, which others read. The state of the program
 * is in struct dns: it is constant once the shards run.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <coronet/net.h>
#include <coronet/net_udp.h>

#include "apps/common/coronet_shutdown.h"
#include "apps/common/counters.h"
#include "apps/common/source_rate.h"
#include "apps/dns/answer.h"

#define DNS_BATCH	   32
#define DNS_TCP_QUERY_MAX  4096 /* longer ones end the connection */
#define DNS_TCP_ANSWER_MAX 65535
#define DNS_TCP_LENGTH	   2 /* bytes in front of a message (RFC 1035 4.2.2) */
/* A shard's copies of answers that TCP clients do not take yet, in bytes. */
#define DNS_TCP_COPIES_MAX ((size_t)8 << 20)

struct dns_counters {
	uint64_t udp_queries, tcp_queries;
	uint64_t rcodes[DNS_RCODES]; /* answers */
	uint64_t truncated;	     /* answers, except slipped ones */
	uint64_t slipped;	     /* answers truncated by the rate limit */
	uint64_t limited;	     /* queries dropped by the rate limit */
	uint64_t ignored;	     /* messages that were no queries */
	uint64_t unsent;	     /* answers that could not be sent */
	uint64_t receive_errors;     /* of calls that receive datagrams */
	uint64_t clients;	     /* TCP connections now */
	uint64_t accepts;	     /* TCP connections so far */
};

/* A TCP connection; on the heap, since others point to it. */
struct dns_client {
	struct dns_shard *shard;
	struct net_conn *conn;
	struct coro *co;
	struct shutdown_closing closing;
	bool idle;    /* waits for a query */
	bool stopped; /* draining has begun */
	struct dns_client *next, **pprev;
};

struct dns_shard {
	struct net_stack *stack;
	struct net_listener *listener;
	struct net_udp *udp;
	const struct zones *zones; /* read again after a call that blocks */
	struct dns_client *client_list;
	struct shutdown shutdown;
	uint8_t udp_answers[DNS_BATCH][DNS_UDP_EDNS];
	uint8_t tcp_answer[DNS_TCP_LENGTH + DNS_TCP_ANSWER_MAX];
	size_t copies_bytes; /* DNS_TCP_COPIES_MAX at most */
	_Alignas(64) struct dns_counters counters;
};

/* A --zone. */
struct dns_source {
	char *name; /* owned */
	const char *path;
};

/* Counters of reloads and loaded zones; written by the first shard. */
struct dns_loaded {
	uint64_t reloads, failed_reloads, names, records;
};

struct dns {
	struct net_opts net;
	uint16_t port;
	struct dns_source *sources; /* ZONES_MAX; owned */
	unsigned n_sources;
	unsigned rate_limit, rate_slip;
	struct source_rate *rate; /* owned; NULL: no limit */
	int64_t idle_ns;
	struct net_limits limits;
	struct shutdown_plan shutdown;
	struct zones *zones; /* in use; only for the first shard once it runs */
	struct dns_loaded loaded;
};

extern struct dns dns;

/* Serves datagrams until the socket is cancelled. Called in a coroutine. */
void dns_serve_udp(struct dns_shard *shard);

/* Serves a TCP client: a net_handler whose argument is the shard. */
void dns_serve_tcp(struct net_conn *conn, void *shard);

/* Called when draining begins: ends connections that have no query. */
void dns_hurry(struct dns_shard *shard);

/* Adds the metrics of NET_MAX_SHARDS shards, including unused ones. */
int dns_metrics_add(const struct dns_shard *shards);
