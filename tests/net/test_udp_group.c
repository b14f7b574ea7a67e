/*
 * Multicast groups: which datagrams their members get, and what joining and
 * sending do.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/udp/udp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/groups.h"
#include "tests/net/peer.h"

#define PEER  udp_at(udp_peer4, 4000)
#define PEER6 udp_at(udp_peer6, 4000)

static struct net_udp *udp, *other;

static int setup(void **state)
{
	udp = other = NULL;
	return group_setup(state);
}

/* ---- receiving ---- */

static void test_members_alone_receive(void **state)
{
	struct net_udp_opts shared = {.shared = true};

	udp = group_socket(&shared);
	other = group_socket(&shared);
	group_say(PEER, group4, "early");
	assert_false(group_receives(udp, ""));
	group_join(udp, group4);
	group_join(udp, group6);
	group_say(PEER, group4, "four");
	group_say(PEER6, group6, "six");
	assert_true(group_receives(udp, "four"));
	assert_true(group_receives(udp, "six"));
	group_say(PEER, udp_at(group4, 54), "port");
	assert_false(group_receives(udp, ""));
	assert_false(group_receives(other, ""));
	assert_int_equal(net_here()->stats.udp_received, 2);
	assert_int_equal(net_here()->stats.rx_refused, 2);
}

static void test_every_member_gets_a_copy(void **state)
{
	struct net_udp_opts shared = {.shared = true};

	udp = group_socket(&shared);
	group_join(udp, group4);
	other = udp;
	udp = group_socket(&shared);
	group_join(udp, group4);
	group_say(PEER, group4, "all");
	assert_true(group_receives(udp, "all"));
	assert_true(group_receives(other, "all"));
	net_udp_close(other);
	group_say(PEER, group4, "one");
	assert_true(group_receives(udp, "one"));
	assert_false(group_receives(udp, ""));
}

static void
test_datagram_names_the_group_and_is_answered_from_an_address(void **state)
{
	struct net_datagram one;
	struct datagram wire;

	udp = group_socket(NULL);
	group_join(udp, group4);
	group_say(PEER, group4, "ask");
	assert_int_equal(net_udp_recv_batch(udp, &one, 1), 1);
	assert_memory_equal(one.local.ip, group4.ip, 4);
	assert_memory_equal(one.peer.ip, udp_peer4.ip, 4);
	assert_int_equal(net_udp_send_batch(udp, &one, 1), 1);
	net_udp_release(udp, &one, 1);
	assert_true(datagram_next(&wire));
	assert_memory_equal(wire.from.ip, udp_us4.ip, 4);
	assert_memory_equal(wire.to.ip, udp_peer4.ip, 4);
}

static void test_source_is_checked(void **state)
{
	struct net_addr from = udp_peer4;

	udp = group_socket(NULL);
	assert_int_equal(net_udp_join(udp, &group4, NULL, &from), 0);
	assert_int_equal(net_udp_join(udp, &group4, NULL, &from), -EADDRINUSE);
	assert_int_equal(net_udp_join(udp, &group4, NULL, NULL), -EADDRINUSE);
	from.ip[3] = 3;
	group_say(udp_at(from, 4000), group4, "third");
	assert_false(group_receives(udp, ""));
	assert_int_equal(net_udp_join(udp, &group4, NULL, &from), 0);
	group_say(udp_at(from, 4000), group4, "third");
	group_say(PEER, group4, "second");
	assert_true(group_receives(udp, "third"));
	assert_true(group_receives(udp, "second"));
	assert_int_equal(net_udp_leave(udp, &group4, NULL, &udp_peer4), 0);
	group_say(PEER, group4, "second");
	assert_false(group_receives(udp, ""));
	assert_int_equal(net_udp_leave(udp, &group4, NULL, NULL),
			 -EADDRNOTAVAIL);
}

