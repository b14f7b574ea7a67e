/*
 * Bytes that the stack discards: later reads return an error, and never the end
 * of the stream.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/api/api.h"
#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static struct net_conn *reader_conn;
static bool go;

static void forget_sent(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

/* ---- every call that reads ---- */

static long read_recv(struct net_conn *conn)
{
	return net_recv(conn, got, 10);
}

static long read_full(struct net_conn *conn)
{
	return net_recv_full(conn, got, 10);
}

static long read_vectors(struct net_conn *conn)
{
	struct iovec iov = {got, 10};

	return net_recvv(conn, &iov, 1);
}

static long read_peek(struct net_conn *conn)
{
	return net_peek(conn, got, 10);
}

static long read_until(struct net_conn *conn)
{
	return net_recv_until(conn, got, 1000, "\n", 1);
}

static long read_view(struct net_conn *conn)
{
	struct net_view view;

	return net_recv_view(conn, &view);
}

static long (*const readers[])(struct net_conn *) = {
	read_recv, read_full, read_vectors, read_peek, read_until, read_view,
};

static long (*reader)(struct net_conn *);

static void read_late(struct net_conn *conn, void *arg)
{
	reader_conn = conn;
	while (!go)
		coro_sleep_ns(1000000);
	result = reader(conn);
	ended++;
}

/* Receives the peer's whole stream and FIN, unread. */
static void receive_unread(struct peer *peer, unsigned port)
{
	static const uint8_t zeros[1000];

	go = false;
	ended = 0;
	forget_sent();
	peer_connect(peer, (uint16_t)port, 7, 99);
	peer_send(peer, PEER_ACK | PEER_FIN, zeros, sizeof(zeros));
	run_ms(2);
	assert_int_equal(net_rxq_bytes(reader_conn), sizeof(zeros));
}

static void expect_error(int err)
{
	go = true;
	run_ms(5);
	assert_int_equal(ended, 1);
	assert_int_equal(result, err);
}

static void test_read_fails_after_a_drop_of_unread_bytes(void **state)
{
	struct peer peer;

	serve(read_late);
	for (unsigned i = 0; i < LWIP_ARRAYSIZE(readers); i++) {
		reader = readers[i];
		receive_unread(&peer, 1000 + i);
		net_conn_drop(reader_conn);
		assert_true(net_ready(reader_conn, NET_READABLE) & NET_FAILED);
		expect_error(-ECONNABORTED);
	}
}

static void test_read_fails_after_a_reset_for_memory(void **state)
{
	struct peer peer;

	serve(read_late);
	for (unsigned i = 0; i < LWIP_ARRAYSIZE(readers); i++) {
		reader = readers[i];
		receive_unread(&peer, 1000 + i);
		net_shortage_reset(reader_conn);
		expect_error(-ENOBUFS);
	}
	assert_int_equal(stack->stats.memory_resets, LWIP_ARRAYSIZE(readers));
}

static void test_read_fails_after_unread_bytes_of_an_ended_one_go(void **state)
{
	struct peer peer;

	serve(read_late);
	for (unsigned i = 0; i < LWIP_ARRAYSIZE(readers); i++) {
		reader = readers[i];
		receive_unread(&peer, 1000 + i);
		peer_send(&peer, PEER_RST, NULL, 0);
		run_rounds(2);
		assert_false(reader_conn->pcb_live);
		net_shortage_reset(reader_conn);
		expect_error(-ENOBUFS);
	}
}

static void send_then_read(struct net_conn *conn, void *arg)
{
	static uint8_t much[1 << 20];

	reader_conn = conn;
	net_send_all(conn, much, sizeof(much));
	result = net_recv(conn, got, sizeof(got));
	ended++;
}

static void test_read_fails_when_the_stack_closes(void **state)
{
	struct peer peer;

	serve(send_then_read);
	receive_unread(&peer, 1000);
	net_stack_close(stack);
	stack = NULL;
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECONNABORTED);
}

static void close_own(void *arg)
{
	net_listener_close(arg);
	ended++;
}

