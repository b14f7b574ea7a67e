/*
 * A port without room: every segment that could not leave is sent soon after
 * the port has room again.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/api/api.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define SOON_MS 20u /* before lwIP's next tick */

static struct peer peer;
static struct net_conn *ours;
static bool go;

static void port_is_busy(bool busy)
{
	fake_tx_budget = busy ? 0 : -1;
}

static void await_word(struct net_conn *conn)
{
	ours = conn;
	while (!go)
		coro_sleep_ns(1000000);
}

static void connect_to(net_handler handler)
{
	serve(handler);
	go = false;
	peer_connect(&peer, 1000, 7, 99);
	run_ms(20);
	while (fake_sent(got, sizeof(got)))
		;
}

/* Lets the handler continue while the port is busy. */
static void say_so(unsigned ms)
{
	port_is_busy(true);
	go = true;
	run_ms(ms);
	peer_expect_nothing();
	port_is_busy(false);
}

static void read_all(struct net_conn *conn, void *arg)
{
	await_word(conn);
	while (net_conn_readable(conn))
		net_recv(conn, got, sizeof(got));
	coro_park_until(CORO_FOREVER);
}

static void test_window_update_is_sent_later(void **state)
{
	static const uint8_t block[1000];
	unsigned left = 65535;

	connect_to(read_all);
	while (left) {
		unsigned n = LWIP_MIN(left, (unsigned)sizeof(block));

		peer_send(&peer, PEER_ACK, block, n);
		left -= n;
		run_rounds(2);
	}
	run_ms(100);
	while (fake_sent(got, sizeof(got)))
		;
	say_so(5);
	assert_true(peer_wait(SOON_MS).wnd > 30000);
}

static void close_it(struct net_conn *conn, void *arg)
{
	await_word(conn);
}

static void test_fin_is_sent_later(void **state)
{
	connect_to(close_it);
	say_so(5);
	assert_true(peer_wait(SOON_MS).flags & PEER_FIN);
}

static void shut_it(struct net_conn *conn, void *arg)
{
	await_word(conn);
	net_shutdown(conn, NET_SHUT_WR);
	coro_park_until(CORO_FOREVER);
}

static void test_shutdown_fin_is_sent_later(void **state)
{
	connect_to(shut_it);
	say_so(5);
	assert_true(peer_wait(SOON_MS).flags & PEER_FIN);
}

static void send_it(struct net_conn *conn, void *arg)
{
	await_word(conn);
	net_send_all(conn, "data", 4);
	coro_park_until(CORO_FOREVER);
}

static void test_data_is_sent_later(void **state)
{
	connect_to(send_it);
	say_so(5);
	assert_int_equal(peer_wait(SOON_MS).len, 4);
}

/* Several timeouts find the port busy. */
static void test_retransmission_is_sent_later(void **state)
{
	connect_to(send_it);
	go = true;
	assert_int_equal(peer_wait(SOON_MS).len, 4);
	port_is_busy(true);
	run_ms(3000);
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).len, 4);
}

static void test_delayed_ack_is_sent_later(void **state)
{
	connect_to(close_it);
	peer_send(&peer, PEER_ACK, "x", 1);
	run_rounds(1);
	port_is_busy(true);
	run_ms(200); /* longer than it is delayed */
	peer_expect_nothing();
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).ack, peer.snd);
	peer_expect_nothing();
}

static void keep_alive(struct net_conn *conn, void *arg)
{
	net_set_keepalive(conn, 10, 10, 3);
	await_word(conn);
}

static void test_keepalive_is_sent_later(void **state)
{
	connect_to(keep_alive);
	port_is_busy(true);
	run_ms(11000);
	peer_expect_nothing();
	port_is_busy(false);
	assert_int_equal(peer_wait(100).seq, peer.rcv - 1);
}

/* A window that closes while the port is busy is still probed. */
static void test_probe_is_sent_later(void **state)
{
	struct segment s;

	connect_to(send_it);
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, "x", 1);
	run_ms(100);
	while (peer_next(&s))
		;
	go = true;
	port_is_busy(true);
	run_ms(400);
	port_is_busy(false);
	assert_int_equal(peer_wait(1000).seq, peer.rcv - 1);
}

static void test_answer_to_a_syn_is_sent_later(void **state)
{
	connect_to(close_it); /* so that its address is known */
	peer.port = 1001;
	port_is_busy(true);
	peer_send(&peer, PEER_SYN, NULL, 0);
	run_ms(5);
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).flags, PEER_SYN | PEER_ACK);
}

