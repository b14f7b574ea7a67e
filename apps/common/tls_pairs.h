/* Options that name certificates and their keys: --tls-cert and --tls-key. */
#pragma once

#include <coronet/net_tls.h>

#include "netstack/options/opt.h"

/* The names are borrowed. */
struct tls_pairs {
	struct net_tls_pair pairs[NET_TLS_MAX_PAIRS];
	unsigned n;
};

/*
 * Read the two options into the struct tls_pairs at opt->at: each an
 * opt_read_fn. A key belongs to the certificate before it; without a key, the
 * certificate's file has it as well.
 */
int tls_pairs_read_cert(const struct opt *opt, const char *text, void *base,
			struct opt_error *error);
int tls_pairs_read_key(const struct opt *opt, const char *text, void *base,
		       struct opt_error *error);

/* What both expect, for the row of the option. */
#define TLS_PAIRS_EXPECTED "a PEM file that can be read"
