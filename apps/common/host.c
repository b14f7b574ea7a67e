/* Hosts in the values of options, and the texts for errors of names. */
#include "apps/common/host.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

bool host_is_name(const char *text)
{
	size_t len = strlen(text), label = 0;
	bool letter = false;

	if (len == 0 || len >= HOST_BYTES)
		return false;
	for (const char *c = text; *c; c++) {
		bool ends = c[1] == '.' || c[1] == '\0';

		if (*c == '.') {
			if (label == 0)
				return false;
			label = 0;
			letter = letter && c[1] == '\0';
			continue;
		}
		if (!isalnum((unsigned char)*c) && *c != '_' &&
		    (*c != '-' || label == 0 || ends))
			return false;
		letter |= isalpha((unsigned char)*c) != 0;
		if (++label > 63)
			return false;
	}
	return letter;
}

int host_parse(const char *text, struct opt_endpoint *end,
	       char name[HOST_BYTES])
{
	const char *colon = strrchr(text, ':');
	uint64_t port;

	name[0] = '\0';
	if (opt_parse_endpoint(text, end) == 0)
		return opt_is_host(end) ? 0 : -EINVAL;
	if (!colon || colon - text >= HOST_BYTES ||
	    opt_parse_number(colon + 1, 1, UINT16_MAX, &port))
		return -EINVAL;
	memcpy(name, text, (size_t)(colon - text));
	name[colon - text] = '\0';
	*end = (struct opt_endpoint){.port = (uint16_t)port};
	return host_is_name(name) ? 0 : -EINVAL;
}

const char *host_error(int err)
{
	switch (err) {
	case -ENOENT:
		return "no such name";
	case -ENODATA:
		return "the name has no address that this stack could use";
	case -ETIMEDOUT:
		return "no name server has answered";
	case -EHOSTUNREACH:
		return "no name server is known: use --resolver";
	case -EAGAIN:
		return "the name servers failed or cannot be reached";
	case -EADDRNOTAVAIL:
		return "this stack has no address";
	default:
		return strerror(-err);
	}
}
