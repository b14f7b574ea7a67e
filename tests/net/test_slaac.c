/*
 * The SLAAC client: addresses that are probed, used, deprecated and removed,
 * what routers advertise, and neighbours that lie.
 */
#include <errno.h>
#include <unistd.h>

#include "netstack/link/dhcp.h"
#include "tests/apps/in_folder.h"
#include "tests/net/slaac_router.h"

static const uint8_t fe80[8] = {0xfe, 0x80};
static const uint8_t prefix2[16] = {0xfd, 0x88};

/* One of many. */
static void put_other_prefix(uint8_t prefix[16], unsigned i)
{
	memset(prefix, 0, 16);
	prefix[0] = 0xfd;
	put32(prefix + 4, i + 1);
}

/* ---- probes ---- */

static void test_link_local_address_is_probed_before_it_is_used(void **state)
{
	await_probe();
	assert_memory_equal(heard.probed, fe80, 8);
	assert_memory_not_equal(heard.probed + 11, "\xff\xfe", 2);
	assert_null(addr_in(fe80));
	pass_ms(800);
	assert_null(addr_in(fe80));
	assert_int_equal(heard.solicitations + heard.announcements, 0);
	pass_ms(300);
	assert_memory_equal(bytes_of(addr_in(fe80)), heard.probed, 16);
	assert_int_equal(heard.solicitations, 1);
	assert_memory_equal(heard.asked_from, heard.probed, 16);
	assert_int_equal(heard.asked_len, 16);
}

static void test_group_of_the_address_is_joined_for_the_probe(void **state)
{
	await_probe();
	assert_true(heard.reports > 0);
	assert_memory_equal(heard.reported + 13, heard.probed + 13, 3);
	claim(heard.probed, other_mac); /* and left */
	pass_ms(5000);
	assert_int_equal(net_here()->ports[0].netif0->hwaddr_len, 6);
}

static void test_address_of_a_prefix_is_probed_before_it_is_used(void **state)
{
	come_up();
	advertise_prefix(PREFIX, 7200, 3600);
	await_probe();
	assert_memory_equal(heard.probed, PREFIX, 8);
	pass_ms(800);
	assert_null(addr_in(PREFIX));
	pass_ms(300);
	assert_memory_equal(bytes_of(addr_in(PREFIX)), heard.probed, 16);
	assert_int_equal(addr_in(PREFIX)->prefix_len, 64);
	assert_in_range(seconds_left(addr_in(PREFIX)), 7190, 7200);
}

static void test_address_that_is_used_is_answered_for(void **state)
{
	unsigned before;

	come_up_with(7200, 3600);
	before = heard.answers;
	solicit(router1, bytes_of(addr_in(PREFIX)), fake_peer_mac);
	pass_ms(100);
	assert_int_equal(heard.answers, before + 1);
}

static void test_address_that_is_probed_is_not_answered_for(void **state)
{
	unsigned before;

	come_up();
	advertise_prefix(PREFIX, 7200, 3600);
	await_probe();
	before = heard.answers;
	solicit(router1, heard.probed, fake_peer_mac);
	pass_ms(100);
	assert_int_equal(heard.answers, before);
	assert_int_equal(net_here()->stats.addr_conflicts, 0);
	pass_ms(1100);
	assert_non_null(addr_in(PREFIX));
}

static void expect_another(bool by_probe)
{
	uint8_t first[16];

	come_up();
	advertise_prefix(PREFIX, 7200, 3600);
	await_probe();
	memcpy(first, heard.probed, 16);
	if (by_probe)
		solicit(none6, first, other_mac);
	else
		claim(first, other_mac);
	assert_int_equal(net_here()->stats.addr_conflicts, 1);
	await_probe();
	assert_memory_equal(heard.probed, first, 8);
	assert_memory_not_equal(heard.probed, first, 16);
	pass_ms(1100);
	assert_memory_equal(bytes_of(addr_in(PREFIX)), heard.probed, 16);
}

static void test_duplicate_is_replaced(void **state)
{
	expect_another(false);
}

static void test_address_that_another_host_probes_is_replaced(void **state)
{
	expect_another(true);
}

