/*
 * The DHCP client: its states and times, leases that begin, change and end, and
 * servers that lie.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/link/leased.h"
#include "netstack/link/link.h"
#include "tests/apps/in_folder.h"
#include "tests/net/dhcp_server.h"

/* ---- a lease ---- */

static void test_address_is_leased_and_used(void **state)
{
	struct sent *s = next_sent(NET_DHCP_DISCOVER);

	assert_true(s->broadcast);
	assert_memory_equal(s->from, "\0\0\0\0", 4);
	assert_memory_equal(s->to, "\xff\xff\xff\xff", 4);
	assert_false(stack_has("10.0.0.5"));
	REPLY(.type = NET_DHCP_OFFER);
	s = &sent[1];
	assert_int_equal(n_sent, 2);
	assert_int_equal(s->type, NET_DHCP_REQUEST);
	assert_int_equal(s->xid, sent[0].xid);
	assert_memory_equal(s->from, "\0\0\0\0", 4);
	assert_memory_equal(s->wanted, "\12\0\0\5", 4);
	assert_memory_equal(s->server, "\12\0\0\1", 4);
	assert_memory_equal(s->ciaddr, "\0\0\0\0", 4);
	assert_false(stack_has("10.0.0.5"));
	REPLY(.type = NET_DHCP_ACK);
	assert_true(stack_has("10.0.0.5"));
	assert_string_equal(hop_of("10.0.0.77"), "10.0.0.77");
	assert_string_equal(hop_of("10.0.1.77"), "");
}

static void test_broadcast_answers_are_taken(void **state)
{
	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER, .broadcast = true);
	REPLY(.type = NET_DHCP_ACK, .broadcast = true);
	assert_true(stack_has("10.0.0.5"));
}

static void test_lease_shows_when_it_ends(void **state)
{
	int64_t left_s = 0;
	ip_addr_t ip;

	IP_ADDR4(&ip, 10, 0, 0, 5);
	assert_false(net_dhcp_lease_of(net_here()->ports, &ip, &left_s));
	bind_lease(600, NULL, 0);
	assert_true(net_dhcp_lease_of(net_here()->ports, &ip, &left_s));
	assert_in_range(left_s, 595, 600);
	IP_ADDR4(&ip, 10, 0, 0, 6);
	assert_false(net_dhcp_lease_of(net_here()->ports, &ip, &left_s));
}

static void test_discovery_backs_off(void **state)
{
	static const int wait_s[] = {4, 8, 16, 32, 64, 64};
	struct sent *s = next_sent(NET_DHCP_DISCOVER);

	for (unsigned i = 0; i < 6; i++) {
		struct sent *then = next_sent(NET_DHCP_DISCOVER);

		assert_secs(s->ns, then->ns, wait_s[i] - 1, wait_s[i] + 1);
		assert_int_equal(then->xid, s->xid);
		s = then;
	}
}

static void test_request_without_an_answer_begins_again(void **state)
{
	static const int wait_s[] = {4, 8, 16};
	struct sent *s;

	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER);
	s = &sent[n_sent - 1];
	for (unsigned i = 0; i < 3; i++) {
		struct sent *then = next_sent(NET_DHCP_REQUEST);

		assert_secs(s->ns, then->ns, wait_s[i] - 1, wait_s[i] + 1);
		s = then;
	}
	s = next_sent(NET_DHCP_DISCOVER);
	assert_int_not_equal(s->xid, sent[0].xid);
	assert_false(stack_has("10.0.0.5"));
}

static void test_nak_of_a_request_begins_again_after_a_pause(void **state)
{
	int64_t nak_ns;

	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER);
	REPLY(.type = NET_DHCP_NAK);
	nak_ns = fake_now_ns;
	assert_secs(nak_ns, next_sent(NET_DHCP_DISCOVER)->ns, 1, 10);
}

/* ---- renewal ---- */

