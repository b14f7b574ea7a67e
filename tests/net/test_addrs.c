/*
 * The stack's addresses: probes, announcements and conflicts, and addresses
 * that are added and removed while connections use them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "netstack/link/link.h"
#include "tests/bytes.h"
#include "tests/net/asking.h"
#include "tests/net/fake_glue.h"
#include "tests/net/frames.h"
#include "tests/net/peer.h"

static const uint8_t other_mac[6] = {2, 0, 0, 0, 0, 9};
static const uint8_t us6[16] = {0xfd, [15] = 1};

static struct net_opts stack_opts;

static void set_opts(void)
{
	fake_now_ns = 1000000000;
	peer_opts_init(&stack_opts);
	stack_opts.links[stack_opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24",
			      &stack_opts.addrs[stack_opts.n_addrs++]);
	stack_opts.max_conns = 64;
	stack_opts.poll = NET_POLL_BUSY;
	result = 12345;
	ended = 0;
}

static int open_stack(void)
{
	int err = net_stack_open(&stack_opts, &stack);

	return err ? err : net_listen(stack, &net_addr_any(7), 8, &listener);
}

static int setup(void **state)
{
	set_opts();
	net_addr_parse_prefix("fd00::1/64",
			      &stack_opts.addrs[stack_opts.n_addrs++]);
	return open_stack();
}

static int setup_without_dad(void **state)
{
	set_opts();
	net_addr_parse_prefix("fd00::1/64",
			      &stack_opts.addrs[stack_opts.n_addrs++]);
	stack_opts.dad_off = true;
	return open_stack();
}

static int setup_without_ip6(void **state)
{
	set_opts();
	return open_stack();
}

static int setup_two_links(void **state)
{
	set_opts();
	stack_opts.links[stack_opts.n_links++] = "ring:other";
	return open_stack();
}

/* ---- sent frames ---- */

struct seen {
	unsigned arp_probes, arp_announcements, arp_replies;
	unsigned nd_probes, nd_announcements, nd_overrides; /* of fd00::1 */
};

static void see_arp(struct seen *seen, const uint8_t *arp)
{
	static const uint8_t none[4];

	if (arp[7] == 2)
		seen->arp_replies++;
	else if (memcmp(arp + 24, stack_ip, 4) != 0)
		return;
	else if (memcmp(arp + 14, none, 4) == 0)
		seen->arp_probes++;
	else if (memcmp(arp + 14, stack_ip, 4) == 0)
		seen->arp_announcements++;
}

static void see_nd(struct seen *seen, const uint8_t *ip)
{
	static const uint8_t none[16], all_nodes[16] = {0xff, 2, [15] = 1};
	const uint8_t *icmp = ip + 40;

	if (ip[6] != 58 || memcmp(icmp + 8, us6, 16) != 0)
		return;
	if (icmp[0] == 135 && memcmp(ip + 8, none, 16) == 0)
		seen->nd_probes++;
	if (icmp[0] != 136 || memcmp(ip + 24, all_nodes, 16) != 0)
		return;
	assert_memory_equal(icmp + 24, "\2\1", 2);
	assert_memory_equal(icmp + 26, fake_mac, 6);
	seen->nd_announcements++;
	seen->nd_overrides += icmp[4] == 0x20;
}

static struct seen look_at_addrs(void)
{
	static uint8_t frame[9216];
	struct seen seen = {0};

	while (fake_sent(frame, sizeof(frame)))
		if (get16(frame + 12) == 0x0806)
			see_arp(&seen, frame + 14);
		else if (get16(frame + 12) == 0x86dd)
			see_nd(&seen, frame + 14);
	return seen;
}

/* ---- frames from other hosts ---- */

static void say_arp(unsigned op, const uint8_t mac[6], const uint8_t sender[4],
		    const uint8_t target[4])
{
	uint8_t frame[42] = {0}, *arp = frame + 14;

	frame_ethernet(frame, 0x0806);
	memcpy(frame + 6, mac, 6);
	memcpy(arp, "\0\1\10\0\6\4", 6);
	put16(arp + 6, op);
	memcpy(arp + 8, mac, 6);
	memcpy(arp + 14, sender, 4);
	memcpy(arp + 24, target, 4);
	fake_receive(frame, sizeof(frame), 0, 0);
	run_rounds(1);
}

