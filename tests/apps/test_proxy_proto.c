/*
 * PROXY headers: valid ones are parsed however they are split, and others are
 * refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include <cmocka.h>

#include "apps/proxy/proxy_proto.h"

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"

/*
 * Parses from an allocation of len bytes, so that ASan sees reads beyond the
 * end, after every shorter prefix: none may be accepted, and none may be
 * refused if the whole is accepted.
 */
static long parse_header(const void *data, size_t len, struct proxy_addrs *out)
{
	long result = 0;

	for (size_t part = 0; part <= len; part++) {
		uint8_t *copy = malloc(part ? part : 1);
		long n;

		memcpy(copy, data, part);
		n = proxy_parse(copy, part, out);
		free(copy);
		if (part && result != 0)
			assert_int_equal(n, result); /* the result is final */
		if (n > 0)
			assert_true((size_t)n <= part);
		result = n;
	}
	return result;
}

static long parse_text(const char *text)
{
	struct proxy_addrs out;

	return parse_header(text, strlen(text), &out);
}

static void test_v1_addresses_are_parsed(void **state)
{
	const char *text = "PROXY TCP4 192.0.2.7 10.9.0.1 65535 80\r\nGET";
	struct proxy_addrs out;
	uint32_t ip;

	assert_int_equal(parse_header(text, strlen(text), &out),
			 strlen(text) - 3);
	assert_int_equal(out.family, 4);
	memcpy(&ip, out.src, 4);
	assert_int_equal(ip, inet_addr("192.0.2.7"));
	memcpy(&ip, out.dst, 4);
	assert_int_equal(ip, inet_addr("10.9.0.1"));
	assert_int_equal(out.src_port, 65535);
	assert_int_equal(out.dst_port, 80);
	text = "PROXY TCP6 2001:db8::1 ::1 1 2\r\n";
	assert_int_equal(parse_header(text, strlen(text), &out), strlen(text));
	assert_int_equal(out.family, 6);
	assert_int_equal(out.src[15], 1);
	assert_int_equal(out.src[0], 0x20);
}

static void test_v1_unknown_ignores_the_rest_of_the_line(void **state)
{
	struct proxy_addrs out;

	assert_int_equal(parse_header("PROXY UNKNOWN\r\n", 15, &out), 15);
	assert_int_equal(out.family, 0);
	assert_int_equal(parse_text("PROXY UNKNOWN a  b c\r\n"), 22);
}