static void test_probe_that_comes_back_is_no_duplicate(void **state)
{
	come_up();
	advertise_prefix(PREFIX, 7200, 3600);
	await_probe();
	solicit(none6, heard.probed, fake_mac);
	assert_int_equal(net_here()->stats.addr_conflicts, 0);
	pass_ms(1100);
	assert_non_null(addr_in(PREFIX));
}

static void test_duplicates_end_after_three_more_tries(void **state)
{
	struct net_slaac_unused unused[NET_SLAAC_UNUSED];

	come_up();
	advertise_prefix(PREFIX, 7200, 3600);
	for (unsigned i = 0; i < 4; i++) {
		await_probe();
		assert_int_equal(net_slaac_unused(unused), 1);
		assert_true(unused[0].tentative);
		claim(heard.probed, other_mac);
	}
	pass_ms(10000);
	assert_int_equal(heard.probes, 1 + 4);
	assert_null(addr_in(PREFIX));
	assert_int_equal(net_slaac_unused(unused), 1);
	assert_false(unused[0].tentative);
	fake_no_carrier = true;
	pass_ms(200);
	fake_no_carrier = false;
	await_probe(); /* maybe on another network */
	pass_ms(1100);
	assert_non_null(addr_in(PREFIX));
}

static void test_without_link_local_address_nothing_else_is_used(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		await_probe();
		claim(heard.probed, other_mac);
	}
	advertise_prefix(PREFIX, 7200, 3600);
	pass_ms(10000);
	assert_int_equal(heard.probes, 4);
	assert_int_equal(heard.solicitations, 0);
	assert_null(addr_in(PREFIX));
	assert_null(addr_in(fe80));
}

static void test_conflict_of_a_used_address_leaves_it_in_use(void **state)
{
	come_up_with(7200, 3600);
	claim(bytes_of(addr_in(PREFIX)), other_mac);
	assert_int_equal(net_here()->stats.addr_conflicts, 1);
	assert_non_null(addr_in(PREFIX));
}

static void test_without_dad_addresses_are_used_at_once(void **state)
{
	init_opts();
	opts.dad_off = true;
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	pass_ms(100);
	assert_non_null(addr_in(fe80));
	advertise_prefix(PREFIX, 7200, 3600);
	pass_ms(100);
	assert_non_null(addr_in(PREFIX));
	assert_int_equal(heard.probes, 0);
	net_stack_close(stack);
}

/* ---- lifetimes of addresses ---- */

/* RFC 4862 5.5.3 e. */
static void test_lifetimes_are_not_cut_below_two_hours(void **state)
{
	come_up_with(86400, 3600);
	advertise_prefix(PREFIX, 10, 10);
	pass_ms(100);
	assert_in_range(seconds_left(addr_in(PREFIX)), 7198, 7200);
	pass_ms(100000);
	advertise_prefix(PREFIX, 10, 10);
	pass_ms(100);
	assert_in_range(seconds_left(addr_in(PREFIX)), 7097, 7100);
	advertise_prefix(PREFIX, 7150, 10); /* longer than what is left */
	pass_ms(100);
	assert_in_range(seconds_left(addr_in(PREFIX)), 7148, 7150);
	advertise_prefix(PREFIX, 20000, 10);
	pass_ms(100);
	assert_in_range(seconds_left(addr_in(PREFIX)), 19998, 20000);
	advertise_prefix(PREFIX, 9000,
			 10); /* shorter, but more than two hours */
	pass_ms(100);
	assert_in_range(seconds_left(addr_in(PREFIX)), 8998, 9000);
}

static void test_address_ends_with_its_lifetime(void **state)
{
	come_up_with(60, 60);
	pass_ms(57000);
	assert_non_null(addr_in(PREFIX));
	pass_ms(3000);
	assert_null(addr_in(PREFIX));
	assert_non_null(addr_in(fe80));
}

static void test_lifetime_without_an_end_lasts(void **state)
{
	come_up_with(NET_RA_INFINITE, NET_RA_INFINITE);
	pass_ms(4000000);
	assert_int_equal(seconds_left(addr_in(PREFIX)), -1);
	assert_int_equal(seconds_left(addr_in(fe80)), -1);
	assert_false(addr_in(PREFIX)->deprecated);
}

