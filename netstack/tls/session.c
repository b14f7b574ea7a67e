/*
 * Sessions: how a connection gets one, its handshake, why it failed.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "netstack/program/log.h"

/*
 * What the budget is charged for OpenSSL's memory, which is malloc's: upper
 * bounds, which tests/net/test_tls_memory.c compares with what it takes.
 */
#define HELLO_BYTES (256u << 10) /* during a handshake */
#define OPEN_BYTES  (28u << 10)	 /* afterwards */
#define PART_BYTES  (18u << 10)	 /* in addition, while a record is incomplete */
/* In addition, for each certificate of the peer, and for each of its bytes. */
#define CERT_BYTES  2048u
#define CERT_FACTOR 6u

static NET_SHARD_VAR char last_error[NET_TLS_ERROR_MAX];
#define last_error NET_SHARD(last_error)

/* ---- errors ---- */

const char *net_tls_last_error(void)
{
	return last_error;
}

static const char *certificate_trouble(const SSL *ssl)
{
	long verdict = SSL_get_verify_result(ssl);

	return verdict == X509_V_OK ? NULL
				    : X509_verify_cert_error_string(verdict);
}

/* The name of an alert, of which OpenSSL's table lacks the latest. */
static const char *alert_name(unsigned long code)
{
	const char *name = SSL_alert_desc_string_long(ERR_GET_REASON(code) -
						      SSL_AD_REASON_OFFSET);
	const char *reason = ERR_reason_error_string(code);
	const char *after = reason ? strstr(reason, "alert ") : NULL;

	return strcmp(name, "unknown") == 0 && after ? after + 6 : name;
}

static bool lacks_memory(const struct net_tls_session *s)
{
	return s->is_short ||
	       ERR_GET_REASON(ERR_peek_error()) == ERR_R_MALLOC_FAILURE;
}

/* Writes what OpenSSL complains about, and clears it. Returns the error. */
cold static int describe_error(const struct net_tls_session *s, const SSL *ssl,
			       char *text)
{
	unsigned long code = ERR_peek_error();
	int reason = ERR_GET_REASON(code);
	const char *bad = ssl ? certificate_trouble(ssl) : NULL;
	const char *name = ERR_reason_error_string(code);
	bool is_short = lacks_memory(s);

	if (is_short)
		snprintf(text, NET_TLS_ERROR_MAX, "no memory");
	else if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
		 reason > SSL_AD_REASON_OFFSET)
		snprintf(text, NET_TLS_ERROR_MAX, "the peer sent an alert: %s",
			 alert_name(code));
	else if (bad && reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
		snprintf(text, NET_TLS_ERROR_MAX, "the peer's certificate: %s",
			 bad);
	else
		snprintf(text, NET_TLS_ERROR_MAX, "%s",
			 name ? name : "the peer broke the protocol");
	ERR_clear_error();
	return is_short ? -ENOMEM : -EPROTO;
}

/*
 * The connection takes no more bytes, so that net_close() sends a FIN behind
 * the alert and no RST, which might overtake it.
 */
void net_tls_refuse_input(struct net_conn *conn)
{
	unsigned unread = conn->rx_tail ? net_rxq_bytes(conn) : 0;

	net_rxq_clear(conn);
	if (conn->pcb_live && unread)
		net_conn_recved(conn, unread);
}

cold int net_tls_fail_as(struct net_tls_session *s, int err, const char *text)
{
	s->err = (int16_t)err;
	if (!s->error)
		s->error = net_mem_malloc(NET_TLS_ERROR_MAX);
	if (s->error)
		snprintf(s->error, NET_TLS_ERROR_MAX, "%s", text);
	if (!s->is_established)
		snprintf(last_error, NET_TLS_ERROR_MAX, "%s", text);
	net_tls_refuse_input(s->base.conn);
	net_tls_flush(s); /* the alert */
	return err;
}

cold int net_tls_fail(struct net_tls_session *s, const char *why)
{
	char text[NET_TLS_ERROR_MAX];
	int err;

	if (why)
		return net_tls_fail_as(s, -EPROTO, why);
	err = describe_error(s, s->ssl, text);
	return net_tls_fail_as(s, err, text);
}

/* ---- memory ---- */

static void charge(struct net_tls_session *s, uint32_t bytes)
{
	net_budget_charge((int64_t)bytes - s->base.held);
	s->base.held = bytes;
}

static uint32_t measure_cert(const X509 *cert)
{
	int len = cert ? i2d_X509(cert, NULL) : 0;

	return len > 0 ? CERT_BYTES + CERT_FACTOR * (uint32_t)len : 0;
}

