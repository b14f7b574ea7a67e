/*
 * TLS in coronet-proxy: with clients of --listen tls:, and with backends that
 * have tls=. Without OpenSSL both are refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "netstack/options/opt.h"

struct backend_spec;
struct net_conn;
struct proxy_config;
struct session;

/*
 * Checks the options of TLS together with the others, and makes the
 * configuration's contexts, which reads the files. Blocks. Returns 0, or
 * -EINVAL with error->text set.
 */
int proxy_tls_open(struct proxy_config *config, struct opt_error *error);
/*
 * Makes the context for a backend that joins while the program runs, unless the
 * configuration has it. Blocks; one call at a time, before a shard knows of
 * that backend. Returns 0, or -EINVAL with error->text set.
 */
int proxy_tls_prepare(struct proxy_config *config,
		      const struct backend_spec *spec, struct opt_error *error);
/* Frees the configuration's contexts. Handshakes under way go on. */
void proxy_tls_close(struct proxy_config *config);

/*
 * Does the handshake with a session's client, and sets s->tls and
 * s->server_name. Returns 0, or a negative errno with s->end set; then
 * s->client is NULL if it was closed.
 */
int proxy_tls_accept(struct session *s);

/*
 * Does the handshake with a backend, which takes place before until_ns.
 * Returns 0, or an error of net_tls_connect(), which is logged if the backend
 * or its certificate is the reason. config: the caller holds a reference.
 */
int proxy_tls_connect(const struct proxy_config *config,
		      const struct backend_spec *spec, struct net_conn *conn,
		      int64_t until_ns);
