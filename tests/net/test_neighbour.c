/*
 * Neighbours: accepted MAC addresses and their lifetime, floods of unknown
 * hosts, and a stack without an IPv6 address, which ignores IPv6.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "netstack/link/link_priv.h"
#include "netstack/program/log.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#include "lwip/etharp.h"
#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"

#define SECOND_NS INT64_C(1000000000)

static const uint8_t us6[16] = {0xfd, [15] = 1}, friend6[16] = {0xfd, [15] = 2};
static uint8_t sent[9216];
static unsigned sent_len;

static int open_stack(const char *gateway)
{
	struct net_opts opts;
	int err;

	fake_now_ns = SECOND_NS;
	net_opts_init(&opts);
	net_addr_parse(gateway, 0, &opts.gateway6);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/16", &opts.addrs[opts.n_addrs++]);
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 4096;
	opts.poll = NET_POLL_BUSY;
	err = net_stack_open(&opts, &stack);
	if (err == 0)
		err = net_listen(stack, &net_addr_any(7), 4000, &listener);
	for (unsigned i = 0; err == 0 && i < 2; i++) {
		run_rounds(1);
		fake_now_ns += 2 * SECOND_NS;
	}
	while (fake_sent(sent, sizeof(sent)))
		; /* what announces the addresses */
	return err;
}

static int setup(void **state)
{
	return open_stack("");
}

static bool next_sent(unsigned type)
{
	while ((sent_len = fake_sent(sent, sizeof(sent))))
		if (get16(sent + 12) == type)
			return true;
	return false;
}

static unsigned count_sent(unsigned type)
{
	unsigned n = 0;

	while (next_sent(type))
		n++;
	return n;
}

static void round_and_forget(void)
{
	run_rounds(1);
	count_sent(0);
}

/* ---- ARP ---- */

static bool say_arp(unsigned op, const uint8_t mac[6], uint32_t sender,
		    uint32_t target)
{
	uint8_t frame[42] = {0}, *arp = frame + 14;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, mac, 6);
	put16(frame + 12, 0x0806);
	memcpy(arp, "\0\1\10\0\6\4", 6);
	put16(arp + 6, op);
	memcpy(arp + 8, mac, 6);
	put16(arp + 14, sender >> 16);
	put16(arp + 16, sender & 0xffff);
	put16(arp + 24, target >> 16);
	put16(arp + 26, target & 0xffff);
	return fake_receive_wire(frame, sizeof(frame));
}

#define US     0x0a000001u
#define FRIEND 0x0a000002u

static const uint8_t *mac_of(uint32_t ip)
{
	const ip4_addr_t addr = {lwip_htonl(ip)};
	const ip4_addr_t *found;
	struct eth_addr *mac;

	return etharp_find_addr(&net_here()->netifs[0], &addr, &mac, &found) >=
			       0
		       ? mac->addr
		       : NULL;
}

static unsigned arp_entries(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < ARP_TABLE_SIZE; i++) {
		struct eth_addr *mac;
		struct netif *netif;
		ip4_addr_t *ip;

		n += (unsigned)etharp_get_entry(i, &ip, &netif, &mac);
	}
	return n;
}

static void send_syn(uint32_t from, uint16_t port)
{
	uint8_t ip[4];

	put16(ip, from >> 16);
	put16(ip + 2, from & 0xffff);
	peer_send_syn_of(ip, port);
}

static void test_a_request_is_answered_and_learned(void **state)
{
	say_arp(1, fake_peer_mac, FRIEND, US);
	run_rounds(1);
	assert_true(next_sent(0x0806));
	assert_int_equal(sent_len, 42);
	assert_memory_equal(sent, fake_peer_mac, 6);
	assert_memory_equal(sent + 6, fake_mac, 6);
	assert_memory_equal(sent + 14, "\0\1\10\0\6\4\0\2", 8);
	assert_memory_equal(sent + 22, fake_mac, 6);
	assert_memory_equal(sent + 28, "\12\0\0\1", 4);
	assert_memory_equal(sent + 32, fake_peer_mac, 6);
	assert_memory_equal(sent + 38, "\12\0\0\2", 4);
	assert_int_equal(count_sent(0x0806), 0); /* once */
	assert_memory_equal(mac_of(FRIEND), fake_peer_mac, 6);
}

