/* The TTL of a host name's DNS records. */
#pragma once

#include <stdint.h>

/*
 * Asks the name servers of resolv.conf(5) for a host's addresses of a family (4
 * or 6) and returns the smallest TTL of the answer, in seconds; -ENOENT: there
 * is none, as for a name of /etc/hosts. Blocks for as long as the resolver
 * does. Any thread.
 */
int64_t name_ttl(const char *host, uint8_t family);