static void test_prefix_that_has_expired_forms_no_address(void **state)
{
	uint8_t prefix[16];

	come_up();
	for (unsigned i = 0; i < 10; i++) {
		put_other_prefix(prefix, i);
		advertise_prefix(prefix, 0, 0);
		pass_ms(200);
	}
	assert_int_equal(heard.probes, 1);
	advertise_prefix(PREFIX, 60, 60); /* nor do they cost it its turn */
	await_probe();
}

/* RFC 6724 5, rule 3. */
static void test_deprecated_address_is_no_source_beside_another(void **state)
{
	ip_addr_t to = ip_of("fd77::99");
	struct net_hop hop;

	come_up_with(7200, 20);
	advertise_prefix(prefix2, 7200, 3600);
	await_probe();
	pass_ms(1100);
	assert_int_equal(net_route_find(NULL, &to, &hop), 0);
	assert_ptr_equal(net_route_source(&hop, &to), addr_in(PREFIX));
	pass_ms(20000);
	assert_true(addr_in(PREFIX)->deprecated);
	assert_ptr_equal(net_route_source(&hop, &to), addr_in(prefix2));
	advertise_prefix(PREFIX, 7200, 3600);
	pass_ms(100);
	assert_ptr_equal(net_route_source(&hop, &to), addr_in(PREFIX));
}

/* ---- routers ---- */

static void advertise_router(const uint8_t router[16], unsigned seconds,
			     unsigned flags)
{
	struct ra_bytes b;

	ra_begin(&b, seconds, flags);
	advertise(&b, router);
	pass_ms(100);
}

static void test_router_is_the_default_route(void **state)
{
	come_up();
	assert_string_equal(hop_of("2001:db8::1"), "");
	advertise_router(router1, 1800, 0);
	assert_string_equal(hop_of("2001:db8::1"), "fe80::1");
}

static void test_router_that_withdraws_is_dropped(void **state)
{
	come_up();
	advertise_router(router1, 1800, 0);
	advertise_router(router2, 1800, 0);
	assert_string_equal(hop_of("2001:db8::1"), "fe80::1");
	advertise_router(router1, 0, 0);
	assert_string_equal(hop_of("2001:db8::1"), "fe80::2");
	advertise_router(router2, 0, 0);
	assert_string_equal(hop_of("2001:db8::1"), "");
	assert_int_equal(net_here()->n_routes, 0);
}

static void test_router_that_expires_is_dropped(void **state)
{
	come_up();
	advertise_router(router1, 20, 0);
	pass_ms(19000);
	assert_string_equal(hop_of("2001:db8::1"), "fe80::1");
	pass_ms(1000);
	assert_string_equal(hop_of("2001:db8::1"), "");
}

static void test_preferred_router_comes_first(void **state)
{
	come_up();
	advertise_router(router1, 1800, 0x18);
	advertise_router(router2, 1800, 0);
	assert_string_equal(hop_of("2001:db8::1"), "fe80::2");
	advertise_router(router1, 1800, 0x08);
	assert_string_equal(hop_of("2001:db8::1"), "fe80::1");
}

static void test_routers_are_few(void **state)
{
	unsigned before;

	come_up();
	before = refused();
	for (unsigned i = 0; i < 10; i++) {
		uint8_t router[16] = {0xfe, 0x80, [15] = (uint8_t)(i + 1)};

		advertise_router(router, 1800, 0);
		pass_ms(200);
	}
	assert_int_equal(net_here()->n_routes, 4);
	assert_int_equal(refused() - before, 6);
}

/* ---- solicitations ---- */

static void assert_secs(int64_t from_ns, int64_t to_ns, double least,
			double most)
{
	double s = (double)(to_ns - from_ns) / 1e9;

	assert_true(s >= least - 0.2 && s <= most + 0.2);
}

static void test_solicitations_back_off(void **state)
{
	int64_t before_ns;

	come_up();
	for (unsigned s = 4; s <= 4096; s *= 2) {
		before_ns = heard.asked_ns;
		await_solicitation();
		assert_secs(before_ns, heard.asked_ns,
			    0.9 * (s > 3600 ? 3600 : s),
			    1.1 * (s > 3600 ? 3600 : s));
	}
}

