/* Several hosts at one end of a wire, each on its own link. */
#include "tests/wire/hosts.h"

#include <string.h>

#define SRC_AT WIRE_MAC_BYTES

static bool is_group(const uint8_t *mac)
{
	return mac[0] & 1;
}

void wire_hosts_learn(struct wire_hosts *hosts, unsigned link,
		      const uint8_t *frame, unsigned len)
{
	struct wire_host *host = &hosts->host[link];

	if (len < SRC_AT + WIRE_MAC_BYTES || is_group(frame + SRC_AT))
		return;
	memcpy(host->mac, frame + SRC_AT, WIRE_MAC_BYTES);
	host->known = true;
}

unsigned wire_hosts_reach(const struct wire_hosts *hosts, const uint8_t *frame,
			  unsigned len)
{
	const unsigned all = (1u << hosts->n) - 1;

	if (len < WIRE_MAC_BYTES)
		return all;
	for (unsigned i = 0; i < hosts->n; i++)
		if (hosts->host[i].known &&
		    memcmp(hosts->host[i].mac, frame, WIRE_MAC_BYTES) == 0)
			return 1u << i;
	return all;
}