static void test_lease_is_renewed_at_half_of_its_time(void **state)
{
	int64_t begin_ns;
	struct sent *s;

	bind_lease(600, NULL, 0);
	begin_ns = fake_now_ns;
	s = next_sent(NET_DHCP_REQUEST);
	assert_secs(begin_ns, s->ns, 280 - 3, 300);
	assert_false(s->broadcast);
	assert_memory_equal(s->to, "\12\0\0\1", 4);
	assert_memory_equal(s->from, "\12\0\0\5", 4);
	assert_memory_equal(s->ciaddr, "\12\0\0\5", 4);
	assert_memory_equal(s->wanted, "\0\0\0\0", 4);
	assert_memory_equal(s->server, "\0\0\0\0", 4);
	REPLY(.type = NET_DHCP_ACK);
	begin_ns = fake_now_ns;
	s = next_sent(NET_DHCP_REQUEST);
	assert_secs(begin_ns, s->ns, 280, 300);
	assert_true(stack_has("10.0.0.5"));
}

static void test_renewal_uses_the_times_of_the_server(void **state)
{
	static const char times[] = "\x3a\4\0\0\0\x64\x3b\4\0\0\0\xc8";
	int64_t begin_ns;
	struct sent *s;

	bind_lease(600, times, 12);
	begin_ns = fake_now_ns - 1500 * INT64_C(1000000);
	s = next_sent(NET_DHCP_REQUEST);
	assert_secs(begin_ns, s->ns, 93, 100);
	s = next_sent(NET_DHCP_REQUEST); /* 60 seconds later at the least */
	assert_false(s->broadcast);
	s = next_sent(NET_DHCP_REQUEST);
	assert_true(s->broadcast);
	assert_secs(begin_ns, s->ns, 190, 200);
}

/* Unanswered: the server, then any server, then the address is given up. */
static void test_lease_is_rebound_and_then_expires(void **state)
{
	int64_t begin_ns;
	unsigned i = 0;

	bind_lease(600, NULL, 0);
	begin_ns = fake_now_ns - 1500 * INT64_C(1000000);
	while (stack_has("10.0.0.5") && n_sent < 60)
		pass_ms(100);
	assert_secs(begin_ns, fake_now_ns, 599, 600);
	assert_in_range(n_sent, 4, 8);
	for (; i < n_sent && !sent[i].broadcast; i++)
		assert_memory_equal(sent[i].to, "\12\0\0\1", 4);
	assert_in_range(i, 2, 5);
	assert_secs(begin_ns, sent[i].ns, 505, 525);
	for (; i < n_sent && sent[i].type == NET_DHCP_REQUEST; i++) {
		assert_memory_equal(sent[i].to, "\xff\xff\xff\xff", 4);
		assert_memory_equal(sent[i].ciaddr, "\12\0\0\5", 4);
		assert_memory_equal(sent[i].server, "\0\0\0\0", 4);
	}
	if (i == n_sent)
		next_sent(NET_DHCP_DISCOVER);
	assert_int_equal(sent[i].type, NET_DHCP_DISCOVER);
	assert_string_equal(hop_of("10.0.0.77"), "");
}

static void test_another_server_may_rebind(void **state)
{
	bind_lease(600, NULL, 0);
	while (!next_sent(NET_DHCP_REQUEST)->broadcast)
		REPLY(.type = NET_DHCP_ACK, .server = "\12\0\0\2");
	REPLY(.type = NET_DHCP_ACK, .server = "\12\0\0\2", .broadcast = true);
	pass_ms(200000);
	assert_true(stack_has("10.0.0.5"));
}

static void test_nak_of_a_renewal_ends_the_lease(void **state)
{
	bind_lease(600, NULL, 0);
	next_sent(NET_DHCP_REQUEST);
	REPLY(.type = NET_DHCP_NAK, .server = "\12\0\0\2");
	assert_true(stack_has("10.0.0.5"));
	REPLY(.type = NET_DHCP_NAK);
	assert_false(stack_has("10.0.0.5"));
	next_sent(NET_DHCP_DISCOVER);
}