static void test_malformed_datagram_to_a_group_is_dropped(void **state)
{
	struct datagram d = {.from = PEER, .to = group4, .to_group = true};

	udp = group_socket(NULL);
	group_join(udp, group4);
	d.len = 4;
	d.udp_len = 13;
	datagram_send(&d);
	run_rounds(1);
	assert_int_equal(net_here()->stats.rx_refused, 1);
	d.udp_len = 7;
	datagram_send(&d);
	d.udp_len = 0;
	d.from = udp_at(udp_us4, 4000); /* ours */
	datagram_send(&d);
	d.from = group4;
	datagram_send(&d);
	run_rounds(1);
	assert_int_equal(net_here()->stats.rx_refused, 4);
	assert_false(group_receives(udp, ""));
	d.from = PEER;
	d.udp_len = 9;
	memcpy(d.data, "abcd", 4);
	datagram_send(&d);
	d.udp_len = 0;
	d.options = 8;
	datagram_send(&d);
	run_rounds(1);
	assert_true(group_receives(udp, "a"));
	assert_true(group_receives(udp, "abcd"));
}

static void test_connected_socket_gets_its_peers_datagrams_to_a_group(void **s)
{
	struct net_addr peer = PEER;

	udp = group_socket(NULL);
	assert_int_equal(net_udp_connect(udp, &peer), 0);
	group_join(udp, group4);
	group_say(udp_at(udp_peer4, 4001), group4, "no");
	group_say(PEER, group4, "yes");
	assert_true(group_receives(udp, "yes"));
	assert_false(group_receives(udp, ""));
}

/* Leaves and closes while a datagram is delivered. */
static void leave_others(struct net_udp *socket, struct net_udp_watch *watch)
{
	struct net_udp *victim = socket == udp ? other : udp;

	net_udp_leave(socket, &group4, NULL, NULL);
	if (victim)
		net_udp_leave(victim, &group4, NULL, NULL);
}

static void test_watch_may_leave_while_a_datagram_is_delivered(void **state)
{
	struct net_udp_opts shared = {.shared = true};
	static struct net_udp_watch watch = {leave_others};

	udp = group_socket(&shared);
	group_join(udp, group4);
	other = udp;
	udp = group_socket(&shared);
	group_join(udp, group4);
	net_udp_set_watch(udp, &watch);
	net_udp_set_watch(other, &watch);
	group_say(PEER, group4, "x");
	assert_int_equal(net_here()->stats.udp_received, 1);
	assert_int_equal(net_udps.n_groups[0], 0);
}

/* Closes the other socket while a datagram is delivered. */
static void close_other(struct net_udp *socket, struct net_udp_watch *watch)
{
	net_udp_close(other);
	other = NULL;
	net_udp_set_watch(socket, NULL);
}

static void test_watch_may_close_a_member_before_its_copy(void **state)
{
	struct net_udp_opts shared = {.shared = true};
	static struct net_udp_watch watch = {close_other};

	other = group_socket(&shared);
	group_join(other, group4);
	udp = group_socket(&shared);
	group_join(udp, group4); /* the later one gets it first */
	net_udp_set_watch(udp, &watch);
	group_say(PEER, group4, "x");
	assert_null(other);
	assert_int_equal(net_here()->stats.udp_received, 1);
	assert_true(group_receives(udp, "x"));
}

static void test_close_frees_copies_that_wait(void **state)
{
	uint64_t before;

	udp = group_socket(NULL);
	group_join(udp, group4);
	group_settle();
	before = net_mem_live_bytes();
	group_say(PEER, group4, "one");
	group_say(PEER, group4, "two");
	assert_int_equal(fake_frames_out, 0); /* copies hold no frame */
	assert_true(net_mem_live_bytes() > before);
	net_udp_close(udp);
	assert_true(net_mem_live_bytes() < before);
	group_say(PEER, group4, "late");
	assert_int_equal(net_here()->stats.udp_received, 2);
}

