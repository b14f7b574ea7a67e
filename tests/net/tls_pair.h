/*
 * Two ends of a TLS connection in one stack, and a relay between them that
 * can cut, end or damage the stream.
 */
#pragma once

#include <coronet/net_tls.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"
#include "tests/net/tls_certs.h"

/* The options of the next contexts; tls_setup() sets defaults. */
extern struct net_tls_opts server_opts, client_opts;
extern struct net_tls *server_tls, *client_tls;
/* Of the next dial: tls_setup() sets tls and the name "server.test". */
extern struct net_dial_opts dial_opts;
extern struct net_addr dial_addr; /* family 0: port 7, or the relay */
/* Results of the last life: of net_dial(), and texts of both sides. */
extern int dialed;
extern char dial_error[256], serve_error[256];

/* cmocka's: a stack with a listener at port 7 that has a context; its end
 * checks that no memory is left. */
int tls_setup(void **state);
int tls_teardown(void **state);
/* Makes the contexts again, from the present options. */
void tls_remake(void);

/*
 * One life: `server` handles the connection that `client` dials. Both are
 * called only after a handshake that succeeded. Runs until both are over.
 */
void tls_run(net_handler server, net_handler client);
/* Starts the client alone, and counts in `ended`. */
void tls_start(net_handler client);
/* Runs rounds of a microsecond until `ended` is `want`. */
void tls_until(unsigned want);

enum relay_direction { RELAY_TO_SERVER, RELAY_TO_CLIENT, RELAY_DIRECTIONS };

/* What the relay at port 8 does with one direction; zeros: passes it on. */
struct relay {
	bool is_used;
	size_t piece;  /* bytes at a time; 0: as they come */
	long end_at;   /* sends FIN before this byte; -1: never */
	long flip_at;  /* inverts bits of this byte; -1: never */
	long stall_at; /* pauses for 20 ms before this byte; -1: never */
	size_t passed; /* out: bytes */
};
extern struct relay relays[RELAY_DIRECTIONS];
void relay_reset(void);

/* A handler that echoes until the end: its result is in `result`. */
void echo_end(struct net_conn *conn, void *arg);