static void test_lease_without_an_end_is_not_renewed(void **state)
{
	int64_t left_s;
	ip_addr_t ip;

	bind_lease(NET_DHCP_INFINITE, NULL, 0);
	pass_ms(4000000);
	assert_int_equal(n_sent, 0);
	IP_ADDR4(&ip, 10, 0, 0, 5);
	assert_true(net_dhcp_lease_of(net_here()->ports, &ip, &left_s));
	assert_int_equal(left_s, -1);
}

static void test_expired_address_is_leased_again(void **state)
{
	bind_lease(60, NULL, 0);
	await_end();
	for (unsigned i = 0;
	     i < 100 && sent[n_sent - 1].type != NET_DHCP_DISCOVER; i++)
		pass_ms(100);
	REPLY(.type = NET_DHCP_OFFER);
	REPLY(.type = NET_DHCP_ACK);
	assert_true(stack_has("10.0.0.5"));
}

/* ---- conflicts, carrier ---- */

static void test_conflict_declines_the_address(void **state)
{
	int64_t begin_ns;
	struct sent *s;

	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER);
	REPLY(.type = NET_DHCP_ACK, .more = "\x1a\2\5\x78", .more_len = 4);
	receive_arp(2, other_mac, "\12\0\0\5", stack_ip);
	assert_false(stack_has("10.0.0.5"));
	s = next_sent(NET_DHCP_DECLINE);
	begin_ns = fake_now_ns;
	assert_true(s->broadcast);
	assert_memory_equal(s->from, "\0\0\0\0", 4);
	assert_memory_equal(s->ciaddr, "\0\0\0\0", 4);
	assert_memory_equal(s->wanted, "\12\0\0\5", 4);
	assert_memory_equal(s->server, "\12\0\0\1", 4);
	assert_secs(begin_ns, next_sent(NET_DHCP_DISCOVER)->ns, 10, 10);
	REPLY(.type = NET_DHCP_OFFER, .ip = "\12\0\0\6");
	REPLY(.type = NET_DHCP_ACK, .ip = "\12\0\0\6");
	assert_true(stack_has("10.0.0.6"));
	assert_int_equal(net_here()->netifs[0].mtu, 1500); /* no longer 1400 */
}

static void lose_carrier(void)
{
	fake_no_carrier = true;
	pass_ms(1000);
	fake_no_carrier = false;
	pass_ms(100);
}

static void test_carrier_makes_it_ask_at_once(void **state)
{
	next_sent(NET_DHCP_DISCOVER);
	for (unsigned i = 0; i < 5; i++)
		next_sent(NET_DHCP_DISCOVER);
	n_sent = 0;
	lose_carrier();
	assert_int_equal(n_sent, 1);
}

static void test_carrier_verifies_the_lease(void **state)
{
	struct sent *s = &sent[0];

	bind_lease(600, NULL, 0);
	lose_carrier();
	assert_int_equal(n_sent, 1);
	assert_int_equal(s->type, NET_DHCP_REQUEST);
	assert_memory_equal(s->wanted, "\12\0\0\5", 4);
	assert_memory_equal(s->server, "\0\0\0\0", 4);
	assert_memory_equal(s->ciaddr, "\0\0\0\0", 4);
	assert_true(stack_has("10.0.0.5"));
	REPLY(.type = NET_DHCP_NAK, .server = "\12\0\0\2", .broadcast = true);
	assert_false(stack_has("10.0.0.5"));
}

static void test_lease_is_kept_while_no_server_verifies_it(void **state)
{
	bind_lease(600, NULL, 0);
	lose_carrier();
	pass_ms(60000);
	assert_int_equal(n_sent, 3);
	assert_true(stack_has("10.0.0.5"));
	assert_false(next_sent(NET_DHCP_REQUEST)->broadcast);
}

