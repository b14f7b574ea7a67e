/*
 * The exception path: the destination of each frame, its bounds, changes at run
 * time, and no effect if it is not used.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "netstack/link/exception.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/fake_kernel.h"
#include "tests/net/exception_frames.h"
#include "tests/net/peer.h"

static char error[256];

/* ---- a stack with one ---- */

static const char *option;

static int open_with(const char *exception)
{
	struct net_opts opts;
	int err;

	option = exception;
	fake_kernel_reset();
	fake_now_ns = 1000000000;
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	opts.exceptions[0] = exception;
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 64;
	opts.poll = NET_POLL_BUSY;
	err = net_stack_open(&opts, &stack);
	if (err == 0)
		err = net_listen(stack, &net_addr_any(7), 8, &listener);
	if (err == 0)
		run_rounds(2);
	return err;
}

static int setup(void **state)
{
	int err = open_with("tap:k");
	uint8_t sent[9216];

	while (fake_sent(sent, sizeof(sent)))
		; /* at startup */
	return err;
}

static int setup_listed(void **state)
{
	return open_with("tap:k,tcp=22,udp=none,other=off,echo=kernel");
}

static int setup_slow(void **state)
{
	return open_with("tap:k,rate=10");
}

static int setup_without(void **state)
{
	return open_with(NULL);
}

static int teardown(void **state)
{
	int err = peer_teardown(state);

	assert_int_equal(fake_kernel_open, 0);
	return err;
}

/* ---- receivers of frames ---- */

/* Returns whether the kernel got the frame unchanged. */
static bool kernel_has(void)
{
	uint8_t given[4096];
	unsigned n = fake_kernel_got(given, sizeof(given));

	if (n == 0)
		return false;
	assert_int_equal(n, len);
	assert_memory_equal(given, frame, len);
	assert_int_equal(fake_kernel_got(given, sizeof(given)), 0);
	return true;
}

static unsigned answers(void)
{
	uint8_t sent[9216];
	unsigned n = 0;

	while (fake_sent(sent, sizeof(sent)))
		n++;
	return n;
}

static bool goes_to_kernel(void)
{
	answers();
	fake_receive_wire(frame, len);
	run_rounds(1);
	return kernel_has();
}

static void test_own_frames_do_not_reach_the_kernel(void **state)
{
	build_arp(1, US);
	assert_false(goes_to_kernel());
	assert_int_equal(answers(), 1);
	build_icmp4(0x0800, US);
	assert_false(goes_to_kernel());
	assert_int_equal(answers(), 1);
	build_ip4(fake_mac, 6, US, 0, 1000, 7);
	assert_false(goes_to_kernel());
	assert_int_equal(answers(), 1);
}

static void test_other_frames_go_only_to_the_kernel(void **state)
{
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	assert_true(goes_to_kernel());
	build_ip4(fake_mac, 6, OTHER, 0, 1000, 7);
	assert_true(goes_to_kernel());
	build_ip4(fake_mac, 17, US, 0, 1000, 7);
	assert_true(goes_to_kernel());
	build_ip4(fake_mac, 17, OTHER, 0, 67, 68);
	assert_true(goes_to_kernel());
	build_ip4(fake_mac, 89, US, 0, 0, 0); /* OSPF */
	assert_true(goes_to_kernel());
	build_icmp4(0x0000, US); /* an echo reply */
	assert_true(goes_to_kernel());
	build_icmp4(0x0303, US); /* port unreachable */
	assert_true(goes_to_kernel());
	build_icmp4(0x0800, OTHER);
	assert_true(goes_to_kernel());
	other_type(fake_mac);
	assert_true(goes_to_kernel());
	assert_int_equal(answers(), 0);
}

static void test_datagrams_of_our_sockets_do_not_reach_the_kernel(void **state)
{
	struct net_udp *udp;

	assert_int_equal(net_udp_open(stack, &net_addr_any(68), NULL, &udp), 0);
	build_ip4(fake_mac, 17, US, 0, 67, 68);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 17, US, 0, 67, 69);
	assert_true(goes_to_kernel());
	net_udp_close(udp);
	build_ip4(fake_mac, 17, US, 0, 67, 68);
	assert_true(goes_to_kernel());
}

static void test_group_frames_go_to_both(void **state)
{
	static const uint8_t group[6] = {1, 0, 0x5e, 0, 0, 5};

	build_arp(1, OTHER);
	assert_true(goes_to_kernel());
	build_arp(2, US);
	assert_true(goes_to_kernel());
	build_ip4(everybody, 17, TO_ALL, 0, 67, 68);
	assert_true(goes_to_kernel());
	build_ip4(group, 89, 0xe0000005, 0, 0, 0);
	assert_true(goes_to_kernel());
	other_type(group);
	assert_true(goes_to_kernel());
}