static void test_copy_without_memory_costs_one_member_its_datagram(void **state)
{
	struct net_udp_opts shared = {.shared = true};
	struct net_udp_stats stats;

	other = group_socket(&shared);
	group_join(other, group4);
	udp = group_socket(&shared);
	group_join(udp, group4);
	net_mem_fail_after(1);
	group_say(PEER, group4, "lost");
	net_mem_fail_after(0);
	assert_false(group_receives(udp, ""));
	assert_true(group_receives(other, "lost"));
	assert_int_equal(net_udp_stats(udp, &stats), 0);
	assert_int_equal(stats.rx_no_memory, 1);
	assert_int_equal(net_here()->stats.rx_no_memory, 1);
	group_say(PEER, group4, "next");
	assert_true(group_receives(udp, "next"));
}

static void test_full_queue_of_one_member_does_not_affect_others(void **state)
{
	struct net_udp_opts shared = {.shared = true},
			    narrow = {.shared = true, .rx_datagrams = 1};

	udp = group_socket(&narrow);
	group_join(udp, group4);
	other = group_socket(&shared);
	group_join(other, group4);
	group_say(PEER, group4, "one");
	group_say(PEER, group4, "two");
	assert_true(group_receives(udp, "one"));
	assert_false(group_receives(udp, ""));
	assert_true(group_receives(other, "one"));
	assert_true(group_receives(other, "two"));
	assert_int_equal(net_here()->stats.udp_queue_full, 1);
}

static void test_group_of_the_host_alone_is_refused_from_the_link(void **state)
{
	struct net_addr inside = udp_at(group6, 53);

	udp = group_socket(NULL);
	inside.ip[1] = 0x11; /* interface-local: RFC 4291 2.7 */
	group_join(udp, inside);
	group_say(PEER6, inside, "x");
	assert_false(group_receives(udp, ""));
	assert_int_equal(net_here()->stats.rx_refused, 1);
	assert_int_equal(net_udp_send(udp, &inside, "own", 3), 3);
	run_rounds(2);
	assert_true(group_receives(udp, "own"));
}

static void test_segment_to_a_joined_group_is_ignored(void **state)
{
	struct segment syn = {
		.src = 1000, .dst = 7, .flags = PEER_SYN, .to = group4.ip};

	udp = group_socket(NULL);
	group_join(udp, group4);
	group_settle();
	peer_send_raw(&syn);
	run_rounds(2);
	peer_expect_nothing();
}

/* ---- sending ---- */

static void test_datagram_to_a_group_stays_on_the_link_by_default(void **state)
{
	struct net_udp_opts opts = {.group_ttl = 9};
	struct datagram wire;

	udp = group_socket(NULL);
	assert_int_equal(net_udp_send(udp, &group4, "x", 1), 1);
	assert_true(datagram_next(&wire));
	assert_int_equal(wire.ttl, 1);
	assert_memory_equal(wire.to.ip, group4.ip, 4);
	assert_memory_equal(wire.from.ip, udp_us4.ip, 4);
	assert_int_equal(net_udp_send(udp, &group6, "x", 1), 1);
	assert_true(datagram_next(&wire));
	assert_int_equal(wire.ttl, 1);
	assert_memory_equal(wire.to.ip, group6.ip, 16);
	net_udp_set_opts(udp, &opts);
	assert_int_equal(net_udp_send(udp, &group4, "x", 1), 1);
	assert_true(datagram_next(&wire));
	assert_int_equal(wire.ttl, 9);
	assert_int_equal(net_udp_connect(udp, &group4), 0);
	assert_int_equal(net_udp_send(udp, NULL, "x", 1), 1);
	assert_true(datagram_next(&wire));
	assert_memory_equal(wire.to.ip, group4.ip, 4);
}

static void test_own_members_receive_what_is_sent(void **state)
{
	struct net_udp_opts quiet = {.group_quiet = true};
	struct datagram wire;

	udp = group_socket(NULL);
	group_join(udp, group4);
	group_join(udp, group6);
	assert_int_equal(net_udp_send(udp, &group4, "four", 4), 4);
	assert_int_equal(net_udp_send(udp, &group6, "six", 3), 3);
	run_rounds(2);
	assert_true(group_receives(udp, "four"));
	assert_true(group_receives(udp, "six"));
	net_udp_set_opts(udp, &quiet);
	assert_int_equal(net_udp_send(udp, &group4, "x", 1), 1);
	run_rounds(2);
	assert_false(group_receives(udp, ""));
	assert_true(datagram_next(&wire));
}