static void *accept_late(void *arg)
{
	struct net_conn *conn;

	result = net_accept(arg, &conn);
	close_own(arg);
	return NULL;
}

static void *sleep_long(void *arg)
{
	assert_int_equal(coro_cleanup_push(close_own, arg), 0);
	coro_sleep_ns(3600 * INT64_C(1000000000));
	return NULL;
}

/* One has not had its turn, and one is ended. */
static void
test_listener_outlives_coroutines_when_the_stack_closes(void **state)
{
	ended = 0;
	net_spawn(stack, "sleep", sleep_long, listener);
	run_rounds(1);
	net_spawn(stack, "late", accept_late, listener);
	net_stack_close(stack);
	stack = NULL;
	assert_int_equal(ended, 2);
	assert_int_equal(result, -ECANCELED);
}

/* Reads to the end of the stream, then reads again. */
static void read_twice(struct net_conn *conn, void *arg)
{
	reader_conn = conn;
	assert_int_equal(net_recv(conn, got, sizeof(got)), 4);
	assert_int_equal(net_recv(conn, got, sizeof(got)), 0);
	ended++;
	while (!go)
		coro_sleep_ns(1000000);
}

static void test_end_of_stream_is_repeated(void **state)
{
	struct peer peer;

	go = false;
	serve(read_twice);
	peer_connect(&peer, 1000, 7, 99);
	peer_send(&peer, PEER_ACK | PEER_FIN, "abcd", 4);
	run_ms(2);
	assert_int_equal(ended, 1);
	net_conn_drop(reader_conn);
	go = true;
	run_ms(5);
}

/* ---- an assertion of lwIP that fails; it ends other builds ---- */

#if defined(NET_OUTLIVES_ASSERTIONS)
static void send_and_read(struct net_conn *conn, void *arg)
{
	reader_conn = conn;
	net_send_all(conn, "abcd", 4);
	coro_sleep_ns(50000000);
	result = net_recv(conn, got, 10);
	ended++;
}

/*
 * lwIP's count of segments in flight is wrong when the peer acknowledges them.
 */
static void test_failed_assertion_resets_its_connection_alone(void **state)
{
	struct peer peers[3];
	struct net_conn *conns[3];
	struct segment s;
	unsigned resets = 0;

	serve(send_and_read);
	for (unsigned i = 0; i < 3; i++) {
		peer_connect(&peers[i], (uint16_t)(1000 + i), 7, 99);
		run_rounds(2);
		conns[i] = reader_conn;
		forget_sent();
	}
	for (unsigned i = 0; i < 2; i++) { /* in one burst */
		conns[i]->pcb.snd_queuelen = 0;
		peers[i].rcv += 4;
		peer_send(&peers[i], PEER_ACK | PEER_FIN, "efgh", 4);
	}
	run_rounds(1);
	assert_true(stack->stats.lwip_assertions > 1);
	while (peer_next(&s)) /* an ACK may have gone before */
		resets += (s.flags & PEER_RST) != 0;
	assert_int_equal(resets, 2);
	run_ms(60);
	assert_int_equal(ended, 2);
	assert_int_equal(result, -ECONNABORTED);
	assert_int_equal(stack->n_conns, 1);
}
#endif

/* ---- net_recv_until(), which keeps its position while it waits ---- */

static void read_line(struct net_conn *conn, void *arg)
{
	reader_conn = conn;
	result = net_recv_until(conn, got, 4000, "\n", 1);
	ended++;
}

/* Memory of a line that is dropped becomes another connection's. */
static void read_first_line(struct net_conn *conn, void *arg)
{
	if (reader_conn) {
		coro_sleep_ns(INT64_C(1000000000));
		return;
	}
	read_line(conn, arg);
}

static void test_recv_until_fails_when_its_bytes_are_dropped(void **state)
{
	struct peer one, two;

	reader_conn = NULL;
	serve(read_first_line);
	peer_connect(&one, 1000, 7, 99);
	peer_send(&one, PEER_ACK, "aaaa", 4);
	run_rounds(2);
	peer_send(&one, PEER_ACK, "bb", 2); /* packed into memory of ours */
	run_rounds(2);
	forget_sent();
	peer_connect(&two, 1001, 7, 99);
	peer_send(&two, PEER_ACK, "cccc", 4);
	run_rounds(2);
	net_conn_drop(reader_conn);
	peer_send(&two, PEER_ACK, "dd\nd", 4);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECONNABORTED);
}