static void test_a_probe_is_answered(void **state)
{
	say_arp(1, fake_peer_mac, 0, US); /* RFC 5227 */
	run_rounds(1);
	assert_int_equal(count_sent(0x0806), 1);
	assert_int_equal(arp_entries(), 0);
}

static void test_arp_for_others_is_not_learnt(void **state)
{
	say_arp(1, fake_peer_mac, FRIEND, FRIEND + 1);
	say_arp(2, fake_peer_mac, FRIEND, US);	   /* never asked */
	say_arp(1, fake_peer_mac, FRIEND, FRIEND); /* gratuitous */
	say_arp(1, fake_peer_mac, 0x0b000001, US); /* beyond the link */
	run_rounds(1);
	assert_int_equal(arp_entries(), 0);
}

/* A failover announces the new MAC address. */
static void test_gratuitous_arp_updates_a_known_neighbour(void **state)
{
	static const uint8_t other[6] = {2, 9, 9, 9, 9, 9};

	say_arp(1, fake_peer_mac, FRIEND, US);
	run_rounds(1);
	say_arp(1, other, FRIEND, FRIEND);
	run_rounds(1);
	assert_memory_equal(mac_of(FRIEND), other, 6);
}

static void test_arp_with_our_address_is_ignored(void **state)
{
	say_arp(1, fake_peer_mac, US, US);
	say_arp(2, fake_peer_mac, US, FRIEND);
	say_arp(1, fake_peer_mac, US, FRIEND);
	run_rounds(1);
	assert_null(mac_of(US));
	assert_int_equal(count_sent(0x0806), 1); /* defends the address */
	assert_int_equal(net_here()->stats.rx_refused, 3);
}

static void test_unknown_neighbours_use_a_quarter_of_the_table(void **state)
{
	unsigned answered = 0;

	say_arp(1, fake_peer_mac, FRIEND, US);
	run_rounds(1);
	count_sent(0);
	for (unsigned i = 0; i < 2000; i++) {
		const uint8_t mac[6] = {2,	   1, 1, 1, (uint8_t)(i >> 8),
					(uint8_t)i};

		say_arp(1, mac, 0x0a000100 + i, US);
		fake_now_ns += 1000000;
		run_rounds(1);
		answered += count_sent(0x0806);
	}
	assert_int_equal(answered, 2000);
	assert_in_range(arp_entries(), 100, ARP_TABLE_SIZE / 4);
	assert_memory_equal(mac_of(FRIEND), fake_peer_mac, 6);
}

/* SYNs from unused addresses: their answers wait in vain for a MAC address. */
static void test_fake_neighbours_do_not_displace_live_ones(void **state)
{
	unsigned asked = 0, answered = 0;

	say_arp(1, fake_peer_mac, FRIEND, US);
	run_rounds(1);
	count_sent(0);
	for (unsigned i = 0; i < 3000; i++) {
		send_syn(0x0a000200 + i, 1000);
		asked += count_sent(0x0806);
	}
	assert_in_range(asked, 64, 256);
	assert_true(net_here()->stats.neighbours_refused > 2000);
	fake_now_ns += 2 * SECOND_NS; /* past our own cache of a second */
	for (unsigned i = 0; i < 20; i++) {
		send_syn(FRIEND, (uint16_t)(2000 + i));
		while (next_sent(0x0800))
			answered += memcmp(sent + 30, "\12\0\0\2", 4) == 0;
	}
	assert_int_equal(answered, 20);
	assert_memory_equal(mac_of(FRIEND), fake_peer_mac, 6);
}

