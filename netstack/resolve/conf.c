/*
 * The two files of names. hosts(5) is small and in memory, so it is searched
 * each time. resolv.conf(5): name servers, the search list and ndots. c-ares is
 * given the servers, so that all of its versions behave alike.
 */
#include "netstack/resolve/resolve_priv.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define CONF_BYTES (64u * 1024)

const char *net_hosts_file = "/etc/hosts";
const char *net_resolv_conf_file = "/etc/resolv.conf";
/* The servers that systemd-resolved(8) asks; itself it listens at 127.0.0.53,
 * which no link leads to. */
const char *net_systemd_conf_file = "/run/systemd/resolve/resolv.conf";

size_t net_name_copy(const char *text, size_t len, char out[NET_NAME_BYTES])
{
	size_t label = 0;

	if (len && text[len - 1] == '.')
		len--;
	if (len == 0 || len >= NET_NAME_BYTES)
		return 0;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '.' ? label == 0 : ++label > 63)
			return 0;
		if (c == '.')
			label = 0;
		else if (c > 127 || (!isalnum(c) && c != '-' && c != '_'))
			return 0;
		out[i] = (char)tolower(c);
	}
	if (label == 0)
		return 0;
	out[len] = '\0';
	return len;
}

static bool is_word(const struct net_word *word, const char *text)
{
	return word->len == strlen(text) &&
	       memcmp(word->text, text, word->len) == 0;
}

static bool is_loopback(const struct net_addr *addr)
{
	static const uint8_t loopback6[16] = {[15] = 1};

	return addr->family == 4 ? addr->ip[0] == 127
				 : memcmp(addr->ip, loopback6, 16) == 0;
}

static void add_server(struct net_resolv_conf *conf, struct net_word line)
{
	struct net_word word;
	struct net_addr addr;

	if (conf->n_servers == NET_MAX_RESOLVERS ||
	    !net_file_word(&line, &word) || !net_word_addr(&word, &addr) ||
	    is_loopback(&addr))
		return;
	addr.port = 53;
	conf->servers[conf->n_servers++] = addr;
}

/* The last of several lines counts. */
static void set_search(struct net_resolv_conf *conf, struct net_word line)
{
	struct net_word word;

	conf->n_search = 0;
	while (conf->n_search < NET_SEARCH_MAX && net_file_word(&line, &word))
		if (net_name_copy(word.text, word.len,
				  conf->search[conf->n_search]))
			conf->n_search++;
}

static void set_options(struct net_resolv_conf *conf, struct net_word line)
{
	struct net_word word;

	while (net_file_word(&line, &word)) {
		unsigned ndots = 0;

		if (word.len < 7 || memcmp(word.text, "ndots:", 6) != 0)
			continue;
		for (size_t i = 6; i < word.len && ndots <= NET_NDOTS_MAX; i++)
			ndots = ndots * 10 +
				((unsigned)word.text[i] - '0') % 10;
		conf->ndots = ndots > NET_NDOTS_MAX ? NET_NDOTS_MAX : ndots;
	}
}

static void read_conf(struct net_resolv_conf *conf)
{
	const char *at = conf->file.text, *end = at + conf->file.len;
	struct net_word line, word;

	conf->n_servers = conf->n_search = 0;
	conf->ndots = 1;
	while (net_file_line(&at, end, &line)) {
		if (!net_file_word(&line, &word))
			continue;
		if (is_word(&word, "nameserver"))
			add_server(conf, line);
		else if (is_word(&word, "search") || is_word(&word, "domain"))
			set_search(conf, line);
		else if (is_word(&word, "options"))
			set_options(conf, line);
	}
}

static void read_systemds(struct net_resolv_conf *conf)
{
	const char *at = conf->systemds.text, *end = at + conf->systemds.len;
	struct net_word line, word;

	while (net_file_line(&at, end, &line))
		if (net_file_word(&line, &word) && is_word(&word, "nameserver"))
			add_server(conf, line);
}

bool net_conf_refresh(struct net_resolv_conf *conf)
{
	bool changed = net_file_refresh(&conf->file, net_resolv_conf_file,
					CONF_BYTES) ||
		       conf->ndots == 0;

	if (net_file_refresh(&conf->systemds, net_systemd_conf_file,
			     CONF_BYTES))
		changed = true;
	if (!changed)
		return false;
	read_conf(conf);
	if (conf->n_servers == 0)
		read_systemds(conf);
	return true;
}

void net_conf_clear(struct net_resolv_conf *conf)
{
	net_file_clear(&conf->file);
	net_file_clear(&conf->systemds);
}

/* ---- hosts(5) ---- */

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
