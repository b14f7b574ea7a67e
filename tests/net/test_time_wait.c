/*
 * TIME_WAIT: the answers of a record of 48 bytes, its lifetime, and many or
 * long-lived records, which block no other connection.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u
#define LASTS_MS  (2 * TCP_MSL)
#define MUCH	  65536u

static void close_at_once(struct net_conn *conn, void *arg)
{
	ended++;
}

static void send_much(struct net_conn *conn, void *arg)
{
	static const uint8_t block[MUCH];

	net_send_all(conn, block, sizeof(block));
}

/* Closes from the stack's side, into TIME_WAIT. */
static struct peer churn_conn(uint16_t port)
{
	struct segment s;
	struct peer peer;

	peer_connect(&peer, port, 7, NEAR_WRAP);
	do {
		assert_true(peer_next(&s));
		peer.rcv = s.seq + s.len;
		if (s.len)
			peer_send(&peer, PEER_ACK, NULL, 0);
	} while (!(s.flags & PEER_FIN));
	peer.rcv++;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	expect(&s, PEER_ACK, peer.rcv, peer.snd, 0);
	return peer;
}

/* Sends a segment of the peer at `seq`. */
static void send_at(const struct peer *peer, uint8_t flags, uint32_t seq,
		    unsigned len)
{
	static const uint8_t data[100];
	struct peer again = *peer;

	again.snd = seq;
	peer_send(&again, flags, data, len);
}

static void say_fin(const struct peer *peer)
{
	send_at(peer, PEER_ACK | PEER_FIN, peer->snd - 1, 0);
}

static void expect_last_ack(const struct peer *peer)
{
	struct segment s;

	expect(&s, PEER_ACK, peer->rcv, peer->snd, 0);
	assert_int_equal(s.src, peer->stack_port);
	assert_int_equal(s.dst, peer->port);
}

static void expect_reset(void)
{
	expect(NULL, PEER_RST, ANY, ANY, ANY);
}

/* ---- answers ---- */

static void test_repeated_fin_and_data_are_acknowledged(void **state)
{
	struct peer peer;

	serve(close_at_once);
	peer = churn_conn(1000);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_time_waits.n, 1);
	say_fin(&peer);
	expect_last_ack(&peer);
	send_at(&peer, PEER_ACK, peer.snd - 51, 50);
	expect_last_ack(&peer);
	send_at(&peer, PEER_ACK, peer.snd, 0);
	peer_expect_nothing();
}

static void test_record_keeps_the_last_announced_window(void **state)
{
	struct segment before, s;
	struct peer peer;

	serve(close_at_once);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	assert_true(peer_next(&before));
	peer.rcv = before.seq + 1;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	assert_true(peer_next(&before));
	say_fin(&peer);
	assert_true(peer_next(&s));
	assert_int_equal(s.wnd, before.wnd);
}

static void set_tos(struct net_conn *conn, void *arg)
{
	conn->pcb.ttl = 99;
	conn->pcb.tos = 8;
}

static void test_record_keeps_the_connections_tos(void **state)
{
	uint8_t frame[128];
	struct peer peer;

	serve(set_tos);
	peer = churn_conn(1000);
	say_fin(&peer);
	run_rounds(2);
	assert_true(fake_sent(frame, sizeof(frame)));
	assert_int_equal(frame[14 + 1], 8);
	assert_int_equal(frame[14 + 8], 99);
}

/* RFC 1337, and RFC 5961 section 7. */
static void test_resets_and_old_syns_do_not_end_time_wait(void **state)
{
	struct peer peer;

	serve(close_at_once);
	peer = churn_conn(1000);
	send_at(&peer, PEER_RST, peer.snd, 0);
	send_at(&peer, PEER_RST | PEER_ACK, peer.snd, 0);
	send_at(&peer, PEER_SYN | PEER_ACK, peer.snd, 0);
	send_at(&peer, 0, peer.snd, 0);
	expect_last_ack(&peer); /* of the SYN alone */
	peer_expect_nothing();
	send_at(&peer, PEER_SYN, peer.snd, 0); /* not newer */
	peer_expect_nothing();
	run_ms(600);
	send_at(&peer, PEER_SYN, peer.snd, 0);
	expect_last_ack(&peer);
	assert_int_equal(net_here()->stats.challenge_acks, 2);
	assert_int_equal(net_here()->stats.rx_unacceptable, 6);
	assert_int_equal(net_time_waits.n, 1);
}

