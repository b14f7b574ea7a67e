/*
 * Any bytes as a PROXY protocol header: no byte beyond them is read, the result
 * does not depend on how they are split, the length is bounded, and a parsed
 * header is parsed again after it was written.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/proxy_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static long parse_header(const void *data, size_t size, struct proxy_addrs *out)
{
	void *copy = malloc(size ? size : 1);
	long n;

	assert(copy);
	memcpy(copy, data, size);
	n = proxy_parse(copy, size, out);
	free(copy);
	return n;
}

/* A parsed header with TLVs is written, and parsed again. */
static void pass_tlvs(const uint8_t *header, size_t len,
		      const struct proxy_addrs *addrs)
{
	static uint8_t out[PROXY_V2_WRITE_MAX];
	static const struct proxy_tls tls = {"TLSv1.3", "cipher", "h2", "name",
					     true,	true,	  false};
	struct proxy_extra extra = {.server_name = "www.example.com"};
	struct proxy_addrs again = {0};
	size_t written;

	extra.tlvs = proxy_tlvs(header, len, &extra.tlvs_len);
	assert(!extra.tlvs == !extra.tlvs_len && extra.tlvs_len <= len);
	if (addrs->family == 0)
		return;
	written = proxy_write_tlvs(addrs, &extra, out);
	assert(written <= PROXY_V2_MAX);
	assert(proxy_parse(out, written, &again) == (long)written);
	assert(memcmp(addrs, &again, sizeof(again)) == 0);
	extra.id = "0123456789";
	extra.id_len = 10;
	extra.tls = &tls;
	written = proxy_write_tlvs(addrs, &extra, out);
	assert(written <= sizeof(out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct proxy_addrs addrs = {0}, again = {0};
	char buf[PROXY_WRITE_MAX];
	size_t cut, len;
	long n, m;

	if (size < 2 || size > 4096)
		return 0;
	cut = ((size_t)data[0] << 8 | data[1]) % (size - 1);
	n = parse_header(data + 2, size - 2, &addrs);
	assert(n <= (long)(size - 2));
	assert(n != 0 || size - 2 < PROXY_V2_MAX);
	m = parse_header(data + 2, cut, &again);
	assert(m == 0 || m == n);
	if (n <= 0)
		return 0;
	pass_tlvs(data + 2, (size_t)n, &addrs);
	for (int version = 1; version <= 2; version++) {
		memset(&again, 0, sizeof(again));
		len = proxy_write(version, &addrs, buf);
		assert(len <= PROXY_V1_MAX);
		assert(proxy_parse(buf, len, &again) == (long)len);
		assert(memcmp(&addrs, &again, sizeof(addrs)) == 0);
	}
	return 0;
}
