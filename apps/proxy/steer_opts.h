/*
 * The options of coronet-proxy that epoll-proxy does not have: failure and
 * recovery of backends, access lists, separate timeouts, the access log.
 *
 * Checked when steer_opts_argp returns. Strings are borrowed; lists are owned.
 */
#pragma once

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "apps/proxy/access_list.h"
#include "apps/proxy/access_log.h"
#include "netstack/options/opt.h"

struct steer_opts {
	unsigned queue; /* sessions that may wait for a backend with room */
	int64_t queue_timeout_ns;
	unsigned retries;	/* connects of a session beyond its first */
	unsigned retry_percent; /* retries that 100 sessions earn */
	unsigned eject_after;	/* consecutive failed connects; 0: never */
	int64_t eject_ns;
	int64_t slow_start_ns;
	int64_t sticky_ns;			      /* 0: off */
	int64_t client_timeout_ns, server_timeout_ns; /* 0: none */
	int64_t half_closed_timeout_ns;		      /* 0: none */
	unsigned keepalive_s;			      /* 0: off */
	int64_t hello_timeout_ns;
	int64_t resolve_interval_ns;
	struct access_list clients;    /* clients that are admitted */
	struct access_list proxy_from; /* senders of a PROXY header */
	unsigned source_rate; /* connections a second of a source; 0: any */
	bool unique_id;
	int64_t udp_timeout_ns;
	unsigned udp_responses;	   /* to a datagram; 0: unknown */
	unsigned max_udp_sessions; /* of all shards */
	const char *access_log;	   /* NULL: none */
	enum access_form access_form;
};

void steer_opts_init(struct steer_opts *opts);
void steer_opts_fini(struct steer_opts *opts);

/* Input: a struct steer_opts that steer_opts_init() has filled. */
extern const struct argp steer_opts_argp;
extern const struct opt_set steer_opts; /* its table */
