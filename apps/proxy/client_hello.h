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
	CLIENT_HELLO_MORE,    /* more bytes are needed */
	CLIENT_HELLO_NAME,    /* `name` is the server's, in lower case */
	CLIENT_HELLO_NO_NAME, /* a ClientHello without a server name */
	CLIENT_HELLO_NOT      /* no TLS, a broken one, or too long */
};

struct client_hello {
	char name[SERVER_NAME_MAX];
	enum client_hello_result result;
	unsigned taken; /* bytes in all */
	/* The record (RFC 8446 5.1): bytes of its header, bytes left in it. */
	unsigned record_at, record_left;
	/* The message: its next field, and bytes left in each part of it. */
	unsigned step;
	uint32_t number;	  /* the number being read, `need` bytes left */
	unsigned need, skip;	  /* bytes to read, to skip */
	uint32_t hello_left;	  /* in the message */
	uint32_t extensions_left; /* in all extensions */
	uint32_t extension_left;  /* in the current extension */
	uint32_t list_left;	  /* in the list of names in it */
	uint16_t extension;	  /* type of the current extension */
	unsigned name_len;
};

void client_hello_init(struct client_hello *hello);

/*
 * Reads the next bytes. Once it has returned another result than
 * CLIENT_HELLO_MORE, it returns that result for ever.
 */
enum client_hello_result client_hello_feed(struct client_hello *hello,
					   const void *data, size_t len);
