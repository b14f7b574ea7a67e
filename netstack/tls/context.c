/*
 * Contexts: certificates, keys, and what is agreed on with a peer.
 *
 * A context is made once and then only read, by the sessions of every shard. It
 * has an SSL_CTX for each certificate; a session begins with the first one's
 * and changes over to another's when the client has asked for a name.
 */
#include "netstack/tls/tls_priv.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDSHAKE_MS   10000u
#define MAX_HANDSHAKES 1024u
#define SOURCE_MIN     64u /* default: at least this many of a source */

/*
 * https://wiki.mozilla.org/Security/Server_Side_TLS, "intermediate", version
 * 5.7, without DHE, whose handshakes cost a server most.
 */
#define CIPHERS                                                                \
	"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"           \
	"ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"           \
	"ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
#define CIPHERSUITES                                                           \
	"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"                       \
	"TLS_CHACHA20_POLY1305_SHA256"
#define GROUPS "X25519:P-256:P-384"

/* Bytes of a peer's certificates: OpenSSL keeps them as long as the session. */
#define CHAIN_MAX 32768

/* ---- complaints ---- */

/* Writes opts->error, with what OpenSSL says. Returns err. */
__attribute__((format(printf, 3, 4))) static int
complain(struct net_tls_opts *opts, int err, const char *format, ...)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());
	char text[192];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(opts->error, sizeof(opts->error), "%s%s%s", text,
		 why ? ": " : "", why ? why : "");
	ERR_clear_error();
	return err;
}

/* OpenSSL's own complaint about a missing file does not name it. */
static int check_file(struct net_tls_opts *opts, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ERR_clear_error();
	if (fd < 0) {
		int err = -errno;

		return complain(opts, err, "'%s': %s", path, strerror(-err));
	}
	close(fd);
	return 0;
}

/* ---- certificates ---- */

static int load_pair(struct net_tls_opts *opts, SSL_CTX *ctx,
		     const struct net_tls_pair *pair)
{
	int err;

	if (!pair->cert || !pair->key)
		return complain(opts, -EINVAL,
				"a certificate and a key go together");
	err = check_file(opts, pair->cert);
	if (err == 0)
		err = check_file(opts, pair->key);
	if (err < 0)
		return err;
	if (!net_tls_use_certificates(ctx, pair->cert))
		return complain(opts, -EINVAL, "'%s' is no certificate in PEM",
				pair->cert);
	if (!net_tls_use_key(ctx, pair->key))
		return complain(opts, -EINVAL,
				"'%s' is no key for '%s', or is encrypted",
				pair->key, pair->cert);
	return 0;
}

/* Appends a name in lower case; without memory it is left out. */
static void add_name(char **names, size_t *bytes, const unsigned char *name,
		     size_t len)
{
	char *more;

	if (len == 0 || memchr(name, '\0', len))
		return;
	more = realloc(*names, *bytes + len + 2);
	if (!more)
		return;
	for (size_t i = 0; i < len; i++)
		more[*bytes + i] = (char)tolower(name[i]);
	more[*bytes + len] = more[*bytes + len + 1] = '\0';
	*names = more;
	*bytes += len + 1;
}

