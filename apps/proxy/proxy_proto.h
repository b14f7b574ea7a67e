/*
 * The PROXY protocol, versions 1 and 2, as HAProxy's "The PROXY protocol"
 * (revision 2020/03/05) defines it: reading strictly, writing exactly.
 *
 * No state is kept; any thread may call it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROXY_V1_MAX	107	    /* bytes, CRLF included: section 2.1 */
#define PROXY_V2_HEADER 16	    /* bytes, before the addresses */
#define PROXY_V2_MAX	(16 + 2048) /* longer ones are refused, TLVs and all */
#define PROXY_WRITE_MAX 128	    /* room for either version */

/* Source and destination. family 0: unknown, use the connection's addresses. */
struct proxy_addrs {
	uint8_t family;		     /* 0, 4 or 6 */
	uint8_t src[16], dst[16];    /* network byte order; IPv4 takes 4 */
	uint16_t src_port, dst_port; /* host byte order */
};

/*
 * Reads a header of either version at the start of data. Returns its length;
 * 0: it may become one, more bytes are needed (never at PROXY_V2_MAX bytes);
 * -EPROTO: it is none. *out is written only when a length is returned.
 *
 * Version 1: exactly one space between fields; addresses and ports in canonical
 * syntax (no leading zeros in ports); TCP4, TCP6 or UNKNOWN, after which the
 * rest is skipped. Version 2: command LOCAL or PROXY; stream over IPv4 or IPv6,
 * while other families of the specification count as unknown; TLVs are skipped,
 * after a check of their lengths and of at most one CRC-32C.
 */
long proxy_parse(const void *data, size_t len, struct proxy_addrs *out);

/*
 * Writes a header of version 1 or 2 into buf (PROXY_WRITE_MAX bytes). Family 0
 * becomes UNKNOWN, or LOCAL. Returns its length.
 */
size_t proxy_write(int version, const struct proxy_addrs *addrs, void *buf);

#define PROXY_ID_MAX 128 /* bytes of a unique ID: section 2.2.5 */

/*
 * The start of the TLVs in a header of version 2 that proxy_parse() has
 * accepted. *n: their bytes; 0 if there are none, or if the addresses before
 * them are of an unknown family.
 */
const uint8_t *proxy_tlvs(const void *header, size_t len, size_t *n);

/* What the client's TLS has agreed on; texts: "" if there is none. */
struct proxy_tls {
	char version[16], cipher[48]; /* "TLSv1.3", in OpenSSL's notation */
	char alpn[32];
	char client[128]; /* common name of the client's certificate, UTF-8 */
	bool has_cert, verified, resumed;
};

/* What a header of version 2 says beside the addresses. */
struct proxy_extra {
	const uint8_t *tlvs;	     /* of a header that has come */
	size_t tlvs_len;	     /* at most PROXY_V2_MAX; 0: none */
	const char *id;		     /* a unique ID, unless tlvs has one */
	size_t id_len;		     /* at most PROXY_ID_MAX; 0: none */
	const struct proxy_tls *tls; /* in place of tlvs'; NULL: none */
	const char *server_name;     /* with tls; NULL: none */
};

#define PROXY_NAME_MAX 255 /* bytes of a server's name */
/* Room for a header with all TLVs. */
#define PROXY_V2_WRITE_MAX                                                     \
	(PROXY_V2_MAX + PROXY_ID_MAX + PROXY_NAME_MAX +                        \
	 sizeof(struct proxy_tls) + 64)

/*
 * Writes a header of version 2 with TLVs: those of extra->tlvs, except a
 * checksum and padding, then those of TLS (sections 2.2.1, 2.2.2 and 2.2.6) and
 * the unique ID. The family is 4 or 6. buf has room for PROXY_V2_WRITE_MAX
 * bytes. Returns the length.
 */
size_t proxy_write_tlvs(const struct proxy_addrs *addrs,
			const struct proxy_extra *extra, void *buf);
