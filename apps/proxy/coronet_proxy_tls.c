/*
 * TLS with clients and with backends: the contexts of a configuration, and the
 * handshakes of a session.
 */
#include "apps/proxy/coronet_proxy_tls.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/coronet_proxy_priv.h"

#define MAX_SESSIONS 64u /* of backends, kept on each shard to be resumed */

static const char *find_listener(const struct proxy_opts *opts)
{
	for (unsigned i = 0; i < opts->n_listens; i++)
		if (opts->listen_kinds[i] == PROXY_LISTEN_TLS)
			return opts->listen_texts[i];
	return NULL;
}

/*
 * A listener with TLS; NULL: there is none. Those that run are those of the
 * first configuration.
 */
static const char *tls_listener(const struct proxy_config *config)
{
	const char *listener = find_listener(&config->opts);

	return listener || !proxy.first ? listener
					: find_listener(&proxy.first->opts);
}

/* The first backend with that tls=; NULL: there is none. */
static const char *tls_backend(const struct proxy_opts *opts,
			       enum backend_tls tls)
{
	for (unsigned i = 0; i < opts->n_backends; i++)
		if (opts->specs[i].tls == tls)
			return opts->backend_texts[i];
	return NULL;
}

#if PROXY_TLS
#include <coronet/net_tls.h>

/* ---- contexts ---- */

static int check_together(const struct proxy_config *config,
			  struct opt_error *error)
{
	const struct tls_opts *tls = &config->tls;
	const char *listener = tls_listener(config);
	const char *option = tls->pairs.n	? "cert"
			     : tls->client_ca	? "client-ca"
			     : tls->ticket_keys ? "ticket-keys"
			     : tls->alpn	? "alpn"
			     : tls->offload	? "offload"
						: NULL;

	if (listener && tls->pairs.n == 0)
		return opt_fail(error,
				"--listen tls:%s: expected a certificate as "
				"well: add --tls-cert FILE",
				listener);
	if (!listener && option)
		return opt_fail(error,
				"--tls-%s: expected --listen tls:ADDRESS:PORT "
				"as well",
				option);
	if (tls->key_log && !listener &&
	    !tls_backend(&config->opts, BACKEND_TLS_VERIFY) &&
	    !tls_backend(&config->opts, BACKEND_TLS_INSECURE))
		return opt_fail(error, "--tls-keylog: expected --listen tls: "
				       "or --to with tls= as well");
	if (tls->client_cert && !tls->client_ca)
		return opt_fail(error, "--tls-client-cert: expected "
				       "--tls-client-ca FILE as well");
	if (tls->backend_ca && !tls_backend(&config->opts, BACKEND_TLS_VERIFY))
		return opt_fail(error, "--backend-ca: expected --to with "
				       "tls=verify as well");
	return 0;
}

static int open_server(struct proxy_config *config, struct opt_error *error)
{
	const struct tls_opts *tls = &config->tls;
	struct net_tls_opts opts = {
		.n_pairs = tls->pairs.n,
		.ca = tls->client_ca,
		.alpn = tls->alpn,
		.ticket_keys = tls->ticket_keys,
		.key_log = proxy.net.check ? NULL : tls->key_log,
		.min_version = tls->min_version,
		.max_handshakes = tls->max_handshakes,
		.offload = tls->offload,
		.handshake_ms =
			(unsigned)(config->steer.hello_timeout_ns / 1000000),
	};

	if (tls->client_ca)
		opts.verify = tls->client_cert ? tls->client_cert
					       : NET_TLS_VERIFY_REQUIRE;
	memcpy(opts.pairs, tls->pairs.pairs, sizeof(opts.pairs));
	memcpy(opts.ocsp, tls->pairs.ocsp, sizeof(opts.ocsp));
	if (net_tls_server(&opts, &config->tls_server) == 0)
		return 0;
	return opt_fail(error, "--listen tls:%s: %s", tls_listener(config),
			opts.error);
}

/* to: a backend that needs the context; NULL: none does. */
static int open_client(struct proxy_config *config, enum backend_tls which,
		       const char *to, struct opt_error *error)
{
	bool verifies = which == BACKEND_TLS_VERIFY;
	struct net_tls_opts opts = {
		.ca = verifies ? config->tls.backend_ca : NULL,
		.verify =
			verifies ? NET_TLS_VERIFY_REQUIRE : NET_TLS_VERIFY_NONE,
		.max_sessions = MAX_SESSIONS,
		.key_log = proxy.net.check ? NULL : config->tls.key_log,
		.max_handshakes = UINT_MAX, /* sessions bound them */
	};

	if (!to || net_tls_client(&opts, &config->tls_clients[which]) == 0)
		return 0;
	return opt_fail(error, "%s%s: %s", opts.ca ? "--backend-ca " : "--to ",
			opts.ca ? opts.ca : to, opts.error);
}

int proxy_tls_open(struct proxy_config *config, struct opt_error *error)
{
	int err = check_together(config, error);

	if (err == 0 && tls_listener(config))
		err = open_server(config, error);
	for (int which = BACKEND_TLS_VERIFY;
	     err == 0 && which < BACKEND_TLS_KINDS; which++)
		err = open_client(
			config, (enum backend_tls)which,
			tls_backend(&config->opts, (enum backend_tls)which),
			error);
	return err;
}

