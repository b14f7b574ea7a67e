/* TCP segments that join in a TSO frame, and its headers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/tso.h"
#include "tests/bytes.h"

#define MSS 1460u
#define ALL 54u /* bytes of all headers: Ethernet, IPv4, TCP */

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32 };

static struct glue_tso tso;
static uint8_t first[128];

/* Headers of a segment from 10.0.0.1:7 to 10.0.0.2:1000. */
static void write_segment(uint8_t *frame, uint32_t seq, uint8_t flags,
			  unsigned payload)
{
	memset(frame, 0, 128);
	memcpy(frame, "\2\0\0\0\0\2\2\0\0\0\0\1\10\0", 14);
	frame[14] = 0x45;
	put16(frame + 16, 40 + payload);
	put16(frame + 18, seq * 7919); /* a number of its own */
	frame[22] = 64;
	frame[23] = 6;
	memcpy(frame + 26, "\12\0\0\1\12\0\0\2", 8);
	put16(frame + 34, 7);
	put16(frame + 36, 1000);
	put32(frame + 38, seq);
	put32(frame + 42, 4711);
	frame[46] = 0x50;
	frame[47] = flags;
	put16(frame + 48, 5000);
}

static bool begin_frame(uint32_t seq, uint8_t flags, unsigned payload)
{
	write_segment(first, seq, flags, payload);
	return glue_tso_begin(&tso, first, 14, 34, false, ALL + payload);
}

static bool add_segment(uint32_t seq, uint8_t flags, unsigned payload)
{
	uint8_t next[128];

	write_segment(next, seq, flags, payload);
	return glue_tso_add(&tso, next, 14, 34, ALL + payload);
}

static void test_consecutive_segments_join(void **state)
{
	/* 10.0.0.1 + 10.0.0.2 + 6, without the length */
	const unsigned seed = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 6;

	assert_true(begin_frame(0xfffffff0u, ACK, MSS)); /* wraps */
	assert_true(add_segment(0xfffffff0u + MSS, ACK, MSS));
	assert_true(add_segment(0xfffffff0u + 2 * MSS, ACK | PSH, 100));
	assert_int_equal(tso.segs, 3);
	assert_int_equal(tso.mss, MSS);
	put16(first + 24, 0xabcd);
	glue_tso_end(&tso);
	assert_int_equal(first[16] << 8 | first[17], 40 + 2 * MSS + 100);
	assert_int_equal(first[24] << 8 | first[25], 0);
	assert_int_equal(first[50] << 8 | first[51], seed);
	assert_int_equal(first[47], ACK | PSH);
}

static void test_fin_ends_a_tso_frame_and_psh_does_not(void **state)
{
	assert_true(begin_frame(1, ACK, MSS));
	assert_true(add_segment(1 + MSS, ACK | FIN, MSS));
	assert_int_equal(first[47], ACK | FIN);
	assert_false(add_segment(1 + 2 * MSS, ACK, MSS));
	assert_true(begin_frame(1, ACK | FIN, MSS));
	assert_false(add_segment(1 + MSS, ACK, MSS));
	assert_true(begin_frame(1, ACK | PSH, MSS));
	assert_true(add_segment(1 + MSS, ACK, MSS));
	assert_true(add_segment(1 + 2 * MSS, ACK | PSH, MSS));
	assert_int_equal(first[47], ACK | PSH);
}

static void test_short_segment_ends_a_tso_frame(void **state)
{
	assert_true(begin_frame(1, ACK, MSS));
	assert_true(add_segment(1 + MSS, ACK, 10));
	assert_false(add_segment(1 + MSS + 10, ACK, MSS));
	assert_true(begin_frame(1, ACK, 100)); /* sets the segment size */
	assert_false(add_segment(101, ACK, 101));
	assert_true(add_segment(101, ACK, 100));
}

static void test_gaps_and_repeats_do_not_join(void **state)
{
	assert_true(begin_frame(1, ACK, MSS));
	assert_false(add_segment(1 + MSS + 1, ACK, MSS));
	assert_false(add_segment(1, ACK, MSS)); /* sent again */
	assert_false(add_segment(MSS, ACK, MSS));
	assert_false(add_segment(1 + MSS, ACK, 0)); /* an ACK alone */
	assert_true(add_segment(1 + MSS, ACK, MSS));
}

static void test_segments_with_other_flags_are_sent_alone(void **state)
{
	assert_false(begin_frame(1, ACK | SYN, MSS));
	assert_false(begin_frame(1, ACK | RST, MSS));
	assert_false(begin_frame(1, ACK | URG, MSS));
	assert_false(begin_frame(1, 0, MSS));
	assert_false(begin_frame(1, ACK, 0));
	assert_null(tso.headers);
	assert_false(add_segment(1, ACK, MSS));
	assert_true(begin_frame(1, ACK, MSS));
	assert_false(add_segment(1 + MSS, ACK | RST, MSS));
	assert_false(add_segment(1 + MSS, ACK | SYN, MSS));
}