static void test_link_local_group_has_a_link_local_source(void **state)
{
	struct net_addr wide = udp_at(group6, 53), own,
			peer = udp_at(router6, 53);
	struct net_udp_opts opts = {0};
	struct iovec iov = {(void *)(uintptr_t) "x", 1};
	struct datagram wire;

	udp = group_socket(NULL);
	assert_int_equal(net_udp_send(udp, &group6, "x", 1), 1);
	assert_true(datagram_next(&wire));
	assert_int_equal(wire.from.ip[0], 0xfe); /* RFC 6724 5, rule 2 */
	own = wire.from;
	wide.ip[1] = 0x15;
	assert_int_equal(net_udp_send(udp, &wide, "x", 1), 1);
	assert_true(datagram_next(&wire));
	assert_memory_equal(wire.from.ip, udp_us6.ip, 16);
	opts.group_local = own;
	net_udp_set_opts(udp, &opts);
	assert_int_equal(net_udp_send(udp, &wide, "x", 1), 1);
	assert_true(datagram_next(&wire));
	assert_memory_equal(wire.from.ip, own.ip, 16);
	assert_int_equal(net_udp_sendv_from(udp, &own, &peer, &iov, 1), 1);
	assert_int_equal(net_udp_join(udp, &group6, &own, NULL), 0);
}

static void test_copies_for_own_members_are_bounded(void **state)
{
	udp = group_socket(&(struct net_udp_opts){.rx_datagrams = 2000});
	group_join(udp, group4);
	for (unsigned i = 0; i < NET_LOOP_PKTS + 3; i++)
		assert_int_equal(net_udp_send(udp, &group4, "x", 1), 1);
	assert_int_equal(net_here()->stats.looped, NET_LOOP_PKTS);
	assert_int_equal(net_here()->stats.loop_drops, 3);
	net_mem_fail_after(2); /* the first is the one for the link */
	assert_int_equal(net_udp_send(udp, &group4, "x", 1), 1);
	net_mem_fail_after(0);
	assert_int_equal(net_here()->stats.loop_drops, 4);
}

static void test_icmp_error_about_a_group_is_ignored(void **state)
{
	struct datagram wire;

	udp = group_socket(NULL);
	assert_int_equal(net_udp_connect(udp, &group4), 0);
	assert_int_equal(net_udp_send(udp, NULL, "x", 1), 1);
	assert_true(datagram_next(&wire));
	datagram_send_error(&wire, 3, 3, 0);
	run_rounds(1);
	assert_int_equal(net_udp_error(udp, false), 0);
}

/* ---- errors and limits ---- */

