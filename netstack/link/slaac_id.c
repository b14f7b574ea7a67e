/* Interface identifiers of SLAAC, and their secret. */
#include "netstack/link/slaac_id.h"
#include "netstack/link/lease_file.h"
#include "netstack/program/log.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#define LINE  "coronet-secret 1 "
#define TRIES 8u /* one in 2^56 identifiers is reserved */

static_assert(NET_SLAAC_SECRET >= crypto_generichash_KEYBYTES_MIN &&
		      NET_SLAAC_SECRET <= crypto_generichash_KEYBYTES_MAX,
	      "the secret is a key of BLAKE2b");
static_assert(NET_SLAAC_SECRET_TEXT == NET_LEASE_TEXT_MAX,
	      "files of both kinds are read by one function");

/* The identifiers of RFC 5453: of anycast, and IANA's Ethernet block. */
static bool is_reserved(const uint8_t id[8])
{
	static const uint8_t zero[8];

	return memcmp(id, zero, 8) == 0 ||
	       (memcmp(id, "\xfd\xff\xff\xff\xff\xff\xff", 7) == 0 &&
		id[7] >= 0x80) ||
	       memcmp(id, "\2\0\x5e\xff\xfe", 5) == 0;
}

/* RFC 7217 5: RID = F(Prefix, Net_Iface, DAD_Counter, secret_key). */
void net_slaac_id(const uint8_t secret[NET_SLAAC_SECRET],
		  const uint8_t prefix[8], unsigned link, uint8_t counter,
		  uint8_t out[8])
{
	uint8_t hash[crypto_generichash_BYTES], input[11];

	memcpy(input, prefix, 8);
	input[8] = (uint8_t)link;
	input[9] = counter;
	for (input[10] = 0; input[10] < TRIES; input[10]++) {
		crypto_generichash(hash, sizeof(hash), input, sizeof(input),
				   secret, NET_SLAAC_SECRET);
		memcpy(out, hash, 8);
		if (!is_reserved(out))
			return;
	}
}

/* ---- the secret ---- */

size_t net_slaac_secret_format(const uint8_t secret[NET_SLAAC_SECRET],
			       char text[NET_SLAAC_SECRET_TEXT])
{
	char hex[2 * NET_SLAAC_SECRET + 1];

	sodium_bin2hex(hex, sizeof(hex), secret, NET_SLAAC_SECRET);
	return (size_t)snprintf(text, NET_SLAAC_SECRET_TEXT, LINE "%s\n", hex);
}

/* There is one spelling: what was read must be what would be written. */
int net_slaac_secret_parse(const char *bytes, size_t len,
			   uint8_t secret[NET_SLAAC_SECRET])
{
	const size_t begin = sizeof(LINE) - 1;
	uint8_t key[NET_SLAAC_SECRET];
	char again[NET_SLAAC_SECRET_TEXT];
	size_t n;

	if (len != begin + 2 * NET_SLAAC_SECRET + 1 ||
	    sodium_hex2bin(key, sizeof(key), bytes + begin,
			   2 * NET_SLAAC_SECRET, NULL, &n, NULL) != 0 ||
	    n != sizeof(key) || net_slaac_secret_format(key, again) != len ||
	    memcmp(again, bytes, len) != 0)
		return -EBADMSG;
	memcpy(secret, key, sizeof(key));
	return 0;
}

static int read_secret(const char *path, uint8_t secret[NET_SLAAC_SECRET])
{
	char bytes[NET_SLAAC_SECRET_TEXT];
	long n = net_lease_read_bytes(path, bytes);

	return n < 0 ? (int)n
		     : net_slaac_secret_parse(bytes, (size_t)n, secret);
}

static int write_secret(const char *path,
			const uint8_t secret[NET_SLAAC_SECRET])
{
	char text[NET_SLAAC_SECRET_TEXT], temporary[PATH_MAX + 8];
	size_t len = net_slaac_secret_format(secret, text);

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	return net_lease_replace(path, temporary, text, len);
}

void net_slaac_secret_load(const char *directory,
			   uint8_t secret[NET_SLAAC_SECRET])
{
	char path[PATH_MAX];
	int err;

	randombytes_buf(secret, NET_SLAAC_SECRET);
	if (!directory)
		return;
	if (snprintf(path, sizeof(path), "%s/slaac.secret", directory) >=
	    (int)sizeof(path))
		err = -ENAMETOOLONG;
	else
		err = read_secret(path, secret);
	if (err == -ENOENT)
		err = write_secret(path, secret);
	if (err < 0)
		net_log_of(NET_COMPONENT_LINK, NET_LOG_WARNING,
			   "coronet.link: %s/slaac.secret cannot be used: %s; "
			   "the next start has other addresses of --addr auto",
			   directory,
			   err == -EBADMSG ? "it has no secret"
					   : strerror(-err));
}