/* A difference in any byte of the headers, except those that may differ. */
static void test_other_flows_and_headers_do_not_join(void **state)
{
	for (unsigned at = 0; at < ALL; at++) {
		bool may = (at >= 16 && at < 20) || /* IP length, number */
			   (at >= 24 && at < 26) || /* IP checksum */
			   (at >= 50 && at < 52);   /* TCP checksum */
		uint8_t next[128];

		assert_true(begin_frame(1, ACK, MSS));
		write_segment(next, 1 + MSS, ACK, MSS);
		next[at] ^= 0x40;
		assert_int_equal(glue_tso_add(&tso, next, 14, 34, ALL + MSS),
				 may);
	}
}

static void test_segments_with_different_options_do_not_join(void **state)
{
	uint8_t next[128];

	for (unsigned differ = 0; differ < 2; differ++) {
		write_segment(first, 1, ACK, MSS);
		first[46] = 0x80; /* 12 bytes of options */
		memset(first + 54, 1, 12);
		assert_true(glue_tso_begin(&tso, first, 14, 34, false,
					   ALL + 12 + MSS));
		write_segment(next, 1 + MSS, ACK, MSS);
		next[46] = 0x80;
		memset(next + 54, 1, 12);
		next[65] ^= (uint8_t)differ;
		assert_int_equal(
			glue_tso_add(&tso, next, 14, 34, ALL + 12 + MSS),
			!differ);
	}
	assert_true(begin_frame(1, ACK, MSS));
	assert_false(glue_tso_add(&tso, next, 14, 34, ALL + 12 + MSS));
	assert_false(glue_tso_add(&tso, next, 14, 54, ALL + 20 + MSS));
}

static void test_tso_frame_has_at_most_64_kib(void **state)
{
	uint32_t seq = 1;

	assert_true(begin_frame(seq, ACK, 8960));
	for (unsigned i = 0; i < 6; i++)
		assert_true(add_segment(seq += 8960, ACK, 8960));
	assert_int_equal(tso.payload, 7 * 8960);
	/* 40 bytes of headers, and 2775 more make 65535 */
	assert_false(add_segment(seq + 8960, ACK, 8960));
	assert_false(add_segment(seq + 8960, ACK, 2776));
	assert_true(add_segment(seq + 8960, ACK, 2775));
	glue_tso_end(&tso);
	assert_int_equal(first[16] << 8 | first[17], 65535);
}

static void test_ipv6_length_and_seed(void **state)
{
	uint8_t next[128] = {0};

	memset(first, 0, sizeof(first));
	memcpy(first + 12, "\x86\xdd\x60", 3);
	first[20] = 6;
	first[21] = 64;
	memset(first + 22, 0x11, 16);
	memset(first + 38, 0x22, 16);
	put32(first + 58, 1);
	first[66] = 0x50;
	first[67] = ACK;
	put16(first + 18, 20 + 1440);
	memcpy(next, first, sizeof(next));
	put32(next + 58, 1 + 1440);
	put16(next + 18, 20 + 7);
	assert_true(glue_tso_begin(&tso, first, 14, 54, true, 74 + 1440));
	assert_true(glue_tso_add(&tso, next, 14, 54, 74 + 7));
	glue_tso_end(&tso);
	assert_int_equal(first[18] << 8 | first[19], 20 + 1447);
	/* 8 * 1111 + 8 * 2222 + 6, folded */
	assert_int_equal(first[70] << 8 | first[71], (8 * 0x3333 + 6) % 0xffff);
	next[53] ^= 1; /* another address */
	put32(next + 58, 1 + 1447);
	assert_false(glue_tso_add(&tso, next, 14, 54, 74 + 7));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_consecutive_segments_join),
		cmocka_unit_test(test_fin_ends_a_tso_frame_and_psh_does_not),
		cmocka_unit_test(test_short_segment_ends_a_tso_frame),
		cmocka_unit_test(test_gaps_and_repeats_do_not_join),
		cmocka_unit_test(test_segments_with_other_flags_are_sent_alone),
		cmocka_unit_test(test_other_flows_and_headers_do_not_join),
		cmocka_unit_test(
			test_segments_with_different_options_do_not_join),
		cmocka_unit_test(test_tso_frame_has_at_most_64_kib),
		cmocka_unit_test(test_ipv6_length_and_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