/* ---- contents of a lease ---- */

static void test_router_is_the_default_route(void **state)
{
	bind_lease(600, "\3\4\12\0\0\xfe", 6);
	assert_string_equal(hop_of("192.0.2.1"), "10.0.0.254");
	next_sent(NET_DHCP_REQUEST);
	REPLY(.type = NET_DHCP_ACK);
	assert_string_equal(hop_of("192.0.2.1"), "");
}

static void test_routes_replace_routers(void **state)
{
	static const char more[] = "\3\4\12\0\0\xfe"
				   "\x79\x0f\x10\xc0\xa8\12\0\0\2"
				   "\x18\xc0\xa8\1\12\0\0\3";

	bind_lease(600, more, 6 + 2 + 15);
	assert_string_equal(hop_of("192.168.7.1"), "10.0.0.2");
	assert_string_equal(hop_of("192.168.1.1"), "10.0.0.3");
	assert_string_equal(hop_of("192.0.2.1"), "");
}

/* As clouds do. The first router is this host itself, and is ignored. */
static void test_router_out_of_the_network_is_on_the_link(void **state)
{
	static const char more[] = "\3\10\12\0\0\5\12\0\1\1";

	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER, .mask = "\xff\xff\xff\xff");
	REPLY(.type = NET_DHCP_ACK, .mask = "\xff\xff\xff\xff", .more = more,
	      .more_len = 10);
	assert_string_equal(hop_of("192.0.2.1"), "10.0.1.1");
	assert_string_equal(hop_of("10.0.0.77"), "10.0.1.1");
}

static void test_route_without_a_router_is_on_the_link(void **state)
{
	static const char more[] = "\x79\x0e\x20\12\0\1\1\0\0\0\0"
				   "\0\12\0\1\1";

	bind_lease(600, more, 2 + 14);
	assert_string_equal(hop_of("10.0.1.1"), "10.0.1.1");
	assert_string_equal(hop_of("192.0.2.1"), "10.0.1.1");
	assert_string_equal(hop_of("10.0.1.2"), "10.0.1.1");
}

static void test_routes_end_with_the_lease(void **state)
{
	bind_lease(60, "\3\4\12\0\0\xfe", 6);
	assert_int_equal(net_here()->n_routes, 1);
	await_end();
	assert_int_equal(net_here()->n_routes, 0);
}

static void test_name_servers_are_those_of_the_lease(void **state)
{
	struct net_addr servers[NET_MAX_RESOLVERS];
	unsigned turn, before;

	assert_int_equal(net_leased_servers(servers, &before), 0);
	bind_lease(60, "\6\10\12\0\0\x35\177\0\0\1", 10);
	assert_int_equal(net_leased_servers(servers, &turn), 1);
	assert_int_not_equal(turn, before);
	assert_memory_equal(servers[0].ip, "\12\0\0\x35", 4);
	assert_int_equal(servers[0].port, 53);
	await_end();
	assert_int_equal(net_leased_servers(servers, &turn), 0);
}

static void test_mtu_counts_up_to_that_of_the_link(void **state)
{
	bind_lease(600, "\x1a\2\5\x78", 4);
	assert_int_equal(net_here()->netifs[0].mtu, 1400);
	next_sent(NET_DHCP_REQUEST);
	REPLY(.type = NET_DHCP_ACK, .more = "\x1a\2\x23\x28", .more_len = 4);
	assert_int_equal(net_here()->netifs[0].mtu, 1500);
}

static void test_renewal_may_change_the_network(void **state)
{
	bind_lease(600, NULL, 0);
	next_sent(NET_DHCP_REQUEST);
	REPLY(.type = NET_DHCP_ACK, .mask = "\xff\xff\0\0");
	assert_true(stack_has("10.0.0.5"));
	assert_string_equal(hop_of("10.0.7.7"), "10.0.7.7");
}

/* ---- servers that lie ---- */