static void add_common_names(char **names, size_t *bytes, X509_NAME *subject)
{
	int at = -1;

	while ((at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >=
	       0) {
		ASN1_STRING *text = X509_NAME_ENTRY_get_data(
			X509_NAME_get_entry(subject, at));

		add_name(names, bytes, ASN1_STRING_get0_data(text),
			 (size_t)ASN1_STRING_length(text));
	}
}

/* The names of a certificate; common names only without others (RFC 6125). */
static char *read_names(X509 *cert)
{
	GENERAL_NAMES *alternatives =
		X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
	char *names = NULL;
	size_t bytes = 0;

	for (int i = 0; i < sk_GENERAL_NAME_num(alternatives); i++) {
		const GENERAL_NAME *name =
			sk_GENERAL_NAME_value(alternatives, i);

		if (name->type == GEN_DNS)
			add_name(&names, &bytes,
				 ASN1_STRING_get0_data(name->d.dNSName),
				 (size_t)ASN1_STRING_length(name->d.dNSName));
	}
	if (!alternatives)
		add_common_names(&names, &bytes, X509_get_subject_name(cert));
	GENERAL_NAMES_free(alternatives);
	ERR_clear_error();
	return names;
}

/* ---- options ---- */

static int read_alpn(struct net_tls_opts *opts, struct net_tls *tls)
{
	const char *at = opts->alpn;

	while (at && *at) {
		size_t len = strcspn(at, ",");

		if (len == 0 || len > 255 ||
		    tls->alpn_len + 1 + len > sizeof(tls->alpn))
			return complain(opts, -EINVAL, "alpn='%s': %s",
					opts->alpn,
					len ? "too long" : "an empty name");
		tls->alpn[tls->alpn_len++] = (unsigned char)len;
		memcpy(tls->alpn + tls->alpn_len, at, len);
		tls->alpn_len += (unsigned)len;
		at += len;
		if (*at == ',' && !*++at)
			return complain(opts, -EINVAL,
					"alpn='%s': an empty name", opts->alpn);
	}
	return 0;
}

/* The server's choice among what a client offers. */
static int choose_protocol(SSL *ssl, const unsigned char **out,
			   unsigned char *out_len, const unsigned char *offered,
			   unsigned offered_len, void *arg)
{
	const struct net_tls *tls = arg;
	unsigned char *chosen;

	if (SSL_select_next_proto(&chosen, out_len, tls->alpn, tls->alpn_len,
				  offered,
				  offered_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

/* Returns false without memory. */
static bool set_alpn(struct net_tls *tls, SSL_CTX *ctx)
{
	if (tls->alpn_len && tls->is_server)
		SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, tls);
	else if (tls->alpn_len) /* which returns 0 if it succeeds */
		return !SSL_CTX_set_alpn_protos(ctx, tls->alpn, tls->alpn_len);
	return true;
}

/*
 * The file of the system's CAs. Not their folder as well: OpenSSL would search
 * that during handshakes, which would block the polling thread.
 */
static const char *system_cas(void)
{
	const char *path = secure_getenv(X509_get_default_cert_file_env());

	return path ? path : X509_get_default_cert_file();
}

static int load_cas(struct net_tls_opts *opts, struct net_tls *tls,
		    SSL_CTX *ctx)
{
	const char *path = opts->ca ? opts->ca : system_cas();
	STACK_OF(X509_NAME) * names;
	int err;

	if (!opts->ca && tls->is_server)
		return complain(opts, -EINVAL,
				"to verify clients, a server needs a ca");
	err = check_file(opts, path);
	if (err < 0)
		return err;
	if (SSL_CTX_load_verify_file(ctx, path) != 1)
		return complain(opts, -EINVAL, "'%s' has no CA in PEM", path);
	if (!tls->is_server)
		return 0;
	names = SSL_load_client_CA_file(path);
	if (!names)
		return complain(opts, -EINVAL, "'%s' has no CA in PEM", path);
	SSL_CTX_set_client_CA_list(ctx, names);
	return 0;
}

static int set_verify(struct net_tls_opts *opts, struct net_tls *tls,
		      SSL_CTX *ctx)
{
	enum net_tls_verify verify = opts->verify;

	if (verify > NET_TLS_VERIFY_REQUIRE ||
	    (verify == NET_TLS_VERIFY_ASK && !tls->is_server))
		return complain(opts, -EINVAL, "verify: no such value");
	if (verify == NET_TLS_VERIFY_DEFAULT)
		verify = tls->is_server ? NET_TLS_VERIFY_NONE
					: NET_TLS_VERIFY_REQUIRE;
	if (verify == NET_TLS_VERIFY_NONE)
		return 0;
	SSL_CTX_set_verify(ctx,
			   SSL_VERIFY_PEER |
				   (verify == NET_TLS_VERIFY_REQUIRE
					    ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT
					    : 0),
			   NULL);
	return load_cas(opts, tls, ctx);
}

static int set_ciphers(struct net_tls_opts *opts, SSL_CTX *ctx)
{
	const char *ciphers = opts->ciphers ? opts->ciphers : CIPHERS;
	const char *suites =
		opts->ciphersuites ? opts->ciphersuites : CIPHERSUITES;

	ERR_clear_error();
	if (SSL_CTX_set_cipher_list(ctx, ciphers) != 1)
		return complain(opts, -EINVAL, "ciphers='%s'", ciphers);
	if (SSL_CTX_set_ciphersuites(ctx, suites) != 1)
		return complain(opts, -EINVAL, "ciphersuites='%s'", suites);
	return 0;
}

/* No early data (RFC 8446 8); tickets are ticket.c's, where there are any. */
static int set_protocol(SSL_CTX *ctx, const struct net_tls_opts *opts)
{
	static const int numbers[] = {
		[NET_TLS_ANY] = 0,
		[NET_TLS_1_2] = TLS1_2_VERSION,
		[NET_TLS_1_3] = TLS1_3_VERSION,
	};
	int least =
		opts->min_version ? numbers[opts->min_version] : TLS1_2_VERSION;

	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
					 SSL_OP_NO_RENEGOTIATION |
					 SSL_OP_CIPHER_SERVER_PREFERENCE |
					 SSL_OP_PRIORITIZE_CHACHA);
	SSL_CTX_clear_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF |
					   SSL_OP_LEGACY_SERVER_CONNECT);
#ifdef SSL_OP_NO_RX_CERTIFICATE_COMPRESSION /* since OpenSSL 3.2 */
	SSL_CTX_set_options(ctx, SSL_OP_NO_RX_CERTIFICATE_COMPRESSION |
					 SSL_OP_NO_TX_CERTIFICATE_COMPRESSION);
#endif
	SSL_CTX_set_max_cert_list(ctx, CHAIN_MAX);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_max_early_data(ctx, 0);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(ctx, 0);
	return SSL_CTX_set_min_proto_version(ctx, least) == 1 &&
			       SSL_CTX_set_max_proto_version(
				       ctx, numbers[opts->max_version]) == 1 &&
			       SSL_CTX_set1_groups_list(ctx, GROUPS) == 1
		       ? 0
		       : -ENOMEM;
}

/* ---- making a context ---- */

static int load_staple(struct net_tls_opts *opts, struct net_tls *tls,
		       SSL_CTX *ctx, unsigned pair)
{
	const char *path = opts->ocsp[pair], *why;
	int err;

	if (!path || !tls->is_server)
		return 0;
	err = net_tls_staple(ctx, path, &tls->staples[pair], &why);
	return err < 0 ? complain(opts, err, "'%s': %s", path,
				  why ? why : strerror(-err))
		       : 0;
}

static int add_context(struct net_tls_opts *opts, struct net_tls *tls,
		       const struct net_tls_pair *pair)
{
	SSL_CTX *ctx = SSL_CTX_new(tls->is_server ? TLS_server_method()
						  : TLS_client_method());
	int err;

	if (!ctx)
		return complain(opts, -ENOMEM, "no memory for TLS");
	tls->pairs[tls->n_pairs++] = ctx;
	SSL_CTX_set_app_data(ctx, tls);
	net_tls_log_keys(tls, ctx);
	err = set_protocol(ctx, opts);
	if (err < 0)
		return complain(opts, err, "no memory for TLS");
	err = set_ciphers(opts, ctx);
	if (err == 0 && pair)
		err = load_pair(opts, ctx, pair);
	if (err == 0)
		err = set_verify(opts, tls, ctx);
	if (err == 0)
		err = load_staple(opts, tls, ctx, tls->n_pairs - 1);
	if (err < 0)
		return err;
	if (!set_alpn(tls, ctx) ||
	    (tls->keys && !net_tls_issue_tickets(tls, ctx)))
		return complain(opts, -ENOMEM, "no memory for TLS");
	if (tls->max_sessions)
		net_tls_keep_sessions(ctx);
	if (tls->is_server)
		tls->names[tls->n_pairs - 1] =
			read_names(SSL_CTX_get0_certificate(ctx));
	return 0;
}

static int set_up_resumption(struct net_tls_opts *opts, struct net_tls *tls)
{
	int err;

	if (opts->tickets > NET_TLS_TICKETS_OFF ||
	    opts->max_sessions > NET_TLS_MAX_SESSIONS)
		return complain(opts, -EINVAL,
				"tickets or max_sessions: no such value");
	if (!tls->is_server) {
		tls->max_sessions = opts->max_sessions;
		return 0;
	}
	if (opts->tickets == NET_TLS_TICKETS_OFF)
		return 0;
	err = net_tls_make_keys(tls, opts->ticket_keys);
	if (err == -EINVAL)
		return complain(opts, err,
				"'%s' has not 1 to %u keys of %zu bytes",
				opts->ticket_keys, NET_TLS_MAX_KEYS,
				sizeof(struct net_tls_key));
	return err < 0 ? complain(opts, err, "'%s': %s",
				  opts->ticket_keys ? opts->ticket_keys
						    : "keys of tickets",
				  strerror(-err))
		       : 0;
}

static int fill_context(struct net_tls_opts *opts, struct net_tls *tls)
{
	int err = read_alpn(opts, tls);

	if (opts->min_version > NET_TLS_1_3 ||
	    opts->max_version > NET_TLS_1_3 ||
	    (opts->max_version && opts->max_version < opts->min_version))
		return complain(opts, -EINVAL, "no such versions of TLS");
	if (opts->n_pairs > (tls->is_server ? NET_TLS_MAX_PAIRS : 1))
		return complain(opts, -EINVAL, "too many certificates: %u",
				opts->n_pairs);
	if (tls->is_server && opts->n_pairs == 0)
		return complain(opts, -EINVAL, "a server needs a certificate");
	if (err == 0)
		err = set_up_resumption(opts, tls);
	if (err == 0) {
		err = net_tls_open_key_log(tls, opts->key_log);
		if (err < 0)
			return complain(opts, err, "'%s': %s", opts->key_log,
					strerror(-err));
	}
	if (err == 0 && opts->n_pairs == 0)
		err = add_context(opts, tls, NULL);
	for (unsigned i = 0; err == 0 && i < opts->n_pairs; i++)
		err = add_context(opts, tls, &opts->pairs[i]);
	if (err == 0 && tls->is_server)
		net_tls_choose_by_name(tls);
	return err;
}

static int make_context(struct net_tls_opts *opts, bool is_server,
			struct net_tls **out)
{
	struct net_tls *tls;
	int err;

	if (!opts || !out)
		return -EINVAL;
	net_tls_heap_use();
	ERR_clear_error();
	tls = calloc(1, sizeof(*tls));
	if (!tls)
		return complain(opts, -ENOMEM, "no memory for TLS");
	tls->calls = &net_tls_table;
	tls->refs = 1;
	tls->key_log = -1;
	tls->is_server = is_server;
	tls->offload = is_server && opts->offload;
	tls->handshake_ns =
		(opts->handshake_ms ? opts->handshake_ms : HANDSHAKE_MS) *
		INT64_C(1000000);
	tls->max_handshakes =
		opts->max_handshakes ? opts->max_handshakes : MAX_HANDSHAKES;
	tls->max_per_source =
		opts->handshakes_per_source
			? opts->handshakes_per_source
			: LWIP_MAX(tls->max_handshakes / 2, SOURCE_MIN);
	err = fill_context(opts, tls);
	if (err < 0) {
		net_tls_free(tls);
		return err;
	}
	*out = tls;
	return 0;
}

int net_tls_server(struct net_tls_opts *opts, struct net_tls **out)
{
	return make_context(opts, true, out);
}

int net_tls_client(struct net_tls_opts *opts, struct net_tls **out)
{
	return make_context(opts, false, out);
}

void net_tls_free(struct net_tls *tls)
{
	if (!tls || atomic_fetch_sub(&tls->refs, 1) != 1)
		return;
	for (unsigned i = 0; i < tls->n_pairs; i++) {
		SSL_CTX_free(tls->pairs[i]);
		free(tls->names[i]);
		free(tls->staples[i]);
	}
	for (unsigned i = 0; i < NET_MAX_SHARDS; i++)
		free(tls->sources[i]);
	if (tls->key_log >= 0)
		close(tls->key_log);
	net_tls_free_keys(tls);
	net_tls_free_sessions(tls);
	free(tls);
}

int net_listener_set_tls(struct net_listener *listener, struct net_tls *tls)
{
	NET_CHECK_THREAD();
	if (!listener)
		return -EBADF;
	if (!tls || !tls->is_server)
		return -EINVAL;
	listener->tls = tls;
	return 0;
}
