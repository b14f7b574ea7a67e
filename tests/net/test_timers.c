/*
 * Cost and end of silent connections: lwIP's timers run only when needed,
 * orphans are bounded, and no timer discards data for a slow peer.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/mem/mem.h"
#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MAX_CONNS 64u
#define ORPHANS	  16u /* a quarter */

static void close_at_once(struct net_conn *conn, void *arg)
{
}

static void discard_frames(void)
{
	static uint8_t frame[9216];

	run_rounds(2);
	while (fake_sent(frame, sizeof(frame)))
		;
}

/* Runs for ms; returns the number of calls of lwIP's timers. */
static unsigned ticks_in(unsigned ms)
{
	uint64_t before = net_lwip_ticks;

	run_ms(ms);
	return (unsigned)(net_lwip_ticks - before);
}

/* Closes from the stack's side and acknowledges its FIN only. */
static void reach_fin_wait_2(uint16_t port)
{
	struct segment s;
	struct peer peer;

	peer_connect(&peer, port, 7, 99);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_FIN));
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(1);
}

static void test_fin_wait_2_waits_without_ticks(void **state)
{
	serve(close_at_once);
	reach_fin_wait_2(1000);
	assert_in_range(ticks_in(TCP_FIN_WAIT_TIMEOUT - 1000), 0, 1);
	assert_int_equal(net_here()->n_conns, 1);
	assert_in_range(ticks_in(2000), 1, 2);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_half_open_connection_needs_no_lwip_ticks(void **state)
{
	struct peer peer = {.port = 1000, .stack_port = 7, .wnd = 65535};
	struct segment s;
	unsigned sent = 0, ticks;

	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	ticks = ticks_in(TCP_SYN_RCVD_TIMEOUT + 1000);
	assert_int_equal(ticks, 0); /* lwIP has no pcb yet */
	while (peer_next(&s)) {
		assert_int_equal(s.flags, PEER_SYN | PEER_ACK);
		sent++;
	}
	assert_int_equal(sent, 4); /* after 1, 3, 7 and 15 s */
	assert_int_equal(net_here()->half_open, 0);
}

#define ANSWER 20000u /* more than the first flight */

/* Answers once the peer has closed its side. */
static void answer_at_the_end(struct net_conn *conn, void *arg)
{
	static const uint8_t data[ANSWER];
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
	result = net_send_all(conn, data, sizeof(data));
}

/*
 * In LAST_ACK lwIP frees a pcb after two MSL of silence, here a second. The
 * stack still resends data in flight, and data that waits for the window stays.
 */
static void stall_in_last_ack(uint16_t window)
{
	struct peer peer;
	struct segment s;
	uint32_t end;

	serve(answer_at_the_end);
	peer_connect(&peer, 1000, 7, 99);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	end = peer.rcv + ANSWER;
	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
	peer.wnd = window;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(5000);
	assert_int_equal(net_here()->n_conns, 1);
	discard_frames();
	peer.wnd = 65535;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned ms = 0; ms < 20000 && peer.rcv != end + 1; ms++) {
		run_ms(1);
		while (peer_next(&s))
			if (s.seq == peer.rcv) {
				peer.rcv += s.len;
				peer.rcv += (s.flags & PEER_FIN) != 0;
				peer_send(&peer, PEER_ACK, NULL, 0);
			}
	}
	assert_int_equal(peer.rcv, end + 1);
	run_ms(10);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_last_ack_delivers_everything_to_an_absent_peer(void **state)
{
	stall_in_last_ack(65535);
}

static void
test_last_ack_delivers_everything_to_a_peer_without_room(void **state)
{
	stall_in_last_ack(0);
}

/* A sender with an RTT far below lwIP's tick has an RTO of 0 there. */
static void test_data_out_of_order_is_kept_despite_a_short_rto(void **state)
{
	struct peer peer;

	serve(answer_at_the_end);
	peer_connect(&peer, 1000, 7, 99);
	peer.snd += 10;
	peer_send(&peer, PEER_ACK, "later", 5);
	run_rounds(2);
	for (struct net_conn **b = net_here()->buckets;
	     b <= net_here()->buckets + net_here()->bucket_mask; b++)
		if (*b) { /* and a tick for another reason */
			(*b)->pcb.rto = 0;
			(*b)->pcb.flags |= TF_ACK_DELAY;
			net_timer_check(*b);
		}
	assert_int_equal(net_here()->ooseq_held, 1);
	assert_in_range(ticks_in(5000), 0, 2);
	assert_int_equal(net_here()->ooseq_held, 1);
	run_ms(2000);
	assert_int_equal(net_here()->ooseq_held, 0);
	discard_frames();
}

static void answer_once(struct net_conn *conn, void *arg)
{
	if (net_recv(conn, got, 1) == 1)
		net_send(conn, got, 1);
	while (net_recv(conn, got, 1) > 0)
		;
}

/*
 * The first ACK leaves with the answer. The timer then fires for it, has
 * nothing to do and is not armed again; the rest of the first ACK's tick must
 * not delay the next ACK.
 */
static void test_a_delayed_ack_is_never_late(void **state)
{
	struct peer peer;
	struct segment s;

	serve(answer_once);
	peer_connect(&peer, 1000, 7, 0xfffffff0u);
	peer_send(&peer, PEER_ACK, "a", 1);
	run_ms(1);
	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(600); /* lwIP's eight bits of time have wrapped */
	peer_send(&peer, PEER_ACK, "b", 1);
	run_ms(60);
	expect(&s, PEER_ACK, peer.rcv, peer.snd, 0);
}

static void send_small(struct net_conn *conn, void *arg)
{
	net_set_nodelay(conn, false);
	net_send(conn, "1", 1);
	coro_sleep_ns(1000000);
	net_send(conn, "2", 1); /* held until the first is acknowledged */
	while (net_recv(conn, got, 1) > 0)
		;
}

/* lwIP's output stops at Nagle's rule, even if an ACK is pending. */
static void test_nagle_holds_back_data_and_no_ack(void **state)
{
	struct peer peer;
	struct segment s;

	serve(send_small);
	peer = (struct peer){.port = 1000, .stack_port = 7, .wnd = 65535};
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	peer.rcv = s.seq + 1;
	run_ms(400); /* so that nothing is sent again too soon */
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(3);
	assert_true(peer_next(&s));
	peer_send(&peer, PEER_ACK, "a", 1);
	run_ms(60);
	expect(&s, PEER_ACK, ANY, peer.snd, 0);
}

static void shut_and_read(struct net_conn *conn, void *arg)
{
	net_set_keepalive(conn, 2, 1, 3);
	net_shutdown(conn, NET_SHUT_WR);
	result = net_recv(conn, got, 1);
	ended++;
}

/* A connection that has sent its FIN still detects a vanished peer. */
static void test_keepalive_goes_on_after_our_fin(void **state)
{
	struct peer peer;
	struct segment s;
	unsigned probes = 0;

	serve(shut_and_read);
	peer_connect(&peer, 1000, 7, 0xfffffff0u);
	run_ms(1);
	expect(&s, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(1000);
	peer_expect_nothing();
	for (unsigned ms = 0; ms < 6000 && !ended; ms += 10) {
		run_ms(10);
		while (peer_next(&s))
			probes +=
				s.seq == peer.rcv - 1 && !(s.flags & PEER_RST);
	}
	assert_int_equal(result, -ETIMEDOUT);
	assert_int_equal(probes, 3);
}

static void read_with_keepalive(struct net_conn *conn, void *arg)
{
	char byte;

	net_set_keepalive(conn, 1, 1, 3);
	while ((result = net_recv(conn, &byte, 1)) > 0)
		;
	ended = true;
}

/* Counts unanswered probes until the connection ends, for at most ms. */
static unsigned probes_in(struct peer *peer, unsigned ms)
{
	struct segment s;
	unsigned probes = 0;

	for (; ms && !ended; ms -= 10) {
		run_ms(10);
		while (peer_next(&s))
			probes +=
				s.seq == peer->rcv - 1 && !(s.flags & PEER_RST);
	}
	return probes;
}

/* Data answers a probe like an ACK, and resets the count. */
static void test_data_resets_the_keepalive_count(void **state)
{
	struct peer peer;

	serve(read_with_keepalive);
	peer_connect(&peer, 1000, 7, 0xfffffff0u);
	assert_int_equal(probes_in(&peer, 2500), 2);
	peer_send(&peer, PEER_ACK | PEER_PSH, "x", 1);
	assert_int_equal(probes_in(&peer, 10000), 3);
	assert_int_equal(result, -ETIMEDOUT);
}

static void wait_for_more(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
}

static void test_too_many_orphans_reset_the_oldest(void **state)
{
	struct segment s;

	serve(close_at_once);
	for (unsigned i = 0; i < ORPHANS; i++)
		reach_fin_wait_2((uint16_t)(1000 + i));
	discard_frames();
	assert_int_equal(net_orphans.n, ORPHANS);
	assert_int_equal(net_here()->stats.orphans_recycled, 0);
	reach_fin_wait_2(2000);
	assert_int_equal(net_orphans.n, ORPHANS);
	assert_int_equal(net_here()->stats.orphans_recycled, 1);
	assert_int_equal(net_here()->n_conns, ORPHANS);
	while (peer_next(&s))
		;
	reach_fin_wait_2(2001);
	assert_int_equal(net_here()->stats.orphans_recycled, 2);
}

static void test_new_connection_displaces_an_orphan(void **state)
{
	struct segment s;
	struct peer peer;

	serve(close_at_once);
	for (unsigned i = 0; i < 8; i++)
		reach_fin_wait_2((uint16_t)(1000 + i));
	serve(wait_for_more);
	for (unsigned i = 0; i < MAX_CONNS; i++) {
		peer = (struct peer){.port = (uint16_t)(2000 + i),
				     .stack_port = 7,
				     .snd = 99,
				     .wnd = 65535};
		peer_send(&peer, PEER_SYN, NULL, 0);
		do /* the orphan's reset goes before */
			assert_true(peer_next(&s));
		while (s.flags & PEER_RST);
		assert_int_equal(s.flags, PEER_SYN | PEER_ACK);
		peer.rcv = s.seq + 1;
		peer_send(&peer, PEER_ACK, NULL, 0);
		run_rounds(2);
	}
	discard_frames();
	assert_int_equal(net_here()->n_conns, MAX_CONNS);
	assert_int_equal(net_orphans.n, 0);
	assert_int_equal(net_here()->stats.orphans_recycled, 8);
}

/* The peer answers each probe, and accepts nothing. */
static void test_orphan_probes_are_bounded(void **state)
{
	struct peer peer;
	struct segment s;

	serve(answer_at_the_end);
	peer_connect(&peer, 1000, 7, 99);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned minute = 0; minute < 3; minute++) {
		for (unsigned ms = 0; ms < 60000; ms += 10) {
			run_ms(10);
			while (peer_next(&s))
				peer_send(&peer, PEER_ACK, NULL, 0);
		}
		assert_int_equal(net_orphans.n, 1);
	}
	for (unsigned ms = 0; ms < 90000; ms += 10) {
		run_ms(10);
		while (peer_next(&s))
			peer_send(&peer, PEER_ACK, NULL, 0);
	}
	assert_int_equal(net_orphans.n, 0);
	assert_int_equal(net_here()->n_conns, 0);
}

/* All objects that there is memory for. */
static struct held {
	struct held *next;
} * held;

static void take_all_memory(void)
{
	struct held *object;

	net_mem_set_max(net_mem_bytes());
	for (unsigned size = 65000; size >= 2 * sizeof(*held); size -= size / 8)
		while ((object = net_mem_malloc((mem_size_t)size))) {
			object->next = held;
			held = object;
		}
}

static void free_all_memory(void)
{
	struct held *object;

	while ((object = held)) {
		held = object->next;
		net_mem_free(object);
	}
	net_mem_set_max(UINT64_MAX);
}

/* A FIN finds no memory, and a probe does. */
static void close_without_memory(struct net_conn *conn, void *arg)
{
	struct pbuf *probe = pbuf_alloc(PBUF_IP, TCP_HLEN, PBUF_RAM);

	assert_int_equal(net_set_keepalive(conn, 2, 1, 3), 0);
	assert_int_equal(net_recv(conn, got, sizeof(got)), 1);
	take_all_memory();
	pbuf_free(probe);
}

/* The peer answers each probe at once. Returns how many there were. */
static unsigned answer_probes(struct peer *peer, unsigned ms)
{
	unsigned probes = 0;
	struct segment s;

	while (ms--) {
		run_ms(1);
		while (peer_next(&s)) {
			assert_int_equal(s.flags & PEER_FIN, 0);
			if (s.seq != peer->rcv) {
				probes++;
				peer_send(peer, PEER_ACK, NULL, 0);
			}
		}
	}
	return probes;
}

/* lwIP would send a probe at each tick: after a close no answer counts. */
static void test_close_ends_keepalive_even_without_memory(void **state)
{
	struct segment s;
	struct peer peer;

	serve(close_without_memory);
	peer_connect(&peer, 1000, 7, 99);
	peer_send(&peer, PEER_ACK, "x", 1);
	assert_int_equal(answer_probes(&peer, 20000), 0);
	free_all_memory();
	do
		s = peer_wait(1000);
	while (!(s.flags & PEER_FIN));
	assert_int_equal(s.seq, peer.rcv);
}

static void test_time_wait_is_no_orphan(void **state)
{
	struct peer peer;

	serve(close_at_once);
	peer_connect(&peer, 1000, 7, 99);
	assert_int_equal(net_orphans.n, 1);
	reach_time_wait(&peer);
	assert_int_equal(net_orphans.n, 0);
	discard_frames();
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_fin_wait_2_waits_without_ticks),
		T(test_half_open_connection_needs_no_lwip_ticks),
		T(test_last_ack_delivers_everything_to_an_absent_peer),
		T(test_last_ack_delivers_everything_to_a_peer_without_room),
		T(test_data_out_of_order_is_kept_despite_a_short_rto),
		T(test_a_delayed_ack_is_never_late),
		T(test_nagle_holds_back_data_and_no_ack),
		T(test_keepalive_goes_on_after_our_fin),
		T(test_close_ends_keepalive_even_without_memory),
		T(test_data_resets_the_keepalive_count),
		T(test_too_many_orphans_reset_the_oldest),
		T(test_new_connection_displaces_an_orphan),
		T(test_orphan_probes_are_bounded),
		T(test_time_wait_is_no_orphan),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
