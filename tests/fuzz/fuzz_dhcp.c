/*
 * Any bytes as the options of a DHCP server's message: no byte beyond them is
 * read, and what is read keeps its bounds.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "netstack/link/dhcp_msg.h"

#define FIXED 240u /* bytes before the options */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_route(const struct net_dhcp_route *route)
{
	uint32_t to = __builtin_bswap32(route->to);

	assert(route->bits <= 32);
	assert(route->bits == 32 || (to << route->bits) == 0);
}

static void check_msg(const struct net_dhcp_msg *msg)
{
	assert(msg->type == NET_DHCP_OFFER || msg->type == NET_DHCP_ACK ||
	       msg->type == NET_DHCP_NAK);
	assert(msg->server && msg->mask_bits <= 32);
	assert(msg->n_routers <= NET_DHCP_ROUTERS);
	assert(msg->n_servers <= NET_DHCP_SERVERS);
	assert(msg->n_routes <= NET_DHCP_ROUTES);
	assert(msg->has_routes == (msg->n_routes > 0));
	assert(msg->mtu == 0 || msg->mtu >= 68);
	for (unsigned i = 0; i < msg->n_routes; i++)
		check_route(&msg->routes[i]);
}

static void feed_message(const uint8_t *bytes, size_t len)
{
	struct net_dhcp_msg msg;
	int err = net_dhcp_read(bytes, len, &msg);

	assert(err == 0 || err == -EBADMSG);
	if (err == 0)
		check_msg(&msg);
}

/* Of the input, the first 192 bytes are sname and file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t begin[] = {2, 1, 6};
	size_t fields = size < 192 ? size : 192;
	size_t len = FIXED + size - fields;
	uint8_t *bytes = calloc(1, len), *raw = malloc(size ? size : 1);

	assert(bytes && raw);
	memcpy(bytes, begin, sizeof(begin));
	memcpy(bytes + 44, data, fields);
	memcpy(bytes + 236, "\x63\x82\x53\x63", 4);
	memcpy(bytes + FIXED, data + fields, size - fields);
	feed_message(bytes, len);
	memcpy(raw, data, size);
	feed_message(raw, size);
	free(bytes);
	free(raw);
	return 0;
}