/* An advertisement of the stack's address, by another host. */
static void advertise_stacks_address(void)
{
	uint8_t frame[14 + 40 + 32] = {0}, *ip = frame + 14, *icmp = ip + 40;

	frame_ethernet(frame, 0x86dd);
	memcpy(frame, "\x33\x33\0\0\0\1", 6);
	memcpy(frame + 6, other_mac, 6);
	ip[0] = 0x60;
	ip[5] = 32;
	ip[6] = 58;
	ip[7] = 255;
	memcpy(ip + 8, us6, 16);
	memcpy(ip + 24, "\xff\2\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	icmp[0] = 136;
	icmp[4] = 0x20;
	memcpy(icmp + 8, us6, 16);
	icmp[24] = 2;
	icmp[25] = 1;
	memcpy(icmp + 26, other_mac, 6);
	fake_receive(frame, sizeof(frame),
		     GLUE_FRAME_IP6 | GLUE_FRAME_ICMP | GLUE_FRAME_MCAST, 54);
	run_rounds(1);
}

static bool stack_has(const char *text)
{
	struct net_addr addr;

	net_addr_parse(text, 0, &addr);
	return net_is_local(stack, &addr);
}

/* ---- announcements ---- */

static void test_address_is_probed_and_announced(void **state)
{
	struct seen seen = look_at_addrs();

	assert_int_equal(seen.arp_probes, 1);
	assert_int_equal(seen.arp_announcements, 1);
	assert_int_equal(seen.nd_probes, 1);
	assert_int_equal(seen.nd_announcements, 1);
	assert_int_equal(seen.nd_overrides, 0);
	run_ms(900);
	seen = look_at_addrs();
	assert_int_equal(seen.arp_announcements + seen.nd_announcements, 0);
	run_ms(300);
	seen = look_at_addrs();
	assert_int_equal(seen.arp_probes + seen.nd_probes, 0);
	assert_int_equal(seen.arp_announcements, 1);
	assert_int_equal(seen.nd_overrides, 1);
	run_ms(5000);
	seen = look_at_addrs();
	assert_int_equal(seen.arp_announcements + seen.nd_announcements, 0);
}

static void test_without_dad_nothing_is_probed(void **state)
{
	struct seen seen = look_at_addrs();

	assert_int_equal(seen.arp_probes + seen.nd_probes, 0);
	assert_int_equal(seen.arp_announcements, 1);
	assert_int_equal(seen.nd_overrides, 1);
	say_arp(2, other_mac, stack_ip, stack_ip);
	advertise_stacks_address();
	assert_true(stack_has("10.0.0.1") && stack_has("fd00::1"));
}

static void test_returning_carrier_announces(void **state)
{
	struct seen seen;

	run_ms(3000);
	look_at_addrs();
	fake_no_carrier = true;
	run_ms(50);
	fake_no_carrier = false;
	run_ms(10);
	seen = look_at_addrs();
	assert_int_equal(seen.arp_probes + seen.nd_probes, 0);
	assert_int_equal(seen.arp_announcements, 1);
	assert_int_equal(seen.nd_overrides, 1);
	run_ms(1200);
	seen = look_at_addrs();
	assert_int_equal(seen.arp_announcements, 1);
	assert_int_equal(seen.nd_overrides, 1);
}

/* ---- conflicts ---- */

static void test_answer_to_a_probe_withdraws_the_address(void **state)
{
	look_at_addrs();
	say_arp(2, other_mac, stack_ip, (const uint8_t[4]){0});
	assert_int_equal(net_here()->stats.addr_conflicts, 1);
	assert_false(stack_has("10.0.0.1"));
	assert_true(stack_has("fd00::1"));
	look_at_addrs();
	say_arp(1, fake_peer_mac, peer_ip, stack_ip);
	run_ms(3000);
	assert_int_equal(look_at_addrs().arp_replies, 0);
	assert_int_equal(look_at_addrs().arp_announcements, 0);
}

static void test_answer_to_a_probe_withdraws_the_address6(void **state)
{
	look_at_addrs();
	advertise_stacks_address();
	assert_int_equal(net_here()->stats.addr_conflicts, 1);
	assert_false(stack_has("fd00::1"));
	assert_true(stack_has("10.0.0.1"));
	run_ms(3000);
	assert_int_equal(look_at_addrs().nd_announcements, 0);
}

static void expect_answers(unsigned n)
{
	struct seen seen = look_at_addrs();

	assert_int_equal(seen.arp_announcements, n);
	assert_int_equal(seen.nd_overrides, n);
}

static void test_late_conflict_is_counted_and_answered(void **state)
{
	run_ms(3000);
	look_at_addrs();
	for (unsigned i = 0; i < 5; i++) {
		say_arp(2, other_mac, stack_ip, stack_ip);
		advertise_stacks_address();
	}
	run_ms(1);
	assert_int_equal(net_here()->stats.addr_conflicts, 10);
	assert_true(stack_has("10.0.0.1") && stack_has("fd00::1"));
	expect_answers(1); /* to the first */
	run_ms(9990);
	expect_answers(0);
	run_ms(20);
	expect_answers(1); /* to the others */
	say_arp(2, other_mac, stack_ip, stack_ip);
	advertise_stacks_address();
	run_ms(9980);
	expect_answers(0);
	run_ms(20);
	expect_answers(1);
	run_ms(20000);
	expect_answers(0);
	say_arp(2, other_mac, stack_ip, stack_ip);
	advertise_stacks_address();
	run_ms(1);
	expect_answers(1);
}

/* Whatever opening takes: the probe leaves in the first round. */
static void test_time_for_answers_begins_with_the_first_round(void **state)
{
	fake_now_ns += INT64_C(60000000000);
	run_ms(500);
	say_arp(2, other_mac, stack_ip, stack_ip);
	assert_false(stack_has("10.0.0.1"));
}

/* A switch may send a broadcast back, and the kernel may share the MAC. */
static void test_own_frames_are_no_conflict(void **state)
{
	say_arp(1, fake_mac, stack_ip, stack_ip);
	assert_int_equal(net_here()->stats.addr_conflicts, 0);
	assert_true(stack_has("10.0.0.1"));
}

/* ---- addresses that come and go ---- */

static int change_on(unsigned link, bool add, const char *text)
{
	struct net_port *port = &net_here()->ports[link];
	struct net_addr addr;

	assert_int_equal(net_addr_parse_prefix(text, &addr), 0);
	return add ? net_ifaddr_add(port, &addr)
		   : net_ifaddr_remove(port, &addr);
}

static int change(bool add, const char *text)
{
	return change_on(0, add, text);
}

/* Returns whether a SYN to an address is answered from it. */
static bool answers_syn(const uint8_t to[4])
{
	static uint8_t frame[9216];
	static uint16_t port = 5000;
	bool found = false;

	say_arp(1, fake_peer_mac, peer_ip, to);
	while (fake_sent(frame, sizeof(frame)))
		;
	peer_send_raw(&(struct segment){.src = port++,
					.dst = 7,
					.seq = 99,
					.flags = PEER_SYN,
					.wnd = 65535,
					.options = (const uint8_t *)"",
					.data = (const uint8_t *)"",
					.to = to});
	run_rounds(3);
	while (fake_sent(frame, sizeof(frame)))
		found |= get16(frame + 12) == 0x0800 &&
			 memcmp(frame + 26, to, 4) == 0 && frame[47] == 0x12;
	return found;
}

static void test_added_address_is_served_at_once(void **state)
{
	static const uint8_t added[4] = {10, 0, 0, 9};

	assert_false(answers_syn(added));
	assert_int_equal(change(true, "10.0.0.9/24"), 0);
	assert_true(stack_has("10.0.0.9"));
	assert_true(answers_syn(added));
	assert_int_equal(change(false, "10.0.0.9/24"), 0);
	assert_false(answers_syn(added));
	assert_true(answers_syn(stack_ip));
	assert_int_equal(change(true, "10.0.0.9/24"), 0);
	assert_true(answers_syn(added));
}

static void forget_segments(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

static void test_connection_outlives_its_address(void **state)
{
	struct peer peer;
	struct segment s;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5000);
	forget_segments();
	assert_int_equal(change(false, "10.0.0.1/24"), 0);
	peer_send(&peer, PEER_ACK | PEER_PSH, "lost", 4);
	for (unsigned i = 0; i < 20; i++) {
		run_ms(500);
		peer_expect_nothing();
	}
	assert_int_equal(net_here()->n_conns, 1);
	assert_int_equal(change(true, "10.0.0.1/24"), 0);
	peer.snd -= 4;
	peer_send(&peer, PEER_ACK | PEER_PSH, "back", 4);
	expect(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 4);
	assert_memory_equal(s.data, "back", 4);
}

static void *say_something(void *arg)
{
	result = net_send_all(arg, "something", 9);
	return NULL;
}

static void hold_conn(struct net_conn *conn, void *arg)
{
	char byte;

	net_spawn(stack, "say", say_something, conn);
	result = net_recv(conn, &byte, 1);
	ended++;
}

/* What was sent meanwhile is lost, and sent again as soon as it can be. */
static void test_returned_address_sends_again_at_once(void **state)
{
	struct peer peer;
	struct segment s;
	unsigned ms = 0;

	serve(hold_conn);
	assert_int_equal(change(false, "10.0.0.1/24"), 0);
	assert_int_equal(change(true, "10.0.0.1/24"), 0);
	peer_connect(&peer, 1000, 7, 5000);
	forget_segments();
	assert_int_equal(change(false, "10.0.0.1/24"), 0);
	for (unsigned i = 0; i < 20; i++) {
		run_ms(1000);
		peer_expect_nothing();
	}
	assert_int_equal(change(true, "10.0.0.1/24"), 0);
	while (!peer_next(&s) && ms++ < 100)
		run_ms(1);
	assert_in_range(ms, 0, 20);
	assert_memory_equal(s.data, "something", 9);
}

static void hold_briefly(struct net_conn *conn, void *arg)
{
	net_set_user_timeout(conn, 5000);
	hold_conn(conn, arg);
}

static void test_user_timeout_ends_a_connection_without_address(void **state)
{
	struct peer peer;

	serve(hold_briefly);
	peer_connect(&peer, 1000, 7, 5000);
	assert_int_equal(change(false, "10.0.0.1/24"), 0);
	run_ms(2000);
	assert_int_equal(ended, 0);
	run_ms(6000);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ETIMEDOUT);
}

