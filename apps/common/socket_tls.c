/* TLS by OpenSSL on the kernel's sockets. */
#include "apps/common/socket_tls.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#define MAX_SESSIONS 1024u

static int clamp_len(size_t len)
{
	return len > INT_MAX ? INT_MAX : (int)len;
}

/* Frees the context after a line that says why. */
static SSL_CTX *give_up(SSL_CTX *context, const char *program, const char *what)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());

	fprintf(stderr, "%s: %s%s%s\n", program, what, why ? ": " : "",
		why ? why : "");
	SSL_CTX_free(context);
	return NULL;
}

static SSL_CTX *new_context(const SSL_METHOD *method)
{
	SSL_CTX *context = SSL_CTX_new(method);

	if (!context)
		return NULL;
	signal(SIGPIPE, SIG_IGN); /* OpenSSL writes without MSG_NOSIGNAL */
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_options(context,
			    SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_num_tickets(context, 1);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS |
					  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set1_groups_list(context, "X25519:P-256:P-384");
	return context;
}

SSL_CTX *socket_tls_server(const struct tls_pairs *pairs, const char *program)
{
	const struct net_tls_pair *pair = &pairs->pairs[0];
	SSL_CTX *context = new_context(TLS_server_method());

	if (!context)
		return give_up(context, program, "no memory for TLS");
	if (SSL_CTX_use_certificate_chain_file(context, pair->cert) != 1)
		return give_up(context, program, pair->cert);
	if (SSL_CTX_use_PrivateKey_file(context, pair->key, SSL_FILETYPE_PEM) !=
	    1)
		return give_up(context, program, pair->key);
	return context;
}

/* ---- sessions of clients, all of one server ---- */

static struct {
	pthread_mutex_t lock;
	unsigned n;
	SSL_SESSION *all[MAX_SESSIONS]; /* owned */
} sessions = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* OpenSSL's callback: 1: it is kept. */
static int keep_session(SSL *ssl, SSL_SESSION *session)
{
	bool kept = false;

	pthread_mutex_lock(&sessions.lock);
	if (sessions.n < MAX_SESSIONS) {
		sessions.all[sessions.n++] = session;
		kept = true;
	}
	pthread_mutex_unlock(&sessions.lock);
	return kept;
}

static void resume_session(SSL *ssl)
{
	SSL_SESSION *session = NULL;

	pthread_mutex_lock(&sessions.lock);
	if (sessions.n)
		session = sessions.all[--sessions.n];
	pthread_mutex_unlock(&sessions.lock);
	if (session && SSL_set_session(ssl, session) != 1)
		ERR_clear_error(); /* then the handshake is a full one */
	SSL_SESSION_free(session);
}

static void free_sessions(void)
{
	while (sessions.n)
		SSL_SESSION_free(sessions.all[--sessions.n]);
}

/* A list of only one version's ciphers leaves the other version out. */
static bool set_ciphers(SSL_CTX *context, const struct socket_tls_opts *opts)
{
	if (opts->suites && !opts->ciphers)
		SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
	if (opts->ciphers && !opts->suites)
		SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
	return (!opts->suites ||
		SSL_CTX_set_ciphersuites(context, opts->suites) == 1) &&
	       (!opts->ciphers ||
		SSL_CTX_set_cipher_list(context, opts->ciphers) == 1);
}

/* One protocol as ALPN has it: its length and its name. */
static bool set_alpn(SSL_CTX *context, const char *name)
{
	unsigned char list[256];
	size_t len = strlen(name);

	if (len > sizeof(list) - 1)
		return false;
	list[0] = (unsigned char)len;
	memcpy(list + 1, name, len);
	return SSL_CTX_set_alpn_protos(context, list, (unsigned)len + 1) == 0;
}

SSL_CTX *socket_tls_client(const struct socket_tls_opts *opts,
			   const char *program)
{
	SSL_CTX *context = new_context(TLS_client_method());

	if (!context)
		return give_up(context, program, "no memory for TLS");
	if (!set_ciphers(context, opts))
		return give_up(context, program, "--tls-ciphers");
	if (opts->resumes) {
		SSL_CTX_set_session_cache_mode(
			context,
			SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
		SSL_CTX_sess_set_new_cb(context, keep_session);
	} else {
		SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
	}
	if (opts->alpn && !set_alpn(context, opts->alpn))
		return give_up(context, program, "ALPN");
	if (!opts->ca)
		return context;
	if (SSL_CTX_load_verify_file(context, opts->ca) != 1)
		return give_up(context, program, opts->ca);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	return context;
}

void socket_tls_free(SSL_CTX *context)
{
	free_sessions();
	SSL_CTX_free(context);
}

SSL *socket_tls_new(SSL_CTX *context, int fd, const char *name, bool server)
{
	SSL *ssl = SSL_new(context);

	if (!ssl)
		return NULL;
	if (SSL_set_fd(ssl, fd) != 1 ||
	    (name && (SSL_set_tlsext_host_name(ssl, name) != 1 ||
		      SSL_set1_host(ssl, name) != 1))) {
		SSL_free(ssl);
		return NULL;
	}
	if (server) {
		SSL_set_accept_state(ssl);
		return ssl;
	}
	SSL_set_connect_state(ssl);
	resume_session(ssl);
	return ssl;
}

void socket_tls_shut(SSL *ssl)
{
	ERR_clear_error();
	if (ssl && SSL_is_init_finished(ssl) &&
	    !(SSL_get_shutdown(ssl) & SSL_SENT_SHUTDOWN))
		SSL_shutdown(ssl);
}

void socket_tls_end(SSL *ssl)
{
	socket_tls_shut(ssl);
	SSL_free(ssl);
}

/* The result of a call that has returned rc, no success. */
static int error_of(SSL *ssl, int rc)
{
	int err = errno;

	switch (SSL_get_error(ssl, rc)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_SYSCALL:
		return err ? -err : -ECONNRESET;
	default:
		return -EPROTO;
	}
}

int socket_tls_handshake(SSL *ssl)
{
	int rc;

	ERR_clear_error();
	errno = 0;
	rc = SSL_do_handshake(ssl);
	if (rc == 1)
		return 0;
	rc = error_of(ssl, rc);
	return rc ? rc : -EPROTO;
}

ssize_t socket_tls_read(SSL *ssl, void *buf, size_t len)
{
	int n;

	ERR_clear_error();
	errno = 0;
	n = SSL_read(ssl, buf, clamp_len(len));
	return n > 0 ? n : error_of(ssl, n);
}

ssize_t socket_tls_write(SSL *ssl, const void *buf, size_t len)
{
	int n;

	ERR_clear_error();
	errno = 0;
	n = SSL_write(ssl, buf, clamp_len(len));
	if (n > 0)
		return n;
	n = error_of(ssl, n);
	return n ? n : -EPIPE;
}