static void test_answers_to_others_are_ignored(void **state)
{
	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER, .xid_xor = 1);
	REPLY(.type = NET_DHCP_OFFER, .foreign = true);
	REPLY(.type = NET_DHCP_ACK);
	REPLY(.type = NET_DHCP_NAK);
	assert_int_equal(n_sent, 1);
	REPLY(.type = NET_DHCP_OFFER);
	assert_int_equal(n_sent, 2);
	REPLY(.type = NET_DHCP_ACK, .server = "\12\0\0\2");
	REPLY(.type = NET_DHCP_NAK, .server = "\12\0\0\2");
	assert_false(stack_has("10.0.0.5"));
	REPLY(.type = NET_DHCP_ACK);
	assert_true(stack_has("10.0.0.5"));
}

static void test_wrong_addresses_are_refused(void **state)
{
	static const struct {
		const char *ip, *mask;
	} wrong[] = {
		{"\0\0\0\0", NULL},	    {"\177\0\0\1", "\xff\0\0\0"},
		{"\xe0\0\0\1", NULL},	    {"\xf0\0\0\1", NULL},
		{"\xff\xff\xff\xff", NULL}, {"\12\0\0\xff", NULL},
		{"\12\0\0\0", NULL},	    {"\12\0\0\x0f", "\xff\xff\xff\xf0"},
		{"\0\1\2\3", "\xff\0\0\0"},
	};
	unsigned n = sizeof(wrong) / sizeof(wrong[0]);

	next_sent(NET_DHCP_DISCOVER);
	for (unsigned i = 0; i < n; i++) {
		REPLY(.type = NET_DHCP_OFFER, .ip = wrong[i].ip,
		      .mask = wrong[i].mask);
		assert_int_equal(n_sent, 1);
		assert_int_equal(refused(), i + 1);
	}
}

static void test_address_of_the_stack_is_refused(void **state)
{
	struct net_addr own;

	net_addr_parse_prefix("10.0.0.5/24", &own);
	assert_int_equal(net_ifaddr_add(net_here()->ports, &own), 0);
	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER);
	assert_int_equal(n_sent, 1);
	assert_int_equal(refused(), 1);
}

/* An acknowledgement of another address, or without a useful time. */
static void test_wrong_acknowledgements_are_refused(void **state)
{
	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER);
	REPLY(.type = NET_DHCP_ACK, .ip = "\12\0\0\6");
	REPLY(.type = NET_DHCP_ACK, .no_lease = true);
	REPLY(.type = NET_DHCP_ACK, .lease_s = 9);
	assert_int_equal(refused(), 3);
	assert_false(stack_has("10.0.0.5"));
	assert_false(stack_has("10.0.0.6"));
	REPLY(.type = NET_DHCP_ACK, .lease_s = 10);
	assert_true(stack_has("10.0.0.5"));
}

static void test_lengths_that_lie_are_counted(void **state)
{
	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER, .more = "\3\xff\12", .more_len = 3);
	REPLY(.type = NET_DHCP_OFFER, .more = "\x79\2\x21\1", .more_len = 4);
	assert_int_equal(n_sent, 1);
	assert_int_equal(refused(), 2);
}

/* A hundred at once, and a hundred a second. */
static void test_flood_of_answers_is_limited(void **state)
{
	unsigned before;

	bind_lease(600, NULL, 0);
	pass_ms(1000);
	before = refused();
	sent[0].xid = 7;
	n_sent = 1;
	for (unsigned i = 0; i < 300; i++)
		REPLY(.type = NET_DHCP_OFFER);
	assert_in_range(refused() - before, 195, 205);
}

static void test_frames_for_other_ports_pass(void **state)
{
	struct dhcp_bytes b;

	next_sent(NET_DHCP_DISCOVER);
	dhcp_begin(&b, sent[0].xid, fake_mac, "\12\0\0\5");
	b.len = 239; /* too short for a message */
	receive_bytes(&b, true);
	assert_int_equal(n_sent, 1);
}

