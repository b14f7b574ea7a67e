/* Counts the clients of each source. */
#include "apps/proxy/sources.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct source_count {
	struct source_count *next;
	struct source_key key;
	unsigned n;
};

struct source_key source_key_of(const struct sockaddr_storage *addr)
{
	const struct sockaddr_in *in = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;
	struct source_key key = {.family = 4};

	if (addr->ss_family == AF_INET) {
		key.prefix = in->sin_addr.s_addr;
	} else if (addr->ss_family != AF_INET6) {
		key.family = 0;
	} else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(&key.prefix, in6->sin6_addr.s6_addr + 12, 4);
	} else {
		key.family = 6;
		memcpy(&key.prefix, in6->sin6_addr.s6_addr, 8);
	}
	return key;
}

/* The top bits of a product depend on all bits of what is multiplied. */
static unsigned bucket_of(struct source_key key)
{
	return (unsigned)((key.prefix + key.family) *
				  UINT64_C(0x9e3779b97f4a7c15) >>
			  52);
}
_Static_assert(SOURCES_BUCKETS == 1 << 12, "bucket_of() keeps twelve bits");

static struct source_count **find_count(struct sources *sources,
					struct source_key key)
{
	struct source_count **at = &sources->buckets[bucket_of(key)];

	while (*at && ((*at)->key.prefix != key.prefix ||
		       (*at)->key.family != key.family))
		at = &(*at)->next;
	return at;
}

unsigned sources_count(const struct sources *sources, struct source_key key)
{
	const struct source_count *count =
		*find_count((struct sources *)(uintptr_t)sources, key);

	return count ? count->n : 0;
}

int sources_add(struct sources *sources, struct source_key key)
{
	struct source_count **at = find_count(sources, key);

	if (key.family == 0)
		return 0;
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (!*at)
			return -ENOMEM;
		(*at)->key = key;
	}
	(*at)->n++;
	return 0;
}

void sources_remove(struct sources *sources, struct source_key key)
{
	struct source_count **at = find_count(sources, key), *count = *at;

	if (!count || --count->n)
		return;
	*at = count->next;
	free(count);
}