static void test_recv_until_continues_after_its_frames_are_copied(void **state)
{
	uint8_t text[1300];
	struct peer peer;

	memset(text, 'a', sizeof(text));
	serve(read_line);
	peer_connect(&peer, 1000, 7, 99);
	peer_send(&peer, PEER_ACK, text, 600);
	peer_send(&peer, PEER_ACK, text, 600);
	run_rounds(2);
	assert_int_equal(net_here()->ports[0].frames_in, 2);
	net_rxq_copy_frames(reader_conn);
	assert_int_equal(net_here()->ports[0].frames_in, 0);
	text[1299] = '\n';
	peer_send(&peer, PEER_ACK, text + 1200, 100);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 1300);
	assert_memory_equal(got, text, 1300);
}

static int listen_again(void **state)
{
	reader_conn = NULL;
	ended = 0;
	return peer_listen_many(state);
}

/* A test may have closed the stack. */
static int teardown(void **state)
{
	if (!stack)
		peer_listen(state);
	return peer_teardown(state);
}

/* ---- all connections at once ---- */

#define MANY 2000u

static struct net_conn *crowd[MANY];
static struct net_watch crowd_watches[MANY];
static unsigned accepted, failed;

static void *accept_crowd(void *arg)
{
	while (accepted < MANY && net_accept(listener, &crowd[accepted]) == 0)
		accepted++;
	return NULL;
}

static uint32_t bucket_of(const struct net_conn *conn)
{
	return net_demux_hash_of(conn) & net_here()->bucket_mask;
}

/* The first connection that fails takes those of its bucket with it. */
static void abort_bucket(struct net_conn *conn, struct net_watch *watch)
{
	uint32_t bucket = bucket_of(conn);

	if (!(net_ready(conn, 0) & NET_FAILED))
		return;
	failed++;
	for (unsigned i = 0; i < MANY; i++) {
		struct net_conn *other = crowd[i];

		if (!other || bucket_of(other) != bucket)
			continue;
		crowd[i] = NULL;
		net_abort(other);
	}
}

static void test_watch_may_abort_others_when_the_stack_closes(void **state)
{
	accepted = failed = 0;
	net_spawn(stack, "accept", accept_crowd, NULL);
	for (unsigned i = 0; i < MANY; i++) {
		struct peer peer;

		peer_connect(&peer, (uint16_t)(1000 + i), 7, 5);
	}
	run_rounds(5);
	assert_int_equal(accepted, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		crowd_watches[i].fn = abort_bucket;
		net_set_watch(crowd[i], &crowd_watches[i]);
	}
}

/* The stack is closed in the teardown. */
static int tear_down_crowd(void **state)
{
	int err = peer_teardown(state);

	for (unsigned i = 0; i < MANY; i++)
		if (crowd[i])
			return -1;
	return failed == 0 || failed == MANY ? -1 : err;
}

#define T(test) cmocka_unit_test_setup_teardown(test, listen_again, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_read_fails_after_a_drop_of_unread_bytes),
		T(test_read_fails_after_a_reset_for_memory),
		T(test_read_fails_after_unread_bytes_of_an_ended_one_go),
		T(test_read_fails_when_the_stack_closes),
		T(test_listener_outlives_coroutines_when_the_stack_closes),
		T(test_end_of_stream_is_repeated),
#if defined(NET_OUTLIVES_ASSERTIONS)
		T(test_failed_assertion_resets_its_connection_alone),
#endif
		T(test_recv_until_fails_when_its_bytes_are_dropped),
		T(test_recv_until_continues_after_its_frames_are_copied),
		cmocka_unit_test_setup_teardown(
			test_watch_may_abort_others_when_the_stack_closes,
			peer_listen_many, tear_down_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