static void test_wrong_changes_are_refused(void **state)
{
	assert_int_equal(change(true, "10.0.0.1/24"), -EEXIST);
	assert_int_equal(change(true, "fd00::1/64"), -EEXIST);
	assert_int_equal(change(false, "10.0.0.2/24"), -EADDRNOTAVAIL);
	assert_int_equal(change(false, "10.0.0.1/16"), -EADDRNOTAVAIL);
	assert_int_equal(change(false, "10.0.0.1/24"), 0);
	assert_int_equal(change(false, "10.0.0.1/24"), -EADDRNOTAVAIL);
}

/* Adds addresses 10.X.0.1 and so on until the stack has no room; how many. */
static unsigned fill_addrs(unsigned link, unsigned x)
{
	char text[32];
	unsigned n = 0;
	int err;

	do {
		snprintf(text, sizeof(text), "10.%u.0.%u/8", x, n + 1);
		err = change_on(link, true, text);
	} while (err == 0 && ++n < 200);
	assert_int_equal(err, -ENOSPC);
	return n;
}

static void empty_addrs(unsigned link, unsigned x, unsigned n)
{
	char text[32];

	while (n) {
		snprintf(text, sizeof(text), "10.%u.0.%u/8", x, n--);
		assert_int_equal(change_on(link, false, text), 0);
	}
}

