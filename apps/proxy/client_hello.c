/* Reads the server name from a TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3). */
#include "apps/proxy/client_hello.h"

#include <stdbool.h>

#define RECORD_HANDSHAKE   22
#define RECORD_MAX	   16384 /* bytes of a plaintext record */
#define HANDSHAKE_HELLO	   1
#define EXTENSION_NAME	   0
#define NAME_HOST	   0
#define VERSION_AND_RANDOM 34
#define SESSION_ID_MAX	   32

/* The meaning of the number that is being read; in a ClientHello's order. */
enum {
	STEP_TYPE,
	STEP_LENGTH,
	STEP_SESSION_ID,
	STEP_CIPHERS,
	STEP_COMPRESSION,
	STEP_EXTENSIONS,
	STEP_EXTENSION_TYPE,
	STEP_EXTENSION_LENGTH,
	STEP_LIST_LENGTH,
	STEP_NAME_TYPE,
	STEP_NAME_LENGTH,
	STEP_NAME
};

static void expect_step(struct client_hello *h, unsigned step, unsigned need)
{
	h->step = step;
	h->need = need;
	h->number = 0;
}

void client_hello_init(struct client_hello *h)
{
	*h = (struct client_hello){.result = CLIENT_HELLO_MORE};
	expect_step(h, STEP_TYPE, 1);
}

static void end_parse(struct client_hello *h, enum client_hello_result result)
{
	h->result = result;
}

/*
 * Skips a vector of `len` bytes. Then comes `step`, if the message has room for
 * both.
 */
static void skip_bytes(struct client_hello *h, uint32_t len, unsigned step,
		       unsigned need)
{
	if (len > h->hello_left) {
		end_parse(h, CLIENT_HELLO_NOT);
		return;
	}
	h->skip = len;
	expect_step(h, step, need);
}

/* Expects the next extension, or ends after them all. */
static void next_extension(struct client_hello *h)
{
	if (h->extensions_left == 0)
		end_parse(h, CLIENT_HELLO_NO_NAME);
	else if (h->extensions_left < 4)
		end_parse(h, CLIENT_HELLO_NOT);
	else
		expect_step(h, STEP_EXTENSION_TYPE, 2);
}

static void begin_extension(struct client_hello *h, uint32_t len)
{
	h->extensions_left -= 4;
	if (len > h->extensions_left) {
		end_parse(h, CLIENT_HELLO_NOT);
		return;
	}
	h->extensions_left -= len;
	if (h->extension == EXTENSION_NAME) {
		h->extension_left = len;
		if (len < 2)
			end_parse(h, CLIENT_HELLO_NOT);
		else
			expect_step(h, STEP_LIST_LENGTH, 2);
		return;
	}
	next_extension(h);
	h->skip = len;
}

/* Expects a name of the list: type and length, three bytes. */
static void next_name(struct client_hello *h)
{
	if (h->list_left == 0)
		end_parse(h, CLIENT_HELLO_NO_NAME);
	else if (h->list_left < 3)
		end_parse(h, CLIENT_HELLO_NOT);
	else
		expect_step(h, STEP_NAME_TYPE, 1);
}

static void begin_name(struct client_hello *h, uint32_t len)
{
	h->list_left -= 3;
	/* There is one kind of name, and the list has one (RFC 6066 3). */
	if (len == 0 || len != h->list_left || len >= SERVER_NAME_MAX) {
		end_parse(h, CLIENT_HELLO_NOT);
		return;
	}
	h->name_len = 0;
	expect_step(h, STEP_NAME, len);
}

/* Takes a byte of a name, which has to be visible ASCII. */
static void take_name_byte(struct client_hello *h, uint8_t byte)
{
	if (byte >= 'A' && byte <= 'Z')
		byte = (uint8_t)(byte - 'A' + 'a');
	if (byte <= ' ' || byte >= 0x7f) {
		end_parse(h, CLIENT_HELLO_NOT);
		return;
	}
	h->name[h->name_len++] = (char)byte;
	if (--h->need == 0) {
		/* The final dot of a name has no meaning. */
		if (h->name_len > 1 && h->name[h->name_len - 1] == '.')
			h->name_len--;
		h->name[h->name_len] = '\0';
		end_parse(h, CLIENT_HELLO_NAME);
	}
}