/* A link may stay blocked: its records must not fill the backlog for good. */
static void test_half_open_on_a_busy_port_times_out(void **state)
{
	connect_to(close_it); /* so that its address is known */
	peer.port = 1001;
	port_is_busy(true);
	peer_send(&peer, PEER_SYN, NULL, 0);
	run_ms(19000);
	assert_int_equal(net_here()->half_open, 1);
	run_ms(1200);
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(listener->pending, 0);
	port_is_busy(false);
	run_ms(SOON_MS);
	peer_expect_nothing();
}

static void test_half_open_answered_late_is_timed_from_then(void **state)
{
	connect_to(close_it); /* so that its address is known */
	peer.port = 1001;
	port_is_busy(true);
	peer_send(&peer, PEER_SYN, NULL, 0);
	run_ms(900);
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).flags, PEER_SYN | PEER_ACK);
	run_ms(900);
	peer_expect_nothing();
	assert_int_equal(peer_wait(150).flags, PEER_SYN | PEER_ACK);
}

static void *dial_peer(void *arg)
{
	const struct net_dial_opts opts = {.timeout_ms = 500};
	struct net_addr to;

	assert_int_equal(net_addr_parse("10.0.0.2:80", 0, &to), 0);
	result = net_dial(stack, &to, &opts, &ours);
	return NULL;
}

static void test_syn_is_sent_later(void **state)
{
	struct coro *co;

	connect_to(close_it); /* so that its address is known */
	port_is_busy(true);
	assert_int_equal(
		coro_spawn(net_here()->sched, NULL, dial_peer, NULL, &co), 0);
	run_ms(5);
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).flags, PEER_SYN);
	run_ms(1000);
}

/* ---- cost of waiting ---- */

#define EACH 20u /* connections, dials, and senders of datagrams */

static struct net_udp *sockets[EACH];
static struct coro *senders[EACH];
static unsigned n_sent, order[EACH];
static int results[EACH];

static void *dial_long(void *arg)
{
	const struct net_dial_opts opts = {.timeout_ms = 30000};
	struct net_conn *conn;
	struct net_addr to;

	assert_int_equal(net_addr_parse("10.0.0.2:80", 0, &to), 0);
	net_dial(stack, &to, &opts, &conn);
	return NULL;
}

static void *send_datagram(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	struct net_addr to;

	net_addr_parse("10.0.0.2:9", 0, &to);
	results[i] = (int)net_udp_send(sockets[i], &to, "x", 1);
	if (results[i] == 1)
		order[n_sent++] = i;
	else
		ended++;
	return NULL;
}

static void open_sockets(void)
{
	struct net_addr any = {.family = 4};

	n_sent = ended = 0;
	for (unsigned i = 0; i < EACH; i++)
		assert_int_equal(net_udp_open(stack, &any, NULL, &sockets[i]),
				 0);
}

static void start_senders(void)
{
	for (unsigned i = 0; i < EACH; i++)
		assert_int_equal(coro_spawn(net_here()->sched, NULL,
					    send_datagram, (void *)(uintptr_t)i,
					    &senders[i]),
				 0);
	run_ms(5);
	assert_int_equal(n_sent + ended, 0);
}

static void finish_senders(void)
{
	run_ms(5);
	for (unsigned i = 0; i < EACH; i++) {
		coro_join(senders[i], NULL);
		net_udp_close(sockets[i]);
	}
}

static uint64_t tries_of_senders(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < EACH; i++)
		sum += sockets[i]->stats.tx_busy;
	return sum;
}

static unsigned frames_left(void)
{
	unsigned n = 0;

	while (fake_sent(got, sizeof(got)))
		n++;
	return n;
}

/* One retry for each port, not a timer for each of those that wait. */
static void test_blocked_port_costs_no_timers(void **state)
{
	uint64_t ticks, tries;

	connect_to(send_it);
	open_sockets();
	for (unsigned i = 1; i < EACH; i++) {
		struct peer other;

		peer_connect(&other, (uint16_t)(1000 + i), 7, 99);
	}
	run_ms(100);
	frames_left();
	port_is_busy(true);
	go = true;
	for (unsigned i = 0; i < EACH; i++)
		net_spawn(stack, "dial", dial_long, NULL);
	start_senders();
	run_ms(100);
	ticks = net_lwip_ticks;
	tries = tries_of_senders();
	run_ms(3000);
	assert_int_equal(net_lwip_ticks - ticks, 0);
	assert_int_equal(tries_of_senders() - tries, 0);
	port_is_busy(false);
	run_ms(5);
	assert_int_equal(n_sent, EACH);
	assert_int_equal(frames_left(), 3 * EACH);
	finish_senders();
}

static void send_once(struct net_conn *conn, void *arg)
{
	await_word(conn);
	net_send(conn, "x", 1);
	coro_park_until(CORO_FOREVER);
}