static void test_frames_for_other_stations_are_dropped(void **state)
{
	build_ip4(stranger_mac, 17, OTHER, 0, 1, 2);
	assert_false(goes_to_kernel());
	build_ip4(stranger_mac, 89, OTHER, 0, 1, 2);
	assert_false(goes_to_kernel());
	other_type(stranger_mac);
	assert_false(goes_to_kernel());
}

/*
 * The kernel would reassemble them and reset a connection that is not its own.
 */
static void test_fragments_of_our_segments_do_not_reach_the_kernel(void **state)
{
	struct peer peer;

	build_ip4(fake_mac, 17, US, MORE, 1000, 2000);
	assert_true(goes_to_kernel());
	build_ip4(fake_mac, 17, US, 5, 1000, 2000);
	assert_true(goes_to_kernel());
	build_ip4(fake_mac, 6, US, MORE, 1000, 22);
	assert_true(goes_to_kernel());
	build_ip4(fake_mac, 6, US, MORE, 1000, 7); /* a listener */
	assert_false(goes_to_kernel());
	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5000);
	run_ms(2);
	fake_kernel_reset(); /* the peer's ARP goes to both */
	net_listener_close(listener);
	run_ms(2);
	build_ip4(fake_mac, 6, US, MORE, 1000, 7); /* and now a connection */
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 6, US, MORE, 1001, 7);
	assert_true(goes_to_kernel());
}

static void
test_segments_of_our_connections_do_not_reach_the_kernel(void **state)
{
	struct peer peer;
	struct segment s;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5000);
	peer_send(&peer, PEER_ACK | PEER_PSH, "hello", 5);
	s = peer_wait(10);
	assert_int_equal(s.ack, peer.snd);
	peer.rcv += 5;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	s = peer_wait(10);
	assert_true(s.flags & PEER_FIN);
	peer.rcv++;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(1);
	while (fake_kernel_got(frame, sizeof(frame)))
		assert_int_equal(get16(frame + 12), 0x0806);
}

static void test_segmented_frame_reaches_the_kernel_whole(void **state)
{
	fake_segment_bytes = 54;
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	memset(frame + 54, 'x', 200);
	put16(frame + 16, 240);
	len = 254;
	fake_receive(frame, len, GLUE_FRAME_IP4 | GLUE_FRAME_TCP, 34);
	run_rounds(1);
	assert_true(kernel_has());
}

/* Leaves a packet's sum to a NIC, as a virtual peer does. */
static void make_partial(uint8_t proto)
{
	put16(frame + 34 + (proto == 6 ? 16 : 6),
	      __builtin_bswap16(glue_sum_fold(
		      glue_sum_pseudo(frame + 26, 4, proto, len - 34))));
}

/* The kernel drops packets with a wrong sum, and believes none of a TAP. */
static void test_partial_sums_are_completed_for_the_kernel(void **state)
{
	static const struct {
		uint8_t proto;
		uint16_t flag;
		unsigned segment;
	} cases[] = {
		{6, GLUE_FRAME_TCP, 0},
		{6, GLUE_FRAME_TCP, 55}, /* an odd number of bytes */
		{17, GLUE_FRAME_UDP, 0},
		{17, GLUE_FRAME_UDP, 45},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t proto = cases[i].proto, given[4096];
		unsigned n;

		fake_segment_bytes = cases[i].segment;
		build_ip4(fake_mac, proto, US, 0, 1000, 22);
		make_partial(proto);
		memset(frame + len, 0xff, 6); /* Ethernet's padding */
		fake_receive(frame, len + 6,
			     GLUE_FRAME_IP4 | GLUE_FRAME_CSUM_OK |
				     cases[i].flag,
			     34);
		run_rounds(1);
		n = fake_kernel_got(given, sizeof(given));
		assert_in_range(n, len, len + 6);
		assert_int_equal(glue_sum_fold(glue_sum_pseudo(given + 26, 4,
							       proto, 20) +
					       glue_sum_add(0, given + 34, 20)),
				 0xffff);
	}
}