static void test_solicitations_end_with_a_default_router(void **state)
{
	come_up();
	advertise_router(router1, 0, 0);
	await_solicitation();
	advertise_router(router1, 1800, 0);
	pass_ms(100000);
	assert_int_equal(heard.solicitations, 2);
	advertise_router(router1, 0, 0);
	assert_int_equal(heard.solicitations, 3);
}

static void test_returning_carrier_solicits(void **state)
{
	come_up_with(7200, 3600);
	assert_int_equal(heard.solicitations, 1);
	fake_no_carrier = true;
	pass_ms(1000);
	assert_int_equal(heard.solicitations, 1);
	fake_no_carrier = false;
	pass_ms(200);
	assert_int_equal(heard.solicitations, 2);
	assert_non_null(addr_in(PREFIX));
}

/* ---- prefixes on the link ---- */

static void advertise_flags(unsigned bits, unsigned flags, uint32_t valid_s)
{
	struct ra_bytes b;

	ra_begin(&b, 1800, 0);
	ra_prefix(&b, PREFIX, bits, flags, valid_s, 0);
	advertise(&b, router1);
	pass_ms(2200);
}

static void test_network_of_an_address_is_on_the_link(void **state)
{
	come_up_with(7200, 3600);
	assert_string_equal(hop_of("fd77::99"), "fd77::99");
	assert_string_equal(hop_of("fd77:0:0:1::99"), "fe80::1");
}

/* RFC 5942. */
static void test_address_may_have_no_network_on_the_link(void **state)
{
	come_up();
	advertise_flags(64, 0x40, 7200);
	assert_int_equal(addr_in(PREFIX)->prefix_len, 128);
	assert_string_equal(hop_of("fd77::99"), "fe80::1");
	advertise_flags(64, 0xc0, 7200);
	assert_int_equal(addr_in(PREFIX)->prefix_len, 64);
	assert_string_equal(hop_of("fd77::99"), "fd77::99");
	advertise_flags(64, 0x80, 0); /* not on the link any more */
	assert_int_equal(addr_in(PREFIX)->prefix_len, 128);
	assert_string_equal(hop_of("fd77::99"), "fe80::1");
}

static void test_network_on_the_link_needs_no_address(void **state)
{
	come_up();
	advertise_flags(48, 0xc0, 60); /* no identifier has 80 bits */
	assert_null(addr_in(PREFIX));
	assert_string_equal(hop_of("fd77:0:0:1::99"), "fd77:0:0:1::99");
	assert_string_equal(hop_of("fd77:0:1::99"), "fe80::1");
	pass_ms(60000);
	assert_string_equal(hop_of("fd77:0:0:1::99"), "fe80::1");
}

/* ---- name servers ---- */

static void advertise_server(uint32_t seconds)
{
	struct ra_bytes b;

	ra_begin(&b, 0, 0);
	ra_servers(&b, seconds, SERVER, 1);
	advertise(&b, router1);
	pass_ms(100);
}

static void test_name_servers_are_those_of_routers(void **state)
{
	struct net_addr servers[NET_MAX_RESOLVERS];
	unsigned before, turn;

	come_up();
	assert_int_equal(net_leased_servers(servers, &before), 0);
	advertise_server(60);
	assert_int_equal(net_leased_servers(servers, &turn), 1);
	assert_int_not_equal(turn, before);
	assert_int_equal(servers[0].family, 6);
	assert_memory_equal(servers[0].ip, SERVER, 16);
	assert_int_equal(servers[0].port, 53);
	advertise_server(0);
	assert_int_equal(net_leased_servers(servers, &turn), 0);
	advertise_server(60);
	pass_ms(60000);
	assert_int_equal(net_leased_servers(servers, &turn), 0);
}

/* ---- floods ---- */

