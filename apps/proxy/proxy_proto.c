/* Parses and writes PROXY protocol headers, versions 1 and 2. */
#include "apps/proxy/proxy_proto.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define V2_TYPE_ALPN	       0x01
#define V2_TYPE_AUTHORITY      0x02
#define V2_TYPE_CRC32C	       0x03
#define V2_TYPE_NOOP	       0x04
#define V2_TYPE_ID	       0x05
#define V2_TYPE_SSL	       0x20
#define V2_SUBTYPE_SSL_VERSION 0x21
#define V2_SUBTYPE_SSL_CN      0x22
#define V2_SUBTYPE_SSL_CIPHER  0x23
#define V2_CLIENT_SSL	       0x01
#define V2_CLIENT_CERT_CONN    0x02
#define V2_CLIENT_CERT_SESS    0x04

static const char v1_start[] = "PROXY ";
static const uint8_t v2_start[12] = {0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d,
				     0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a};

/* ---- version 1 ---- */

/* Returns the next field, up to one space or, if last, to the end; or NULL. */
static char *next_field(char **rest, bool last)
{
	char *field = *rest, *space = strchr(field, ' ');

	if (last == !!space)
		return NULL;
	if (space) {
		*space = '\0';
		*rest = space + 1;
	}
	return *field ? field : NULL;
}

static int parse_port(const char *text, uint16_t *out)
{
	unsigned n = 0;

	if (!text || !*text || strlen(text) > 5 || (*text == '0' && text[1]))
		return -EPROTO;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EPROTO;
		n = n * 10 + (unsigned)(*text - '0');
	}
	if (n > 65535)
		return -EPROTO;
	*out = (uint16_t)n;
	return 0;
}

/* Parses the words between "PROXY " and CRLF. */
static int parse_words(char *words, struct proxy_addrs *out)
{
	char *family = words, *src, *dst, *src_port, *dst_port;
	int af;

	if (strncmp(words, "UNKNOWN", 7) == 0 &&
	    (words[7] == '\0' || words[7] == ' '))
		return 0;
	family = next_field(&words, false);
	src = family ? next_field(&words, false) : NULL;
	dst = src ? next_field(&words, false) : NULL;
	src_port = dst ? next_field(&words, false) : NULL;
	dst_port = src_port ? next_field(&words, true) : NULL;
	if (!dst_port)
		return -EPROTO;
	if (strcmp(family, "TCP4") == 0)
		out->family = 4;
	else if (strcmp(family, "TCP6") == 0)
		out->family = 6;
	else
		return -EPROTO;
	af = out->family == 4 ? AF_INET : AF_INET6;
	if (inet_pton(af, src, out->src) != 1 ||
	    inet_pton(af, dst, out->dst) != 1 ||
	    parse_port(src_port, &out->src_port) < 0 ||
	    parse_port(dst_port, &out->dst_port) < 0)
		return -EPROTO;
	return 0;
}

static long parse_v1(const char *data, size_t len, struct proxy_addrs *out)
{
	size_t room = len < PROXY_V1_MAX ? len : PROXY_V1_MAX;
	const char *end = memchr(data, '\r', room);
	struct proxy_addrs addrs = {0};
	char words[PROXY_V1_MAX + 1];
	size_t words_len;

	if (!end)
		return memchr(data, '\n', room) || len >= PROXY_V1_MAX ? -EPROTO
								       : 0;
	words_len = (size_t)(end - data) - (sizeof(v1_start) - 1);
	/* A NUL would end the words early, and a LF stands after CR alone. */
	if (memchr(data, '\0', (size_t)(end - data)) ||
	    memchr(data, '\n', (size_t)(end - data)))
		return -EPROTO;
	if (end + 1 == data + len)
		return len >= PROXY_V1_MAX ? -EPROTO : 0;
	if (end[1] != '\n' || end + 2 - data > PROXY_V1_MAX)
		return -EPROTO;
	memcpy(words, data + sizeof(v1_start) - 1, words_len);
	words[words_len] = '\0';
	if (parse_words(words, &addrs) < 0)
		return -EPROTO;
	*out = addrs;
	return end + 2 - data;
}

/* ---- version 2 ---- */