/*
 * Neighbours for which no ARP request is sent are logged, within a rate limit.
 */
static void test_unresolved_neighbours_are_logged(void **state)
{
	uint64_t held = net_log_suppressed();
	char line[128] = "", err[300];
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	net_log_set_fd(ends[1]);
	net_log_set_levels("coronet.neigh=info", true, err, sizeof(err));
	for (unsigned i = 0; i < 3000; i++)
		send_syn(0x0a000200 + i, 1000);
	count_sent(0);
	net_log_set_levels("notice", true, err, sizeof(err));
	assert_true(read(ends[0], line, sizeof(line) - 1) > 0);
	assert_memory_equal(line, "coronet.neigh: event=unasked neighbour=10.",
			    42);
	assert_true(net_log_suppressed() - held > 1000);
	while (net_log_waiting())
		usleep(1000);
	net_log_set_fd(STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
}

/*
 * A new, real neighbour connects during a flood, since it first requests our
 * address.
 */
static void test_a_new_neighbour_gets_through_a_flood(void **state)
{
	bool answered = false;

	for (unsigned i = 0; i < 3000; i++)
		send_syn(0x0a000200 + i, 1000);
	count_sent(0);
	say_arp(1, fake_peer_mac, FRIEND, US);
	run_rounds(1);
	send_syn(FRIEND, 1000);
	while (next_sent(0x0800))
		answered |= memcmp(sent + 30, "\12\0\0\2", 4) == 0;
	assert_true(answered);
}

static void test_answered_requests_make_room(void **state)
{
	for (unsigned i = 0; i < 140; i++) { /* more than may be open */
		send_syn(0x0a000200 + i, 1000);
		assert_in_range(count_sent(0x0806), 1, 2);
		say_arp(2, fake_peer_mac, 0x0a000200 + i, US);
		run_rounds(1);
		send_syn(0x0a000200 + i, 1001); /* known by now */
		count_sent(0);
	}
	assert_int_equal(net_here()->stats.neighbours_refused, 0);
	assert_in_range(arp_entries(), 140, ARP_TABLE_SIZE);
}

/*
 * The reply comes after ARP's timeout; the segment is lost, but the MAC address
 * is learnt.
 */
static void test_late_arp_reply_is_learnt(void **state)
{
	send_syn(FRIEND, 1000);
	for (unsigned i = 0; i < 8; i++) {
		fake_now_ns += SECOND_NS;
		round_and_forget();
	}
	say_arp(2, fake_peer_mac, FRIEND, US);
	run_rounds(1);
	assert_memory_equal(mac_of(FRIEND), fake_peer_mac, 6);
}

static void test_mac_address_expires(void **state)
{
	unsigned segments = 0;

	say_arp(1, fake_peer_mac, FRIEND, US);
	run_rounds(1);
	send_syn(FRIEND, 1000);
	assert_int_equal(count_sent(0x0800), 1);
	for (unsigned i = 0; i < 400; i++) { /* ARP's own entry expires */
		fake_now_ns += SECOND_NS;
		round_and_forget();
	}
	fake_now_ns += 25 * 86400 * SECOND_NS;
	round_and_forget();
	send_syn(FRIEND, 1001);
	while ((sent_len = fake_sent(sent, sizeof(sent))))
		segments += get16(sent + 12) == 0x0800;
	assert_int_equal(segments, 0);
}

/* ---- neighbour discovery ---- */

/*
 * Receives a solicitation (135) or an advertisement (136) from a unicast
 * address.
 */
static void say_nd(unsigned type, const uint8_t *src, const uint8_t *dest,
		   const uint8_t *target, const uint8_t mac[6])
{
	uint8_t frame[86] = {0}, *ip = frame + 14, *nd = ip + 40;
	uint16_t sum;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, mac, 6);
	put16(frame + 12, 0x86dd);
	ip[0] = 0x60;
	ip[5] = 32;
	ip[6] = 58;
	ip[7] = 255;
	memcpy(ip + 8, src, 16);
	memcpy(ip + 24, dest, 16);
	nd[0] = (uint8_t)type;
	nd[4] = type == 136 ? 0x60 : 0;
	memcpy(nd + 8, target, 16);
	nd[24] = type == 136 ? 2 : 1;
	nd[25] = 1;
	memcpy(nd + 26, mac, 6);
	sum = (uint16_t)~glue_sum_fold(
		glue_sum_add(glue_sum_pseudo(ip + 8, 16, 58, 32), nd, 32));
	memcpy(nd + 2, &sum, 2);
	assert_true(fake_receive_wire(frame, sizeof(frame)));
	run_rounds(1);
}

