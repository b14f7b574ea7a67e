/*
 * The option --exception: which frames of a link the kernel gets.
 *
 * It only parses text into a rule: no state, no I/O.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_EXCEPTION_TEXT     1024u  /* bytes of a rule, with the NUL */
#define NET_EXCEPTION_RATE     10000u /* frames a second in each direction */
#define NET_EXCEPTION_RATE_MAX 1000000u

/* A set of ports. */
struct net_ports {
	uint8_t bits[65536 / 8];
};

struct net_exception_rule {
	char name[16];	      /* of the interface */
	struct net_ports tcp; /* the kernel's, unless the stack listens */
	struct net_ports udp;
	bool echo;	/* the kernel answers pings */
	bool other_off; /* the kernel gets only ports, and neighbours */
	bool addr_off;	/* the user sets the interface's addresses */
	unsigned rate;	/* frames a second in each direction */
};

/*
 * Reads "tap:NAME[,KEY=VALUE...]". Keys: tcp= and udp= (all, none, or ports
 * and ranges joined by '+', as in 22+179+33434-33534; a '!' before them means
 * all others), echo=stack|kernel, other=on|off, addr=on|off, rate=N. Returns 0,
 * or -EINVAL with one clear line in err.
 */
int net_exception_parse(const char *text, struct net_exception_rule *out,
			char *err, size_t err_len);

static inline bool net_ports_has(const struct net_ports *ports, uint16_t port)
{
	return ports->bits[port / 8] & (1u << port % 8);
}
