/* glue_check() on messages of neighbour discovery (RFC 4861). */
#include "tests/glue/check_frames.h"

/* A router advertisement with room for options, the first with a MAC. */
static uint8_t *write_ra(unsigned options)
{
	uint8_t *icmp = write_ip6(58, 16 + options);

	bytes[L3 + 7] = 255;
	bytes[L3 + 8] = 0xfe;
	bytes[L3 + 9] = 0x80;
	icmp[0] = 134;
	if (options) {
		icmp[16] = 1;
		icmp[17] = 1;
	}
	return icmp;
}

static void test_router_advertisements_must_come_from_the_link(void **state)
{
	write_ra(8);
	expect_whole_only();
	bytes[L3 + 7] = 254;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_ra(8);
	bytes[L3 + 9] = 0xc0; /* site-local */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_ra(8)[1] = 1;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_ra(0);
	expect_whole_only();
}

static void test_lengths_of_a_router_advertisement_are_checked(void **state)
{
	write_ra(8)[17] = 0;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	write_ra(8)[17] = 2;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	write_ra(12);
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	write_ip6(58, 15)[0] = 134;
	bytes[L3 + 7] = 255;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

static void test_solicitations_of_a_group_bring_their_mac(void **state)
{
	uint8_t *icmp = write_nd(135, 8);

	expect_whole_only();
	bytes[L3 + 24] = 0xff;
	expect_whole_only();
	icmp[24] = 14; /* a nonce, not an address */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	bytes[L3 + 24] = 0xfd;
	assert_int_equal(judge_frame(), GLUE_KEEP);
	write_nd(135, 0);
	assert_int_equal(judge_frame(), GLUE_KEEP);
	bytes[L3 + 24] = 0xff;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_options_of_a_solicitation_come_in_any_order(void **state)
{
	uint8_t *icmp = write_nd(135, 16);

	bytes[L3 + 24] = 0xff;
	memmove(icmp + 32, icmp + 24, 8);
	icmp[24] = 14; /* a nonce */
	expect_whole_only();
	icmp[34] = 0xff;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	memset(bytes + L3 + 8, 0, 16); /* without a source, but with its MAC */
	icmp[34] = 2;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_mac_option_of_a_solicitation_is_checked(void **state)
{
	uint8_t *icmp = write_nd(135, 8);

	icmp[25] = 0;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	icmp[25] = 2;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	icmp[25] = 1;
	icmp[26] = 0xff;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_nd(135, 12); /* a piece of an option */
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

static void test_solicitations_without_source_have_no_mac_option(void **state)
{
	write_nd(135, 0);
	memset(bytes + L3 + 8, 0, 16);
	assert_int_equal(judge_frame(), GLUE_REFUSED); /* not multicast */
	bytes[L3 + 24] = 0xff;
	assert_int_equal(judge_frame(), GLUE_KEEP);
	write_nd(135, 8);
	memset(bytes + L3 + 8, 0, 16);
	bytes[L3 + 24] = 0xff;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	bytes[L3 + 40 + 24] = 14; /* the nonce of RFC 7527 */
	assert_int_equal(judge_frame(), GLUE_KEEP);
}

static void test_advertisements_follow_rfc4861(void **state)
{
	uint8_t *icmp = write_nd(136, 8);

	expect_whole_only();
	icmp[26] = 0xff;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	icmp[24] = 1; /* not the target's, so it does not matter */
	assert_int_equal(judge_frame(), GLUE_KEEP);
	write_nd(136, 0);
	assert_int_equal(judge_frame(), GLUE_KEEP);
	icmp = write_nd(136, 8);
	icmp[4] = 0x40;
	assert_int_equal(judge_frame(), GLUE_KEEP);
	bytes[L3 + 24] = 0xff; /* solicited, and sent to all */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_nd(136, 8);
	bytes[L3 + 7] = 254; /* from beyond a router */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_nd(136, 8)[1] = 1;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_nd(136, 8)[8] = 0xff;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_nd(136, 8);
	bytes[L3 + 8] = 0xff;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_router_advertisements_must_come_from_the_link),
		cmocka_unit_test(
			test_lengths_of_a_router_advertisement_are_checked),
		cmocka_unit_test(test_solicitations_of_a_group_bring_their_mac),
		cmocka_unit_test(
			test_options_of_a_solicitation_come_in_any_order),
		cmocka_unit_test(test_mac_option_of_a_solicitation_is_checked),
		cmocka_unit_test(
			test_solicitations_without_source_have_no_mac_option),
		cmocka_unit_test(test_advertisements_follow_rfc4861),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