static struct nd6_neighbor_cache_entry *entry_of(const uint8_t *ip)
{
	for (unsigned i = 0; i < LWIP_ND6_NUM_NEIGHBORS; i++)
		if (neighbor_cache[i].state != ND6_NO_ENTRY &&
		    memcmp(neighbor_cache[i].next_hop_address.addr, ip, 16) ==
			    0)
			return &neighbor_cache[i];
	return NULL;
}

static unsigned nd_entries(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LWIP_ND6_NUM_NEIGHBORS; i++)
		n += neighbor_cache[i].state != ND6_NO_ENTRY;
	return n;
}

/* Checks the advertisement in the frame just taken, and its checksum. */
static void check_advertisement(const uint8_t *to, const uint8_t *mac)
{
	const uint8_t *ip = sent + 14, *nd = ip + 40;

	assert_memory_equal(sent, mac, 6);
	assert_memory_equal(ip + 8, us6, 16);
	assert_memory_equal(ip + 24, to, 16);
	assert_int_equal(nd[0], 136);
	assert_int_equal(ip[7], 255);
	assert_memory_equal(nd + 8, us6, 16);
	assert_memory_equal(nd + 26, fake_mac, 6);
	assert_int_equal(glue_sum_fold(glue_sum_add(
				 glue_sum_pseudo(ip + 8, 16, 58, get16(ip + 4)),
				 nd, get16(ip + 4))),
			 0xffff);
}

static void test_unknown_neighbours_use_half_of_the_nd_table(void **state)
{
	count_sent(0);
	for (unsigned i = 0; i < 500; i++) {
		uint8_t mac[6] = {2, 1, 1, 1, (uint8_t)(i >> 8), (uint8_t)i};
		uint8_t ip[16] = {0xfd, [13] = 1, [14] = mac[4], [15] = mac[5]};

		say_nd(135, ip, us6, us6, mac);
		assert_true(next_sent(0x86dd));
		check_advertisement(ip, mac);
		count_sent(0);
	}
	assert_in_range(nd_entries(), 1, LWIP_ND6_NUM_NEIGHBORS / 2);
}

static void send_syn6(const uint8_t *from, uint16_t port)
{
	uint8_t frame[74] = {0}, *ip = frame + 14, *tcp = ip + 40;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, 0x86dd);
	ip[0] = 0x60;
	ip[5] = 20;
	ip[6] = 6;
	ip[7] = 64;
	memcpy(ip + 8, from, 16);
	memcpy(ip + 24, us6, 16);
	put16(tcp, port);
	put16(tcp + 2, 7);
	tcp[7] = 99;
	tcp[12] = 0x50;
	tcp[13] = PEER_SYN;
	tcp[14] = 0xff;
	fake_receive(frame, sizeof(frame),
		     GLUE_FRAME_IP6 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK, 54);
	run_rounds(2);
}

