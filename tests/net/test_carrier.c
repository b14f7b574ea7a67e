/*
 * A link loses its carrier and gets it back: connections go on at once, however
 * often what they sent was lost meanwhile.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

#define OUTAGE_MS 20000u
#define SOON_MS	  5u

static void forget_sent(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

/* The link is without a carrier for a while; what is sent is lost. */
static void lose_carrier(unsigned ms)
{
	fake_no_carrier = true;
	for (unsigned i = 0; i < ms; i += 10) {
		run_ms(10);
		forget_sent();
	}
	fake_no_carrier = false;
}

/* Milliseconds until a segment is sent; fails after `most`. */
static unsigned ms_until_segment(unsigned most)
{
	struct segment s;

	for (unsigned ms = 1; ms <= most; ms++) {
		run_ms(1);
		if (peer_next(&s)) {
			forget_sent();
			return ms;
		}
	}
	fail_msg("nothing was sent within %u ms", most);
	return 0;
}

static void test_data_is_sent_again_when_the_carrier_is_back(void **state)
{
	repair_connect(true, 3 * MSS);
	forget_sent();
	lose_carrier(OUTAGE_MS);
	assert_in_range(ms_until_segment(SOON_MS), 1, SOON_MS);
	/* That may be lost, too: an interface begins to send a while later. */
	assert_in_range(ms_until_segment(1000), 100, 1000);
	ACK(3);
	run_ms(1);
	assert_null(ours->pcb.unacked);
}

/* The cause of the losses is known. */
static void test_no_path_mtu_is_guessed_without_a_carrier(void **state)
{
	unsigned mss;

	repair_connect(true, 10 * MSS);
	forget_sent();
	mss = ours->pcb.mss;
	lose_carrier(OUTAGE_MS);
	assert_int_equal(net_here()->stats.path_mtu_guessed, 0);
	assert_int_equal(ours->pcb.mss, mss);
	ms_until_segment(SOON_MS);
	ACK(10);
	run_ms(1);
}

static void test_user_timeout_counts_time_without_a_carrier(void **state)
{
	repair_connect(true, 1);
	forget_sent();
	net_set_user_timeout(ours, 5000);
	lose_carrier(3000);
	for (unsigned ms = 0; ms < 1500; ms++) {
		run_ms(1);
		forget_sent();
	}
	assert_int_equal(net_here()->n_conns, 1);
	for (unsigned ms = 0; ms < 1000; ms++) {
		run_ms(1);
		forget_sent();
	}
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_shut_window_is_probed_when_the_carrier_is_back(void **state)
{
	repair_connect(true, 3 * MSS);
	forget_sent();
	peer.wnd = 0;
	ACK(3);
	to_send = 1;
	net_send(ours, "x", 1);
	run_ms(1000);
	forget_sent();
	lose_carrier(60000);
	assert_in_range(ms_until_segment(SOON_MS), 1, SOON_MS);
	assert_in_range(ms_until_segment(1000), 100, 1000);
}

static void *dial_peer(void *arg)
{
	struct net_dial_opts opts = {.timeout_ms = 60000};
	struct net_conn *conn;
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", 0, &addr);
	result = net_dial(stack, &addr, &opts, &conn);
	ended++;
	return NULL;
}

static void test_syn_is_repeated_when_the_carrier_is_back(void **state)
{
	net_spawn(stack, "dial", dial_peer, NULL);
	run_ms(10);
	forget_sent();
	lose_carrier(OUTAGE_MS); /* SYNs after 1, 3, 7, 15 and 31 seconds */
	assert_int_equal(ended, 0);
	assert_in_range(ms_until_segment(100), 1, 100); /* two ticks */
	assert_in_range(ms_until_segment(2500), 900, 2500);
}

/* A connection without losses notices nothing. */
static void test_returned_carrier_sends_nothing_of_itself(void **state)
{
	repair_connect(true, 3 * MSS);
	forget_sent();
	ACK(3);
	run_ms(1000);
	forget_sent();
	lose_carrier(1000);
	run_ms(100);
	peer_expect_nothing();
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_data_is_sent_again_when_the_carrier_is_back),
		T(test_no_path_mtu_is_guessed_without_a_carrier),
		T(test_user_timeout_counts_time_without_a_carrier),
		T(test_shut_window_is_probed_when_the_carrier_is_back),
		T(test_syn_is_repeated_when_the_carrier_is_back),
		T(test_returned_carrier_sends_nothing_of_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
