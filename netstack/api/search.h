/*
 * The search of net_recv_until(), for recv.c and tls/.
 */
#pragma once

#include <errno.h>
#include <string.h>

#include "netstack/state.h"

/*
 * A search that stops where the bytes end and goes on when more have come
 * (Knuth, Morris and Pratt, 1977): the delimiter may straddle any number of
 * pieces, and no byte is looked at twice.
 */
struct search {
	const uint8_t *delim;
	unsigned len;
	unsigned matched;	     /* bytes of delim, up to here */
	size_t seen;		     /* bytes looked at */
	uint8_t fail[NET_DELIM_MAX]; /* how much still matches after a miss */
};

/* Begins a search in bytes for a buffer. Returns 0, or -EINVAL: arguments. */
static inline int search_init(struct search *s, const void *buf, size_t buf_len,
			      const void *delim, size_t len)
{
	unsigned k = 0;

	if (!buf || !delim || len == 0 || len > NET_DELIM_MAX || buf_len < len)
		return -EINVAL;
	s->delim = delim;
	s->len = (unsigned)len;
	s->matched = 0;
	s->seen = 0;
	s->fail[0] = 0;
	for (unsigned i = 1; i < len; i++) {
		while (k && s->delim[i] != s->delim[k])
			k = s->fail[k - 1];
		k += s->delim[i] == s->delim[k];
		s->fail[i] = (uint8_t)k;
	}
	return 0;
}

/* Looks at one piece; returns whether the delimiter ends in it. */
static inline bool search_bytes(struct search *s, const uint8_t *data,
				size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (s->matched == 0) {
			const uint8_t *hit =
				memchr(data + i, s->delim[0], len - i);

			if (!hit)
				break;
			i = (size_t)(hit - data);
		}
		while (s->matched && data[i] != s->delim[s->matched])
			s->matched = s->fail[s->matched - 1];
		s->matched += data[i] == s->delim[s->matched];
		if (s->matched == s->len) {
			s->seen += i + 1;
			return true;
		}
	}
	s->seen += len;
	return false;
}