/*
 * One of two ports has room for one frame: that costs no look at all the
 * connections that wait for it.
 */
static void test_little_room_serves_few_connections(void **state)
{
	const struct net_output *waiting = &net_here()->ports[0].waiting;

	fake_budget_port = net_here()->ports[0].glue;
	connect_to(send_once);
	for (unsigned i = 1; i < EACH; i++) {
		struct peer other;

		peer_connect(&other, (uint16_t)(1000 + i), 7, 99);
	}
	run_ms(100);
	frames_left();
	port_is_busy(true);
	go = true;
	run_ms(20);
	assert_int_equal(waiting->tail - waiting->head, EACH);
	for (unsigned i = 1; i < EACH; i++) {
		fake_tx_budget = 1;
		run_rounds(1);
		assert_int_equal(frames_left(), 1);
		assert_int_equal(waiting->head, i);
		assert_int_equal(waiting->tail,
				 EACH); /* none is queued again */
	}
	port_is_busy(false);
	run_rounds(1);
	assert_int_equal(frames_left(), 1);
}

/* However little room there is at once. */
static void test_blocked_senders_send_in_their_order(void **state)
{
	connect_to(close_it); /* so that its address is known */
	open_sockets();
	port_is_busy(true);
	start_senders();
	for (unsigned i = 0; i < EACH; i++) {
		fake_tx_budget = 1;
		run_rounds(3);
		assert_int_equal(n_sent, i + 1);
		assert_int_equal(order[i], i);
	}
	port_is_busy(false);
	finish_senders();
}

static void test_blocked_sender_ends_with_its_socket_or_coroutine(void **state)
{
	connect_to(close_it); /* so that its address is known */
	open_sockets();
	port_is_busy(true);
	start_senders();
	net_udp_close(sockets[3]);
	net_udp_cancel(sockets[4]);
	coro_cancel(senders[5]);
	run_rounds(2);
	assert_int_equal(ended, 3);
	assert_int_equal(results[3], -EBADF);
	assert_int_equal(results[4], -ECANCELED);
	assert_int_equal(results[5], -ECANCELED);
	assert_int_equal(coro_destroy(senders[6]), 0);
	port_is_busy(false);
	run_ms(5);
	assert_int_equal(n_sent, EACH - 4);
	assert_true(TAILQ_EMPTY(&net_here()->ports[0].senders));
	for (unsigned i = 0; i < EACH; i++) {
		if (i != 6)
			coro_join(senders[i], NULL);
		if (i != 3)
			net_udp_close(sockets[i]);
	}
}

static void note_room(struct net_udp *udp, struct net_udp_watch *watch)
{
	ended++;
}

static void test_watch_is_notified_once_of_room(void **state)
{
	struct net_udp_watch watch = {.fn = note_room};
	struct net_addr to;

	connect_to(close_it); /* so that its address is known */
	open_sockets();
	net_addr_parse("10.0.0.2:9", 0, &to);
	port_is_busy(true);
	for (unsigned i = 0; i < EACH; i++) {
		net_udp_set_watch(sockets[i], &watch);
		assert_int_equal(net_udp_send(sockets[i], &to, "x", 1),
				 -EAGAIN);
	}
	net_udp_close(sockets[0]);
	run_ms(100);
	assert_int_equal(ended, 0);
	port_is_busy(false);
	run_rounds(1);
	assert_int_equal(ended, 1); /* it has the room to itself */
	run_rounds(EACH);
	assert_int_equal(ended, EACH - 1);
	run_ms(100);
	assert_int_equal(ended, EACH - 1);
	for (unsigned i = 1; i < EACH; i++)
		net_udp_close(sockets[i]);
}

#define T(f) cmocka_unit_test_setup_teardown(f, peer_listen, peer_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_window_update_is_sent_later),
		T(test_fin_is_sent_later),
		T(test_shutdown_fin_is_sent_later),
		T(test_data_is_sent_later),
		T(test_retransmission_is_sent_later),
		T(test_delayed_ack_is_sent_later),
		T(test_keepalive_is_sent_later),
		T(test_probe_is_sent_later),
		T(test_answer_to_a_syn_is_sent_later),
		T(test_half_open_on_a_busy_port_times_out),
		T(test_half_open_answered_late_is_timed_from_then),
		T(test_syn_is_sent_later),
		T(test_blocked_port_costs_no_timers),
		cmocka_unit_test_setup_teardown(
			test_little_room_serves_few_connections,
			peer_listen_on_two_links, peer_teardown),
		T(test_blocked_senders_send_in_their_order),
		T(test_blocked_sender_ends_with_its_socket_or_coroutine),
		T(test_watch_is_notified_once_of_room),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