static void test_fake_ipv6_neighbours_do_not_displace_live_ones(void **state)
{
	unsigned answered = 0;

	say_nd(135, friend6, us6, us6, fake_peer_mac);
	assert_non_null(entry_of(friend6));
	entry_of(friend6)->state = ND6_REACHABLE;
	entry_of(friend6)->counter.reachable_time = 30000;
	for (unsigned i = 0; i < 1000; i++) {
		uint8_t ip[16] = {0xfd, [13] = 2, [14] = (uint8_t)(i >> 8),
				  [15] = (uint8_t)i};

		send_syn6(ip, 1000);
	}
	assert_true(net_here()->stats.neighbours_refused > 900);
	assert_non_null(entry_of(friend6));
	fake_now_ns += 2 * SECOND_NS;
	count_sent(0);
	for (unsigned i = 0; i < 20; i++) {
		send_syn6(friend6, (uint16_t)(2000 + i));
		while (next_sent(0x86dd))
			answered += sent[20] == 6 &&
				    memcmp(sent + 38, friend6, 16) == 0;
	}
	assert_int_equal(answered, 20);
}

/* Neighbours that header prediction may send to without lwIP. */
static void test_ipv6_neighbour_is_known_while_reachable(void **state)
{
	static const uint8_t mac[6] = {2, 0, 0, 0, 0, 9};
	struct nd6_neighbor_cache_entry *entry;
	ip6_addr_t ip = {0};

	memcpy(ip.addr, friend6, 16);
	say_nd(135, friend6, us6, us6, fake_peer_mac);
	entry = entry_of(friend6);
	send_syn6(friend6,
		  1000); /* answered, but not yet known to be reachable */
	assert_null(net_neighbour_known6(&ip));
	net_link_confirm6(stack->ports[0].netif0, &ip);
	assert_int_equal(entry->state, ND6_REACHABLE);
	assert_ptr_equal(net_neighbour_known6(&ip), entry);

	entry->counter.reachable_time = 1;
	net_link_confirm6(stack->ports[0].netif0, &ip);
	assert_int_equal(entry->counter.reachable_time,
			 LWIP_ND6_REACHABLE_TIME);
	entry->state = ND6_STALE;
	assert_null(net_neighbour_known6(&ip));
	entry->state = ND6_REACHABLE;
	memcpy(entry->lladdr, mac, 6);
	assert_null(net_neighbour_known6(&ip));
	memcpy(entry->lladdr, fake_peer_mac, 6);
	assert_non_null(net_neighbour_known6(&ip));
	for (uint32_t i = 3; i < 3000; i++) { /* some share its slot */
		ip.addr[3] = lwip_htonl(i);
		assert_null(net_neighbour_known6(&ip));
	}
	memcpy(ip.addr, friend6, 16);
	net_here()->now_ns += SECOND_NS;
	assert_null(net_neighbour_known6(&ip));
}

static void test_nd_with_our_address_is_ignored(void **state)
{
	say_nd(135, us6, us6, us6, fake_peer_mac);
	say_nd(136, friend6, us6, us6, fake_peer_mac);
	assert_null(entry_of(us6));
	assert_int_equal(net_here()->stats.rx_refused, 2);
}

static void test_unsolicited_advertisement_is_ignored(void **state)
{
	say_nd(136, friend6, us6, friend6, fake_peer_mac);
	assert_null(entry_of(friend6));
}

static void *dial_afar(void *arg)
{
	const struct net_dial_opts opts = {.timeout_ms = 300};
	struct net_addr addr;
	struct net_conn *conn;

	net_addr_parse("[fd01::9]:80", -1, &addr);
	result = net_dial(stack, &addr, &opts, &conn);
	return NULL;
}

static int setup_gateway(void **state)
{
	return open_stack("fd00::2");
}

/* The silent host is remote; the gateway in between answers. */
static void test_dial_beyond_an_unresolved_gateway_is_ehostunreach(void **state)
{
	say_nd(135, friend6, us6, us6, fake_peer_mac);
	result = 0;
	net_spawn(stack, "dial", dial_afar, NULL);
	run_ms(400);
	assert_int_equal(result, -ETIMEDOUT);
	memset(entry_of(friend6), 0, sizeof(neighbor_cache[0]));
	net_spawn(stack, "dial", dial_afar, NULL);
	run_ms(400);
	assert_int_equal(result, -EHOSTUNREACH);
}

