/*
 * Any bytes as a lease file: none beyond them is read, and a line that is taken
 * is the one that would be written.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "netstack/link/lease_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct net_lease_record record;
	char text[NET_LEASE_TEXT_MAX], *bytes = malloc(size ? size : 1);
	int err;

	assert(bytes);
	memcpy(bytes, data, size);
	err = net_lease_parse(bytes, size, &record);
	assert(err == 0 || err == -EBADMSG);
	if (err == 0) {
		assert(record.expires_s >= 0);
		assert(net_lease_format(&record, text) == size);
		assert(memcmp(text, bytes, size) == 0);
	}
	free(bytes);
	return 0;
}