/*
 * OpenSSL keeps the peer's certificates as long as the session. A server's list
 * is without the client's own.
 */
uint32_t net_tls_chain_bytes(const SSL *ssl)
{
	STACK_OF(X509) *chain = SSL_get_peer_cert_chain(ssl);
	uint32_t bytes = 0;

	if (SSL_is_server(ssl))
		bytes = measure_cert(SSL_get0_peer_certificate(ssl));
	for (int i = 0; i < sk_X509_num(chain); i++)
		bytes += measure_cert(sk_X509_value(chain, i));
	return bytes;
}

void net_tls_charge_open(struct net_tls_session *s)
{
	uint32_t bytes = OPEN_BYTES + s->chain_bytes;

	if (!s->ssl)
		return;
	if (SSL_has_pending(s->ssl))
		bytes += PART_BYTES;
	if (bytes != s->base.held)
		charge(s, bytes);
}

bool net_tls_add_chunk(struct net_tls_session *s, size_t cap)
{
	struct net_tls_chunk *chunk = net_mem_malloc(sizeof(*chunk) + cap);

	if (!chunk)
		return false;
	*chunk = (struct net_tls_chunk){.cap = (uint32_t)cap};
	*s->out_end = chunk;
	s->out_end = &chunk->next;
	return true;
}

static void free_chunks(struct net_tls_session *s)
{
	while (s->out) {
		struct net_tls_chunk *chunk = s->out;

		s->out = chunk->next;
		net_mem_free(chunk);
	}
	s->out_end = &s->out;
	s->out_bytes = 0;
}

static void enter_list(struct net_conn_tls *tls)
{
	tls->next = net_here()->tls_conns;
	tls->pprev = &net_here()->tls_conns;
	if (tls->next)
		tls->next->pprev = &tls->next;
	net_here()->tls_conns = tls;
}

static void leave_list(struct net_conn_tls *tls)
{
	if (!tls->pprev)
		return;
	*tls->pprev = tls->next;
	if (tls->next)
		tls->next->pprev = tls->pprev;
	tls->pprev = NULL;
}

void net_tls_forget(struct net_conn *conn)
{
	struct net_tls_session *s = net_tls_of(conn);

	/* OpenSSL takes a connection without close_notify for a failed one,
	 * whose session must not be resumed. */
	if (s->ssl && !s->err && s->is_established)
		SSL_set_shutdown(s->ssl, SSL_SENT_SHUTDOWN);
	SSL_free(s->ssl); /* and its BIO */
	s->ssl = NULL;
	net_tls_free(s->client);
	s->client = NULL;
	free_chunks(s);
	net_tls_clear_plain(s);
	if (s->error)
		net_mem_free(s->error);
	s->error = NULL;
	charge(s, 0);
	leave_list(&s->base);
	net_tls_leave_turns(s);
}

/* Moves the connection's net_conn_ext into the session. */
static void adopt_ext(struct net_tls_session *s, struct net_conn *conn)
{
	const struct net_conn_ext *was = conn->ext;
	struct net_conn_ext *ext = &s->base.base.all.ext;
	bool had_timeout = was->has_user_timeout;

	memcpy(&s->base.base, was,
	       had_timeout	   ? sizeof(s->base.base)
	       : was->has_counters ? sizeof(struct net_counted)
				   : sizeof(*was));
	ext->has_user_timeout = true;
	if (ext->pollers) /* the list's head moves */
		ext->pollers->pprev = &ext->pollers;
	if (was != &net_conn_no_ext)
		net_mem_free((void *)(uintptr_t)was);
	conn->ext = ext;
	if (!had_timeout)
		net_user_timeout_init(conn);
	conn->shard |= NET_SHARD_TLS;
}

static int open_session(struct net_conn *conn, struct net_tls *tls)
{
	struct net_tls_session *s = net_mem_calloc(1, sizeof(*s));
	BIO *bio;

	if (!s)
		return -ENOMEM;
	s->base.calls = &net_tls_table;
	s->base.conn = conn;
	s->out_end = &s->out;
	s->ssl = SSL_new(tls->pairs[0]);
	bio = s->ssl ? net_tls_bio_new(s) : NULL;
	if (!bio) {
		SSL_free(s->ssl);
		net_mem_free(s);
		ERR_clear_error();
		return -ENOMEM;
	}
	SSL_set_bio(s->ssl, bio, bio);
	SSL_set_app_data(s->ssl, s);
	adopt_ext(s, conn);
	enter_list(&s->base);
	charge(s, HELLO_BYTES);
	return 0;
}