static void test_malformed_v1_is_refused(void **state)
{
	static const char *const wrong[] = {
		"GET / HTTP/1.1\r\n\r\n",
		"proxy TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY TCP4  1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY TCP4\t1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\rX",
		"PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 -1 2\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1 2x\r\n",
		"PROXY TCP4 ::1 ::1 1 2\r\n",
		"PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY TCP4 1.1.1.256 2.2.2.2 1 2\r\n",
		"PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY UNKNOWNX\r\n",
		"PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY \r\n",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(parse_text(wrong[i]), -EPROTO);
	assert_int_equal(parse_header("PROXY UNKNOWN \0\r\n", 17,
				      &(struct proxy_addrs){0}),
			 -EPROTO);
}

static void test_v1_ends_within_its_107_bytes(void **state)
{
	char text[200] = "PROXY UNKNOWN ";
	struct proxy_addrs out;

	memset(text + 14, 'x', sizeof(text) - 14);
	assert_int_equal(proxy_parse(text, 106, &out), 0);
	assert_int_equal(proxy_parse(text, 107, &out), -EPROTO);
	memcpy(text + 105, "\r\n", 2);
	assert_int_equal(parse_header(text, 107, &out), 107);
	memset(text + 105, 'x', 2);
	memcpy(text + 106, "\r\n", 2);
	assert_int_equal(parse_header(text, 108, &out), -EPROTO);
}

/* A v2 header for the bytes that follow the signature. */
static long parse_v2(const void *rest, size_t len, struct proxy_addrs *out)
{
	uint8_t data[4096] = SIGNATURE;

	memcpy(data + 12, rest, len);
	return parse_header(data, 12 + len, out);
}

static void test_v2_addresses_are_parsed(void **state)
{
	static const uint8_t ip4[] = {0x21, 0x11, 0, 12,   192,	 0, 2,	7,  10,
				      9,    0,	  1, 0x12, 0x34, 0, 80, 'G'};
	uint8_t ip6[4 + 36] = {0x21, 0x21, 0, 36, 0x20, 1};
	struct proxy_addrs out;

	assert_int_equal(parse_v2(ip4, sizeof(ip4), &out), 28);
	assert_int_equal(out.family, 4);
	assert_int_equal(out.src[0], 192);
	assert_int_equal(out.dst[3], 1);
	assert_int_equal(out.src_port, 0x1234);
	assert_int_equal(out.dst_port, 80);
	assert_int_equal(parse_v2(ip6, sizeof(ip6), &out), 52);
	assert_int_equal(out.family, 6);
	assert_int_equal(out.src[1], 1);
}

static void test_v2_local_and_other_families_are_unknown(void **state)
{
	static const uint8_t local[] = {0x20, 0x00, 0, 0};
	static const uint8_t local_ip4[] = {0x20, 0x11, 0, 2, 0, 0};
	static const uint8_t udp[] = {0x21, 0x12, 0, 12, 1, 1, 1, 1,
				      2,    2,	  2, 2,	 0, 1, 0, 2};
	struct proxy_addrs out;

	assert_int_equal(parse_v2(local, sizeof(local), &out), 16);
	assert_int_equal(out.family, 0);
	assert_int_equal(parse_v2(local_ip4, sizeof(local_ip4), &out), 18);
	assert_int_equal(out.family, 0);
	assert_int_equal(parse_v2(udp, sizeof(udp), &out), 28);
	assert_int_equal(out.family, 0);
}

static void test_v2_tlvs_must_fill_the_header(void **state)
{
	uint8_t data[4 + 12 + 7] = {0x21, 0x11, 0, 12 + 7};
	struct proxy_addrs out;

	data[16] = 0x04; /* NOOP, 4 bytes */
	data[18] = 4;
	assert_int_equal(parse_v2(data, sizeof(data), &out), 35);
	data[18] = 5;
	assert_int_equal(parse_v2(data, sizeof(data), &out), -EPROTO);
	data[18] = 2; /* two bytes are left: no TLV */
	assert_int_equal(parse_v2(data, sizeof(data), &out), -EPROTO);
}

/* The sum was computed apart, by a table; 123456789 gives it e3069283. */
static void test_v2_checksum_has_to_be_right(void **state)
{
	uint8_t data[] = {0x21, 0x11, 0, 19,   192,  0,	   2,	7,
			  192,	0,    2, 8,    0x04, 0xd2, 0,	80,
			  0x03, 0,    4, 0x4c, 0x2c, 0xb5, 0x50};
	struct proxy_addrs out;

	assert_int_equal(parse_v2(data, sizeof(data), &out), 35);
	assert_int_equal(out.src_port, 1234);
	for (size_t i = 4; i < sizeof(data); i++) {
		if (i == 16)
			continue; /* another type: no checksum */
		data[i] ^= 0x10;
		assert_int_equal(parse_v2(data, sizeof(data), &out), -EPROTO);
		data[i] ^= 0x10;
	}
	data[3] = 18; /* a sum of three bytes */
	data[18] = 3;
	assert_int_equal(parse_v2(data, sizeof(data) - 1, &out), -EPROTO);
}

/* CRC-32C bit by bit, as the specification writes it. */
static uint32_t slow_crc(const uint8_t *data, size_t len)
{
	uint32_t crc = 0xffffffffu;

	for (size_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

static void put_crc(uint8_t *at, uint32_t crc)
{
	for (size_t i = 0; i < 4; i++)
		at[i] = (uint8_t)(crc >> (24 - 8 * i));
}

#define SUM_1	 (16 + 12 + 3) /* offsets of the values of two TLVs */
#define SUM_2	 (SUM_1 + 7)
#define SUMS_LEN (16 + 12 + 14)

/*
 * Returns the second checksum that makes the first one right if the second is
 * b.
 */
static uint32_t answer_to(uint8_t *header, uint32_t b)
{
	memset(header + SUM_1, 0, 4);
	put_crc(header + SUM_2, b);
	put_crc(header + SUM_1, slow_crc(header, SUMS_LEN));
	memset(header + SUM_2, 0, 4);
	return slow_crc(header, SUMS_LEN);
}

static void swap_words(uint32_t *a, uint32_t *b)
{
	uint32_t t = *a;

	*a = *b;
	*b = t;
}

/*
 * Finds the b that is its own answer. CRC is linear: every bit of b flips the
 * same bits of the answer, so Gaussian elimination finds b.
 */
static uint32_t solve_checksum(uint8_t *header)
{
	uint32_t left = answer_to(header, 0), rows[32], bits[32], b = 0;

	for (unsigned i = 0; i < 32; i++) {
		bits[i] = UINT32_C(1) << i;
		rows[i] = answer_to(header, bits[i]) ^ left ^ bits[i];
	}
	for (unsigned bit = 0, at = 0; bit < 32; bit++) {
		unsigned i = at;

		while (i < 32 && !(rows[i] >> bit & 1))
			i++;
		if (i == 32)
			continue;
		swap_words(&rows[i], &rows[at]);
		swap_words(&bits[i], &bits[at]);
		for (i = at + 1; i < 32; i++)
			if (rows[i] >> bit & 1) {
				rows[i] ^= rows[at];
				bits[i] ^= bits[at];
			}
		if (left >> bit & 1) {
			left ^= rows[at];
			b ^= bits[at];
		}
		at++;
	}
	assert_int_equal(left, 0);
	return b;
}

static bool sum_is_right(const uint8_t *header, size_t at)
{
	uint8_t copy[SUMS_LEN];

	memcpy(copy, header, SUMS_LEN);
	memset(copy + at, 0, 4);
	put_crc(copy + at, slow_crc(copy, SUMS_LEN));
	return memcmp(copy, header, SUMS_LEN) == 0;
}

/* Two that are both right are refused: each costs a pass over the header. */
static void test_v2_has_one_checksum(void **state)
{
	uint8_t header[SUMS_LEN] = "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x1a";
	struct proxy_addrs out;
	uint32_t b;

	memcpy(header + SUM_1 - 3, "\x03\0\x04", 3);
	memcpy(header + SUM_2 - 3, "\x04\0\x04", 3); /* means nothing */
	put_crc(header + SUM_1, slow_crc(header, SUMS_LEN));
	assert_int_equal(proxy_parse(header, SUMS_LEN, &out), SUMS_LEN);
	header[SUM_2 - 3] = 0x03;
	b = solve_checksum(header);
	memset(header + SUM_1, 0, 4);
	put_crc(header + SUM_2, b);
	put_crc(header + SUM_1, slow_crc(header, SUMS_LEN));
	assert_true(sum_is_right(header, SUM_1));
	assert_true(sum_is_right(header, SUM_2));
	assert_int_equal(proxy_parse(header, SUMS_LEN, &out), -EPROTO);
}

static void test_malformed_v2_is_refused(void **state)
{
	static const uint8_t wrong[][4] = {
		{0x11, 0x11, 0, 12}, /* version */
		{0x22, 0x11, 0, 12}, /* command */
		{0x21, 0x41, 0, 12}, /* family */
		{0x21, 0x13, 0, 12}, /* transport */
		{0x21, 0x11, 0, 11}, /* too short for its family */
		{0x21, 0x21, 0, 35}, {0x21, 0x11, 8, 1}, /* beyond the bound */
	};
	struct proxy_addrs out;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint8_t data[64] = {0};

		memcpy(data, wrong[i], 4);
		assert_int_equal(parse_v2(data, sizeof(data), &out), -EPROTO);
	}
	assert_int_equal(parse_header("\r\n\r\n\0\r\nQUIT\r", 12, &out),
			 -EPROTO);
}

static void test_written_header_is_parsed_again(void **state)
{
	struct proxy_addrs in = {.src_port = 65535, .dst_port = 1}, out;
	char buf[PROXY_WRITE_MAX];

	memset(in.src, 0xfe, 16);
	memset(in.dst, 0xfd, 16);
	for (int version = 1; version <= 2; version++)
		for (int family = 0; family <= 6; family += 2) {
			size_t len;

			if (family == 2)
				continue;
			in.family = (uint8_t)family;
			len = proxy_write(version, &in, buf);
			assert_int_equal(parse_header(buf, len, &out),
					 (long)len);
			assert_int_equal(out.family, family);
			/* Section 2.2: LOCAL is for unknown addresses alone. */
			if (version == 2)
				assert_int_equal(buf[12], family ? 0x21 : 0x20);
			if (!family)
				continue;
			assert_memory_equal(out.src, in.src,
					    family == 4 ? 4 : 16);
			assert_memory_equal(out.dst, in.dst,
					    family == 4 ? 4 : 16);
			assert_int_equal(out.src_port, 65535);
			assert_int_equal(out.dst_port, 1);
		}
}

static size_t make_tlv(uint8_t *at, uint8_t type, const void *value, size_t len)
{
	at[0] = type;
	at[1] = (uint8_t)(len >> 8);
	at[2] = (uint8_t)len;
	memcpy(at + 3, value, len);
	return 3 + len;
}

/* TLVs are passed on: NOOPs are dropped, a unique ID is added. */
static void test_tlvs_are_passed_on_with_an_id(void **state)
{
	const struct proxy_addrs addrs = {.family = 4, .src_port = 1};
	static uint8_t in[PROXY_V2_MAX], wanted[PROXY_V2_MAX],
		out[PROXY_V2_WRITE_MAX];
	struct proxy_extra extra = {.tlvs = in, .id = "id-1", .id_len = 4};
	struct proxy_addrs again;
	const uint8_t *tlvs;
	size_t len = 0, n, expected;

	len += make_tlv(in, 0x02, "www.example.com", 15);
	len += make_tlv(in + len, 0x04, "\0\0\0", 3);
	len += make_tlv(in + len, 0x20, "", 0);
	expected = make_tlv(wanted, 0x02, "www.example.com", 15);
	expected += make_tlv(wanted + expected, 0x20, "", 0);
	expected += make_tlv(wanted + expected, 0x05, "id-1", 4);
	extra.tlvs_len = len;
	n = proxy_write_tlvs(&addrs, &extra, out);
	assert_int_equal(parse_header(out, n, &again), n);
	tlvs = proxy_tlvs(out, n, &len);
	assert_int_equal(len, expected);
	assert_memory_equal(tlvs, wanted, expected);
	/* A received ID stays the only one. */
	memcpy(in, tlvs, len);
	extra.tlvs_len = len;
	extra.id = "id-2";
	n = proxy_write_tlvs(&addrs, &extra, out);
	tlvs = proxy_tlvs(out, n, &len);
	assert_int_equal(len, expected);
	assert_memory_equal(tlvs, wanted, expected);
	/* Without TLVs, only the addresses are written. */
	n = proxy_write_tlvs(&addrs, &(struct proxy_extra){0}, out);
	assert_int_equal(n, 28);
	assert_null(proxy_tlvs(out, n, &len));
	assert_int_equal(len, 0);
	assert_null(proxy_tlvs("PROXY UNKNOWN\r\n", 15, &len));
}

/* The TLVs of the client's TLS replace those that came in a header. */
static void test_tls_is_in_the_tlvs(void **state)
{
	const struct proxy_addrs addrs = {.family = 6, .src_port = 1};
	static uint8_t in[PROXY_V2_MAX], wanted[PROXY_V2_MAX],
		out[PROXY_V2_WRITE_MAX];
	struct proxy_tls tls = {"TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256",
				"h2",	   "client 1",
				true,	   true,
				false};
	struct proxy_extra extra = {
		.tlvs = in, .tls = &tls, .server_name = "own.test"};
	struct proxy_addrs again;
	size_t len, n, at, expected;
	uint8_t ssl[128] = {0x07};
	const uint8_t *tlvs;

	extra.tlvs_len = make_tlv(in, 0x02, "theirs.test", 11);
	extra.tlvs_len += make_tlv(in + extra.tlvs_len, 0xe0, "kept", 4);
	extra.tlvs_len += make_tlv(in + extra.tlvs_len, 0x20, "\0\0\0\0\0", 5);
	expected = make_tlv(wanted, 0xe0, "kept", 4);
	expected += make_tlv(wanted + expected, 0x01, "h2", 2);
	expected += make_tlv(wanted + expected, 0x02, "own.test", 8);
	at = 5;
	at += make_tlv(ssl + at, 0x21, "TLSv1.2", 7);
	at += make_tlv(ssl + at, 0x22, "client 1", 8);
	at += make_tlv(ssl + at, 0x23, tls.cipher, 27);
	expected += make_tlv(wanted + expected, 0x20, ssl, at);
	n = proxy_write_tlvs(&addrs, &extra, out);
	assert_int_equal(parse_header(out, n, &again), n);
	tlvs = proxy_tlvs(out, n, &len);
	assert_int_equal(len, expected);
	assert_memory_equal(tlvs, wanted, expected);
	/* Without a certificate or an agreed protocol. */
	tls = (struct proxy_tls){.version = "TLSv1.3",
				 .cipher = "TLS_AES_128_GCM_SHA256"};
	extra = (struct proxy_extra){.tls = &tls};
	memcpy(ssl, "\1\0\0\0\1", 5);
	at = 5;
	at += make_tlv(ssl + at, 0x21, "TLSv1.3", 7);
	at += make_tlv(ssl + at, 0x23, tls.cipher, 22);
	expected = make_tlv(wanted, 0x20, ssl, at);
	n = proxy_write_tlvs(&addrs, &extra, out);
	tlvs = proxy_tlvs(out, n, &len);
	assert_int_equal(len, expected);
	assert_memory_equal(tlvs, wanted, expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tlvs_are_passed_on_with_an_id),
		cmocka_unit_test(test_tls_is_in_the_tlvs),
		cmocka_unit_test(test_v1_addresses_are_parsed),
		cmocka_unit_test(test_v1_unknown_ignores_the_rest_of_the_line),
		cmocka_unit_test(test_malformed_v1_is_refused),
		cmocka_unit_test(test_v1_ends_within_its_107_bytes),
		cmocka_unit_test(test_v2_addresses_are_parsed),
		cmocka_unit_test(test_v2_local_and_other_families_are_unknown),
		cmocka_unit_test(test_v2_tlvs_must_fill_the_header),
		cmocka_unit_test(test_v2_checksum_has_to_be_right),
		cmocka_unit_test(test_v2_has_one_checksum),
		cmocka_unit_test(test_malformed_v2_is_refused),
		cmocka_unit_test(test_written_header_is_parsed_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
