/*
 * Any bytes as a router advertisement and as the file of SLAAC's secret: no
 * byte beyond them is read, and what is read keeps its bounds.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "netstack/link/ra_msg.h"
#include "netstack/link/slaac_id.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_unicast(const uint8_t ip[16])
{
	assert(ip[0] != 0xff);
	assert(ip[0] != 0xfe || (ip[1] & 0xc0) != 0x80);
}

static void check_prefix(const struct net_ra_prefix *prefix)
{
	check_unicast(prefix->ip);
	assert(prefix->bits >= 1 && prefix->bits <= 128);
	assert(!prefix->autonomous || prefix->preferred_s <= prefix->valid_s);
	for (unsigned i = prefix->bits; i < 128; i++)
		assert((prefix->ip[i / 8] >> (7 - i % 8) & 1) == 0);
}

static void feed_message(const uint8_t *bytes, size_t len)
{
	struct net_ra_msg msg;
	int err = net_ra_read(bytes, len, &msg);

	assert(err == 0 || err == -EBADMSG);
	if (err < 0)
		return;
	assert(msg.preference >= -1 && msg.preference <= 1);
	assert(msg.n_prefixes <= NET_RA_PREFIXES);
	assert(msg.n_servers <= NET_RA_SERVERS);
	for (unsigned i = 0; i < msg.n_prefixes; i++)
		check_prefix(&msg.prefixes[i]);
	for (unsigned i = 0; i < msg.n_servers; i++)
		check_unicast(msg.servers[i].ip);
}

static void feed_secret(const uint8_t *bytes, size_t len)
{
	uint8_t secret[NET_SLAAC_SECRET];
	char text[NET_SLAAC_SECRET_TEXT];
	int err = net_slaac_secret_parse((const char *)bytes, len, secret);

	assert(err == 0 || err == -EBADMSG);
	if (err < 0)
		return;
	assert(net_slaac_secret_format(secret, text) == len);
	assert(memcmp(text, bytes, len) == 0);
}

/* As it is, and behind the fixed part of a message. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *raw = malloc(size ? size : 1);
	uint8_t *message = calloc(1, NET_RA_FIXED + size);

	assert(raw && message);
	memcpy(raw, data, size);
	feed_message(raw, size);
	feed_secret(raw, size);
	message[0] = 134;
	memcpy(message + NET_RA_FIXED, data, size);
	feed_message(message, NET_RA_FIXED + size);
	free(raw);
	free(message);
	return 0;
}
