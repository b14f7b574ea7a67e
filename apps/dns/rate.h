/*
 * Limits the answers to a source, so that forged queries do not make this
 * server a tool against the source that they name.
 *
 * A source is an IPv4 /24 or an IPv6 /56. Each may have a number of answers a
 * second, and a second's worth at once. The table has a fixed size; when its
 * sources are too many, those that have used the least lose their place, which
 * gives them at most a second's worth more. Belongs to one thread.
 */
#pragma once

#include <stdint.h>

#include <coronet/net.h>

#define DNS_RATE_SOURCES 65536 /* of a table */

struct dns_rate_slot;
struct dns_rate {
	struct dns_rate_slot *slots; /* NULL: no limit */
	int64_t interval_ns;	     /* between two answers of a source */
	unsigned slip;
	uint64_t seed;
};

enum dns_rate_verdict {
	DNS_RATE_SEND,
	DNS_RATE_SLIP, /* send a truncated answer */
	DNS_RATE_DROP,
};

/*
 * per_second: answers to a source, not 0. slip: every so many answers beyond
 * the limit, one is sent truncated, so that a client whose address was forged
 * can ask over TCP; 0: none. seed: random. Returns 0 or -ENOMEM.
 */
int dns_rate_init(struct dns_rate *rate, double per_second, unsigned slip,
		  uint64_t seed);
void dns_rate_fini(struct dns_rate *rate);

/* Decides about an answer to peer. now_ns: a clock that never goes back. */
enum dns_rate_verdict dns_rate_check(struct dns_rate *rate,
				     const struct net_addr *peer,
				     int64_t now_ns);