/* ---- the handshake ---- */

/* Waits for bytes of the peer. Returns 0, or why none will come. */
static int wait_for_hello(struct net_conn *conn)
{
	long state;

	while ((state = net_conn_read_state(conn)) == NET_VIEW_WAIT) {
		int err = net_conn_wait(conn, &conn->reader,
					conn->ext->read_deadline);

		if (err == 0)
			err = net_conn_enter(conn, NULL);
		if (err < 0)
			return err;
	}
	if (state == 0)
		return net_tls_fail(net_tls_of(conn),
				    "the peer closed during the handshake");
	return state < 0 ? (int)state : 0;
}

int net_tls_do_step(struct net_tls_session *s, SSL *ssl, char *text)
{
	int result, code;

	net_tls_begin(s);
	result = SSL_do_handshake(ssl);
	if (result == 1)
		return 1;
	code = SSL_get_error(ssl, result);
	if (code == SSL_ERROR_WANT_READ)
		return 0;
	if (s->hello_bytes < NET_TLS_HELLO_MAX)
		return describe_error(s, ssl, text);
	ERR_clear_error();
	snprintf(text, NET_TLS_ERROR_MAX, "the handshake is too long");
	return -EPROTO;
}

/*
 * Out of line, like all that calls OpenSSL: its frame is off the stack when the
 * coroutine waits. Returns as net_tls_do_step().
 */
__attribute__((noinline)) static int step_handshake(struct net_tls_session *s)
{
	char text[NET_TLS_ERROR_MAX];
	int done;

	if (!s->ssl) /* it was reset: net_conn_discard() */
		return s->base.conn->err ? s->base.conn->err : -ENOTCONN;
	done = net_tls_do_step(s, s->ssl, text);
	return done < 0 ? net_tls_fail_as(s, done, text) : done;
}

/* A step here, or on another thread if the context asks for that. */
static int take_step(struct net_conn *conn, const struct net_tls *tls)
{
	int done = tls->offload ? net_tls_offload_step(conn) : -EAGAIN;
	int err = 0;

	if (done == -EAGAIN) {
		err = net_tls_wait_turn(conn);
		return err < 0 ? err : step_handshake(net_tls_of(conn));
	}
	if (done != -EBADF)
		err = net_tls_check_open(conn);
	return err < 0 ? err : done;
}

static int run_handshake(struct net_conn *conn, const struct net_tls *tls)
{
	int done = 0, err = 0;

	while (done == 0 && err == 0) {
		done = take_step(conn, tls);
		if (done < 0)
			return done;
		err = net_tls_flush_all(conn);
		if (err == 0 && done == 0)
			err = wait_for_hello(conn);
	}
	return err;
}

static void settle_handshake(struct net_conn *conn, int err)
{
	struct net_tls_session *s = net_tls_of(conn);

	if (err < 0) {
		net_here()->stats.tls_failed++;
		if (err != -EPROTO)
			snprintf(last_error, sizeof(last_error), "%s",
				 strerror(-err));
		return;
	}
	net_here()->stats.tls_handshakes++;
	net_here()->stats.tls_resumed += SSL_session_reused(s->ssl) == 1;
	s->is_established = true;
	s->chain_bytes = net_tls_chain_bytes(s->ssl);
	net_tls_charge_open(s);
}

/* Runs the handshake with its own deadline in place of the connection's. */
static int bounded_handshake(struct net_conn *conn, struct net_tls *tls,
			     int64_t deadline_ns)
{
	struct net_conn_ext *ext = net_conn_ext(conn);
	int64_t read_ns = ext->read_deadline, write_ns = ext->write_deadline;
	struct net_tls_source *source = net_tls_count(tls, conn);
	/* also if the coroutine is ended in the handshake */
	int err = coro_cleanup_push(net_tls_uncount, source);

	if (err < 0) {
		net_tls_uncount(source);
		return err;
	}
	ext->read_deadline = LWIP_MIN(read_ns, deadline_ns);
	ext->write_deadline = LWIP_MIN(write_ns, deadline_ns);
	err = run_handshake(conn, tls);
	coro_cleanup_pop(true);
	if (err == -EBADF)
		return err; /* it is gone */
	ext->read_deadline = read_ns;
	ext->write_deadline = write_ns;
	settle_handshake(conn, err);
	return err;
}