static void test_join_reports_wrong_arguments(void **state)
{
	struct net_addr host = udp_peer4, us6 = udp_us6, none = {0};

	udp = group_socket(NULL);
	assert_int_equal(net_udp_join(NULL, &group4, NULL, NULL), -EBADF);
	assert_int_equal(net_udp_join(udp, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(net_udp_join(udp, &none, NULL, NULL), -EINVAL);
	assert_int_equal(net_udp_join(udp, &host, NULL, NULL), -EINVAL);
	assert_int_equal(net_udp_join(udp, &group4, &host, NULL),
			 -EADDRNOTAVAIL);
	assert_int_equal(net_udp_join(udp, &group4, &us6, NULL),
			 -EADDRNOTAVAIL);
	assert_int_equal(net_udp_join(udp, &group4, NULL, &us6), -EINVAL);
	assert_int_equal(net_udp_join(udp, &group4, NULL, &group4), -EINVAL);
	assert_int_equal(net_udp_join(udp, &group4, &udp_us4, NULL), 0);
	assert_int_equal(net_udp_join(udp, &group4, NULL, NULL), -EADDRINUSE);
	assert_int_equal(net_udp_leave(udp, &group6, NULL, NULL),
			 -EADDRNOTAVAIL);
	assert_int_equal(net_udp_leave(udp, &host, NULL, NULL), -EINVAL);
}

static void test_leave_ends_only_memberships_of_its_socket(void **state)
{
	struct net_udp_opts shared = {.shared = true};

	udp = group_socket(&shared);
	other = group_socket(&shared);
	group_join(udp, group4);
	assert_int_equal(net_udp_leave(other, &group4, NULL, NULL),
			 -EADDRNOTAVAIL);
	assert_int_equal(net_udp_leave(udp, &group4, NULL, &udp_peer4),
			 -EADDRNOTAVAIL);
	group_say(PEER, group4, "x");
	assert_true(group_receives(udp, "x"));
	net_udp_close(udp);
	assert_int_equal(net_udp_leave(other, &group4, NULL, NULL),
			 -EADDRNOTAVAIL);
	assert_int_equal(net_udps.n_groups[0], 0);
}

static void test_memberships_are_bounded(void **state)
{
	struct net_udp_opts shared = {.shared = true};
	struct net_addr group = group4;
	unsigned n = 0;

	for (unsigned i = 0; i < 5; i++) {
		udp = group_socket(&shared);
		for (unsigned k = 0; k < NET_UDP_GROUPS_MAX; k++) {
			group.ip[2] = (uint8_t)i;
			group.ip[3] = (uint8_t)k;
			n += net_udp_join(udp, &group, NULL, NULL) == 0;
		}
		group.ip[3] = NET_UDP_GROUPS_MAX;
		assert_int_equal(net_udp_join(udp, &group, NULL, NULL),
				 -ENOBUFS);
	}
	assert_int_equal(n, NET_UDP_LINK_GROUPS);
	group.ip[2] = group.ip[3] = 0;
	for (unsigned i = 1; i < NET_UDP_GROUP_MEMBERS; i++) {
		udp = group_socket(&shared);
		group_join(udp, group);
	}
	udp = group_socket(&shared);
	assert_int_equal(net_udp_join(udp, &group, NULL, NULL), -ENOBUFS);
}

static void test_join_without_memory_fails_cleanly(void **state)
{
	unsigned fails = 0;

	udp = group_socket(NULL);
	for (unsigned i = 1; i < 8; i++) {
		int err;

		net_mem_fail_after(i);
		err = net_udp_join(udp, &group4, NULL, NULL);
		net_mem_fail_after(0);
		if (err == 0)
			break;
		assert_int_equal(err, -ENOMEM);
		assert_int_equal(net_udps.n_groups[0], 0);
		fails++;
	}
	assert_true(fails >= 2);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, group_teardown)
	const struct CMUnitTest tests[] = {
		T(test_members_alone_receive),
		T(test_every_member_gets_a_copy),
		T(test_datagram_names_the_group_and_is_answered_from_an_address),
		T(test_source_is_checked),
		T(test_malformed_datagram_to_a_group_is_dropped),
		T(test_connected_socket_gets_its_peers_datagrams_to_a_group),
		T(test_watch_may_leave_while_a_datagram_is_delivered),
		T(test_watch_may_close_a_member_before_its_copy),
		T(test_close_frees_copies_that_wait),
		T(test_copy_without_memory_costs_one_member_its_datagram),
		T(test_full_queue_of_one_member_does_not_affect_others),
		T(test_group_of_the_host_alone_is_refused_from_the_link),
		T(test_segment_to_a_joined_group_is_ignored),
		T(test_datagram_to_a_group_stays_on_the_link_by_default),
		T(test_own_members_receive_what_is_sent),
		T(test_link_local_group_has_a_link_local_source),
		T(test_copies_for_own_members_are_bounded),
		T(test_icmp_error_about_a_group_is_ignored),
		T(test_join_reports_wrong_arguments),
		T(test_leave_ends_only_memberships_of_its_socket),
		T(test_memberships_are_bounded),
		T(test_join_without_memory_fails_cleanly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
