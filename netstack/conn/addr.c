/*
 * Converts addresses to text, and to and from lwIP's form.
 */
#include "netstack/conn/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "netstack/options/opt.h"

#define TEXT_MAX 64

static int parse_ip(const char *text, struct net_addr *out)
{
	*out = (struct net_addr){0};
	if (inet_pton(AF_INET, text, out->ip) == 1) {
		out->family = 4;
		out->prefix_len = 32;
		return 0;
	}
	if (inet_pton(AF_INET6, text, out->ip) == 1) {
		out->family = 6;
		out->prefix_len = 128;
		return 0;
	}
	return -EINVAL;
}

int net_addr_parse(const char *text, int default_port, struct net_addr *out)
{
	struct net_addr addr;
	uint64_t port = (uint64_t)default_port;
	char host[TEXT_MAX], *colon, *start = host;

	if (strlen(text) >= sizeof(host))
		return -EINVAL;
	strcpy(host, text);
	colon = strrchr(host, ':');
	if (host[0] == '[') {
		char *close = strchr(host, ']');

		if (!close || (close[1] != ':' && close[1] != '\0'))
			return -EINVAL;
		colon = close[1] == ':' ? close + 1 : NULL;
		*close = '\0';
		start = host + 1;
	} else if (colon && strchr(host, ':') != colon) {
		colon = NULL; /* a bare IPv6 address */
	}
	if (colon) {
		if (opt_parse_number(colon + 1, 1, 65535, &port) < 0)
			return -EINVAL;
		*colon = '\0';
	} else if (default_port < 0) {
		return -EINVAL;
	}
	if (parse_ip(start, &addr) < 0 || (host[0] == '[' && addr.family != 6))
		return -EINVAL;
	addr.port = (uint16_t)port;
	*out = addr;
	return 0;
}

int net_addr_parse_prefix(const char *text, struct net_addr *out)
{
	char host[TEXT_MAX], *slash;
	struct net_addr addr;
	uint64_t bits;

	if (strlen(text) >= sizeof(host))
		return -EINVAL;
	strcpy(host, text);
	slash = strchr(host, '/');
	if (!slash)
		return -EINVAL;
	*slash = '\0';
	if (parse_ip(host, &addr) < 0 ||
	    opt_parse_number(slash + 1, 1, addr.prefix_len, &bits) < 0)
		return -EINVAL;
	addr.prefix_len = (uint8_t)bits;
	*out = addr;
	return 0;
}

char *net_addr_format(const struct net_addr *addr, char *buf, size_t len)
{
	char host[INET6_ADDRSTRLEN] = "*";

	if (addr->family)
		inet_ntop(addr->family == 4 ? AF_INET : AF_INET6, addr->ip,
			  host, sizeof(host));
	if (addr->family == 6)
		snprintf(buf, len, "[%s]:%u", host, addr->port);
	else
		snprintf(buf, len, "%s:%u", host, addr->port);
	return buf;
}

char *net_ip_format(const struct net_addr *addr, char *buf)
{
	if (!addr->family || !inet_ntop(addr->family == 4 ? AF_INET : AF_INET6,
					addr->ip, buf, NET_ADDR_TEXT_MAX))
		strcpy(buf, "*");
	return buf;
}

void net_addr_to_lwip(const struct net_addr *addr, ip_addr_t *out)
{
	if (addr->family == 6) {
		ip_addr_set_zero_ip6(out);
		memcpy(ip_2_ip6(out)->addr, addr->ip, 16);
	} else if (addr->family == 4) {
		ip_addr_set_zero_ip4(out);
		memcpy(&ip_2_ip4(out)->addr, addr->ip, 4);
	} else {
		*out = (ip_addr_t)IPADDR_ANY_TYPE_INIT;
	}
}

void net_addr_from_lwip(const ip_addr_t *ip, uint16_t port,
			struct net_addr *out)
{
	*out = (struct net_addr){.port = port};
	if (IP_IS_V6(ip)) {
		out->family = 6;
		out->prefix_len = 128;
		memcpy(out->ip, ip_2_ip6(ip)->addr, 16);
	} else {
		out->family = 4;
		out->prefix_len = 32;
		memcpy(out->ip, &ip_2_ip4(ip)->addr, 4);
	}
}
