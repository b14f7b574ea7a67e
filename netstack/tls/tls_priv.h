/*
 * TLS: contexts, sessions, and the passage of records between OpenSSL and the
 * connection's queues.
 *
 * OpenSSL never waits: it reads what has come and writes to chunks of the
 * session. The call waits afterwards, when OpenSSL's frames are off the stack.
 * Nothing of a session but what other shards' contexts share inside OpenSSL is
 * used by another thread.
 */
#pragma once

#include <coronet/net_tls.h>

#include <pthread.h>
#include <stdatomic.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "netstack/api/api.h"

/* ---- heap.c ---- */
/*
 * Has OpenSSL allocate where core dumps do not look; logs it if that is too
 * late. From any thread.
 */
void net_tls_heap_use(void);
/* As for CRYPTO_set_mem_functions(). */
void *net_tls_heap_malloc(size_t n, const char *file, int line);
void *net_tls_heap_realloc(void *mem, size_t n, const char *file, int line);
void net_tls_heap_free(void *mem, const char *file, int line);

/* ---- pem.c ---- */
/*
 * Give a context what a file has: a certificate and those that lead to its CA;
 * a key, which has to be the certificate's. Return false, with OpenSSL's error
 * or none.
 */
bool net_tls_use_certificates(SSL_CTX *ctx, const char *path);
bool net_tls_use_key(SSL_CTX *ctx, const char *path);

/* ---- ticket.c ---- */
#define NET_TLS_TICKET_S 7200 /* a session may be resumed this long */
#define NET_TLS_MAX_KEYS 16u
#define NET_TLS_NAME_MAX 255u
/* Sessions with more of the peer's certificates (charged bytes) are not kept.
 */
#define NET_TLS_KEPT_CHAIN_MAX (64u << 10)

/* As in a file: the bytes that nginx takes. */
struct net_tls_key {
	unsigned char name[16], mac[32], aes[32];
};
static_assert(sizeof(struct net_tls_key) == 80, "a key of a file");

/* In OpenSSL's memory (heap.c). */
struct net_tls_keys {
	pthread_mutex_t lock;
	bool from_file; /* they are not replaced */
	unsigned n;
	time_t made_s;				  /* when the first was made */
	struct net_tls_key all[NET_TLS_MAX_KEYS]; /* the first encrypts */
};

/* ---- context.c ---- */
struct net_tls {
	const struct net_tls_calls *calls; /* first: see conn/tls.h */
	_Atomic unsigned refs; /* its owner, and handshakes under way */
	bool is_server;
	unsigned n_pairs;
	SSL_CTX *pairs[NET_TLS_MAX_PAIRS]; /* owned; the first is the default */
	char *names[NET_TLS_MAX_PAIRS];	   /* lower case, "a\0*.b\0\0"; owned */
	struct net_tls_staple *staples[NET_TLS_MAX_PAIRS]; /* owned; or NULL */
	unsigned char alpn[256]; /* each name behind its length */
	unsigned alpn_len;
	struct net_tls_keys *keys; /* of a server; owned; NULL: none */
	unsigned max_sessions;	   /* of a client, on each shard */
	struct net_tls_kept *kept[NET_MAX_SHARDS]; /* owned; each its shard's */
	unsigned kept_turns[NET_MAX_SHARDS];
	int64_t handshake_ns;
	unsigned max_handshakes, max_per_source;
	/* Those under way; each its shard's. */
	unsigned handshakes[NET_MAX_SHARDS];
	struct net_tls_source *sources[NET_MAX_SHARDS]; /* owned; or NULL */
	bool offload; /* handshakes run on the threads of net_offload() */
	int key_log;  /* descriptor; -1: none */
};
/* Adds the function that chooses a certificate by name. */
void net_tls_choose_by_name(struct net_tls *tls);

/* ticket.c: makes the keys of a server, or reads them: 0 or -errno. */
int net_tls_make_keys(struct net_tls *tls, const char *path);
void net_tls_free_keys(struct net_tls *tls);
/* Has a server's context issue tickets. Returns false without memory. */
bool net_tls_issue_tickets(struct net_tls *tls, SSL_CTX *ctx);
/* Has a client's context keep sessions. */
void net_tls_keep_sessions(SSL_CTX *ctx);
void net_tls_free_sessions(struct net_tls *tls);