/* CRC-32C (Castagnoli), half a byte at a time: at most 2 KiB, once. */
static uint32_t crc32c(uint32_t crc, uint8_t byte)
{
	/* The CRC of each possible low half after four zero bits. */
	static const uint32_t halves[16] = {
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
		0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

	crc ^= byte;
	crc = crc >> 4 ^ halves[crc & 15];
	return crc >> 4 ^ halves[crc & 15];
}

/* Checks the sum over the whole header, with zeros in its own place (2.2.3). */
static bool sum_is_right(const uint8_t *header, size_t len, size_t at)
{
	uint32_t crc = 0xffffffffu;

	for (size_t i = 0; i < len; i++)
		crc = crc32c(crc, i - at < 4 ? 0 : header[i]);
	crc = ~crc;
	for (size_t i = 0; i < 4; i++)
		if (header[at + i] != (uint8_t)(crc >> (24 - 8 * i)))
			return false;
	return true;
}

/*
 * Checks that type-length-value triples fill a header from `at` on exactly
 * (section 2.2). One of them may be a checksum, which has to be right; a second
 * is refused, since each costs a pass over the header.
 */
static bool are_tlvs(const uint8_t *header, size_t len, size_t at)
{
	unsigned sums = 0;

	while (len - at >= 3) {
		size_t value = (size_t)header[at + 1] << 8 | header[at + 2];

		if (value > len - at - 3)
			return false;
		if (header[at] == V2_TYPE_CRC32C &&
		    (value != 4 || sums++ ||
		     !sum_is_right(header, len, at + 3)))
			return false;
		at += 3 + value;
	}
	return at == len;
}

static uint16_t read_be16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/*
 * Parses the addresses of a stream over IPv4 or IPv6, each of `size` bytes, in
 * a header that is there as a whole.
 */
static int parse_block(const uint8_t *header, size_t len, size_t size,
		       struct proxy_addrs *out)
{
	const uint8_t *data = header + PROXY_V2_HEADER;

	if (len < PROXY_V2_HEADER + 2 * size + 4 ||
	    !are_tlvs(header, len, PROXY_V2_HEADER + 2 * size + 4))
		return -EPROTO;
	out->family = size == 4 ? 4 : 6;
	memcpy(out->src, data, size);
	memcpy(out->dst, data + size, size);
	out->src_port = read_be16(data + 2 * size);
	out->dst_port = read_be16(data + 2 * size + 2);
	return 0;
}

static long parse_v2(const uint8_t *data, size_t len, struct proxy_addrs *out)
{
	struct proxy_addrs addrs = {0};
	size_t rest;
	int err = 0;

	if (len < PROXY_V2_HEADER)
		return 0;
	rest = read_be16(data + 14);
	if (data[12] >> 4 != 2 || (data[12] & 15) > 1 || data[13] >> 4 > 3 ||
	    (data[13] & 15) > 2 || PROXY_V2_HEADER + rest > PROXY_V2_MAX)
		return -EPROTO;
	if (len < PROXY_V2_HEADER + rest)
		return 0;
	if ((data[12] & 15) == 1 && data[13] == 0x11)
		err = parse_block(data, PROXY_V2_HEADER + rest, 4, &addrs);
	else if ((data[12] & 15) == 1 && data[13] == 0x21)
		err = parse_block(data, PROXY_V2_HEADER + rest, 16, &addrs);
	if (err < 0)
		return err;
	*out = addrs;
	return (long)(PROXY_V2_HEADER + rest);
}

static bool begins_with(const void *data, size_t len, const void *start,
			size_t n)
{
	return memcmp(data, start, len < n ? len : n) == 0;
}

long proxy_parse(const void *data, size_t len, struct proxy_addrs *out)
{
	const size_t v1_len = sizeof(v1_start) - 1;

	if (len == 0)
		return 0;
	if (begins_with(data, len, v1_start, v1_len))
		return len < v1_len ? 0 : parse_v1(data, len, out);
	if (begins_with(data, len, v2_start, sizeof(v2_start)))
		return parse_v2(data, len, out);
	return -EPROTO;
}

/* ---- writing ---- */

static size_t write_v1(const struct proxy_addrs *addrs, char *buf)
{
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];
	int af = addrs->family == 4 ? AF_INET : AF_INET6;

	if (addrs->family == 0) {
		memcpy(buf, "PROXY UNKNOWN\r\n", 15);
		return 15;
	}
	inet_ntop(af, addrs->src, src, sizeof(src));
	inet_ntop(af, addrs->dst, dst, sizeof(dst));
	/* At most 104 bytes. */
	return (size_t)snprintf(buf, PROXY_WRITE_MAX,
				"PROXY TCP%d %s %s %u %u\r\n", addrs->family,
				src, dst, addrs->src_port, addrs->dst_port);
}

