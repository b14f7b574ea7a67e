/* Reads the options that name certificates and their keys. */
#include "apps/common/tls_pairs.h"

#include <errno.h>
#include <unistd.h>

static struct tls_pairs *pairs_of(const struct opt *opt, void *base)
{
	return (struct tls_pairs *)(void *)((char *)base + opt->at.offset);
}

int tls_pairs_read_cert(const struct opt *opt, const char *text, void *base,
			struct opt_error *error)
{
	struct tls_pairs *to = pairs_of(opt, base);

	if (to->n == NET_TLS_MAX_PAIRS)
		return opt_expect(error, "at most %d certificates",
				  NET_TLS_MAX_PAIRS);
	if (access(text, R_OK) < 0)
		return -EINVAL;
	to->pairs[to->n++] = (struct net_tls_pair){.cert = text, .key = text};
	return 0;
}

int tls_pairs_read_key(const struct opt *opt, const char *text, void *base,
		       struct opt_error *error)
{
	struct tls_pairs *to = pairs_of(opt, base);
	struct net_tls_pair *last = to->pairs + to->n - 1;

	if (to->n == 0 || last->key != last->cert)
		return opt_fail(error,
				"--%s '%s': no --tls-cert precedes it that has "
				"no key yet: give each certificate, then its "
				"key",
				opt->name, text);
	if (access(text, R_OK) < 0)
		return -EINVAL;
	last->key = text;
	return 0;
}

int tls_pairs_read_file(const struct opt *opt, const char *text, void *base,
			struct opt_error *error)
{
	if (access(text, R_OK) < 0)
		return -EINVAL;
	*(const char **)((char *)base + opt->at.offset) = text;
	return 0;
}

int tls_pairs_read_key_log(const struct opt *opt, const char *text, void *base,
			   struct opt_error *error)
{
	if (opt_check_writable(text) < 0)
		return -EINVAL;
	*(const char **)((char *)base + opt->at.offset) = text;
	return 0;
}

int tls_pairs_read_ocsp(const struct opt *opt, const char *text, void *base,
			struct opt_error *error)
{
	struct tls_pairs *to = pairs_of(opt, base);

	if (to->n == 0 || to->ocsp[to->n - 1])
		return opt_fail(error,
				"--%s '%s': no --tls-cert precedes it that has "
				"no response yet: give each certificate, then "
				"its response",
				opt->name, text);
	if (access(text, R_OK) < 0)
		return -EINVAL;
	to->ocsp[to->n - 1] = text;
	return 0;
}
