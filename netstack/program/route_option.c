/*
 * Parses the option --route. Pure: text in, a route out.
 */
#include "netstack/program/program.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "netstack/options/opt.h"

#define ROUTE_TEXT_MAX 256u /* bytes, with the NUL */

/* A line for the caller's buffer. */
struct complaint {
	char *text;
	size_t len;
};

__attribute__((format(printf, 2, 3))) static int
format_complaint(const struct complaint *to, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(to->text, to->len, format, ap);
	va_end(ap);
	return -EINVAL;
}

bool net_addr_is_loopback(const struct net_addr *addr)
{
	static const uint8_t loopback6[16] = {[15] = 1};

	return addr->family == 6 ? memcmp(addr->ip, loopback6, 16) == 0
				 : addr->ip[0] == 127;
}

bool net_addr_is_host(const struct net_addr *addr)
{
	static const uint8_t any[16];

	if (net_addr_is_loopback(addr))
		return false;
	if (addr->family == 6)
		return addr->ip[0] != 0xff && memcmp(addr->ip, any, 16) != 0;
	return addr->ip[0] != 0 && addr->ip[0] < 224;
}

static int read_host(const char *text, struct net_addr *out)
{
	if (!text || net_addr_parse(text, 0, out) < 0 || out->port ||
	    strchr(text, '[') || !net_addr_is_host(out))
		return -EINVAL;
	return 0;
}

static bool ends_in_zeros(const struct net_addr *net)
{
	for (unsigned bit = net->prefix_len; bit < 128; bit++)
		if (net->ip[bit / 8] & (0x80u >> bit % 8))
			return false;
	return true;
}

/* "default" gets its family from the gateway. */
static int read_network(char *text, struct net_addr *out)
{
	char *slash = strchr(text, '/');

	*out = (struct net_addr){0};
	if (strcmp(text, "default") == 0)
		return 0;
	if (slash && strcmp(slash, "/0") == 0) {
		*slash = '\0';
		if (strchr(text, '[') || net_addr_parse(text, 0, out) < 0 ||
		    out->port)
			return -EINVAL;
		*slash = '/';
		out->prefix_len = 0;
	} else if (net_addr_parse_prefix(text, out) < 0) {
		return -EINVAL;
	}
	return ends_in_zeros(out) ? 0 : -EINVAL;
}

/* Reads the words behind the gateway: each key once, with a value. */
static int read_keys(char **save, struct net_route_opts *out,
		     const struct complaint *to)
{
	for (char *key; (key = strtok_r(NULL, " \t", save));) {
		char *value = strtok_r(NULL, " \t", save);
		uint64_t link;

		if (strcmp(key, "dev") == 0 && !out->link) {
			if (!value || opt_parse_number(value, 1, NET_MAX_LINKS,
						       &link) < 0)
				return format_complaint(
					to,
					"dev '%s': expected the number "
					"of a --link, from 1 to %d",
					value ? value : "", NET_MAX_LINKS);
			out->link = (unsigned)link;
		} else if (strcmp(key, "src") == 0 && !out->source.family) {
			if (read_host(value, &out->source) < 0 ||
			    out->source.family != out->via.family)
				return format_complaint(
					to,
					"src '%s': expected an --addr, "
					"of the gateway's IP version",
					value ? value : "");
		} else {
			return format_complaint(
				to,
				"'%s': expected dev LINK or src "
				"ADDRESS, each once",
				key);
		}
	}
	return 0;
}

static int read_route(char *words, struct net_route_opts *out,
		      const struct complaint *to)
{
	char *save = NULL, *network = strtok_r(words, " \t", &save);
	char *via = strtok_r(NULL, " \t", &save);
	char *gateway = strtok_r(NULL, " \t", &save);

	if (!network || read_network(network, &out->to) < 0)
		return format_complaint(
			to,
			"'%s': expected a network whose bits after the "
			"prefix are 0, as in 10.0.0.0/8, or default",
			network ? network : "");
	if (!via || strcmp(via, "via") != 0)
		return format_complaint(to, "'%s': expected via GATEWAY",
					via ? via : "");
	if (read_host(gateway, &out->via) < 0)
		return format_complaint(
			to, "via '%s': expected the address of a host",
			gateway ? gateway : "");
	if (!out->to.family)
		out->to.family = out->via.family;
	if (out->to.family != out->via.family)
		return format_complaint(
			to,
			"via '%s': expected a gateway of the network's "
			"IP version",
			gateway);
	return read_keys(&save, out, to);
}

int net_route_parse(const char *text, struct net_route_opts *out, char *error,
		    size_t len)
{
	const struct complaint to = {error, len};
	struct net_route_opts route = {0};
	char words[ROUTE_TEXT_MAX];
	int err;

	if (strlen(text) >= sizeof(words))
		return format_complaint(&to, "expected at most %u characters",
					ROUTE_TEXT_MAX - 1);
	strcpy(words, text);
	err = read_route(words, &route, &to);
	if (err == 0)
		*out = route;
	return err;
}