int proxy_tls_prepare(struct proxy_config *config,
		      const struct backend_spec *spec, struct opt_error *error)
{
	if (spec->tls == BACKEND_TLS_OFF || config->tls_clients[spec->tls])
		return 0;
	return open_client(config, spec->tls, spec->name, error);
}

void proxy_tls_close(struct proxy_config *config)
{
	net_tls_free(config->tls_server);
	for (int i = 0; i < BACKEND_TLS_KINDS; i++)
		net_tls_free(config->tls_clients[i]);
}

/* ---- handshakes ---- */

static void copy_text(char *to, size_t room, const char *from)
{
	snprintf(to, room, "%.*s", (int)room - 1, from);
}

/* Keeps what the handshake has agreed on. Out of line: its buffers are large.
 */
__attribute__((noinline)) static int keep_info(struct session *s)
{
	static const uint8_t none[32];
	struct net_tls_info info;
	struct proxy_tls *tls;
	int err = net_tls_info(s->client, &info);

	if (err < 0)
		return err;
	tls = calloc(1, sizeof(*tls));
	if (!tls)
		return -ENOMEM;
	s->tls = tls;
	copy_text(tls->version, sizeof(tls->version), info.version);
	copy_text(tls->cipher, sizeof(tls->cipher), info.cipher);
	copy_text(tls->alpn, sizeof(tls->alpn), info.alpn);
	copy_text(tls->client, sizeof(tls->client), info.peer_name);
	tls->has_cert = memcmp(info.peer_sha256, none, sizeof(none)) != 0;
	tls->resumed = info.resumed;
	tls->verified = tls->has_cert && info.peer_verified;
	/* What is no name serves nobody, and is not to be in logs. */
	if (!host_is_name(info.server_name))
		return 0;
	for (char *c = info.server_name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	s->server_name = strdup(info.server_name);
	return s->server_name ? 0 : -ENOMEM;
}

static void log_handshake(const struct session *s, int err)
{
	struct net_addr peer = net_peer_addr(s->client);
	char text[NET_ADDR_TEXT_MAX];

	net_log_seldom("coronet-proxy: TLS handshake with client %s failed: %s",
		       net_addr_format(&peer, text, sizeof(text)),
		       err == -EPROTO ? net_tls_error(NULL) : strerror(-err));
}

int proxy_tls_accept(struct session *s)
{
	struct proxy_config *config = config_ref(s->shard->config);
	int err = net_tls_accept(s->client, config->tls_server);

	config_unref(config);
	if (s->failed) /* displaced */
		return -ECONNABORTED;
	if (err == 0)
		err = keep_info(s);
	if (err == 0)
		return 0;
	s->end = err == -ETIMEDOUT   ? ACCESS_HELLO_TIMEOUT
		 : err == -ECANCELED ? ACCESS_STOPPED
		 : err == -ENOMEM    ? ACCESS_NO_MEMORY
				     : ACCESS_TLS_FAILED;
	if (err != -ECANCELED)
		log_handshake(s, err);
	if (err == -EPROTO) { /* the alert is to reach the client */
		net_close(s->client);
		s->client = NULL;
	}
	return err;
}

int proxy_tls_connect(const struct proxy_config *config,
		      const struct backend_spec *spec, struct net_conn *conn,
		      int64_t until_ns)
{
	const char *name = spec->tls_name[0] ? spec->tls_name
			   : spec->by_name   ? spec->host
					     : NULL;
	int err;

	net_set_read_deadline(conn, until_ns);
	net_set_write_deadline(conn, until_ns);
	err = net_tls_connect(conn, config->tls_clients[spec->tls], name);
	if (err == -EPROTO)
		net_log_seldom("coronet-proxy: TLS handshake with backend %s "
			       "failed: %s",
			       spec->name, net_tls_error(NULL));
	if (err < 0)
		return err;
	net_set_read_deadline(conn, CORO_FOREVER);
	net_set_write_deadline(conn, CORO_FOREVER);
	return 0;
}

#else

int proxy_tls_open(struct proxy_config *config, struct opt_error *error)
{
	const struct proxy_opts *opts = &config->opts;
	const char *listener = tls_listener(config);
	const char *backend = tls_backend(opts, BACKEND_TLS_VERIFY);

	if (!backend)
		backend = tls_backend(opts, BACKEND_TLS_INSECURE);
	if (!listener && !backend)
		return 0;
	return opt_fail(error, "%s%s: this program was built without OpenSSL",
			listener ? "--listen tls:" : "--to ",
			listener ? listener : backend);
}

int proxy_tls_prepare(struct proxy_config *config,
		      const struct backend_spec *spec, struct opt_error *error)
{
	if (spec->tls == BACKEND_TLS_OFF)
		return 0;
	return opt_fail(error,
			"--to %s: this program was built without OpenSSL",
			spec->name);
}

void proxy_tls_close(struct proxy_config *config)
{
}

int proxy_tls_accept(struct session *s)
{
	return -EPROTONOSUPPORT;
}

int proxy_tls_connect(const struct proxy_config *config,
		      const struct backend_spec *spec, struct net_conn *conn,
		      int64_t until_ns)
{
	return -EPROTONOSUPPORT;
}
#endif
