/* Marking of ECN-capable packets, and of no others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/bytes.h"
#include "tests/wire/mark.h"

#define IP 14

static uint8_t frame[IP + 40];

static uint16_t sum_of(const uint8_t *ip)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < 20; i += 2)
		sum += get16(ip + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static void make_ip4(uint8_t tos, unsigned ttl)
{
	static const uint8_t ip[] = {0x45, 0, 0,  40, 0, 7, 0x40, 0, 64, 6,
				     0,	   0, 10, 9,  0, 1, 10,	  9, 0,	 2};

	memset(frame, 0, sizeof(frame));
	put16(frame + 12, 0x0800);
	memcpy(frame + IP, ip, sizeof(ip));
	frame[IP + 1] = tos;
	frame[IP + 8] = (uint8_t)ttl;
	put16(frame + IP + 10, (uint16_t)~sum_of(frame + IP));
	assert_int_equal(sum_of(frame + IP), 0xffff);
}

static void test_ipv4_is_marked_and_its_checksum_holds(void **state)
{
	for (unsigned ttl = 0; ttl < 256; ttl++) {
		for (uint8_t tos = 0; tos < 0xfc; tos++) {
			unsigned field = tos & 3;

			make_ip4(tos, ttl);
			assert_int_equal(wire_mark(frame, sizeof(frame)),
					 field == 1 || field == 2);
			assert_int_equal(frame[IP + 1], field ? tos | 3 : tos);
			assert_int_equal(sum_of(frame + IP), 0xffff);
		}
	}
}

static void test_ipv6_is_marked(void **state)
{
	for (unsigned tos = 0; tos < 256; tos++) {
		unsigned field = tos & 3;

		memset(frame, 0, sizeof(frame));
		put16(frame + 12, 0x86dd);
		put32(frame + IP, 6u << 28 | tos << 20 | 0x12345);
		assert_int_equal(wire_mark(frame, sizeof(frame)),
				 field == 1 || field == 2);
		assert_int_equal(get32(frame + IP),
				 6u << 28 | (field ? tos | 3 : tos) << 20 |
					 0x12345);
	}
}

static void test_non_ip_or_truncated_packet_is_not_marked(void **state)
{
	uint8_t *copy = malloc(IP + 19);

	make_ip4(2, 64);
	memcpy(copy, frame, IP + 19);
	assert_false(wire_mark(copy, IP + 19));
	free(copy);
	put16(frame + 12, 0x0806);
	assert_false(wire_mark(frame, sizeof(frame)));
	assert_int_equal(frame[IP + 1], 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ipv4_is_marked_and_its_checksum_holds),
		cmocka_unit_test(test_ipv6_is_marked),
		cmocka_unit_test(test_non_ip_or_truncated_packet_is_not_marked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