static void test_record_answers_only_its_own_connection(void **state)
{
	struct peer peer, other;

	serve(close_at_once);
	peer = churn_conn(1000);
	other = peer;
	other.port++;
	say_fin(&other);
	expect_reset();
	say_fin(&peer);
	expect_last_ack(&peer);
}

/* If the last ACK cannot leave, the connection waits until it has. */
static void test_record_comes_after_the_last_ack(void **state)
{
	struct segment s;
	struct peer peer;

	serve(close_at_once);
	peer_connect(&peer, 1000, 7, 5);
	assert_true(peer_next(&s));
	peer.rcv = s.seq + 1;
	fake_tx_budget = 0;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	assert_int_equal(net_here()->n_conns, 1);
	assert_int_equal(net_time_waits.n, 0);
	fake_tx_budget = -1;
	expect_last_ack(&peer);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_time_waits.n, 1);
}

/* ---- new connections ---- */

static void test_reopened_connection_has_a_higher_isn(void **state)
{
	struct peer peer, again;
	struct segment s;

	serve(send_much); /* faster than the clock of sequence numbers */
	peer = churn_conn(1000);
	again = (struct peer){.port = 1000, .stack_port = 7, .snd = peer.snd};
	again.snd += 1000;
	peer_send(&again, PEER_SYN, NULL, 0);
	expect(&s, PEER_SYN | PEER_ACK, ANY, again.snd, 0);
	assert_in_range(s.seq - peer.rcv, 1, 0x10000);
	assert_int_equal(net_time_waits.n, 0);
	/* The next connection's ISN comes from the clock again. */
	again.port = 1001;
	peer_send(&again, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	assert_false(s.seq - peer.rcv <= 0x10000);
}

/* A SYN that no listener takes is answered, and the record stays. */
static void expect_record_survives_syn(const struct peer *peer)
{
	send_at(peer, PEER_SYN, peer->snd + 1000, 0);
	expect(NULL, PEER_ACK, peer->rcv, peer->snd, 0);
	assert_int_equal(net_time_waits.n, 1);
	say_fin(peer);
	expect_last_ack(peer);
}

static void test_syn_that_no_listener_takes_ends_no_record(void **state)
{
	struct peer peer;

	serve(close_at_once);
	peer = churn_conn(1000);
	net_listener_drain(listener);
	expect_record_survives_syn(&peer);
	net_listener_close(listener);
	run_ms(600); /* between two challenge ACKs */
	expect_record_survives_syn(&peer);
}

static bool yields(const struct peer *peer)
{
	ip_addr_t local, remote;

	IP_ADDR4(&local, 10, 0, 0, 1);
	IP_ADDR4(&remote, 10, 0, 0, 2);
	return net_time_wait_yields(&local, 7, &remote, peer->port);
}

static void test_dialing_waits_for_higher_numbers(void **state)
{
	struct peer peer;

	serve(send_much);
	peer = churn_conn(1000);
	assert_false(yields(&peer));
	assert_int_equal(net_time_waits.n, 1);
	run_ms(MUCH / 250 + 1); /* 250 numbers a ms */
	assert_true(yields(&peer));
	assert_int_equal(net_time_waits.n, 0);
	say_fin(&peer);
	expect_reset();
}

/* ---- lifetime ---- */

static void test_time_wait_lasts_two_msl(void **state)
{
	struct peer peer;

	serve(close_at_once);
	peer = churn_conn(1000);
	run_ms(LASTS_MS - 50);
	assert_int_equal(net_time_waits.n, 1);
	run_ms(100);
	assert_int_equal(net_time_waits.n, 0);
	assert_null(net_time_waits.oldest);
	assert_int_equal(coro_sched_next_ns(net_here()->sched), CORO_FOREVER);
	say_fin(&peer);
	expect_reset();
}

/* A peer that repeats its FIN prolongs its own record only. */
static void test_fin_prolongs_only_its_own_record(void **state)
{
	struct peer stubborn, other;

	serve(close_at_once);
	stubborn = churn_conn(1000);
	other = churn_conn(1001);
	for (unsigned i = 0; i < 5; i++) {
		run_ms(LASTS_MS / 4);
		say_fin(&stubborn);
		expect_last_ack(&stubborn);
	}
	assert_int_equal(net_time_waits.n, 1);
	say_fin(&other);
	expect_reset();
	run_ms(LASTS_MS - 50);
	assert_int_equal(net_time_waits.n, 1);
	run_ms(LASTS_MS);
	assert_int_equal(net_time_waits.n, 0);
}

static void test_many_records_expire_a_few_per_round(void **state)
{
	serve(close_at_once);
	for (uint16_t i = 0; i < 1000; i++)
		churn_conn((uint16_t)(1000 + i));
	fake_now_ns += 2 * LASTS_MS * INT64_C(1000000);
	for (unsigned i = 0; i < 10; i++) {
		unsigned before = net_time_waits.n;

		fake_now_ns += 20000; /* a step of the timer wheel */
		run_rounds(1);
		assert_in_range(before - net_time_waits.n, 0, 256);
	}
	assert_int_equal(net_time_waits.n, 0);
	assert_null(net_time_waits.oldest);
}

/* ---- number of records ---- */

static void test_oldest_records_make_room(void **state)
{
	struct peer peers[200];

	serve(close_at_once);
	for (uint16_t i = 0; i < 200; i++)
		peers[i] = churn_conn((uint16_t)(1000 + i));
	assert_int_equal(net_here()->stats.accepted, 200);
	assert_int_equal(net_here()->stats.no_memory, 0);
	assert_int_equal(net_here()->stats.cookies_sent, 0);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_time_waits.n, 64);
	assert_int_equal(net_here()->stats.time_wait_recycled, 200 - 64);
	say_fin(&peers[135]);
	expect_reset();
	for (unsigned i = 136; i < 200; i++) {
		say_fin(&peers[i]);
		expect_last_ack(&peers[i]);
	}
}

