/*
 * Reads the server name that a TLS client requests from its ClientHello (RFC
 * 8446 4.1.2, RFC 6066 3), without terminating TLS: an automaton that gets the
 * bytes as they arrive, in pieces of any size, each byte once.
 *
 * It decides after at most CLIENT_HELLO_MAX bytes. It uses no memory besides
 * the struct; any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CLIENT_HELLO_MAX 16384 /* bytes, record headers included */
#define SERVER_NAME_MAX	 256   /* RFC 6066 has DNS names: 253; NUL included */

enum client_hello_result {
	CLIENT_HELLO_MORE,    /* it may become one */
	CLIENT_HELLO_NAME,    /* `name` is the server's, in lower case */
	CLIENT_HELLO_NO_NAME, /* a ClientHello without one */
	CLIENT_HELLO_NOT      /* no TLS, a broken one, or too long */
};

struct client_hello {
	char name[SERVER_NAME_MAX];
	enum client_hello_result result;
	unsigned taken; /* bytes in all */
	/* The record (RFC 8446 5.1): bytes of its header, bytes left in it. */
	unsigned record_at, record_left;
	/* The message: what comes next, and what is left of what holds it. */
	unsigned step;
	uint32_t number;	  /* what is being read, `need` bytes to go */
	unsigned need, skip;	  /* bytes to read, to leave out */
	uint32_t hello_left;	  /* of the message */
	uint32_t extensions_left; /* of all extensions */
	uint32_t extension_left;  /* of this one */
	uint32_t list_left;	  /* of the list of names in it */
	uint16_t extension;	  /* its type */
	unsigned name_len;
};

void client_hello_init(struct client_hello *hello);

/*
 * Takes the next bytes. Once it has returned something else than
 * CLIENT_HELLO_MORE it returns the same for ever.
 */
enum client_hello_result client_hello_feed(struct client_hello *hello,
					   const void *data, size_t len);
