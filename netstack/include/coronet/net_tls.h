/*
 * TLS 1.2 and 1.3 for the connections of coronet/net.h, by OpenSSL.
 *
 * A connection with TLS takes the same calls with the same results as one
 * without: what they read and write is plaintext. docs/tls.md has what works.
 * In addition, a call that reads, writes or waits for such a connection can
 * return
 *   -EPROTO  the peer broke the protocol, sent an alert, or sent FIN without
 *            close_notify, so that data may be missing; net_tls_error() says
 *            which. The connection cannot be used any more, and is to be
 *            closed.
 * net_shutdown(conn, NET_SHUT_WR), net_close(), net_close_wait() and the return
 * of a handler send close_notify (RFC 8446 6.1) before the FIN; a call that
 * reads returns 0 only after the peer's close_notify. net_shutdown() can return
 * -ENOMEM: TCP was not shut, and the call can be repeated. net_close() sends
 * RST in that case. After a call that writes has failed, bytes may have been
 * queued, also with net_send(). net_send_owned() encrypts the bytes before it
 * returns, so it releases the buffer at the end of the round. The counters of
 * net_conn_stats() are TCP's.
 *
 * Threads, pointers and results are as in coronet/net.h.
 */
#pragma once

#include <coronet/net.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define NET_TLS_MAX_PAIRS    64
#define NET_TLS_MAX_SESSIONS 256

/* Files in PEM: a certificate with those that lead to its CA, and its key. */
struct net_tls_pair {
	const char *cert, *key;
};

/* What is required of the peer's certificate. */
enum net_tls_verify {
	NET_TLS_VERIFY_DEFAULT, /* a client: REQUIRE; a server: NONE */
	NET_TLS_VERIFY_NONE,	/* nothing */
	NET_TLS_VERIFY_ASK,	/* a server: a client may have none */
	NET_TLS_VERIFY_REQUIRE, /* there is one, and it is valid */
};

enum net_tls_version { NET_TLS_ANY, NET_TLS_1_2, NET_TLS_1_3 };

/* A server issues tickets, by which a client resumes a session, or none. */
enum net_tls_tickets { NET_TLS_TICKETS_ON, NET_TLS_TICKETS_OFF };

/* A zero field has its default. Borrowed until the call returns. */
struct net_tls_opts {
	/*
	 * A server has at least one pair. It chooses by the name that the
	 * client asks for (SNI): the first pair whose certificate has that
	 * name, else the first with a wildcard for it, else the first pair. A
	 * client has at most one, for servers that ask for a certificate.
	 */
	struct net_tls_pair pairs[NET_TLS_MAX_PAIRS];
	unsigned n_pairs;
	/*
	 * A server: files with OCSP responses in DER for the pairs of the same
	 * index, sent to clients that ask until they expire (OCSP stapling, RFC
	 * 6066 8); NULL: none.
	 */
	const char *ocsp[NET_TLS_MAX_PAIRS];
	/* PEM file of the CAs that sign the peer's certificates. NULL: the
	 * system's, of OpenSSL's cert.pem or the variable SSL_CERT_FILE; a
	 * server that verifies clients has no default. */
	const char *ca;
	enum net_tls_verify verify;
	enum net_tls_version min_version, max_version; /* 1.2 and 1.3 */
	/* ALPN (RFC 7301): names in order of preference, "h2,http/1.1". NULL:
	 * not used. If a client offers none of a server's, the handshake fails
	 * with the alert no_application_protocol. */
	const char *alpn;
	/* In OpenSSL's notation; NULL: Mozilla's intermediate list without
	 * DHE. ciphers: of TLS 1.2; ciphersuites: of TLS 1.3. The server's
	 * order decides, but a client that prefers ChaCha20 gets it. */
	const char *ciphers, *ciphersuites;
	/*
	 * A server's tickets are valid for two hours, on every shard. Early
	 * data is not accepted. ticket_keys: a file with 1 to 16 keys of 80
	 * random bytes, as nginx takes them; the first encrypts, all decrypt,
	 * so that tickets are valid across restarts, and for other servers with
	 * the file. NULL: the context makes its own keys, and a new one every
	 * two hours.
	 */
	enum net_tls_tickets tickets;
	const char *ticket_keys;
	/*
	 * Sessions that a client keeps on each shard, 0 to 256, to resume them
	 * with the same server, for the same name; 0: every handshake is a full
	 * one. One of TLS 1.3 is for one connection, whose server sends
	 * another. Each takes about 10 KiB, which --memory does not count.
	 */
	unsigned max_sessions;
	unsigned handshake_ms; /* a handshake may take; 10,000 */
	/* Handshakes of the context at once, divided among the shards, but one
	 * on each; 1,024. */
	unsigned max_handshakes;
	/* Of them, a server's with one IPv4 address or IPv6 /64; half of
	 * max_handshakes, at least 64. */
	unsigned handshakes_per_source;
	/*
	 * A server: handshakes run on the threads of net_offload(), so that
	 * their computing (about 0.25 ms, or 1 ms with a key of RSA) does not
	 * hold up the shard's other connections. For programs that have CPUs
	 * beside those that shards poll. A step that finds the queue of these
	 * threads full runs on the shard.
	 */
	bool offload;
	/*
	 * File to which the secrets of every connection are appended, in the
	 * format of NSS's key log, with which Wireshark decrypts a capture; it
	 * is created with mode 600. Each connection's thread writes a line at a
	 * time in its handshake, so this is for debugging. NULL: none; the
	 * variable SSLKEYLOGFILE is ignored.
	 */
	const char *key_log;
	char error[256]; /* out: one line, when a call has failed */
};