/* Takes a number that has been read. */
static void take_number(struct client_hello *h, uint32_t n)
{
	switch (h->step) {
	case STEP_TYPE:
		if (n != HANDSHAKE_HELLO)
			end_parse(h, CLIENT_HELLO_NOT);
		else
			expect_step(h, STEP_LENGTH, 3);
		break;
	case STEP_LENGTH:
		h->hello_left = n;
		skip_bytes(h, VERSION_AND_RANDOM, STEP_SESSION_ID, 1);
		break;
	case STEP_SESSION_ID:
		if (n > SESSION_ID_MAX)
			end_parse(h, CLIENT_HELLO_NOT);
		else
			skip_bytes(h, n, STEP_CIPHERS, 2);
		break;
	case STEP_CIPHERS:
		if (n == 0 || n & 1)
			end_parse(h, CLIENT_HELLO_NOT);
		else
			skip_bytes(h, n, STEP_COMPRESSION, 1);
		break;
	case STEP_COMPRESSION:
		if (n == 0)
			end_parse(h, CLIENT_HELLO_NOT);
		else
			skip_bytes(h, n, STEP_EXTENSIONS, 2);
		break;
	case STEP_EXTENSIONS:
		/* The extensions are the rest of the message. */
		h->extensions_left = n;
		if (n != h->hello_left)
			end_parse(h, CLIENT_HELLO_NOT);
		else
			next_extension(h);
		break;
	case STEP_EXTENSION_TYPE:
		h->extension = (uint16_t)n;
		expect_step(h, STEP_EXTENSION_LENGTH, 2);
		break;
	case STEP_EXTENSION_LENGTH:
		begin_extension(h, n);
		break;
	case STEP_LIST_LENGTH:
		h->list_left = n;
		if (n != h->extension_left - 2)
			end_parse(h, CLIENT_HELLO_NOT);
		else
			next_name(h);
		break;
	case STEP_NAME_TYPE:
		if (n != NAME_HOST)
			end_parse(h, CLIENT_HELLO_NOT);
		else
			expect_step(h, STEP_NAME_LENGTH, 2);
		break;
	default: /* STEP_NAME_LENGTH */
		begin_name(h, n);
		break;
	}
}

/* Without extensions the message ends where their length would stand. */
static bool ends_without_extensions(const struct client_hello *h)
{
	return h->step == STEP_EXTENSIONS && h->need == 2 && h->skip == 0;
}

/* Takes a byte of the message: once past its length, hello_left is not 0. */
static void take_byte(struct client_hello *h, uint8_t byte)
{
	if (h->step > STEP_LENGTH)
		h->hello_left--;
	if (h->skip) {
		h->skip--;
	} else if (h->step == STEP_NAME) {
		take_name_byte(h, byte);
	} else {
		h->number = h->number << 8 | byte;
		if (--h->need == 0)
			take_number(h, h->number);
	}
	if (h->result == CLIENT_HELLO_MORE && h->step > STEP_LENGTH &&
	    h->hello_left == 0)
		end_parse(h, ends_without_extensions(h) ? CLIENT_HELLO_NO_NAME
							: CLIENT_HELLO_NOT);
}

/* Takes a byte of a record's header: type, version 3.x, length. */
static void take_header(struct client_hello *h, uint8_t byte)
{
	switch (h->record_at++) {
	case 0:
		if (byte != RECORD_HANDSHAKE)
			end_parse(h, CLIENT_HELLO_NOT);
		break;
	case 1:
		if (byte != 3)
			end_parse(h, CLIENT_HELLO_NOT);
		break;
	case 2:
		break;
	case 3:
		h->record_left = (unsigned)byte << 8;
		break;
	default:
		h->record_left |= byte;
		h->record_at = 0;
		/* An empty record of handshake is forbidden (5.1). */
		if (h->record_left == 0 || h->record_left > RECORD_MAX)
			end_parse(h, CLIENT_HELLO_NOT);
	}
}

enum client_hello_result client_hello_feed(struct client_hello *h,
					   const void *data, size_t len)
{
	const uint8_t *at = data;

	for (; len && h->result == CLIENT_HELLO_MORE; at++, len--) {
		if (h->taken++ == CLIENT_HELLO_MAX) {
			end_parse(h, CLIENT_HELLO_NOT);
		} else if (h->record_at || h->record_left == 0) {
			take_header(h, *at);
		} else {
			h->record_left--;
			take_byte(h, *at);
		}
	}
	return h->result;
}
