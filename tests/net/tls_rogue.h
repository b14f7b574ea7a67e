/*
 * A client made of OpenSSL alone, over a connection in plaintext, that sends
 * what the stack under test never would.
 */
#pragma once

#include <openssl/ssl.h>

#include "tests/net/tls_pair.h"

struct rogue {
	struct net_conn *conn;
	SSL_CTX *ctx;
	SSL *ssl;
	BIO *in, *out; /* owned by ssl */
	/* set by rogue_steal_keys(), of TLS 1.2 */
	uint8_t key[16], salt[4];
	uint64_t sequence; /* of the next record */
};

extern long rogue_end;		     /* result of the last rogue_fill() */
extern void (*rogue_tune)(SSL *ssl); /* called before a handshake; or NULL */

/* A connection to port 7 without TLS. */
struct net_conn *rogue_dial(void);
/* Sends a ClientHello. */
void rogue_begin(struct rogue *rogue, int version);
/* Does a handshake; version: TLS1_2_VERSION, with AES128-GCM, or above. */
void rogue_open(struct rogue *rogue, int version);
/* Sends what OpenSSL has written. */
void rogue_flush(struct rogue *rogue);
/* Receives once. Returns false at the end or after an error. */
bool rogue_fill(struct rogue *rogue);
/* Receives to the end. Closes, and counts in `ended`. */
void rogue_close(struct rogue *rogue);
/* Sends close_notify, then does the same. */
void rogue_shut(struct rogue *rogue);
/* rogue_close() for a connection that is closed already. */
void rogue_forget(struct rogue *rogue);

/* Call rogue_seal() in place of SSL_write() from now on. */
void rogue_steal_keys(struct rogue *rogue);
/*
 * Encrypts a record of any type, at most 1,024 bytes. Returns its length; out
 * has len + 29 bytes.
 */
size_t rogue_seal(struct rogue *rogue, uint8_t type, const void *data,
		  size_t len, uint8_t *out);