/* ---- ignored and bounded packets ---- */

static void test_without_ip6_addresses_ip6_is_ignored(void **state)
{
	uint8_t ll[16] = {0xfe, 0x80};

	for (unsigned i = 0; i < LWIP_IPV6_NUM_ADDRESSES; i++)
		assert_false(ip6_addr_isvalid(
			netif_ip6_addr_state(&net_here()->netifs[0], i)));
	memcpy(ll + 8, "\0\0\0\377\376\0\0\1", 8); /* of fake_mac, EUI-64 */
	while (fake_sent(sent, sizeof(sent)))
		assert_int_not_equal(get16(sent + 12), 0x86dd);
	say_nd(135, friend6, ll, ll, fake_peer_mac);
	say_nd(136, friend6, ll, friend6, fake_peer_mac);
	send_syn6(friend6, 1000);
	run_ms(2000);
	while (fake_sent(sent, sizeof(sent)))
		assert_int_not_equal(get16(sent + 12), 0x86dd);
	assert_int_equal(nd_entries(), 0);
	assert_int_equal(net_here()->stats.rx_refused, 3);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_unwanted_datagrams_draw_few_errors(void **state)
{
	uint8_t frame[14 + 28] = {0}, *ip = frame + 14;
	unsigned answered = 0;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, 0x0800);
	ip[0] = 0x45;
	ip[3] = 28;
	ip[8] = 64;
	ip[9] = 17;
	memcpy(ip + 12, "\12\0\0\2\12\0\0\1", 8);
	put16(ip + 20 + 2, 9); /* the port, the length */
	put16(ip + 20 + 4, 8);
	say_arp(1, fake_peer_mac, FRIEND, US);
	run_rounds(1);
	fake_now_ns += 5 * SECOND_NS;
	for (unsigned i = 0; i < 1000; i++) {
		fake_receive(frame, sizeof(frame),
			     GLUE_FRAME_IP4 | GLUE_FRAME_UDP, 34);
		run_rounds(1);
		answered += count_sent(0x0800);
	}
	assert_in_range(answered, 90, 101);
	fake_now_ns += SECOND_NS / 10;
	run_rounds(1);
	for (unsigned i = 0; i < 100; i++)
		fake_receive(frame, sizeof(frame),
			     GLUE_FRAME_IP4 | GLUE_FRAME_UDP, 34);
	run_rounds(8);
	assert_in_range(count_sent(0x0800), 9, 11);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_request_is_answered_and_learned),
		T(test_a_probe_is_answered),
		T(test_arp_for_others_is_not_learnt),
		T(test_gratuitous_arp_updates_a_known_neighbour),
		T(test_arp_with_our_address_is_ignored),
		T(test_unknown_neighbours_use_a_quarter_of_the_table),
		T(test_fake_neighbours_do_not_displace_live_ones),
		T(test_unresolved_neighbours_are_logged),
		T(test_a_new_neighbour_gets_through_a_flood),
		T(test_answered_requests_make_room),
		T(test_late_arp_reply_is_learnt),
		T(test_mac_address_expires),
		T(test_unknown_neighbours_use_half_of_the_nd_table),
		T(test_fake_ipv6_neighbours_do_not_displace_live_ones),
		T(test_ipv6_neighbour_is_known_while_reachable),
		T(test_nd_with_our_address_is_ignored),
		T(test_unsolicited_advertisement_is_ignored),
		cmocka_unit_test_setup_teardown(
			test_dial_beyond_an_unresolved_gateway_is_ehostunreach,
			setup_gateway, peer_teardown),
		cmocka_unit_test_setup_teardown(
			test_without_ip6_addresses_ip6_is_ignored, peer_listen,
			peer_teardown),
		T(test_unwanted_datagrams_draw_few_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
