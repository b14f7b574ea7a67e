/* The TTL of a host name's DNS records. */
#pragma once

#include <stdint.h>

/*
 * Queries the name servers of resolv.conf(5) for a host's addresses of a family
 * (4 or 6). Returns the smallest TTL of the answer, in seconds, or -ENOENT:
 * there is no answer, as for a name of /etc/hosts. Blocks as long as the
 * resolver. Any thread.
 */
int64_t name_ttl(const char *host, uint8_t family);