static int check_conn(const struct net_conn *conn)
{
	int err = net_conn_enter(conn, conn ? conn->reader : NULL);

	if (err == 0)
		err = net_conn_enter(conn, conn->writer);
	if (err < 0)
		return err;
	if (net_is_tls(conn) || conn->n_views || conn->watched)
		return -EINVAL;
	if (!coro_self())
		return -EPERM;
	if (conn->err)
		return conn->err;
	return !conn->pcb_live || conn->rd_shut || conn->wr_shut ? -ENOTCONN
								 : 0;
}

static int begin_session(struct net_conn *conn, struct net_tls *tls)
{
	int err = check_conn(conn);

	if (err == 0)
		err = net_tls_admit(tls, conn);
	return err < 0 ? err : open_session(conn, tls);
}

static int accept_until(struct net_conn *conn, struct net_tls *tls)
{
	int err = begin_session(conn, tls);

	if (err < 0)
		return err;
	SSL_set_accept_state(net_tls_of(conn)->ssl);
	return bounded_handshake(conn, tls,
				 net_here()->now_ns + tls->handshake_ns);
}

int net_tls_accept(struct net_conn *conn, struct net_tls *tls)
{
	NET_CHECK_CONN(conn);
	return tls && tls->is_server ? net_call_end(accept_until(conn, tls))
				     : -EINVAL;
}

cold static void log_refusal(const struct net_conn *conn, int err)
{
	char peer[NET_ADDR_TEXT_MAX];
	struct net_addr addr = net_peer_addr(conn);

	net_log_seldom_of(NET_COMPONENT_LISTEN,
			  "coronet: TLS handshake with %s failed: %s",
			  net_addr_format(&addr, peer, sizeof(peer)),
			  err == -EPROTO ? last_error : strerror(-err));
}

/* Before a handler: the connection is closed if there will be none. */
int net_tls_do_accept(struct net_conn *conn, struct net_tls *tls)
{
	int err = accept_until(conn, tls);

	if (err == 0)
		return 0;
	if (err != -EBADF && err != -ECANCELED && err != -EOWNERDEAD)
		log_refusal(conn, err);
	if (err == -EPROTO)
		net_close(conn); /* behind the alert */
	else
		net_abort(conn);
	return err;
}

/* ---- the client's side ---- */

static bool is_address(const char *name, struct net_addr *addr)
{
	return net_addr_parse(name, 0, addr) == 0;
}

/*
 * Sets what is asked for, and what the certificate must be for: a name without
 * the dot that may end it (RFC 6066 3).
 */
static int set_name(SSL *ssl, const char *name, const struct net_addr *peer)
{
	struct net_addr addr = *peer;
	char host[NET_TLS_NAME_MAX + 1];
	bool ok;

	if (name && !is_address(name, &addr)) {
		size_t len = strlen(name);

		snprintf(host, sizeof(host), "%.*s",
			 (int)len - (name[len - 1] == '.'), name);
		SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
		ok = SSL_set1_host(ssl, host) &&
		     SSL_set_tlsext_host_name(ssl, host);
	} else {
		ok = X509_VERIFY_PARAM_set1_ip(SSL_get0_param(ssl), addr.ip,
					       addr.family == 6 ? 16 : 4);
	}
	ERR_clear_error();
	return ok ? 0 : -ENOMEM;
}

int net_tls_do_connect(struct net_conn *conn, struct net_tls *tls,
		       const char *name, int64_t deadline_ns)
{
	struct net_addr peer;
	int err;

	if (!tls || tls->is_server ||
	    (name && (!*name || strcmp(name, ".") == 0 ||
		      strlen(name) > NET_TLS_NAME_MAX)))
		return -EINVAL;
	err = begin_session(conn, tls);
	if (err < 0)
		return err;
	peer = net_peer_addr(conn);
	err = set_name(net_tls_of(conn)->ssl, name, &peer);
	if (err < 0)
		return err;
	/* A session is for a name, or for the address that was dialed. */
	if (tls->max_sessions &&
	    !(name && is_address(name, &(struct net_addr){0})))
		net_tls_resume(net_tls_of(conn), tls, &peer);
	SSL_set_connect_state(net_tls_of(conn)->ssl);
	return bounded_handshake(
		conn, tls,
		LWIP_MIN(deadline_ns, net_here()->now_ns + tls->handshake_ns));
}

int net_tls_connect(struct net_conn *conn, struct net_tls *tls,
		    const char *name)
{
	NET_CHECK_CONN(conn);
	return net_call_end(net_tls_do_connect(conn, tls, name, CORO_FOREVER));
}
