/*
 * Options that name files of TLS: --tls-cert and --tls-key, and others with one
 * file.
 */
#pragma once

#include <coronet/net_tls.h>

#include "netstack/options/opt.h"

/* The names are borrowed. */
struct tls_pairs {
	struct net_tls_pair pairs[NET_TLS_MAX_PAIRS];
	const char *ocsp[NET_TLS_MAX_PAIRS]; /* NULL: none */
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

/* The same for --tls-ocsp, an OCSP response for the certificate before it. */
int tls_pairs_read_ocsp(const struct opt *opt, const char *text, void *base,
			struct opt_error *error);

/* Reads the name of a file that exists into the const char * at opt->at. */
int tls_pairs_read_file(const struct opt *opt, const char *text, void *base,
			struct opt_error *error);

/* Reads the name of a file that can be written, or made, like it. */
int tls_pairs_read_key_log(const struct opt *opt, const char *text, void *base,
			   struct opt_error *error);

/* What the first two expect, for the row of the option. */
#define TLS_PAIRS_EXPECTED "a PEM file that can be read"

/* The row of --tls-ocsp, whose struct tls_pairs is at `at_`. */
#define TLS_PAIRS_OCSP(at_)                                                    \
	{                                                                      \
		"tls-ocsp", OPT_CUSTOM, at_, "FILE",                           \
			.read = tls_pairs_read_ocsp,                           \
			.expected = "a file that can be read",                 \
			.example = "/etc/coronet/example.com.ocsp",            \
			.help = "OCSP response in DER for the --tls-cert "     \
				"before it, sent to clients that ask for it "  \
				"until it expires"                             \
	}

/* The row of the keys of tickets, whose const char * is at `at_`. */
#define TLS_PAIRS_TICKETS(at_)                                                 \
	{                                                                      \
		"tls-ticket-keys", OPT_CUSTOM, at_, "FILE",                    \
			.read = tls_pairs_read_file,                           \
			.expected = "a file that can be read",                 \
			.example = "/etc/coronet/ticket.keys",                 \
			.help = "Keys of session tickets, 1 to 16 of 80 "      \
				"random bytes each: the first encrypts, all "  \
				"decrypt (default: keys that change every "    \
				"two hours, and end with the program)"         \
	}

/* The row of --tls-offload, whose bool is at `at_`. */
#define TLS_PAIRS_OFFLOAD(at_)                                                 \
	{                                                                      \
		"tls-offload", OPT_FLAG, at_,                                  \
			.help = "Do TLS handshakes on other threads than the " \
				"connections', if there are CPUs for them "    \
				"beside those that poll"                       \
	}

/* The row of --tls-keylog, whose const char * is at `at_`. */
#define TLS_PAIRS_KEY_LOG(at_)                                                 \
	{                                                                      \
		"tls-keylog", OPT_CUSTOM, at_, "FILE",                         \
			.read = tls_pairs_read_key_log,                        \
			.expected = "a file that can be written",              \
			.example = "/tmp/keys.log",                            \
			.help = "Append the secrets of every connection to "   \
				"this file, with which Wireshark decrypts a "  \
				"capture; for debugging only"                  \
	}