/* ---- options ---- */

static void test_gateway_of_the_options_comes_first(void **state)
{
	init_opts();
	net_addr_parse("10.0.0.9", 0, &opts.gateway4);
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	bind_lease(600, "\3\4\12\0\0\xfe", 6);
	assert_string_equal(hop_of("192.0.2.1"), "10.0.0.9");
	net_stack_close(stack);
}

static void test_route_may_lead_to_a_leased_network(void **state)
{
	char error[200];

	init_opts();
	assert_int_equal(net_route_parse("192.0.2.0/24 via 10.0.0.7",
					 &opts.routes[opts.n_routes++], error,
					 sizeof(error)),
			 0);
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	assert_string_equal(hop_of("192.0.2.1"), "");
	bind_lease(600, NULL, 0);
	assert_string_equal(hop_of("192.0.2.1"), "10.0.0.7");
	net_stack_close(stack);
}

static void test_each_link_has_a_lease_of_its_own(void **state)
{
	init_opts();
	opts.links[opts.n_links++] = "ring:other";
	opts.addr_links[0] = 1;
	net_addr_parse_prefix("10.9.0.1/24", &opts.addrs[opts.n_addrs++]);
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	assert_true(stack_has("10.9.0.1"));
	next_sent(NET_DHCP_DISCOVER);
	assert_false(stack_has("10.0.0.5"));
	net_stack_close(stack);
}

/* ---- restarts ---- */

#define LEASE_FILE "dhcp-1.lease"

static void open_again(void)
{
	init_opts();
	opts.lease_dir = folder;
	assert_int_equal(net_stack_open(&opts, &stack), 0);
}

static int setup_folder(void **state)
{
	return in_folder_make();
}

static int teardown_folder(void **state)
{
	return in_folder_remove();
}

/* The file is written when the stack closes, at the latest. */
static void lease_and_stop(uint32_t lease_s)
{
	open_again();
	bind_lease(lease_s, NULL, 0);
	net_stack_close(stack);
}

static void test_lease_is_asked_for_again_after_a_restart(void **state)
{
	struct sent *s;

	lease_and_stop(600);
	open_again();
	s = next_sent(NET_DHCP_REQUEST);
	assert_true(s->broadcast);
	assert_memory_equal(s->from, "\0\0\0\0", 4);
	assert_memory_equal(s->wanted, "\12\0\0\5", 4);
	assert_memory_equal(s->server, "\0\0\0\0", 4);
	assert_memory_equal(s->ciaddr, "\0\0\0\0", 4);
	assert_false(stack_has("10.0.0.5"));
	REPLY(.type = NET_DHCP_ACK, .server = "\12\0\0\2");
	assert_true(stack_has("10.0.0.5"));
	net_stack_close(stack);
}

static void test_remembered_address_is_given_up_without_an_answer(void **state)
{
	struct sent *s;

	lease_and_stop(600);
	open_again();
	s = next_sent(NET_DHCP_REQUEST);
	assert_secs(s->ns, next_sent(NET_DHCP_REQUEST)->ns, 3, 5);
	assert_secs(sent[1].ns, next_sent(NET_DHCP_DISCOVER)->ns, 7, 9);
	assert_memory_equal(sent[2].wanted, "\0\0\0\0", 4);
	net_stack_close(stack);
}

static void test_nak_makes_the_address_forgotten(void **state)
{
	lease_and_stop(600);
	open_again();
	next_sent(NET_DHCP_REQUEST);
	REPLY(.type = NET_DHCP_NAK, .broadcast = true);
	next_sent(NET_DHCP_DISCOVER);
	net_stack_close(stack);
	assert_int_equal(access(in_folder(LEASE_FILE), F_OK), -1);
}

static void test_lease_that_has_ended_is_forgotten(void **state)
{
	open_again();
	bind_lease(60, NULL, 0);
	await_end();
	net_stack_close(stack);
	assert_int_equal(access(in_folder(LEASE_FILE), F_OK), -1);
}