static void test_flood_of_prefixes_is_bounded(void **state)
{
	struct net_slaac_unused unused[NET_SLAAC_UNUSED];
	uint8_t prefix[16];

	come_up();
	for (unsigned i = 0; i < 500; i++) {
		put_other_prefix(prefix, i);
		advertise_prefix(prefix, 7200, 3600);
		pass_ms(200);
	}
	assert_int_equal(net_slaac_unused(unused), 0);
	assert_int_equal(net_here()->n_addrs, NET_SLAAC_ADDRS);
	assert_int_equal(heard.probes, NET_SLAAC_ADDRS);
	assert_in_range(net_here()->n_routes, 1, 9);
	assert_true(refused() > 400);
}

/* Addresses that end at once leave room for others, but not at any rate. */
static void test_addresses_are_formed_at_a_limited_rate(void **state)
{
	uint8_t prefix[16];

	come_up();
	for (unsigned i = 0; i < 500; i++) {
		put_other_prefix(prefix, i);
		advertise_prefix(prefix, 1, 1);
		pass_ms(200);
	}
	assert_in_range(heard.probes, 5, 1 + 4 + 10 + 1);
}

/* Ten at once, and ten a second. */
static void test_flood_of_advertisements_is_limited(void **state)
{
	unsigned before;

	come_up();
	pass_ms(1000);
	before = refused();
	for (unsigned i = 0; i < 300; i++)
		advertise_prefix(PREFIX, 7200, 3600);
	assert_in_range(refused() - before, 285, 292);
}

static void test_own_advertisement_is_refused(void **state)
{
	uint8_t own[16];
	unsigned before;

	come_up();
	memcpy(own, bytes_of(addr_in(fe80)), 16);
	before = refused();
	advertise_router(own, 1800, 0);
	assert_int_equal(refused(), before + 1);
	assert_int_equal(net_here()->n_routes, 0);
}

static void test_wrong_checksum_is_refused(void **state)
{
	uint8_t frame[14 + 40 + 16] = {0};

	come_up();
	memcpy(frame, "\x33\x33\0\0\0\1", 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, 0x86dd);
	frame[14] = 0x60;
	frame[14 + 5] = 16;
	frame[14 + 6] = 58;
	frame[14 + 7] = 255;
	memcpy(frame + 14 + 8, router1, 16);
	memcpy(frame + 14 + 24, all_nodes, 16);
	frame[54] = 134;
	frame[54 + 7] = 60;
	frame[54 + 3] = 1;
	assert_false(fake_receive_wire(frame, sizeof(frame)));
}

/* ---- options ---- */

static void test_without_auto_advertisements_are_refused(void **state)
{
	init_opts();
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[0]);
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	pass_ms(3000);
	advertise_prefix(PREFIX, 7200, 3600);
	assert_int_equal(refused(), 1);
	pass_ms(3000);
	assert_null(addr_in(PREFIX));
	assert_int_equal(net_here()->n_routes, 0);
	assert_int_equal(heard.solicitations, 0);
	net_stack_close(stack);
}

/* The link has a link-local address already, from its MAC. */
static void test_given_address_stands_beside_formed_ones(void **state)
{
	unsigned before;

	init_opts();
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	await_solicitation();
	before = heard.probes;
	assert_memory_equal(heard.asked_from + 11, "\xff\xfe", 2);
	advertise_prefix(PREFIX, 7200, 3600);
	await_probe();
	assert_int_equal(heard.probes, before + 1);
	pass_ms(1100);
	assert_non_null(addr_in(PREFIX));
	net_stack_close(stack);
}

static void test_dhcp_runs_beside_it(void **state)
{
	init_opts();
	opts.addrs[opts.n_addrs++] = (struct net_addr){.family = 4};
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	come_up();
	assert_true(heard.discovers > 0);
	advertise_router(router1, 1800, 0);
	net_routes_lease(net_here()->ports, NULL, 0); /* a lease ends */
	assert_string_equal(hop_of("2001:db8::1"), "fe80::1");
	net_stack_close(stack);
}