static void test_order_is_kept_when_a_middle_record_leaves(void **state)
{
	serve(close_at_once);
	for (uint16_t i = 0; i < 64; i++)
		churn_conn((uint16_t)(1000 + i));
	run_ms(1);
	for (unsigned port = 1000; port < 1064; port += 7)
		assert_true(yields(&(struct peer){.port = (uint16_t)port}));
	assert_int_equal(net_time_waits.n, 54);
	for (uint16_t i = 0; i < 64; i++)
		churn_conn((uint16_t)(2000 + i));
	assert_int_equal(net_time_waits.n, 64);
	assert_int_equal(net_here()->stats.time_wait_recycled, 54);
	run_ms(LASTS_MS + 100);
	assert_int_equal(net_time_waits.n, 0);
	assert_null(net_time_waits.oldest);
}

/* Without memory for more, the oldest make room as well. */
static void test_oldest_records_make_room_without_memory(void **state)
{
	struct peer last = {0};

	serve(close_at_once);
	churn_conn(1000);
	net_mem_set_max(net_mem_bytes());
	for (uint16_t i = 0; i < 7000; i++)
		last = churn_conn((uint16_t)(1001 + i));
	net_mem_set_max(UINT64_MAX);
	assert_int_equal(net_here()->stats.accepted, 7001);
	assert_in_range(net_time_waits.n, 1000, 6000);
	assert_int_equal(net_here()->stats.time_wait_recycled,
			 7001 - net_time_waits.n);
	say_fin(&last);
	expect_last_ack(&last);
}

/* ---- held connections ---- */

static struct net_conn *held;

static void hold_half_closed(struct net_conn *conn, void *arg)
{
	held = conn;
	net_shutdown(conn, NET_SHUT_WR);
	coro_sleep_ns(1000000);
	result = net_recv(conn, got, sizeof(got));
	if (result > 0)
		ended = net_recv(conn, got, sizeof(got)) == 0;
}

