/*
 * Several hosts at one end of a wire, each on a link of its own. The links of
 * their addresses are learnt as a switch does.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WIRE_HOSTS     8
#define WIRE_MAC_BYTES 6

struct wire_hosts {
	unsigned n; /* links at this end */
	struct wire_host {
		uint8_t mac[WIRE_MAC_BYTES];
		bool known;
	} host[WIRE_HOSTS]; /* the latest ones seen on each link */
};

/* Learns the source of a frame that was received on a link. */
void wire_hosts_learn(struct wire_hosts *hosts, unsigned link,
		      const uint8_t *frame, unsigned len);

/*
 * Returns the links that a frame leaves by, a bit each: the link of its
 * destination, or all links for groups, unknown destinations and frames without
 * a whole header.
 */
unsigned wire_hosts_reach(const struct wire_hosts *hosts, const uint8_t *frame,
			  unsigned len);
