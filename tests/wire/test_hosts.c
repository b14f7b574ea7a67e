/*
 * Several hosts at one end: a frame goes to the link of its destination.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/wire/hosts.h"

#define FRAME 60

static struct wire_hosts hosts;

static int setup(void **state)
{
	hosts = (struct wire_hosts){.n = 3};
	return 0;
}

/* From one host to another: addresses that differ in one byte. */
static const uint8_t *frame_between(uint8_t to, uint8_t from)
{
	static uint8_t bytes[FRAME];

	memset(bytes, 0, sizeof(bytes));
	bytes[0] = bytes[6] = 2;
	bytes[5] = to;
	bytes[11] = from;
	return bytes;
}

static void test_frame_for_an_unknown_host_leaves_by_all_links(void **state)
{
	assert_int_equal(wire_hosts_reach(&hosts, frame_between(0, 9), FRAME),
			 7);
	assert_int_equal(wire_hosts_reach(&hosts, frame_between(1, 9), FRAME),
			 7);
}

static void test_frame_for_the_zero_address_leaves_by_all_links(void **state)
{
	static const uint8_t zeroes[FRAME];

	assert_int_equal(wire_hosts_reach(&hosts, zeroes, FRAME), 7);
}

static void test_known_hosts_are_reached_by_their_link(void **state)
{
	for (uint8_t i = 0; i < 3; i++)
		wire_hosts_learn(&hosts, i, frame_between(9, i), FRAME);
	for (uint8_t i = 0; i < 3; i++)
		assert_int_equal(
			wire_hosts_reach(&hosts, frame_between(i, 9), FRAME),
			1 << i);
	assert_int_equal(wire_hosts_reach(&hosts, frame_between(3, 9), FRAME),
			 7);
}

static void test_group_frame_leaves_by_all_links(void **state)
{
	uint8_t bytes[FRAME];

	/* A group address is not a host's, even as a source. */
	memset(bytes, 0xff, sizeof(bytes));
	wire_hosts_learn(&hosts, 1, bytes, FRAME);
	assert_int_equal(wire_hosts_reach(&hosts, bytes, FRAME), 7);
	assert_false(hosts.host[1].known);
}

static void test_a_host_that_changes_is_learnt_again(void **state)
{
	wire_hosts_learn(&hosts, 2, frame_between(9, 1), FRAME);
	wire_hosts_learn(&hosts, 2, frame_between(9, 5), FRAME);
	assert_int_equal(wire_hosts_reach(&hosts, frame_between(5, 9), FRAME),
			 4);
	assert_int_equal(wire_hosts_reach(&hosts, frame_between(1, 9), FRAME),
			 7);
}

static void test_single_link_gets_every_frame(void **state)
{
	hosts.n = 1;
	wire_hosts_learn(&hosts, 0, frame_between(9, 1), FRAME);
	assert_int_equal(wire_hosts_reach(&hosts, frame_between(2, 9), FRAME),
			 1);
}

static void test_short_frame_is_not_learnt_and_leaves_by_all_links(void **state)
{
	static const uint8_t none[1] = {2};

	wire_hosts_learn(&hosts, 0, frame_between(9, 1), 11);
	assert_false(hosts.host[0].known);
	wire_hosts_learn(&hosts, 0, frame_between(9, 1), 12);
	assert_true(hosts.host[0].known);
	assert_int_equal(wire_hosts_reach(&hosts, none, 1), 7);
	assert_int_equal(wire_hosts_reach(&hosts, none, 0), 7);
	assert_int_equal(wire_hosts_reach(&hosts, frame_between(1, 9), 5), 7);
	assert_int_equal(wire_hosts_reach(&hosts, frame_between(1, 9), 6), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
		TEST(test_frame_for_an_unknown_host_leaves_by_all_links),
		TEST(test_frame_for_the_zero_address_leaves_by_all_links),
		TEST(test_known_hosts_are_reached_by_their_link),
		TEST(test_group_frame_leaves_by_all_links),
		TEST(test_a_host_that_changes_is_learnt_again),
		TEST(test_single_link_gets_every_frame),
		TEST(test_short_frame_is_not_learnt_and_leaves_by_all_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
