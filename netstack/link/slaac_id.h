/*
 * Interface identifiers of SLAAC (RFC 7217), and the secret that they depend
 * on. Private to link/.
 *
 * With the same secret, an address is the same at each start. It reveals
 * neither the MAC nor the host's address in another network.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NET_SLAAC_SECRET      32u  /* bytes */
#define NET_SLAAC_SECRET_TEXT 128u /* bytes of the file at most, with a NUL */

/*
 * Computes the last eight bytes of an address. prefix: its first eight. link:
 * the index of the link. counter: how many such addresses were duplicates.
 * Never a reserved identifier (RFC 5453).
 */
void net_slaac_id(const uint8_t secret[NET_SLAAC_SECRET],
		  const uint8_t prefix[8], unsigned link, uint8_t counter,
		  uint8_t out[8]);

/* Writes a secret as the line of its file. Returns its length. */
size_t net_slaac_secret_format(const uint8_t secret[NET_SLAAC_SECRET],
			       char text[NET_SLAAC_SECRET_TEXT]);
/*
 * Reads the bytes of a file; any are safe. Returns 0 with the secret filled in,
 * or -EBADMSG: net_slaac_secret_format() has not written them.
 */
int net_slaac_secret_parse(const char *bytes, size_t len,
			   uint8_t secret[NET_SLAAC_SECRET]);
/*
 * Reads DIRECTORY/slaac.secret, or writes a new secret there, with mode 0600,
 * if it does not exist. If that fails (which is logged), or without a directory
 * (NULL), the secret is a random one for this process. Blocks the thread.
 */
void net_slaac_secret_load(const char *directory,
			   uint8_t secret[NET_SLAAC_SECRET]);
