/*
 * The certificate for the name that a client asks for (SNI, RFC 6066 3).
 */
#include "netstack/tls/tls_priv.h"

#include <string.h>
#include <strings.h>

/* "*.example.com" is for "www.example.com", not for "a.b.example.com". */
static bool matches_wildcard(const char *pattern, const char *name)
{
	const char *rest = strchr(name, '.');

	return pattern[0] == '*' && pattern[1] == '.' && rest && rest != name &&
	       strcasecmp(pattern + 1, rest) == 0;
}

static bool has_name(const char *names, const char *name, bool wildcard)
{
	for (; names && *names; names += strlen(names) + 1)
		if (wildcard ? matches_wildcard(names, name)
			     : strcasecmp(names, name) == 0)
			return true;
	return false;
}

/* Returns the index of the first pair that has the name; else the default. */
static unsigned find_pair(const struct net_tls *tls, const char *name)
{
	for (unsigned wildcard = 0; wildcard < 2; wildcard++)
		for (unsigned i = 0; i < tls->n_pairs; i++)
			if (has_name(tls->names[i], name, wildcard))
				return i;
	return 0;
}

static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
	const struct net_tls *tls = arg;
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	unsigned pair = name ? find_pair(tls, name) : 0;

	if (pair)
		SSL_set_SSL_CTX(ssl, tls->pairs[pair]);
	return SSL_TLSEXT_ERR_OK;
}

void net_tls_choose_by_name(struct net_tls *tls)
{
	SSL_CTX_set_tlsext_servername_callback(tls->pairs[0],
					       choose_certificate);
	SSL_CTX_set_tlsext_servername_arg(tls->pairs[0], tls);
}