static void test_route_may_lead_to_a_router_of_the_link(void **state)
{
	char error[200];

	init_opts();
	assert_int_equal(net_route_parse("2001:db8::/32 via fe80::7",
					 &opts.routes[opts.n_routes++], error,
					 sizeof(error)),
			 0);
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	assert_string_equal(hop_of("2001:db8::1"), "");
	come_up();
	advertise_router(router1, 1800, 0);
	assert_string_equal(hop_of("2001:db8::1"), "fe80::7");
	assert_string_equal(hop_of("2001:db9::1"), "fe80::1");
	net_stack_close(stack);
}

/* ---- restarts ---- */

static void form_addresses(const char *directory, uint8_t link_local[16],
			   uint8_t global[16])
{
	init_opts();
	opts.lease_dir = directory;
	assert_int_equal(net_stack_open(&opts, &stack), 0);
	come_up_with(7200, 3600);
	memcpy(link_local, bytes_of(addr_in(fe80)), 16);
	memcpy(global, bytes_of(addr_in(PREFIX)), 16);
	net_stack_close(stack);
}

static void test_addresses_are_the_same_after_a_restart(void **state)
{
	uint8_t first[2][16], again[2][16];

	assert_int_equal(in_folder_make(), 0);
	form_addresses(folder, first[0], first[1]);
	form_addresses(folder, again[0], again[1]);
	assert_memory_equal(again, first, sizeof(first));
	assert_memory_not_equal(first[0] + 8, first[1] + 8, 8);
	assert_int_equal(in_folder_remove(), 0);
}

static void test_addresses_differ_without_a_folder(void **state)
{
	uint8_t first[2][16], again[2][16];

	form_addresses("off", first[0], first[1]);
	form_addresses("off", again[0], again[1]);
	assert_memory_not_equal(again[0], first[0], 16);
	assert_memory_not_equal(again[1], first[1], 16);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_link_local_address_is_probed_before_it_is_used),
		TEST(test_group_of_the_address_is_joined_for_the_probe),
		TEST(test_address_of_a_prefix_is_probed_before_it_is_used),
		TEST(test_address_that_is_used_is_answered_for),
		TEST(test_address_that_is_probed_is_not_answered_for),
		TEST(test_duplicate_is_replaced),
		TEST(test_address_that_another_host_probes_is_replaced),
		TEST(test_probe_that_comes_back_is_no_duplicate),
		TEST(test_duplicates_end_after_three_more_tries),
		TEST(test_without_link_local_address_nothing_else_is_used),
		TEST(test_conflict_of_a_used_address_leaves_it_in_use),
		cmocka_unit_test(test_without_dad_addresses_are_used_at_once),
		TEST(test_lifetimes_are_not_cut_below_two_hours),
		TEST(test_address_ends_with_its_lifetime),
		TEST(test_lifetime_without_an_end_lasts),
		TEST(test_prefix_that_has_expired_forms_no_address),
		TEST(test_deprecated_address_is_no_source_beside_another),
		TEST(test_router_is_the_default_route),
		TEST(test_router_that_withdraws_is_dropped),
		TEST(test_router_that_expires_is_dropped),
		TEST(test_preferred_router_comes_first),
		TEST(test_routers_are_few),
		TEST(test_solicitations_back_off),
		TEST(test_solicitations_end_with_a_default_router),
		TEST(test_returning_carrier_solicits),
		TEST(test_network_of_an_address_is_on_the_link),
		TEST(test_address_may_have_no_network_on_the_link),
		TEST(test_network_on_the_link_needs_no_address),
		TEST(test_name_servers_are_those_of_routers),
		TEST(test_flood_of_prefixes_is_bounded),
		TEST(test_addresses_are_formed_at_a_limited_rate),
		TEST(test_flood_of_advertisements_is_limited),
		TEST(test_own_advertisement_is_refused),
		TEST(test_wrong_checksum_is_refused),
		cmocka_unit_test(test_without_auto_advertisements_are_refused),
		cmocka_unit_test(test_given_address_stands_beside_formed_ones),
		cmocka_unit_test(test_dhcp_runs_beside_it),
		cmocka_unit_test(test_route_may_lead_to_a_router_of_the_link),
		cmocka_unit_test(test_addresses_are_the_same_after_a_restart),
		cmocka_unit_test(test_addresses_differ_without_a_folder),
	};

	return cmocka_run_group_tests_name("slaac", tests, NULL, NULL);
}
