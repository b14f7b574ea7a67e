/*
 * Checksums of received frames: what glue_check() has found is summed, behind
 * extension headers too. Includes the source, as the check is private to it
 * and has no need of DPDK's EAL.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/port.c"

#define L3 14u

struct segment {
	struct rte_mbuf mbuf;
	struct glue_frame frame;
};

static uint8_t bytes[256];
static unsigned len;
static struct segment segment;

static enum glue_verdict judge(void)
{
	enum glue_verdict verdict;
	struct glue_l4 l4;

	memset(&segment, 0, sizeof(segment));
	segment.mbuf.buf_addr = malloc(len);
	assert_non_null(segment.mbuf.buf_addr);
	memcpy(segment.mbuf.buf_addr, bytes, len);
	segment.mbuf.data_len = (uint16_t)len;
	segment.mbuf.pkt_len = len;
	verdict = check_frame(&segment.mbuf, &segment.frame, &l4);
	free(segment.mbuf.buf_addr);
	return verdict;
}

static void fill_sum(unsigned at, unsigned proto, unsigned off)
{
	bool v4 = bytes[12] == 8;
	unsigned l4_len = len - off;
	uint64_t sum = 0;
	uint16_t value;

	if (v4) {
		value = (uint16_t)~glue_sum_fold(
			glue_sum_add(0, bytes + L3, off - L3));
		memcpy(bytes + L3 + 10, &value, 2);
	}
	if (proto != IPPROTO_ICMP)
		sum = glue_sum_pseudo(bytes + L3 + (v4 ? 12 : 8), v4 ? 4 : 16,
				      (uint8_t)proto, l4_len);
	value = (uint16_t)~glue_sum_fold(
		glue_sum_add(sum, bytes + off, l4_len));
	memcpy(bytes + at, &value, 2);
}

static void ip6(unsigned next, unsigned payload)
{
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, "\2\0\0\0\0\1\2\0\0\0\0\2\206\335\140", 15);
	bytes[L3 + 5] = (uint8_t)payload;
	bytes[L3 + 6] = (uint8_t)next;
	bytes[L3 + 7] = 255;
	bytes[L3 + 8] = bytes[L3 + 24] = 0xfd;
	len = L3 + 40 + payload;
}

static void ip4(unsigned proto, unsigned payload)
{
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, "\2\0\0\0\0\1\2\0\0\0\0\2\10\0\105", 15);
	bytes[L3 + 3] = (uint8_t)(20 + payload);
	bytes[L3 + 8] = 64;
	bytes[L3 + 9] = (uint8_t)proto;
	memcpy(bytes + L3 + 12, "\12\0\0\2\12\0\0\1", 8);
	len = L3 + 20 + payload;
}

/* A right sum passes, one bit anywhere behind makes it wrong. */
static void expect_summed(unsigned sum_at, unsigned proto, unsigned off)
{
	fill_sum(sum_at, proto, off);
	assert_int_equal(judge(), GLUE_KEEP);
	assert_true(segment.frame.flags & GLUE_FRAME_CSUM_OK);
	bytes[len - 1] ^= 1;
	assert_int_equal(judge(), GLUE_BAD_CSUM);
	bytes[len - 1] ^= 1;
	bytes[sum_at] ^= 0x80;
	assert_int_equal(judge(), GLUE_BAD_CSUM);
}

static void test_plain_tcp_is_summed(void **state)
{
	ip6(IPPROTO_TCP, 28);
	expect_summed(L3 + 40 + 16, IPPROTO_TCP, L3 + 40);
	ip4(IPPROTO_TCP, 28);
	expect_summed(L3 + 20 + 16, IPPROTO_TCP, L3 + 20);
}

static void test_tcp_behind_options_is_summed(void **state)
{
	ip6(IPPROTO_DSTOPTS, 8 + 28);
	memcpy(bytes + L3 + 40, "\6\0\1\4\0\0\0\0", 8);
	expect_summed(L3 + 48 + 16, IPPROTO_TCP, L3 + 48);
	ip6(IPPROTO_FRAGMENT, 8 + 28);
	bytes[L3 + 40] = IPPROTO_TCP;
	expect_summed(L3 + 48 + 16, IPPROTO_TCP, L3 + 48);
}

static void test_icmp_is_summed(void **state)
{
	ip6(IPPROTO_ICMPV6, 12);
	bytes[L3 + 40] = 128;
	expect_summed(L3 + 42, IPPROTO_ICMPV6, L3 + 40);
	ip4(IPPROTO_ICMP, 12);
	bytes[L3 + 20] = 8;
	expect_summed(L3 + 22, IPPROTO_ICMP, L3 + 20);
}

static void test_udp4_may_have_no_sum(void **state)
{
	ip4(IPPROTO_UDP, 12);
	fill_sum(L3 + 26, IPPROTO_UDP, L3 + 20);
	bytes[L3 + 26] = bytes[L3 + 27] = 0;
	assert_int_equal(judge(), GLUE_KEEP);
	ip6(IPPROTO_UDP, 12);
	assert_int_equal(judge(), GLUE_BAD_CSUM);
	expect_summed(L3 + 46, IPPROTO_UDP, L3 + 40);
}

static void test_ip4_header_is_summed(void **state)
{
	ip4(IPPROTO_TCP, 28);
	fill_sum(L3 + 36, IPPROTO_TCP, L3 + 20);
	bytes[L3 + 8] ^= 1;
	assert_int_equal(judge(), GLUE_BAD_CSUM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_tcp_is_summed),
		cmocka_unit_test(test_tcp_behind_options_is_summed),
		cmocka_unit_test(test_icmp_is_summed),
		cmocka_unit_test(test_udp4_may_have_no_sum),
		cmocka_unit_test(test_ip4_header_is_summed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
