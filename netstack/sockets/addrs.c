/*
 * Addresses: whether they are the stack's, and conversion to and from sockaddr.
 */
#include "netstack/sockets/sockets_priv.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	bool given; /* the prefixes decide */
	unsigned n;
	struct net_addr prefixes[NET_SOCKETS_PREFIXES];
} config;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

/* ---- prefixes ---- */

static int parse_prefixes(const char *text, struct net_addr *out, unsigned *n)
{
	char word[NET_ADDR_TEXT_MAX];

	for (*n = 0; *text; text += *text == ',') {
		size_t len = strcspn(text, ",");

		if (*n == NET_SOCKETS_PREFIXES)
			return -E2BIG;
		if (len == 0 || len >= sizeof(word))
			return -EINVAL;
		memcpy(word, text, len);
		word[len] = '\0';
		if (net_addr_parse_prefix(word, &out[*n]) < 0)
			return -EINVAL;
		++*n;
		text += len;
		if (strcmp(text, ",") == 0)
			return -EINVAL;
	}
	return 0;
}

static int set_prefixes(const char *text)
{
	struct net_addr prefixes[NET_SOCKETS_PREFIXES];
	unsigned n = 0;
	int err = text ? parse_prefixes(text, prefixes, &n) : 0;

	if (err < 0)
		return err;
	memcpy(config.prefixes, prefixes, n * sizeof(prefixes[0]));
	config.n = n;
	config.given = text != NULL;
	return 0;
}

static void read_environment(void)
{
	const char *text = getenv("CORONET_ADDRS");
	int err = set_prefixes(text);

	if (err < 0)
		net_log("coronet: CORONET_ADDRS '%s': expected at most %d "
			"prefixes, for example 10.9.0.0/16,fd00::/64; it is "
			"ignored",
			text, NET_SOCKETS_PREFIXES);
}

int net_sockets_addrs(const char *prefixes)
{
	pthread_once(&config_once, read_environment);
	return set_prefixes(prefixes);
}

static bool prefix_contains(const struct net_addr *prefix,
			    const struct net_addr *addr)
{
	unsigned whole = prefix->prefix_len / 8, rest = prefix->prefix_len % 8;

	if (prefix->family != addr->family ||
	    memcmp(prefix->ip, addr->ip, whole) != 0)
		return false;
	return rest == 0 ||
	       ((prefix->ip[whole] ^ addr->ip[whole]) >> (8 - rest)) == 0;
}

static bool is_configured(const struct net_addr *addr)
{
	for (unsigned i = 0; i < config.n; i++)
		if (prefix_contains(&config.prefixes[i], addr))
			return true;
	return false;
}

/* ---- the decision ---- */

bool net_addr_is_any(const struct net_addr *addr)
{
	static const uint8_t any[16];

	return memcmp(addr->ip, any, addr->family == 4 ? 4 : 16) == 0;
}

static bool is_unicast(const struct net_addr *addr)
{
	static const uint8_t loopback6[16] = {[15] = 1};

	if (net_addr_is_any(addr))
		return false;
	if (addr->family == 4)
		return addr->ip[0] != 127 && addr->ip[0] < 224;
	return addr->ip[0] != 0xff && memcmp(addr->ip, loopback6, 16) != 0;
}

bool net_ours_to_connect(const struct net_addr *addr)
{
	pthread_once(&config_once, read_environment);
	if (config.given)
		return is_configured(addr);
	return is_unicast(addr) && net_route(net_stack_here(), addr, NULL) == 0;
}

bool net_ours_to_bind(const struct net_addr *addr)
{
	pthread_once(&config_once, read_environment);
	if (config.given)
		return is_configured(addr);
	return net_addr_is_any(addr) || net_is_local(net_stack_here(), addr);
}

/* ---- conversion from and to struct sockaddr ---- */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* RFC 4291 */

int net_addr_from_sockaddr(const struct sockaddr *sa, socklen_t len,
			   struct net_addr *out)
{
	*out = (struct net_addr){0};
	if (!sa)
		return -EFAULT;
	if (len < sizeof(sa->sa_family))
		return -EINVAL;
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		if (len < sizeof(*in))
			return -EINVAL;
		out->family = 4;
		out->port = ntohs(in->sin_port);
		memcpy(out->ip, &in->sin_addr, 4);
		return 0;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		if (len < offsetof(struct sockaddr_in6, sin6_scope_id))
			return -EINVAL;
		out->port = ntohs(in6->sin6_port);
		if (memcmp(&in6->sin6_addr, mapped, 12) == 0) {
			out->family = 4;
			memcpy(out->ip, in6->sin6_addr.s6_addr + 12, 4);
		} else {
			out->family = 6;
			memcpy(out->ip, &in6->sin6_addr, 16);
		}
		return 0;
	}
	return -EAFNOSUPPORT;
}

int net_addr_to_sockaddr(const struct net_addr *addr, bool v6,
			 struct sockaddr *sa, socklen_t *len)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
				   .sin6_port = htons(addr->port)};
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons(addr->port)};
	socklen_t size = v6 ? sizeof(in6) : sizeof(in);

	if (!sa)
		return 0;
	if (!len)
		return -EFAULT;
	if ((int)*len < 0)
		return -EINVAL;
	memcpy(&in.sin_addr, addr->ip, 4);
	if (addr->family == 4 && !net_addr_is_any(addr)) {
		memcpy(in6.sin6_addr.s6_addr, mapped, 12);
		memcpy(in6.sin6_addr.s6_addr + 12, addr->ip, 4);
	} else if (addr->family == 6) {
		memcpy(&in6.sin6_addr, addr->ip, 16);
	}
	memcpy(sa, v6 ? (void *)&in6 : (void *)&in, *len < size ? *len : size);
	*len = size;
	return 0;
}