static void test_partial_sum_over_ipv6_is_completed(void **state)
{
	uint8_t *ip = frame + 14, given[4096];

	ethernet(fake_mac, 0x86dd);
	len = 14 + 40 + 8;
	ip[0] = 0x60;
	put16(ip + 4, 8);
	ip[6] = 17;
	ip[7] = 64;
	memcpy(ip + 8, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 16);
	memcpy(ip + 24, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	put16(ip + 42, 22);
	put16(ip + 44, 8);
	put16(ip + 46, __builtin_bswap16(glue_sum_fold(
			       glue_sum_pseudo(ip + 8, 16, 17, 8))));
	fake_receive(frame, len,
		     GLUE_FRAME_IP6 | GLUE_FRAME_UDP | GLUE_FRAME_CSUM_OK, 54);
	run_rounds(1);
	assert_int_equal(fake_kernel_got(given, sizeof(given)), len);
	assert_int_equal(glue_sum_fold(glue_sum_pseudo(given + 22, 16, 17, 8) +
				       glue_sum_add(0, given + 54, 8)),
			 0xffff);
}

static void test_only_listed_ports_go_to_the_kernel(void **state)
{
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	assert_true(goes_to_kernel());
	build_ip4(fake_mac, 6, US, 0, 1000, 23);
	assert_false(goes_to_kernel());
	assert_true(answers() > 0); /* a reset, or ARP for it */
	build_ip4(fake_mac, 17, US, 0, 1000, 23);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 17, OTHER, 0, 1000, 23);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 89, US, 0, 0, 0);
	assert_false(goes_to_kernel());
	other_type(fake_mac);
	assert_false(goes_to_kernel());
	build_icmp4(0x0800, US);
	assert_true(goes_to_kernel());
	build_arp(2, US); /* neighbour frames always go to both */
	assert_true(goes_to_kernel());
}

static void test_without_exception_nothing_reaches_the_kernel(void **state)
{
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	assert_false(goes_to_kernel());
	assert_true(answers() > 0);
	assert_false(fake_receive_wire(frame, 10));
	other_type(fake_mac);
	assert_false(fake_receive_wire(frame, len));
	run_rounds(10);
	assert_int_equal(fake_kernel_reads, 0);
	assert_int_equal(net_port_count(), NET_PORT_COUNT);
}

/* ---- frames from the kernel, and bounds ---- */

static void test_interface_has_the_links_addresses(void **state)
{
	assert_string_equal(fake_kernel_conf.name, "k");
	assert_memory_equal(fake_kernel_conf.mac, fake_mac, 6);
	assert_int_equal(fake_kernel_conf.mtu, 1500);
	assert_int_equal(fake_kernel_conf.n_addrs, 2);
	assert_int_equal(fake_kernel_addrs[0].prefix_len, 24);
	assert_memory_equal(fake_kernel_addrs[0].ip, "\12\0\0\1", 4);
	assert_int_equal(fake_kernel_addrs[1].family, 6);
}

static void test_kernel_frames_leave_unchanged(void **state)
{
	uint8_t sent[4096];

	answers();
	build_ip4(fake_peer_mac, 6, 0x0a000002, 0, 22, 1000);
	frame[30] ^= 1; /* the stack does not check the kernel's checksums */
	fake_kernel_send(frame, len);
	fake_kernel_send(frame, 10); /* no frame at all */
	run_ms(1);
	assert_int_equal(fake_sent(sent, sizeof(sent)), len);
	assert_memory_equal(sent, frame, len);
	assert_int_equal(answers(), 0);
	assert_int_equal(net_here()->stats.from_kernel, 1);
	assert_int_equal(net_here()->stats.kernel_dropped, 1);
}

static void test_idle_kernel_is_polled_rarely(void **state)
{
	fake_kernel_reads = 0;
	run_rounds(100); /* the clock stands still */
	assert_true(fake_kernel_reads <= 1);
	run_ms(10);
	assert_in_range(fake_kernel_reads, 5, 20);
}

static void test_both_directions_are_rate_limited(void **state)
{
	unsigned n = 0;

	fake_now_ns += INT64_C(2000000000);
	run_rounds(1);
	for (unsigned i = 0; i < 20; i++) {
		build_ip4(fake_mac, 17, US, 0, 1000, 9);
		n += goes_to_kernel();
	}
	assert_in_range(n, 1,
			2); /* 10 frames a second, for a tenth of a second */
	assert_int_equal(net_here()->stats.kernel_limited, 20 - n);
	run_ms(500);
	for (unsigned i = 0; i < 20; i++)
		fake_kernel_send(frame, len);
	answers();
	run_ms(1000);
	assert_in_range(answers(), 9, 12);
	assert_true(net_here()->stats.kernel_held > 0);
	run_ms(1000); /* the other frames were queued */
	assert_in_range(answers(), 8, 11);
}

