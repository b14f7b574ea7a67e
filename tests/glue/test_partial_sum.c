/* Partial checksums of virtual peers are recognised and completed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "dpdk_glue/partial_sum.h"

static uint8_t bytes[128];
static struct glue_frame frame, rest;

static uint16_t sum_of(unsigned addrs, unsigned addr_len, uint8_t proto,
		       unsigned len)
{
	uint64_t pseudo = glue_sum_pseudo(bytes + addrs, addr_len, proto, len);

	return glue_sum_fold(glue_sum_add(pseudo, bytes + frame.l4_off, len));
}

/* A datagram or a segment of 31 bytes over IPv4, and Ethernet's padding. */
static void make_frame4(uint8_t proto, uint16_t flag)
{
	uint8_t *ip = bytes + 14;
	uint16_t sum;

	memset(bytes, 0xa5, sizeof(bytes));
	memset(ip, 0, 20);
	ip[0] = 0x45;
	ip[3] = 20 + 31;
	ip[8] = 64;
	ip[9] = proto;
	memcpy(ip + 12, "\12\0\0\2\12\0\0\1", 8);
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(0, ip, 20));
	memcpy(ip + 10, &sum, 2);
	sum = glue_sum_fold(glue_sum_pseudo(ip + 12, 4, proto, 31));
	memcpy(ip + 20 + (proto == 6 ? 16 : 6), &sum, 2);
	frame = (struct glue_frame){
		.data = bytes,
		.seg_len = 14 + 20 + 31 + 6,
		.flags = GLUE_FRAME_IP4 | GLUE_FRAME_CSUM_OK | flag,
		.l3_off = 14,
		.l4_off = 34,
	};
}

static void test_sums_over_ipv4_are_completed(void **state)
{
	make_frame4(6, GLUE_FRAME_TCP);
	glue_complete_sum(&frame);
	assert_int_equal(sum_of(26, 4, 6, 31), 0xffff);
	make_frame4(17, GLUE_FRAME_UDP);
	glue_complete_sum(&frame);
	assert_int_equal(sum_of(26, 4, 17, 31), 0xffff);
}

static void test_sum_over_ipv6_is_completed(void **state)
{
	uint16_t sum;

	memset(bytes, 0x5a, sizeof(bytes));
	bytes[18] = 0;
	bytes[19] = 25;
	sum = glue_sum_fold(glue_sum_pseudo(bytes + 22, 16, 17, 25));
	memcpy(bytes + 54 + 6, &sum, 2);
	frame = (struct glue_frame){
		.data = bytes,
		.seg_len = 14 + 40 + 25,
		.flags = GLUE_FRAME_IP6 | GLUE_FRAME_CSUM_OK | GLUE_FRAME_UDP,
		.l3_off = 14,
		.l4_off = 54,
	};
	glue_complete_sum(&frame);
	assert_int_equal(sum_of(22, 16, 17, 25), 0xffff);
}

static void test_segmented_frame_is_summed_whole(void **state)
{
	make_frame4(6, GLUE_FRAME_TCP);
	rest = (struct glue_frame){.data = bytes + 57,
				   .seg_len = 14 + 20 + 31 + 6 - 57};
	frame.seg_len = 57; /* an odd number of bytes from l4_off on */
	frame.next = &rest;
	glue_complete_sum(&frame);
	assert_int_equal(sum_of(26, 4, 6, 31), 0xffff);
}

static void test_other_frames_are_left_alone(void **state)
{
	uint8_t before[sizeof(bytes)];

	make_frame4(6, GLUE_FRAME_TCP);
	glue_complete_sum(&frame);
	memcpy(before, bytes, sizeof(bytes));
	glue_complete_sum(&frame); /* whole already */
	assert_memory_equal(bytes, before, sizeof(bytes));
	make_frame4(6, GLUE_FRAME_TCP);
	frame.flags &= (uint16_t)~GLUE_FRAME_CSUM_OK; /* not verified */
	memcpy(before, bytes, sizeof(bytes));
	glue_complete_sum(&frame);
	assert_memory_equal(bytes, before, sizeof(bytes));
	make_frame4(1, GLUE_FRAME_ICMP);
	memcpy(before, bytes, sizeof(bytes));
	glue_complete_sum(&frame);
	assert_memory_equal(bytes, before, sizeof(bytes));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums_over_ipv4_are_completed),
		cmocka_unit_test(test_sum_over_ipv6_is_completed),
		cmocka_unit_test(test_segmented_frame_is_summed_whole),
		cmocka_unit_test(test_other_frames_are_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