static void
test_held_connection_can_be_read_and_then_becomes_a_record(void **state)
{
	struct segment s;
	struct peer peer;

	serve(hold_half_closed);
	peer_connect(&peer, 900, 7, 5);
	assert_true(peer_next(&s));
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK | PEER_FIN, "unread", 6);
	run_rounds(2);
	assert_int_equal(held->pcb.state, TIME_WAIT);
	while (peer_next(&s))
		;
	serve(close_at_once);
	for (uint16_t i = 0; i < 100; i++)
		churn_conn((uint16_t)(1000 + i));
	ended = 0;
	assert_int_equal(net_here()->n_conns, 1);
	run_ms(3);
	assert_int_equal(result, 6);
	assert_int_equal(ended, 1);
	assert_int_equal(net_here()->n_conns, 0);
	say_fin(&peer);
	expect_last_ack(&peer);
}

/* ---- over IPv6 ---- */

static ip_addr_t addr6_from(const char *text, uint8_t zone)
{
	ip_addr_t ip;

	assert_true(ipaddr_aton(text, &ip));
	ip6_addr_set_zone(ip_2_ip6(&ip), zone);
	return ip;
}

/* Enters a record with so high a number that a dial does not reuse it. */
static void enter6(const ip_addr_t *local, const ip_addr_t *remote)
{
	struct tcp_pcb *pcb = tcp_new_ip_type(IPADDR_TYPE_V6);

	assert_non_null(pcb);
	pcb->local_ip = *local;
	pcb->remote_ip = *remote;
	pcb->local_port = 7;
	pcb->remote_port = 1000;
	pcb->state = TIME_WAIT;
	pcb->tmr = tcp_ticks;
	pcb->snd_nxt = net_isn(local, 7, remote, 1000) + (1u << 30);
	assert_true(net_time_wait_check(net_conn_of(pcb)));
}

static void test_every_part_of_an_ipv6_address_is_compared(void **state)
{
	const ip_addr_t global = addr6_from("fd00::1", 0),
			other = addr6_from("fd01::1", 0);
	const ip_addr_t remote = addr6_from("fd00::2:0:3", 0);
	const ip_addr_t link_local = *netif_ip_addr6(net_here()->netifs, 0);
	ip_addr_t near = addr6_from("fe80::2", 1);

	enter6(&global, &remote);
	enter6(&link_local, &near);
	assert_int_equal(net_time_waits.n, 2);
	assert_false(net_time_wait_yields(&global, 7, &remote, 1000));
	assert_true(net_time_wait_yields(&other, 7, &remote, 1000));
	for (unsigned i = 0; i < 16; i++) {
		ip_addr_t else_where = remote;

		((uint8_t *)ip_2_ip6(&else_where)->addr)[i] ^= 1;
		assert_true(
			net_time_wait_yields(&global, 7, &else_where, 1000));
	}
	assert_false(net_time_wait_yields(&link_local, 7, &near, 1000));
	ip6_addr_set_zone(ip_2_ip6(&near), 2);
	assert_true(net_time_wait_yields(&link_local, 7, &near, 1000));
	assert_int_equal(net_time_waits.n, 2);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)
#define MANY(name)                                                             \
	cmocka_unit_test_setup_teardown(name, peer_listen_many, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_repeated_fin_and_data_are_acknowledged),
		T(test_record_keeps_the_last_announced_window),
		T(test_record_keeps_the_connections_tos),
		T(test_resets_and_old_syns_do_not_end_time_wait),
		T(test_record_answers_only_its_own_connection),
		T(test_record_comes_after_the_last_ack),
		T(test_reopened_connection_has_a_higher_isn),
		T(test_syn_that_no_listener_takes_ends_no_record),
		T(test_dialing_waits_for_higher_numbers),
		T(test_time_wait_lasts_two_msl),
		T(test_fin_prolongs_only_its_own_record),
		MANY(test_many_records_expire_a_few_per_round),
		T(test_oldest_records_make_room),
		T(test_order_is_kept_when_a_middle_record_leaves),
		MANY(test_oldest_records_make_room_without_memory),
		T(test_held_connection_can_be_read_and_then_becomes_a_record),
		cmocka_unit_test_setup_teardown(
			test_every_part_of_an_ipv6_address_is_compared,
			peer_listen6, peer_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
