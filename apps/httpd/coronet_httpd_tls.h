/*
 * HTTPS in coronet-httpd: its options, the context of all shards, and its
 * renewal. Without OpenSSL there are no such options.
 */
#pragma once

#include <coronet/net.h>

#include "netstack/options/opt.h"

struct httpd;
struct httpd_shard;
struct visit;

#if HTTPD_TLS
#include "apps/common/tls_pairs.h"

/* Of the struct httpd. */
struct httpd_tls {
	struct tls_pairs pairs;	 /* none: no HTTPS */
	const char *ticket_keys; /* a file; NULL: none */
	const char *key_log;	 /* the same */
	uint16_t port;
	unsigned max_handshakes;
	bool offload;		 /* handshakes run on other threads */
	bool redirects;		 /* each request on --port */
	int64_t hsts_ns;	 /* 0: no such field */
	struct net_tls *context; /* the newest; the first shard's */
	char suffix[8];		 /* of a host in a redirect: "" or ":8443" */
	char field[64];		 /* of an answer over TLS: "" or HSTS */
};

/* Checks the options together: an opt_check_fn. */
int httpd_tls_check(void *base, struct opt_error *error);

/* Reads the files before a stack is open. Returns an exit status, after a line
 * on standard error. */
int httpd_tls_open(void);
/* Listens on the calling shard, if there is HTTPS. Returns 0 or an error of
 * net_listen(). */
int httpd_tls_listen(struct httpd_shard *shard);
/* Does the handshake. Returns false, after a line in the log, if it fails. */
bool httpd_tls_accept(struct visit *visit);
/*
 * Reads the files again, and uses them for new connections; if one is wrong,
 * logs that and goes on with the previous ones. Called in a coroutine of the
 * first shard. Returns false if the program ends.
 */
bool httpd_tls_renew(struct httpd_shard *shards);
/* Frees the context, when the stack is closed. */
void httpd_tls_close(void);

#else

struct httpd_tls {
	struct {
		unsigned n;
	} pairs;
	uint16_t port;
	bool redirects;
	char suffix[1], field[1];
};

static inline int httpd_tls_check(void *base, struct opt_error *error)
{
	return 0;
}

static inline int httpd_tls_open(void)
{
	return 0;
}

static inline int httpd_tls_listen(struct httpd_shard *shard)
{
	return 0;
}

static inline bool httpd_tls_accept(struct visit *visit)
{
	return false;
}

static inline bool httpd_tls_renew(struct httpd_shard *shards)
{
	return true;
}

static inline void httpd_tls_close(void)
{
}
#endif