static void run_seconds(unsigned s)
{
	for (unsigned i = 0; i < 2 * s; i++) {
		fake_now_ns += 500000000;
		run_rounds(1);
	}
}

static void test_addresses_are_bounded(void **state)
{
	char text[32];
	unsigned n = fill_addrs(0, 1);
	int err;

	assert_in_range(n, NET_MAX_ADDRS - 2, NET_MAX_ADDRS + NET_MAX_LINKS);
	assert_int_equal(change(false, "10.1.0.1/8"), 0);
	assert_int_equal(change(true, "10.2.0.1/24"), -ENOSPC);
	run_seconds(61);
	assert_int_equal(change(true, "10.2.0.1/24"), 0);
	for (err = 0, n = 1; err == 0 && n < 20; n++) {
		snprintf(text, sizeof(text), "fd00::1:%u/64", n);
		err = change(true, text);
	}
	assert_int_equal(err, -ENOSPC);
}

/* Records hold an entry's index, and end by a clock without pauses. */
static void test_pause_of_the_process_frees_no_entry(void **state)
{
	fill_addrs(0, 1);
	run_rounds(1);
	assert_int_equal(change(false, "10.1.0.1/8"), 0);
	fake_now_ns += INT64_C(90000000000);
	run_rounds(1);
	assert_int_equal(change(true, "10.2.0.1/24"), -ENOSPC);
	run_seconds(61);
	assert_int_equal(change(true, "10.2.0.1/24"), 0);
}

