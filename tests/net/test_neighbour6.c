/*
 * Neighbour discovery: a known neighbour's new MAC, and messages whose options
 * are missing or come in another order (RFC 4861 6.3.4, 7.2).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "netstack/link/link_priv.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"

#define OVERRIDE  0x20
#define SOLICITED 0x40
#define OPT_NONCE "\16\1\6\6\6\6\6\6"

static const uint8_t us6[16] = {0xfd, [15] = 1}, friend6[16] = {0xfd, [15] = 2};
static const uint8_t router6[16] = {0xfe, 0x80, [15] = 2};
static const uint8_t group6[16] = {0xff, 2, [15] = 1};
static const uint8_t new_mac[6] = {2, 9, 9, 9, 9, 9};
static uint8_t sent[9216];

static int open_stack(bool is_auto)
{
	struct net_opts opts;
	int err;

	fake_now_ns = INT64_C(1000000000);
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	if (is_auto)
		opts.addrs[opts.n_addrs++] = (struct net_addr){.family = 6};
	opts.max_conns = 4096;
	opts.poll = NET_POLL_BUSY;
	err = net_stack_open(&opts, &stack);
	if (err == 0)
		err = net_listen(stack, &net_addr_any(7), 4, &listener);
	for (unsigned i = 0; err == 0 && i < 2; i++) {
		run_rounds(1);
		fake_now_ns += INT64_C(2000000000);
	}
	while (fake_sent(sent, sizeof(sent)))
		; /* what announces the address */
	return err;
}

static int setup(void **state)
{
	return open_stack(false);
}

static int setup_auto(void **state)
{
	return open_stack(true);
}

/* Receives a message with these options, from a host with this MAC. */
static void say_nd(unsigned type, const uint8_t *dest, const uint8_t *target,
		   unsigned flags, const char *options, unsigned len,
		   const uint8_t *mac)
{
	uint8_t frame[128] = {0}, *ip = frame + 14, *nd = ip + 40;
	uint16_t sum;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, mac, 6);
	put16(frame + 12, 0x86dd);
	ip[0] = 0x60;
	put16(ip + 4, 24 + len);
	ip[6] = 58;
	ip[7] = 255;
	memcpy(ip + 8, type == 134 ? router6 : friend6, 16);
	memcpy(ip + 24, dest, 16);
	nd[0] = (uint8_t)type;
	nd[4] = (uint8_t)flags;
	memcpy(nd + 8, target, 16);
	memcpy(nd + 24, options, len);
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(
		glue_sum_pseudo(ip + 8, 16, 58, (uint16_t)(24 + len)), nd,
		24 + len));
	memcpy(nd + 2, &sum, 2);
	assert_true(fake_receive_wire(frame, 78 + len));
	run_rounds(1);
}

/* Solicits our address, with the MAC of the sender. */
static void solicit_us(const uint8_t *mac)
{
	char option[8] = {1, 1};

	memcpy(option + 2, mac, 6);
	say_nd(135, us6, us6, 0, option, 8, mac);
}

static struct nd6_neighbor_cache_entry *friend_entry(void)
{
	for (unsigned i = 0; i < LWIP_ND6_NUM_NEIGHBORS; i++)
		if (neighbor_cache[i].state != ND6_NO_ENTRY &&
		    memcmp(neighbor_cache[i].next_hop_address.addr, friend6,
			   16) == 0)
			return &neighbor_cache[i];
	return NULL;
}

/* Checks that our advertisement was sent, to this MAC. */
static void expect_answer_to(const uint8_t *mac)
{
	while (fake_sent(sent, sizeof(sent)))
		if (get16(sent + 12) == 0x86dd && sent[54] == 136) {
			assert_memory_equal(sent, mac, 6);
			return;
		}
	fail_msg("no answer");
}

static struct nd6_neighbor_cache_entry *reachable_friend(void)
{
	struct nd6_neighbor_cache_entry *entry;

	solicit_us(fake_peer_mac);
	expect_answer_to(fake_peer_mac);
	entry = friend_entry();
	assert_non_null(entry);
	entry->state = ND6_REACHABLE;
	entry->counter.reachable_time = 30000;
	return entry;
}

static void test_solicitation_brings_a_new_mac(void **state)
{
	struct nd6_neighbor_cache_entry *entry = reachable_friend();

	solicit_us(new_mac);
	assert_memory_equal(entry->lladdr, new_mac, 6);
	/* The answer is the first packet there: RFC 4861 7.3.3. */
	expect_answer_to(new_mac);
	assert_int_equal(entry->state, ND6_DELAY);
}