static void test_kernel_that_accepts_no_frames_is_harmless(void **state)
{
	fake_kernel_full = true;
	build_ip4(fake_mac, 17, US, 0, 1000, 9);
	assert_false(goes_to_kernel());
	assert_int_equal(net_here()->stats.kernel_dropped, 1);
	build_ip4(fake_mac, 6, US, 0, 1000, 7);
	fake_receive_wire(frame, len);
	run_rounds(2);
	assert_true(answers() > 0);
}

static void test_busy_port_leaves_frames_in_the_kernel(void **state)
{
	build_ip4(fake_peer_mac, 6, 0x0a000002, 0, 22, 1000);
	fake_kernel_send(frame, len);
	answers();
	fake_tx_budget = 0;
	run_ms(5);
	assert_int_equal(answers(), 0);
	fake_tx_budget = -1;
	run_ms(5);
	assert_int_equal(answers(), 1);
}

static void test_chosen_ports_are_not_the_kernels(void **state)
{
	for (unsigned i = 0; i < 40000; i++) {
		struct net_ephemeral search = net_ephemeral_listen();

		assert_in_range(net_ephemeral_next(&search), 16384, 32767);
	}
}

static void test_interface_in_use_fails_the_opening(void **state)
{
	assert_int_equal(open_with("tap:fake-busy"), -EBUSY);
	assert_int_equal(fake_frames_out, 0);
}

/* ---- addresses of the stack that it does not use ---- */

static int change_addr(bool add, const char *text)
{
	struct net_port *port = &net_here()->ports[0];
	struct net_addr addr;

	net_addr_parse_prefix(text, &addr);
	return add ? net_ifaddr_add(port, &addr)
		   : net_ifaddr_remove(port, &addr);
}

/* Sends what the kernel, which may still have the address, would answer. */
static void expect_no_frame_in_the_kernel(void)
{
	build_arp(1, US);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 6, US, 0, 1000, 7);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 6, US, MORE, 1000, 22);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 17, US, 0, 1000, 7);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 89, US, 0, 0, 0);
	assert_false(goes_to_kernel());
	build_icmp4(0x0800, US);
	assert_false(goes_to_kernel());
	assert_int_equal(answers(), 0);
}

static void test_kernel_does_not_answer_for_a_removed_address(void **state)
{
	assert_int_equal(change_addr(false, "10.0.0.1/24"), 0);
	expect_no_frame_in_the_kernel();
	assert_int_equal(change_addr(true, "10.0.0.1/24"), 0);
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	assert_true(goes_to_kernel());
}

static void test_kernel_does_not_answer_for_a_duplicate_address(void **state)
{
	build_arp(2, OTHER); /* by another host that has the stack's address */
	memcpy(frame + 22, stranger_mac, 6);
	put32(frame + 28, US);
	assert_true(goes_to_kernel());
	expect_no_frame_in_the_kernel();
}

/* A neighbour solicitation, to all that may have fd00::1. */
static void solicit(void)
{
	uint8_t *ip = frame + 14, *icmp = ip + 40;

	ethernet((const uint8_t[6]){0x33, 0x33, 0xff, [5] = 1}, 0x86dd);
	len = 14 + 40 + 32;
	ip[0] = 0x60;
	ip[5] = 32;
	ip[6] = 58;
	ip[7] = 255;
	memcpy(ip + 8, (const uint8_t[16]){0xfd, [15] = 2}, 16);
	memcpy(ip + 24,
	       (const uint8_t[16]){0xff, 2, [11] = 1, [12] = 0xff, [15] = 1},
	       16);
	icmp[0] = 135;
	memcpy(icmp + 8, (const uint8_t[16]){0xfd, [15] = 1}, 16);
	icmp[24] = icmp[25] = 1;
	memcpy(icmp + 26, fake_peer_mac, 6);
	put16(icmp + 2, __builtin_bswap16((uint16_t)~glue_sum_fold(
				glue_sum_pseudo(ip + 8, 16, 58, 32) +
				glue_sum_add(0, icmp, 32))));
	fake_receive(frame, len,
		     GLUE_FRAME_IP6 | GLUE_FRAME_ICMP | GLUE_FRAME_MCAST, 54);
	run_rounds(1);
}

static void test_kernel_does_not_answer_for_a_removed_address6(void **state)
{
	solicit();
	assert_false(kernel_has());
	assert_true(answers() > 0);
	assert_int_equal(change_addr(false, "fd00::1/64"), 0);
	answers();
	solicit();
	assert_false(kernel_has());
	assert_int_equal(answers(), 0);
}

/* ---- changes at run time ---- */

static int use_rule(const char *text)
{
	struct net_exception *made = NULL;
	int err =
		text ? net_exception_make(0, text, &made, error, sizeof(error))
		     : 0;

	if (err < 0)
		return err;
	net_exception_use(0, made);
	net_exception_settle(0, made);
	return 0;
}

