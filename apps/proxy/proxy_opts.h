/*
 * The options coronet-proxy and epoll-proxy have in common.
 *
 * Everything in struct proxy_opts is checked when proxy_opts_argp returns; its
 * strings are borrowed from the command line.
 */
#pragma once

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "apps/common/opts.h"
#include "apps/proxy/backend_spec.h"
#include "apps/proxy/balance.h"

#define PROXY_MAX_LISTENS 16

/* What clients speak: a prefix of --listen, "udp:" or "tls:". */
enum proxy_listen { PROXY_LISTEN_TCP, PROXY_LISTEN_UDP, PROXY_LISTEN_TLS };

enum proxy_over_limit { PROXY_OVER_WAIT, PROXY_OVER_RESET };

/* New clients of a listener; per_s 0: any number. */
struct proxy_rate {
	unsigned per_s, burst;
};

struct proxy_opts {
	struct opt_endpoint listens[PROXY_MAX_LISTENS];
	/* the address and port, without prefix and keys */
	char listen_texts[PROXY_MAX_LISTENS][INET6_ADDRSTRLEN + 10];
	enum proxy_listen listen_kinds[PROXY_MAX_LISTENS];
	struct proxy_rate listen_rates[PROXY_MAX_LISTENS];
	unsigned n_listens;
	uint16_t port; /* of every address; 0: only those of --listen */
	struct opt_endpoint backends[BALANCE_MAX]; /* unless by name */
	const char *backend_texts[BALANCE_MAX];
	struct backend_spec specs[BALANCE_MAX];
	unsigned n_backends;
	bool plain; /* backends are addresses: no names, no keys */
	enum balance_kind balance;
	int64_t connect_timeout_ns;
	int64_t health_interval_ns; /* 0: no checks */
	unsigned rise, fall;
	int send_proxy; /* version of the header to send; 0: none */
	bool accept_proxy;
	int64_t proxy_timeout_ns;
	int64_t idle_timeout_ns; /* 0: none */
	unsigned max_clients;
	unsigned max_source;	/* clients of one IPv4 address or IPv6 /64 */
	unsigned max_half_open; /* clients with a partial PROXY header */
	enum proxy_over_limit over_limit;
	int64_t drain_timeout_ns;
};

void proxy_opts_init(struct proxy_opts *opts);

/* Returns the bytes of a --listen before its keys. */
size_t proxy_listen_fixed(const char *text);

/* Returns the index of the same listener in other options, or -1. */
int proxy_opts_find_listen(const struct proxy_opts *opts,
			   const struct proxy_opts *other, unsigned index);

/* Returns whether clients are accepted at this port of every address. */
bool proxy_opts_takes_all(const struct proxy_opts *opts, uint16_t port);

/* The prefix of a kind: "", "udp:" or "tls:". */
const char *proxy_listen_prefix(enum proxy_listen kind);

/* Input: a struct proxy_opts that proxy_opts_init() has filled. */
extern const struct argp proxy_opts_argp;
extern const struct opt_set proxy_opts; /* its table */
