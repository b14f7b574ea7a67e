/*
 * The options of TLS in coronet-proxy, for clients and for backends.
 *
 * Checked when tls_opts_argp returns, one by one; what they need of other
 * options is checked with those (coronet_proxy_tls.c). Strings are borrowed.
 * Without OpenSSL there are none.
 */
#pragma once

#include <argp.h>
#include <stdint.h>

#if PROXY_TLS
#include "apps/common/tls_pairs.h"

struct tls_opts {
	struct tls_pairs pairs; /* of the listeners */
	const char *alpn;	/* NULL: no ALPN */
	enum net_tls_version min_version;
	unsigned max_handshakes;
	bool offload; /* handshakes with clients run on other threads */
	const char *ticket_keys;	 /* a file; NULL: none */
	const char *key_log;		 /* the same */
	const char *client_ca;		 /* NULL: clients are not asked */
	enum net_tls_verify client_cert; /* DEFAULT: the option is missing */
	const char *backend_ca;		 /* NULL: the system's */
};

void tls_opts_init(struct tls_opts *opts);

/* Input: a struct tls_opts that tls_opts_init() has filled. */
extern const struct argp tls_opts_argp;
extern const struct opt_set tls_opts; /* its table */
#endif