static void test_exception_is_added_and_removed_at_run_time(void **state)
{
	build_arp(1, US); /* teaches the stack the MAC address for answers */
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	assert_false(goes_to_kernel());
	assert_int_equal(use_rule("tap:k"), 0);
	assert_int_equal(fake_kernel_open, 1);
	assert_int_equal(fake_kernel_conf.n_addrs, 2);
	assert_true(goes_to_kernel());
	other_type(fake_mac); /* would be refused without the exception */
	assert_true(goes_to_kernel());
	assert_int_equal(net_port_count(), NET_PORT_KERNEL - NET_PORT_FIRST);
	assert_int_equal(use_rule(NULL), 0);
	assert_int_equal(fake_kernel_open, 0);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	assert_false(goes_to_kernel());
	assert_int_equal(answers(), 1); /* a reset */
	assert_int_equal(net_port_count(), NET_PORT_COUNT);
}

static void test_changed_rule_keeps_its_interface(void **state)
{
	assert_int_equal(use_rule("tap:k,tcp=23"), 0);
	assert_int_equal(fake_kernel_open, 1);
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	assert_false(goes_to_kernel());
	build_ip4(fake_mac, 6, US, 0, 1000, 23);
	assert_true(goes_to_kernel());
	assert_int_equal(use_rule("tap:k2"), 0);
	assert_int_equal(fake_kernel_open, 1);
	assert_string_equal(net_exception_now(0)->tap->name, "k2");
	assert_true(goes_to_kernel());
}

static void test_invalid_rule_changes_nothing(void **state)
{
	assert_int_equal(use_rule("tap:k,addr=off"), -EINVAL);
	assert_non_null(strstr(error, "k is in use with addr=on"));
	assert_int_equal(use_rule("tap:fake-busy"), -EBUSY);
	assert_int_equal(use_rule("tap:k,tcp=x"), -EINVAL);
	assert_int_equal(fake_kernel_open, 1);
	build_ip4(fake_mac, 6, US, 0, 1000, 22);
	assert_true(goes_to_kernel());
}

/* The interface stays open until the last shard has stopped using it. */
static void test_a_late_shard_keeps_the_interface_open(void **state)
{
	struct net_exception *late = net_exception_get(net_exception_now(0));

	assert_int_equal(use_rule(NULL), 0);
	assert_int_equal(fake_kernel_open, 1);
	net_exception_put(late);
	assert_int_equal(fake_kernel_open, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define WITH(before, test)                                                     \
	cmocka_unit_test_setup_teardown(test, before, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_own_frames_do_not_reach_the_kernel),
		CASE(test_other_frames_go_only_to_the_kernel),
		CASE(test_datagrams_of_our_sockets_do_not_reach_the_kernel),
		CASE(test_group_frames_go_to_both),
		CASE(test_frames_for_other_stations_are_dropped),
		CASE(test_fragments_of_our_segments_do_not_reach_the_kernel),
		CASE(test_segments_of_our_connections_do_not_reach_the_kernel),
		CASE(test_segmented_frame_reaches_the_kernel_whole),
		CASE(test_partial_sums_are_completed_for_the_kernel),
		CASE(test_partial_sum_over_ipv6_is_completed),
		WITH(setup_listed, test_only_listed_ports_go_to_the_kernel),
		WITH(setup_without,
		     test_without_exception_nothing_reaches_the_kernel),
		CASE(test_interface_has_the_links_addresses),
		CASE(test_kernel_frames_leave_unchanged),
		CASE(test_idle_kernel_is_polled_rarely),
		WITH(setup_slow, test_both_directions_are_rate_limited),
		CASE(test_kernel_that_accepts_no_frames_is_harmless),
		CASE(test_busy_port_leaves_frames_in_the_kernel),
		CASE(test_chosen_ports_are_not_the_kernels),
		cmocka_unit_test(test_interface_in_use_fails_the_opening),
		CASE(test_kernel_does_not_answer_for_a_removed_address),
		CASE(test_kernel_does_not_answer_for_a_duplicate_address),
		CASE(test_kernel_does_not_answer_for_a_removed_address6),
		WITH(setup_without,
		     test_exception_is_added_and_removed_at_run_time),
		CASE(test_changed_rule_keeps_its_interface),
		CASE(test_invalid_rule_changes_nothing),
		CASE(test_a_late_shard_keeps_the_interface_open),
	};

	return cmocka_run_group_tests_name("exception", tests, NULL, NULL);
}