/* ---- staple.c ---- */
struct net_tls_staple {
	time_t until; /* when it expires, by the wall clock */
	int len;
	unsigned char der[];
};
/*
 * Has a server's context send the OCSP response of a file. Returns 0 with
 * *out to be freed, after the context, by free(); or -errno, and -EINVAL with
 * *why.
 */
int net_tls_staple(SSL_CTX *ctx, const char *path, struct net_tls_staple **out,
		   const char **why);

/* ---- admit.c ---- */
struct net_tls_source {
	struct net_tls *tls;
	unsigned n; /* handshakes under way */
};
/*
 * Returns 0 if a handshake may begin, -EUSERS if there are too many, or
 * -ENOMEM.
 */
int net_tls_admit(struct net_tls *tls, const struct net_conn *conn);
/* Counts a handshake that was admitted, until net_tls_uncount(the result). */
struct net_tls_source *net_tls_count(struct net_tls *tls,
				     const struct net_conn *conn);
void net_tls_uncount(void *arg);

/* ---- key_log.c ---- */
/*
 * Opens the file that gets the secrets of tls: 0 or -errno. NULL: none.
 */
int net_tls_open_key_log(struct net_tls *tls, const char *path);
/* Has a context of tls write to it. */
void net_tls_log_keys(const struct net_tls *tls, SSL_CTX *ctx);

/* ---- session.c ---- */
#define NET_TLS_ERROR_MAX 192u

/* Encrypted bytes that TCP has not taken yet. */
struct net_tls_chunk {
	struct net_tls_chunk *next;
	uint32_t off, len, cap;
	uint8_t data[];
};

/* What a connection with TLS has; conn->ext. Freed with the connection. */
struct net_tls_session {
	struct net_conn_tls base; /* first */
	SSL *ssl;		  /* owned; NULL: forgotten */
	struct pbuf *rx_tail;	  /* plaintext, like net_conn.rx_tail */
	uint16_t rx_off;
	struct net_tls_step *step; /* under way in another thread, or NULL */
	int16_t err;	     /* negative errno: it has failed; 0: it has not */
	bool is_established; /* the handshake is done */
	bool is_ended;	     /* the peer sent close_notify */
	bool has_said_end;   /* we did */
	bool is_starved;     /* OpenSSL wanted more bytes than have come */
	bool is_short;	     /* there was no memory for OpenSSL's output */
	uint8_t bare;	     /* records without data in a row */
	struct net_tls *client; /* a reference, if it keeps sessions; or NULL */
	uint32_t chain_bytes;	/* charged for the peer's certificates */
	uint32_t out_bytes;
	uint32_t hello_bytes; /* received before it was established */
	struct net_tls_chunk *out, **out_end;
	char *error; /* NET_TLS_ERROR_MAX bytes; owned; NULL: none */
	/* turn.c's queue; turn_pprev NULL: not in it. */
	struct net_tls_session *turn_next, **turn_pprev;
};
static_assert(sizeof(struct net_tls_session) <= 384, "a class of slabs");

static inline struct net_tls_session *net_tls_of(const struct net_conn *conn)
{
	return (struct net_tls_session *)(void *)net_conn_tls(conn);
}

/* The calls, for contexts. */
extern const struct net_tls_calls net_tls_table
	__attribute__((visibility("hidden")));

/*
 * Notes why the session has failed: by OpenSSL's error queue, or by `why`.
 * Returns s->err, which is -ENOMEM if OpenSSL lacked memory.
 */
int net_tls_fail(struct net_tls_session *s, const char *why);
/* Notes an error, and NET_TLS_ERROR_MAX bytes that describe it. Returns it. */
int net_tls_fail_as(struct net_tls_session *s, int err, const char *text);
/* Discards bytes that were received and not decrypted. */
void net_tls_refuse_input(struct net_conn *conn);
/* The text of the last handshake that failed on this shard. */
const char *net_tls_last_error(void);
/* Charges the budget for a session whose handshake is done. */
void net_tls_charge_open(struct net_tls_session *s);
/* Before each call of OpenSSL that reads or writes. */
static inline void net_tls_begin(struct net_tls_session *s)
{
	ERR_clear_error();
	s->is_starved = s->is_short = false;
}

/* Adds a chunk with room for cap bytes. Returns false without memory. */
bool net_tls_add_chunk(struct net_tls_session *s, size_t cap);
/* Frees what the session holds, except its own memory. */
void net_tls_forget(struct net_conn *conn);
int net_tls_do_accept(struct net_conn *conn, struct net_tls *tls);
int net_tls_do_connect(struct net_conn *conn, struct net_tls *tls,
		       const char *name, int64_t deadline_ns);