static void test_solicitation_with_the_known_mac_changes_nothing(void **state)
{
	struct nd6_neighbor_cache_entry *entry = reachable_friend();

	solicit_us(fake_peer_mac);
	expect_answer_to(fake_peer_mac);
	assert_int_equal(entry->state, ND6_REACHABLE);
}

static void test_mac_is_found_behind_another_option(void **state)
{
	say_nd(135, us6, us6, 0, OPT_NONCE "\1\1\2\11\11\11\11\11", 16,
	       fake_peer_mac);
	expect_answer_to(new_mac);
	assert_memory_equal(friend_entry()->lladdr, new_mac, 6);
	say_nd(136, us6, friend6, SOLICITED | OVERRIDE,
	       OPT_NONCE "\2\1\2\7\7\7\7\7", 16, fake_peer_mac);
	assert_memory_equal(friend_entry()->lladdr, "\2\7\7\7\7\7", 6);
	assert_int_equal(friend_entry()->state, ND6_REACHABLE);
}

static void test_solicitation_without_a_mac_is_answered(void **state)
{
	say_nd(135, us6, us6, 0, "", 0, fake_peer_mac);
	expect_answer_to(fake_peer_mac);
	assert_null(friend_entry());
	say_nd(135, us6, us6, 0, OPT_NONCE, 8, fake_peer_mac);
	expect_answer_to(fake_peer_mac);
	assert_null(friend_entry());
	reachable_friend();
	say_nd(135, us6, us6, 0, "", 0, new_mac);
	expect_answer_to(fake_peer_mac); /* the entry's */
}

static void test_advertisement_without_a_mac_confirms_the_known_one(void **s)
{
	struct nd6_neighbor_cache_entry *entry = reachable_friend();

	for (unsigned len = 0; len <= 8; len += 8) {
		entry->state = ND6_PROBE;
		entry->counter.probes_sent = 1;
		say_nd(136, us6, friend6, SOLICITED | OVERRIDE, OPT_NONCE, len,
		       fake_peer_mac);
		assert_int_equal(entry->state, ND6_REACHABLE);
		assert_memory_equal(entry->lladdr, fake_peer_mac, 6);
	}
}

static void test_advertisement_without_a_mac_confirms_nothing_else(void **s)
{
	struct nd6_neighbor_cache_entry *entry;

	say_nd(136, us6, friend6, SOLICITED | OVERRIDE, "", 0, fake_peer_mac);
	assert_null(friend_entry());
	entry = reachable_friend();
	entry->state = ND6_STALE;
	say_nd(136, us6, friend6, OVERRIDE, "", 0, fake_peer_mac);
	say_nd(136, group6, friend6, OVERRIDE, OPT_NONCE, 8, fake_peer_mac);
	assert_int_equal(entry->state, ND6_STALE);
	assert_memory_equal(entry->lladdr, fake_peer_mac, 6);
	entry->state = ND6_INCOMPLETE;
	say_nd(136, us6, friend6, SOLICITED | OVERRIDE, "", 0, fake_peer_mac);
	assert_int_equal(entry->state, ND6_INCOMPLETE);
}

static void test_router_advertisement_brings_a_new_mac(void **state)
{
	/* Two times of an advertisement, and its option. */
	static const uint8_t rest[16] = {[8] = 1, 1, 2, 9, 9, 9, 9, 9};
	struct nd6_neighbor_cache_entry *entry = reachable_friend();

	memcpy(entry->next_hop_address.addr, router6, 16);
	say_nd(134, group6, rest, 64, "", 0, fake_peer_mac);
	assert_memory_equal(entry->lladdr, new_mac, 6);
	assert_int_equal(entry->state, ND6_STALE);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_solicitation_brings_a_new_mac),
		T(test_solicitation_with_the_known_mac_changes_nothing),
		T(test_mac_is_found_behind_another_option),
		T(test_solicitation_without_a_mac_is_answered),
		T(test_advertisement_without_a_mac_confirms_the_known_one),
		T(test_advertisement_without_a_mac_confirms_nothing_else),
		cmocka_unit_test_setup_teardown(
			test_router_advertisement_brings_a_new_mac, setup_auto,
			peer_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
