/*
 * Connections that are reset when memory is short: their memory is counted
 * exactly, and none is reset once memory is free again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MIB	  (UINT64_C(1) << 20)
#define NEAR_WRAP 0xffffff00u
#define BALLAST	  1024u

static void *ballast[BALLAST];
static unsigned n_ballast;

static void set_budget(void)
{
	net_budget_set(net_budget_used() + 24 * MIB);
}

static void fill_up(void)
{
	while (!net_here()->memory_full) {
		assert_in_range(n_ballast, 0, BALLAST - 1);
		ballast[n_ballast] = net_mem_malloc(65000);
		assert_non_null(ballast[n_ballast++]);
		net_budget_changed();
	}
}

static void unload(void)
{
	while (n_ballast)
		net_mem_free(ballast[--n_ballast]);
}

static void say_bye(struct net_conn *conn, void *arg)
{
	(void)arg;
	net_send(conn, "bye", 3);
}

/* Its FIN, on its last segment of data, has arrived, and nothing is queued. */
static void test_half_closed_connection_is_not_the_largest(void **state)
{
	struct segment s = {0};
	struct peer peer;

	set_budget();
	serve(say_bye);
	peer_connect(&peer, 2000, 7, NEAR_WRAP);
	run_ms(1);
	while (!(s.flags & PEER_FIN))
		assert_true(peer_next(&s));
	peer.rcv = s.seq + s.len + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(1);
	assert_int_equal(net_here()->n_conns, 1);
	fill_up();
	run_ms(10);
	assert_int_equal(net_here()->stats.memory_resets, 0);
	assert_int_equal(net_here()->n_conns, 1);
	unload();
}

static bool go;

static void do_not_read(struct net_conn *conn, void *arg)
{
	(void)conn;
	(void)arg;
	while (!go)
		coro_sleep_ns(1000000);
}

static void test_no_connection_is_reset_once_memory_is_free(void **state)
{
	struct peer peer;

	set_budget();
	go = false;
	serve(do_not_read);
	peer_connect(&peer, 2000, 7, NEAR_WRAP);
	peer_send(&peer, PEER_ACK, "unread", 6);
	run_ms(1);
	fill_up();
	run_ms(1); /* the first sweep selects it */
	unload();
	run_ms(10);
	assert_int_equal(net_here()->stats.memory_resets, 0);
	fill_up();
	run_ms(10); /* while memory stays short it is reset */
	assert_int_equal(net_here()->stats.memory_resets, 1);
	unload();
	go = true;
}

#define ENDED	    130u
#define PIECES	    45u
#define PIECE_BYTES 1000u

static void hold_and_end(unsigned i)
{
	static const uint8_t zeros[PIECE_BYTES];
	struct segment s;
	struct peer peer;

	peer_connect(&peer, (uint16_t)(3000 + i), 7, NEAR_WRAP);
	for (unsigned k = 0; k < PIECES; k++) {
		peer_send(&peer, PEER_ACK, zeros, sizeof(zeros));
		run_rounds(1);
	}
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
	while (peer_next(&s))
		;
}

/* Their handlers have not returned, so their bytes are still queued. */
static void test_bytes_of_ended_connections_go_before_living_ones(void **state)
{
	struct peer peer;
	uint64_t full;

	set_budget();
	go = false;
	serve(do_not_read);
	peer_connect(&peer, 2000, 7, NEAR_WRAP);
	peer_send(&peer, PEER_ACK, "unread", 6);
	for (unsigned i = 0; i < ENDED; i++)
		hold_and_end(i);
	assert_int_equal(net_here()->n_conns, 1);
	fill_up();
	full = net_mem_live_bytes();
	run_ms(20);
	assert_int_equal(net_here()->n_conns, 1);
	assert_true(full - net_mem_live_bytes() > 2 * MIB);
	assert_in_range(net_here()->stats.memory_resets, 1, ENDED);
	unload();
	go = true;
	run_ms(3);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen_many, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_half_closed_connection_is_not_the_largest),
		T(test_no_connection_is_reset_once_memory_is_free),
		T(test_bytes_of_ended_connections_go_before_living_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