/*
 * A step of a handshake: 1 (done), 0 (more bytes are needed), or an error, with
 * NET_TLS_ERROR_MAX bytes of text. Uses nothing of the shard but, if there is
 * no s->step, the connection.
 */
int net_tls_do_step(struct net_tls_session *s, SSL *ssl, char *text);

/* ---- turn.c ---- */
/* Returns why a handshake that has waited cannot go on, or 0. */
int net_tls_check_open(const struct net_conn *conn);
/*
 * Blocks until the connection's handshake may do a step on this thread. Returns
 * 0 or an error of calls that read; after -EBADF, the connection may be freed.
 */
int net_tls_wait_turn(struct net_conn *conn);
/* A session that does not wait for a turn any more. */
void net_tls_leave_turns(struct net_tls_session *s);

/* ---- offload.c ---- */
/* A step that another thread does. */
struct net_tls_step {
	struct net_conn *conn; /* NULL: nothing waits for the step */
	SSL *ssl;	       /* owned until it has been done */
	uint8_t *out;	       /* what it wrote; of OpenSSL's memory */
	size_t out_len, in_len, in_off;
	int result; /* of net_tls_do_step() */
	char error[NET_TLS_ERROR_MAX];
	uint8_t in[]; /* what had come */
};
/*
 * Does a step of a handshake on a thread of net_offload(), and blocks: 1, 0, or
 * an error. -EAGAIN: it was not done, and can be done here.
 */
int net_tls_offload_step(struct net_conn *conn);
/* For the BIO: read what had come, and add to what is written. */
size_t net_tls_step_read(struct net_tls_step *step, void *buf, size_t len);
bool net_tls_step_write(struct net_tls_step *step, const void *data,
			size_t len);

/* Bytes charged for the certificates that the peer has sent. */
uint32_t net_tls_chain_bytes(const SSL *ssl);
/* ticket.c: tries to resume a session with the peer, and keeps the next one. */
void net_tls_resume(struct net_tls_session *s, struct net_tls *tls,
		    const struct net_addr *peer);

/* ---- bio.c ---- */
/* A handshake may bring this many bytes; certificates are most of them. */
#define NET_TLS_HELLO_MAX 131072u
/* The BIO of a session; NULL without memory. */
BIO *net_tls_bio_new(struct net_tls_session *s);
/* Drops received bytes, len of them if there are so many. */
void net_tls_drop_input(struct net_conn *conn, size_t len);
/* Adds to the session's chunks. Returns false without memory. */
bool net_tls_queue(struct net_tls_session *s, const void *from, size_t len);

/* ---- read.c ---- */
/*
 * Like net_conn_read_state(), for plaintext: decrypts if there is none. Never
 * blocks. Also returns -ENOMEM: the bytes can be read later.
 */
long net_tls_read_state(struct net_tls_session *s);
void net_tls_clear_plain(struct net_tls_session *s);
long net_tls_recvv(struct net_conn *conn, const struct iovec *iov, unsigned n,
		   long total);
long net_tls_recv_full(struct net_conn *conn, void *buf, size_t len);
long net_tls_recv_until(struct net_conn *conn, void *buf, size_t len,
			const void *delim, size_t delim_len);
long net_tls_recv_view(struct net_conn *conn, struct net_view *view);
long net_tls_peek(struct net_conn *conn, void *buf, size_t len);

/* ---- write.c ---- */
/*
 * Passes chunks to TCP. Returns 1 if none is left, 0 if the rest waits for
 * room, or an error of calls that write.
 */
long net_tls_flush(struct net_tls_session *s);
/* Waits until TCP has all chunks. Returns 0, or an error of calls that write.
 */
int net_tls_flush_all(struct net_conn *conn);
long net_tls_sendv(struct net_conn *conn, const struct iovec *iov, unsigned n,
		   long total, bool all);
long net_tls_writable(struct net_conn *conn);
/* Plaintext that can be sent now; 0: the writer waits. */
size_t net_tls_room(struct net_tls_session *s, size_t want);

/* ---- end.c ---- */
int net_tls_shut(struct net_conn *conn, enum net_shut how);
enum net_end net_tls_close(struct net_conn *conn);
unsigned net_tls_events(const struct net_conn *conn, unsigned wanted);