/*
 * Make a context from files, which are read now and not again. A context may be
 * used on every shard, for any number of listeners or dials. *out: owned by the
 * caller, who gives it to net_tls_free(). Block the thread; from any thread,
 * before or after a stack is open. Return 0, or with opts->error set
 *   -EINVAL  opts or out is NULL, an option is wrong, a file is not PEM, a key
 *            does not belong to its certificate or is encrypted
 *   -ENOMEM
 *   or an error of open(2) for a file
 */
int net_tls_server(struct net_tls_opts *opts, struct net_tls **out);
int net_tls_client(struct net_tls_opts *opts, struct net_tls **out);

/*
 * Frees a context, when handshakes that are under way are over. No listener may
 * have it any more (net_listener_set_tls()); open connections do not need it.
 * From any thread. NULL is ignored.
 */
void net_tls_free(struct net_tls *tls);

/*
 * Makes the connections whose handlers start from now on (net_listener_serve())
 * do a handshake of TLS first. If it fails, the handler is not called: the
 * connection is closed, counted (net_stats.tls_failed) and logged; beyond
 * max_handshakes or handshakes_per_source, or if memory is short, it is reset
 * (net_stats.tls_refused). tls: of net_tls_server(), borrowed until another one
 * replaces it, or the listener is closed and its handlers have returned.
 * net_accept() on this listener returns -EINVAL. Returns 0, -EBADF (listener is
 * NULL) or -EINVAL (tls is NULL or a client's).
 */
int net_listener_set_tls(struct net_listener *listener, struct net_tls *tls);

/*
 * Like net_serve_limited(), with TLS on all shards. tls: of net_tls_server(),
 * borrowed until the call returns. Returns also -EINVAL (tls is NULL or a
 * client's).
 */
int net_serve_tls(struct net_stack *stack, const struct net_addr *addr,
		  const struct net_limits *limits, struct net_tls *tls,
		  net_handler handler, void *arg);

/*
 * Does the server's side of a handshake on a connection in plaintext, whose
 * next bytes in both directions are TLS: one of net_accept(), or after a
 * command such as STARTTLS. Bytes of the peer that nobody has read belong to
 * the handshake. Blocks, at most for handshake_ms of the context or until the
 * connection's deadlines. With an error, conn is to be closed, except with
 * -EINVAL, -EPERM and -EBUSY. tls: borrowed until the call returns. Returns 0,
 * an error of calls that read or write, or
 *   -EINVAL    tls is NULL or a client's; conn has TLS already, unreleased
 *              views or a watch
 *   -EUSERS    max_handshakes are under way, or handshakes_per_source
 *   -EPROTO    see above
 *   -ENOMEM    memory is short
 *   -ENOTCONN  the connection has ended, or one direction is shut
 */
int net_tls_accept(struct net_conn *conn, struct net_tls *tls);

/*
 * The same for the client's side; net_dial() does it itself with
 * net_dial_opts.tls. name: what the server is asked for (SNI), and what its
 * certificate must be for, a host name (a dot at its end is left out) or an
 * address; NULL: the peer's address.
 * net_dial() and net_dial_name() return the errors of this call as well.
 * Returns also -EINVAL for a name that is none.
 */
int net_tls_connect(struct net_conn *conn, struct net_tls *tls,
		    const char *name);

/*
 * Says in one line why a connection failed with -EPROTO: the alert that the
 * peer sent, what is wrong with its certificate, or how it broke the protocol.
 * NULL instead of a connection: the same for the last handshake that failed on
 * this shard; read it before the coroutine blocks again. The text is valid
 * until then, or until the connection is closed; "" if there is none.
 */
const char *net_tls_error(const struct net_conn *conn);

/* What was agreed on in a handshake; empty texts: nothing. */
struct net_tls_info {
	char version[16];	 /* "TLSv1.3" */
	char cipher[64];	 /* in OpenSSL's notation */
	char alpn[256];		 /* RFC 7301 */
	char server_name[256];	 /* that the client asked for */
	bool resumed;		 /* a session of an earlier handshake */
	bool peer_verified;	 /* the peer's certificate is valid, or was when
				    the session began */
	char peer_subject[256];	 /* of its certificate (RFC 2253); may be cut */
	char peer_name[128];	 /* the last common name of it, if it fits */
	uint8_t peer_sha256[32]; /* of the certificate in DER; 0: none */
};

/*
 * Fills *out. Returns 0, -EBADF (conn is NULL or closed), -EINVAL (out is NULL)
 * or -ENOTCONN (the connection has no TLS, or was reset).
 */
int net_tls_info(const struct net_conn *conn, struct net_tls_info *out);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
