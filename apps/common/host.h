/*
 * Hosts in values of options: an address or a name, and a port.
 */
#pragma once

#include "netstack/options/opt.h"

#define HOST_BYTES 254 /* of a name: RFC 1035 2.3.4, NUL included */

/*
 * Returns whether text is a host's name: labels of letters, digits and hyphens
 * (RFC 1123 2.1), and of underscores, as net_resolve() takes them; with or
 * without a dot at the end. A name whose last label has no letter would be a
 * malformed address.
 */
bool host_is_name(const char *text);

/*
 * Reads "10.9.0.1:80", "[fd00::1]:80" or "server.example:80". *end gets the
 * port and the address, with name ""; or name gets the name, and *end only the
 * port. Returns 0, or -EINVAL: malformed, or not the address of one host
 * (opt_is_host()); then *end and name are undefined.
 */
int host_parse(const char *text, struct opt_endpoint *end,
	       char name[HOST_BYTES]);

/* Describes an error of net_resolve(), for a message. */
const char *host_error(int err);
