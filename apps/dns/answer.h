/*
 * Answers to queries: from the bytes of a query to those of the answer.
 */
#pragma once

#include "apps/dns/zone.h"

/* The kind of an answer, for counters and the rate limit. */
struct dns_outcome {
	enum dns_rcode rcode;
	bool truncated;
};

enum dns_carriage {
	DNS_OVER_UDP,
	DNS_OVER_TCP,	   /* the client's UDP size is ignored */
	DNS_TRUNCATED_UDP, /* without records, so that the client uses TCP */
};

/*
 * Writes the answer to a message of len bytes to out, which has `room` bytes
 * (DNS_UDP_PLAIN or more). Returns the length of the answer, or 0: there must
 * be none. Does not block or allocate. Any thread.
 */
size_t dns_answer(const struct zones *zones, const uint8_t *msg, size_t len,
		  enum dns_carriage carriage, uint8_t *out, size_t room,
		  struct dns_outcome *outcome);
