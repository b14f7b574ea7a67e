/*
 * Any bytes as the beginning of a TLS connection: no byte beyond them is read,
 * the result does not depend on how they are split, the length is bounded, and
 * a name has printable bytes only.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/client_hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Feeds a copy of exact size, so that ASan sees reads beyond the end. */
static enum client_hello_result feed_hello(struct client_hello *hello,
					   const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	enum client_hello_result result;

	assert(copy);
	memcpy(copy, data, size);
	result = client_hello_feed(hello, copy, size);
	free(copy);
	return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client_hello whole, cut;
	size_t at;

	if (size < 2)
		return 0;
	at = ((size_t)data[0] << 8 | data[1]) % (size - 1);
	data += 2;
	size -= 2;
	client_hello_init(&whole);
	feed_hello(&whole, data, size);
	assert(whole.taken <= CLIENT_HELLO_MAX + 1);
	assert(whole.taken <= size);
	assert(whole.result != CLIENT_HELLO_MORE || size <= CLIENT_HELLO_MAX);
	client_hello_init(&cut);
	feed_hello(&cut, data, at);
	feed_hello(&cut, data + at, size - at);
	assert(cut.result == whole.result && cut.taken == whole.taken);
	if (whole.result != CLIENT_HELLO_NAME)
		return 0;
	assert(strcmp(cut.name, whole.name) == 0);
	assert(whole.name[0] && strlen(whole.name) < SERVER_NAME_MAX);
	for (const char *c = whole.name; *c; c++)
		assert(*c > ' ' && *c < 0x7f && !(*c >= 'A' && *c <= 'Z'));
	return 0;
}