/* Writing needs no end of the program. */
static void test_lease_is_written_while_the_stack_runs(void **state)
{
	struct stat about;

	open_again();
	bind_lease(600, NULL, 0);
	for (unsigned i = 0;
	     i < 10000 && stat(in_folder(LEASE_FILE), &about) < 0; i++) {
		run_rounds(1);
		usleep(1000);
	}
	assert_int_equal(about.st_mode, S_IFREG | 0600);
	assert_int_equal(unlink(in_folder(LEASE_FILE)), 0);
	net_stack_close(stack);
}

static void test_corrupt_file_is_ignored(void **state)
{
	write_file(LEASE_FILE, "coronet-lease 1 mac=02:00\n");
	open_again();
	next_sent(NET_DHCP_DISCOVER);
	net_stack_close(stack);
}

/* The address is leased nevertheless. */
static void test_folder_that_is_missing_stops_nothing(void **state)
{
	init_opts();
	opts.lease_dir = in_folder("missing");
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	bind_lease(600, NULL, 0);
	net_stack_close(stack);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define RESTARTED(name)                                                        \
	cmocka_unit_test_setup_teardown(name, setup_folder, teardown_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_address_is_leased_and_used),
		TEST(test_broadcast_answers_are_taken),
		TEST(test_lease_shows_when_it_ends),
		TEST(test_discovery_backs_off),
		TEST(test_request_without_an_answer_begins_again),
		TEST(test_nak_of_a_request_begins_again_after_a_pause),
		TEST(test_lease_is_renewed_at_half_of_its_time),
		TEST(test_renewal_uses_the_times_of_the_server),
		TEST(test_lease_is_rebound_and_then_expires),
		TEST(test_another_server_may_rebind),
		TEST(test_nak_of_a_renewal_ends_the_lease),
		TEST(test_lease_without_an_end_is_not_renewed),
		TEST(test_expired_address_is_leased_again),
		TEST(test_conflict_declines_the_address),
		TEST(test_carrier_makes_it_ask_at_once),
		TEST(test_carrier_verifies_the_lease),
		TEST(test_lease_is_kept_while_no_server_verifies_it),
		TEST(test_router_is_the_default_route),
		TEST(test_routes_replace_routers),
		TEST(test_router_out_of_the_network_is_on_the_link),
		TEST(test_route_without_a_router_is_on_the_link),
		TEST(test_routes_end_with_the_lease),
		TEST(test_name_servers_are_those_of_the_lease),
		TEST(test_mtu_counts_up_to_that_of_the_link),
		TEST(test_renewal_may_change_the_network),
		TEST(test_answers_to_others_are_ignored),
		TEST(test_wrong_addresses_are_refused),
		TEST(test_address_of_the_stack_is_refused),
		TEST(test_wrong_acknowledgements_are_refused),
		TEST(test_lengths_that_lie_are_counted),
		TEST(test_flood_of_answers_is_limited),
		TEST(test_frames_for_other_ports_pass),
		cmocka_unit_test(test_gateway_of_the_options_comes_first),
		cmocka_unit_test(test_route_may_lead_to_a_leased_network),
		cmocka_unit_test(test_each_link_has_a_lease_of_its_own),
		RESTARTED(test_lease_is_asked_for_again_after_a_restart),
		RESTARTED(
			test_remembered_address_is_given_up_without_an_answer),
		RESTARTED(test_nak_makes_the_address_forgotten),
		RESTARTED(test_lease_that_has_ended_is_forgotten),
		RESTARTED(test_lease_is_written_while_the_stack_runs),
		RESTARTED(test_corrupt_file_is_ignored),
		RESTARTED(test_folder_that_is_missing_stops_nothing),
	};

	return cmocka_run_group_tests_name("dhcp", tests, NULL, NULL);
}
