/*
 * hosts(5). The file is small and in memory, so it is searched each time.
 */
#include "netstack/resolve/resolve_priv.h"

#include <string.h>
#include <strings.h>

const char *net_hosts_file = "/etc/hosts";

static bool line_has(struct net_word line, const char *name)
{
	size_t len = strlen(name);
	struct net_word word;

	while (net_file_word(&line, &word))
		if (word.len == len && strncasecmp(word.text, name, len) == 0)
			return true;
	return false;
}

unsigned net_hosts_find(struct net_file *hosts, const char *name,
			uint8_t family, struct net_addr *out, unsigned n)
{
	struct net_word line, word;
	const char *at, *end;
	unsigned found = 0;

	net_file_refresh(hosts, net_hosts_file, NET_HOSTS_BYTES);
	at = hosts->text;
	end = hosts->text + hosts->len;
	while (found < n && net_file_line(&at, end, &line)) {
		struct net_addr *addr = &out[found];

		if (net_file_word(&line, &word) && line_has(line, name) &&
		    net_word_addr(&word, addr) &&
		    (family == 0 || addr->family == family))
			found++;
	}
	return found;
}
