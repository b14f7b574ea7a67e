/*
 * HTTPS in coronet-httpd: certificates, which SIGHUP reads again, and the
 * handshake before a client is served.
 */
#include "apps/httpd/coronet_httpd_priv.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common/coronet_shards.h"
#include "apps/common/opts.h"

/* ---- options ---- */

int httpd_tls_check(void *base, struct opt_error *error)
{
	struct httpd *to = base;
	struct httpd_tls *tls = &to->tls;
	const char *option = tls->redirects	? "--redirect"
			     : tls->hsts_ns	? "--hsts"
			     : tls->key_log	? "--tls-keylog"
			     : tls->offload	? "--tls-offload"
			     : tls->ticket_keys ? "--tls-ticket-keys"
						: NULL;

	if (tls->pairs.n == 0 && option)
		return opt_fail(error,
				"%s needs a certificate: add --tls-cert FILE",
				option);
	if (tls->pairs.n && tls->port == to->port)
		return opt_fail(error,
				"--tls-port %u is the port of HTTP as well: "
				"change it, or --port",
				tls->port);
	if (tls->port != 443)
		snprintf(tls->suffix, sizeof(tls->suffix), ":%u", tls->port);
	if (tls->hsts_ns) /* RFC 6797 6.1 */
		snprintf(tls->field, sizeof(tls->field),
			 "Strict-Transport-Security: max-age=%" PRId64 "\r\n",
			 tls->hsts_ns / OPT_NS_PER_S);
	return 0;
}

/* ---- the context ---- */

static void set_options(struct net_tls_opts *opts)
{
	*opts = (struct net_tls_opts){
		.n_pairs = httpd.tls.pairs.n,
		.max_handshakes = httpd.tls.max_handshakes,
		.offload = httpd.tls.offload,
		.ticket_keys = httpd.tls.ticket_keys,
		.key_log = httpd.net.check ? NULL : httpd.tls.key_log,
		.alpn = "http/1.1"};
	memcpy(opts->pairs, httpd.tls.pairs.pairs, sizeof(opts->pairs));
	memcpy(opts->ocsp, httpd.tls.pairs.ocsp, sizeof(opts->ocsp));
}

int httpd_tls_open(void)
{
	struct net_tls_opts opts;

	if (httpd.tls.pairs.n == 0)
		return 0;
	set_options(&opts);
	if (net_tls_server(&opts, &httpd.tls.context) == 0)
		return 0;
	fprintf(stderr,
		"coronet-httpd: --tls-cert and other options of TLS: %s\n",
		opts.error);
	return OPT_EXIT_USAGE;
}

void httpd_tls_close(void)
{
	net_tls_free(httpd.tls.context);
}

/* What a thread that may block reads. */
struct renewal {
	struct net_tls_opts opts;
	struct net_tls *context;
};

static void *read_files(void *arg)
{
	struct renewal *renewal = arg;

	return (void *)(intptr_t)net_tls_server(&renewal->opts,
						&renewal->context);
}

/* Runs on each shard's thread, outside any coroutine. */
static void *use_context(void *arg)
{
	struct httpd_shard *shard = arg;

	shard->tls = httpd.tls.context;
	return NULL;
}

bool httpd_tls_renew(struct httpd_shard *shards)
{
	static struct renewal renewal; /* the first shard's */
	struct net_tls *old = httpd.tls.context;
	void *result = NULL;
	int err;

	if (httpd.tls.pairs.n == 0)
		return true;
	set_options(&renewal.opts);
	err = net_offload(read_files, &renewal, &result, CORO_FOREVER);
	if (err == -ECANCELED)
		return false;
	if (err < 0 || (intptr_t)result < 0) {
		net_log("httpd: the previous certificates stay in use: %s",
			err < 0 ? strerror(-err) : renewal.opts.error);
		return true;
	}
	httpd.tls.context = renewal.context;
	if (shards_call(use_context, shards, sizeof(*shards)) < 0)
		return false; /* a shard that ends may use the old one */
	net_tls_free(old);
	net_log("httpd: new connections use the certificates as they are now");
	return true;
}

/* ---- serving ---- */

/* Notes for the access log what was agreed on; without memory it has not. */
__attribute__((noinline)) static void note_handshake(struct visit *visit)
{
	struct net_tls_info info;

	static_assert(sizeof(info.version) == sizeof(visit->tls->version) &&
			      sizeof(info.cipher) == sizeof(visit->tls->cipher),
		      "the names fit");
	if (net_tls_info(visit->conn, &info) < 0)
		return;
	visit->tls = malloc(sizeof(*visit->tls));
	if (!visit->tls)
		return;
	memcpy(visit->tls->version, info.version, sizeof(info.version));
	memcpy(visit->tls->cipher, info.cipher, sizeof(info.cipher));
}

bool httpd_tls_accept(struct visit *visit)
{
	struct net_addr peer = net_peer_addr(visit->conn);
	char text[NET_ADDR_TEXT_MAX];
	int err = net_tls_accept(visit->conn, visit->shard->tls);

	if (err == 0) {
		if (httpd.log && httpd.log_form == HTTP_LOG_JSON)
			note_handshake(visit);
		return true;
	}
	net_log_seldom("httpd: TLS handshake with %s failed: %s",
		       net_addr_format(&peer, text, sizeof(text)),
		       err == -EPROTO ? net_tls_error(NULL) : strerror(-err));
	if (err != -EPROTO) /* else the client has got an alert */
		net_abort(visit->conn);
	return false;
}

int httpd_tls_listen(struct httpd_shard *shard)
{
	struct net_listener **listener = &shard->listeners[shard->n_listeners];
	int err;

	if (httpd.tls.pairs.n == 0)
		return 0;
	shard->tls = httpd.tls.context;
	err = net_listen(shard->stack, &net_addr_any(httpd.tls.port), 0,
			 listener);
	if (err < 0)
		return err;
	shard->n_listeners++;
	net_listener_limit(*listener, &httpd.limits);
	net_listener_serve(*listener, httpd_serve_tls, shard);
	return 0;
}