static size_t write_v2(const struct proxy_addrs *addrs, uint8_t *buf)
{
	size_t size = addrs->family == 4 ? 4 : 16;
	size_t rest = addrs->family ? 2 * size + 4 : 0;
	uint8_t *at = buf + PROXY_V2_HEADER;

	memcpy(buf, v2_start, sizeof(v2_start));
	buf[12] = addrs->family ? 0x21 : 0x20;
	buf[13] = addrs->family == 4 ? 0x11 : addrs->family == 6 ? 0x21 : 0;
	buf[14] = 0;
	buf[15] = (uint8_t)rest;
	if (rest == 0)
		return PROXY_V2_HEADER;
	memcpy(at, addrs->src, size);
	memcpy(at + size, addrs->dst, size);
	at += 2 * size;
	at[0] = (uint8_t)(addrs->src_port >> 8);
	at[1] = (uint8_t)addrs->src_port;
	at[2] = (uint8_t)(addrs->dst_port >> 8);
	at[3] = (uint8_t)addrs->dst_port;
	return PROXY_V2_HEADER + rest;
}

size_t proxy_write(int version, const struct proxy_addrs *addrs, void *buf)
{
	return version == 1 ? write_v1(addrs, buf) : write_v2(addrs, buf);
}

/* ---- TLVs ---- */

const uint8_t *proxy_tlvs(const void *header, size_t len, size_t *n)
{
	const uint8_t *data = header;
	size_t at = 0;

	*n = 0;
	if (len < PROXY_V2_HEADER ||
	    !begins_with(data, len, v2_start, sizeof(v2_start)) ||
	    (data[12] & 15) != 1)
		return NULL;
	if (data[13] == 0x11)
		at = PROXY_V2_HEADER + 12;
	else if (data[13] == 0x21)
		at = PROXY_V2_HEADER + 36;
	if (at == 0 || at >= len)
		return NULL;
	*n = len - at;
	return data + at;
}

static uint8_t *put_tlv(uint8_t *at, uint8_t type, const void *value,
			size_t len)
{
	at[0] = type;
	at[1] = (uint8_t)(len >> 8);
	at[2] = (uint8_t)len;
	memcpy(at + 3, value, len);
	return at + 3 + len;
}

/* Adds a text, unless it is empty. */
static uint8_t *put_text(uint8_t *at, uint8_t type, const char *text)
{
	return *text ? put_tlv(at, type, text, strlen(text)) : at;
}

static uint8_t *put_tls(uint8_t *at, const struct proxy_tls *tls,
			const char *server_name)
{
	uint8_t *ssl;

	at = put_text(at, V2_TYPE_ALPN, tls->alpn);
	at = put_text(at, V2_TYPE_AUTHORITY, server_name ? server_name : "");
	ssl = at;
	/* 0: verified. Its length is known at the end. */
	at = put_tlv(at, V2_TYPE_SSL,
		     (const uint8_t[]){V2_CLIENT_SSL, 0, 0, 0, !tls->verified},
		     5);
	if (tls->has_cert)
		ssl[3] |= V2_CLIENT_CERT_CONN | V2_CLIENT_CERT_SESS;
	at = put_text(at, V2_SUBTYPE_SSL_VERSION, tls->version);
	at = put_text(at, V2_SUBTYPE_SSL_CN, tls->client);
	at = put_text(at, V2_SUBTYPE_SSL_CIPHER, tls->cipher);
	ssl[1] = (uint8_t)((at - ssl - 3) >> 8);
	ssl[2] = (uint8_t)(at - ssl - 3);
	return at;
}

/* Is a TLV of a header that has come passed on? */
static bool is_passed_on(uint8_t type, const struct proxy_tls *tls)
{
	return type != V2_TYPE_CRC32C && type != V2_TYPE_NOOP &&
	       (!tls || (type != V2_TYPE_ALPN && type != V2_TYPE_AUTHORITY &&
			 type != V2_TYPE_SSL));
}

size_t proxy_write_tlvs(const struct proxy_addrs *addrs,
			const struct proxy_extra *extra, void *buf)
{
	uint8_t *header = buf, *at = header + write_v2(addrs, buf);
	const uint8_t *tlvs = extra->tlvs;
	size_t left = extra->tlvs_len, rest;
	bool has_id = false;

	while (left >= 3) {
		size_t value = read_be16(tlvs + 1);

		if (value > left - 3)
			break;
		if (is_passed_on(tlvs[0], extra->tls))
			at = put_tlv(at, tlvs[0], tlvs + 3, value);
		has_id |= tlvs[0] == V2_TYPE_ID;
		tlvs += 3 + value;
		left -= 3 + value;
	}
	if (extra->tls)
		at = put_tls(at, extra->tls, extra->server_name);
	if (extra->id_len && !has_id)
		at = put_tlv(at, V2_TYPE_ID, extra->id, extra->id_len);
	rest = (size_t)(at - header) - PROXY_V2_HEADER;
	header[14] = (uint8_t)(rest >> 8);
	header[15] = (uint8_t)rest;
	return (size_t)(at - header);
}