static void
test_entry_of_a_removed_address_is_free_for_any_link_and_family(void **state)
{
	static const uint8_t back[4] = {10, 1, 0, 1};
	unsigned n = fill_addrs(0, 1);

	for (unsigned i = 0; i < 3; i++) {
		empty_addrs(0, 1, n);
		run_seconds(61);
		assert_int_equal(fill_addrs(1, 2),
				 n + 1); /* with its first netif */
		assert_true(stack_has("10.0.0.1") && stack_has("10.2.0.1"));
		empty_addrs(1, 2, n + 1);
		run_seconds(61);
		assert_int_equal(fill_addrs(0, 1), n);
		assert_true(answers_syn(back));
	}
	empty_addrs(0, 1, n);
	run_seconds(61);
	assert_int_equal(change_on(1, true, "fd00::1/64"), 0);
	assert_true(stack_has("fd00::1"));
	assert_int_equal(fill_addrs(0, 1), n - 1); /* and a link-local one */
}

static void test_link_local_address_needs_room_like_others(void **state)
{
	const struct net_port *port = &net_here()->ports[0];

	fill_addrs(0, 1);
	assert_int_equal(change(true, "fd00::1/64"), -ENOSPC);
	assert_false(port->has_ip6);
	empty_addrs(0, 1, 2);
	run_seconds(61);
	assert_int_equal(change(true, "fd00::1/64"), 0);
	assert_true(port->has_ip6);
	assert_true(stack_has("fd00::1"));
	assert_true(ip6_addr_isvalid(netif_ip6_addr_state(port->netif0, 0)));
}

/* It probes, and posts the result to the others: they must have it by then. */
static void test_address_comes_up_on_shard_0_last(void **state)
{
	unsigned before = net_here()->n_addrs;
	char *answer;

	net_ask_open(2); /* there is no shard 1 to ask */
	answer = asked_text(0, "/coronet/addr.add,10.0.0.9/24", NULL);
	assert_non_null(strstr(answer, "shard 1"));
	assert_int_equal(net_here()->n_addrs, before);
	free(answer);
}

static void test_removed_address_is_used_when_it_is_added_again6(void **state)
{
	assert_int_equal(change(false, "fd00::1/64"), 0);
	assert_true(stack_has("10.0.0.1"));
	assert_false(stack_has("fd00::1"));
	assert_int_equal(change(true, "fd00::1/64"), 0);
	assert_true(stack_has("fd00::1"));
}

#define WITH(before, name)                                                     \
	cmocka_unit_test_setup_teardown(name, before, peer_teardown)
#define T(name) WITH(setup, name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_address_is_probed_and_announced),
		WITH(setup_without_dad, test_without_dad_nothing_is_probed),
		T(test_returning_carrier_announces),
		T(test_answer_to_a_probe_withdraws_the_address),
		T(test_answer_to_a_probe_withdraws_the_address6),
		T(test_late_conflict_is_counted_and_answered),
		T(test_time_for_answers_begins_with_the_first_round),
		T(test_own_frames_are_no_conflict),
		T(test_added_address_is_served_at_once),
		T(test_connection_outlives_its_address),
		T(test_returned_address_sends_again_at_once),
		T(test_user_timeout_ends_a_connection_without_address),
		T(test_wrong_changes_are_refused),
		T(test_addresses_are_bounded),
		T(test_pause_of_the_process_frees_no_entry),
		WITH(setup_two_links,
		     test_entry_of_a_removed_address_is_free_for_any_link_and_family),
		WITH(setup_without_ip6,
		     test_link_local_address_needs_room_like_others),
		T(test_address_comes_up_on_shard_0_last),
		T(test_removed_address_is_used_when_it_is_added_again6),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
