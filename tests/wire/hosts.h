/*
 * Several hosts at one end of a wire, each on a link of its own: who is where,
 * as a switch learns it.
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
	} host[WIRE_HOSTS]; /* the last that was seen on each link */
};

/* A frame of so many bytes has come in by a link. */
void wire_hosts_learn(struct wire_hosts *hosts, unsigned link,
		      const uint8_t *frame, unsigned len);

/*
 * The links a frame leaves by, a bit each: that of its destination; all for
 * groups, for unknown ones and what is too short to have one.
 */
unsigned wire_hosts_reach(const struct wire_hosts *hosts, const uint8_t *frame,
			  unsigned len);
