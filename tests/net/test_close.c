/*
 * Ends of connections: lingering, cancelling, closing under another coroutine's
 * call, and calls on a closed handle.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u

static struct net_conn *shared; /* the connection under test */
static int64_t linger_until;
static long other; /* what the second coroutine's call returned */

/* ---- net_close_wait ---- */

static void send_and_linger(struct net_conn *conn, void *arg)
{
	shared = conn;
	assert_int_equal(net_send_all(conn, "goodbye", 7), 7);
	result = net_close_wait(conn, linger_until);
	ended++;
}

/* Opens a connection and takes the stack's data and FIN. */
static void take_data_and_fin(struct peer *peer)
{
	struct segment s;

	peer_connect(peer, 1000, 7, NEAR_WRAP);
	do {
		assert_true(peer_next(&s));
		peer->rcv = s.seq + s.len + ((s.flags & PEER_FIN) != 0);
	} while (!(s.flags & PEER_FIN));
}

static void linger_for_ms(int64_t ms)
{
	linger_until = ms < 0 ? CORO_FOREVER : fake_now_ns + ms * 1000000;
	serve(send_and_linger);
}

static void test_linger_ends_when_the_fin_is_acknowledged(void **state)
{
	struct peer peer;

	linger_for_ms(-1);
	take_data_and_fin(&peer);
	peer.rcv--; /* everything but the FIN */
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(ended, 0);
	peer.rcv++;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
}

static void test_linger_after_the_peers_fin_ends_in_last_ack(void **state)
{
	struct peer peer;

	linger_for_ms(-1);
	take_data_and_fin(&peer);
	peer_send(&peer, PEER_ACK, NULL, 0);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, 0);
	run_ms(1500); /* TIME_WAIT */
	assert_int_equal(net_here()->n_conns, 0);
}

static void read_then_linger(struct net_conn *conn, void *arg)
{
	assert_int_equal(net_recv(conn, got, 1), 0); /* FIN: CLOSE_WAIT */
	send_and_linger(conn, arg);
}

static void test_linger_in_close_wait_ends_at_the_last_ack(void **state)
{
	struct peer peer;
	struct segment s;

	linger_until = CORO_FOREVER;
	serve(read_then_linger);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	do {
		assert_true(peer_next(&s));
		peer.rcv = s.seq + s.len + ((s.flags & PEER_FIN) != 0);
	} while (!(s.flags & PEER_FIN));
	assert_int_equal(ended, 0);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_linger_deadline_resets_and_is_etimedout(void **state)
{
	struct peer peer;
	struct segment s;

	linger_for_ms(50);
	take_data_and_fin(&peer);
	run_ms(40);
	assert_int_equal(ended, 0);
	run_ms(20);
	assert_int_equal(result, -ETIMEDOUT);
	while (peer_next(&s) && !(s.flags & PEER_RST))
		;
	assert_true(s.flags & PEER_RST);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_linger_returns_a_reset_by_the_peer(void **state)
{
	struct peer peer;

	linger_for_ms(-1);
	take_data_and_fin(&peer);
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
	assert_int_equal(net_here()->n_conns, 0);
}

/*
 * After the lingering call has returned, the reset must touch no memory of it.
 */
static void test_reset_after_linger_has_ended(void **state)
{
	struct peer peer;

	linger_for_ms(-1);
	take_data_and_fin(&peer);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, 0);
	assert_int_equal(net_here()->n_conns, 1); /* FIN_WAIT_2 */
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(3);
	assert_int_equal(net_here()->n_conns, 0);
}

static void shut_and_close_late(struct net_conn *conn, void *arg)
{
	net_shutdown(conn, NET_SHUT_WR);
	coro_sleep_ns(INT64_C(60000000000));
	net_close(conn);
	ended++;
}

/* The wait for the peer's FIN counts from the close. */
static void test_fin_wait_2_timeout_starts_at_the_close(void **state)
{
	struct peer peer;

	serve(shut_and_close_late);
	take_data_and_fin(&peer);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(60100);
	assert_int_equal(ended, 1);
	run_ms(TCP_FIN_WAIT_TIMEOUT - 1000);
	assert_int_equal(net_here()->n_conns, 1);
	run_ms(3000);
	assert_int_equal(net_here()->n_conns, 0);
}

static void close_with_a_grown_window(struct net_conn *conn, void *arg)
{
	shared = conn;
	conn->pcb.rcv_max = conn->pcb.rcv_wnd = 4u * TCP_WND;
	net_close(conn);
	ended++;
}

/* The announced window does not shrink. */
static void test_close_does_not_shrink_the_window(void **state)
{
	struct peer peer;

	serve(close_with_a_grown_window);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	assert_true(peer_wait(10).flags & PEER_FIN);
	assert_int_equal(ended, 1);
	assert_int_equal(shared->pcb.rcv_wnd, 4u * TCP_WND);
}

static void test_linger_discards_received_bytes(void **state)
{
	struct peer peer;
	struct segment s;

	linger_for_ms(-1);
	take_data_and_fin(&peer);
	peer.rcv -= 8; /* nothing acknowledged */
	peer_send(&peer, PEER_ACK | PEER_PSH, "unread", 6);
	run_ms(1);
	while (peer_next(&s))
		assert_false(s.flags & PEER_RST);
	peer.rcv += 8;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, 0);
}

static void *cancel_shared(void *arg)
{
	other = net_cancel(shared);
	return NULL;
}

static void test_linger_cancelled_still_delivers(void **state)
{
	struct peer peer;

	linger_for_ms(-1);
	take_data_and_fin(&peer);
	net_spawn(stack, "canceller", cancel_shared, NULL);
	run_rounds(3);
	assert_int_equal(other, 0);
	assert_int_equal(result, -ECANCELED);
	assert_int_equal(net_here()->n_conns, 1);
	peer_expect_nothing(); /* no RST */
	peer_send(&peer, PEER_ACK, NULL, 0);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	run_ms(1500);
	assert_int_equal(net_here()->n_conns, 0);
}

static void *abort_shared(void *arg)
{
	net_abort(shared);
	return NULL;
}

static void test_linger_ended_by_abort_is_econnaborted(void **state)
{
	struct peer peer;

	linger_for_ms(-1);
	take_data_and_fin(&peer);
	net_spawn(stack, "aborter", abort_shared, NULL);
	run_rounds(3);
	assert_int_equal(result, -ECONNABORTED);
	assert_int_equal(net_here()->n_conns, 0);
}

/* ---- net_cancel ---- */

static void read_shared(struct net_conn *conn, void *arg)
{
	shared = conn;
	result = net_recv(conn, got, sizeof(got));
	ended++;
	if (result == -ECANCELED) {
		assert_int_equal(net_recv(conn, got, 1), -ECANCELED);
		assert_int_equal(net_send(conn, "x", 1), -ECANCELED);
		assert_int_equal(net_writable(conn), -ECANCELED);
	}
	coro_sleep_ns(2000000);
	if (linger_until)
		other = net_close_wait(conn, CORO_FOREVER);
}

static void cancel_a_reader(struct peer *peer, bool linger)
{
	linger_until = linger;
	serve(read_shared);
	peer_connect(peer, 1000, 7, 5);
	net_spawn(stack, "canceller", cancel_shared, NULL);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECANCELED);
}

static void test_cancel_ends_a_blocked_reader(void **state)
{
	struct peer peer;

	cancel_a_reader(&peer, false);
	/* Later data does not undo the cancel: the owner closes, with RST. */
	peer_send(&peer, PEER_ACK | PEER_PSH, "late", 4);
	run_ms(5);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_cancelled_connection_can_still_linger(void **state)
{
	struct peer peer;
	struct segment s;

	cancel_a_reader(&peer, true);
	other = 1;
	run_ms(3);
	expect(&s, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	assert_int_equal(other, 1);
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(other, 0);
}

static void write_shared(struct net_conn *conn, void *arg)
{
	shared = conn;
	while ((result = net_send(conn, got, sizeof(got))) > 0)
		;
	ended++;
}

static void test_cancel_ends_a_blocked_writer(void **state)
{
	struct peer peer;

	serve(write_shared);
	peer_connect(&peer, 1000, 7, 5);
	run_rounds(10);
	assert_int_equal(ended, 0);
	net_spawn(stack, "canceller", cancel_shared, NULL);
	run_rounds(3);
	assert_int_equal(result, -ECANCELED);
}

/* ---- closing under another coroutine's call ---- */

static struct net_conn *accepted;

static void *hold_body(void *arg)
{
	assert_int_equal(net_accept(listener, &accepted), 0);
	return NULL;
}

static void accept_one(struct peer *peer)
{
	net_spawn(stack, "acceptor", hold_body, NULL);
	run_rounds(2);
	peer_connect(peer, 1000, 7, 5);
	run_rounds(2);
	assert_non_null(accepted);
}

static void *read_accepted(void *arg)
{
	result = net_recv(accepted, got, 1);
	ended++;
	return NULL;
}

static void *write_accepted(void *arg)
{
	do
		other = net_send(accepted, got, sizeof(got));
	while (other > 0);
	ended++;
	return NULL;
}

static void *close_accepted(void *arg)
{
	if (arg)
		net_abort(accepted);
	else
		net_close(accepted);
	return NULL;
}

static void close_under_both(bool abort)
{
	struct peer peer;

	accept_one(&peer);
	net_spawn(stack, "reader", read_accepted, NULL);
	net_spawn(stack, "writer", write_accepted, NULL);
	run_rounds(5);
	assert_int_equal(ended, 0);
	net_spawn(stack, "closer", close_accepted, abort ? stack : NULL);
	run_rounds(3);
	assert_int_equal(ended, 2);
	assert_int_equal(result, -EBADF);
	assert_int_equal(other, -EBADF);
	assert_int_equal(net_here()->n_conns, abort ? 0 : 1);
}

static void test_close_under_blocked_calls_is_ebadf(void **state)
{
	close_under_both(false);
}

static void test_abort_under_blocked_calls_is_ebadf(void **state)
{
	close_under_both(true);
}

static void *shut_accepted(void *arg)
{
	assert_int_equal(net_shutdown(accepted, NET_SHUT_RDWR), 0);
	return NULL;
}

static void test_shutdown_under_blocked_calls_ends_them(void **state)
{
	struct peer peer;

	accept_one(&peer);
	net_spawn(stack, "reader", read_accepted, NULL);
	net_spawn(stack, "writer", write_accepted, NULL);
	run_rounds(5);
	net_spawn(stack, "shutter", shut_accepted, NULL);
	run_rounds(3);
	assert_int_equal(ended, 2);
	assert_int_equal(result, -ENOTCONN);
	assert_int_equal(other, -EPIPE);
	net_close(accepted);
}

static void test_second_reader_and_second_writer_are_ebusy(void **state)
{
	struct peer peer;

	accept_one(&peer);
	net_spawn(stack, "reader", read_accepted, NULL);
	net_spawn(stack, "writer", write_accepted, NULL);
	run_rounds(5);
	assert_int_equal(ended, 0);
	assert_int_equal(net_recv(accepted, got, 1), -EBUSY);
	assert_int_equal(net_send(accepted, "x", 1), -EBUSY);
	assert_int_equal(net_writable(accepted), -EBUSY);
	net_close(accepted);
	run_rounds(2);
}

static void *linger_accepted(void *arg)
{
	result = net_close_wait(accepted, CORO_FOREVER);
	return NULL;
}

static void test_linger_under_a_blocked_writer_is_ebusy(void **state)
{
	struct peer peer;

	accept_one(&peer);
	net_spawn(stack, "writer", write_accepted, NULL);
	run_rounds(5);
	net_spawn(stack, "lingerer", linger_accepted, NULL);
	run_rounds(2);
	assert_int_equal(result, -EBUSY);
	assert_int_equal(ended, 0);
	net_abort(accepted); /* the connection was still owned */
	run_rounds(2);
}

/* ---- invalid handles ---- */

static void close_myself(struct net_conn *conn, void *arg)
{
	net_close(conn);
	ended++;
}

static void test_null_is_ebadf_or_ignored(void **state)
{
	struct net_view view;

	assert_int_equal(net_recv(NULL, got, 1), -EBADF);
	assert_int_equal(net_recv_view(NULL, &view), -EBADF);
	assert_int_equal(net_recv_full(NULL, got, 1), -EBADF);
	assert_int_equal(net_send(NULL, got, 1), -EBADF);
	assert_int_equal(net_send_all(NULL, got, 1), -EBADF);
	assert_int_equal(net_writable(NULL), -EBADF);
	assert_int_equal(net_shutdown(NULL, NET_SHUT_WR), -EBADF);
	assert_int_equal(net_close_wait(NULL, 0), -EBADF);
	assert_int_equal(net_cancel(NULL), -EBADF);
	assert_int_equal(net_set_keepalive(NULL, 1, 1, 1), -EBADF);
	assert_int_equal(net_listener_serve(NULL, close_myself, NULL), -EBADF);
	assert_int_equal(net_listener_serve(listener, NULL, NULL), -EINVAL);
	assert_int_equal(net_local_addr(NULL).family, 0);
	assert_int_equal(net_peer_addr(NULL).family, 0);
	net_set_read_deadline(NULL, 0);
	net_set_write_deadline(NULL, 0);
	net_set_nodelay(NULL, true);
	net_set_watch(NULL, NULL);
	net_listener_close(NULL);
	net_close(NULL);
	net_abort(NULL);
}

static void test_closed_handle_is_ebadf_while_it_lasts(void **state)
{
	struct peer peer;

	accept_one(&peer);
	net_close(accepted); /* FIN_WAIT: lwIP keeps it for a while */
	assert_int_equal(net_recv(accepted, got, 1), -EBADF);
	assert_int_equal(net_send(accepted, got, 1), -EBADF);
	assert_int_equal(net_shutdown(accepted, NET_SHUT_WR), -EBADF);
	assert_int_equal(net_cancel(accepted), -EBADF);
	assert_int_equal(net_close_wait(accepted, 0), -EBADF);
	net_close(accepted);
	net_abort(accepted);
	assert_int_equal(net_here()->n_conns, 1);
}

static void test_no_call_blocks_outside_a_coroutine(void **state)
{
	struct peer peer;

	accept_one(&peer);
	assert_int_equal(net_recv(accepted, got, 1), -EPERM);
	assert_int_equal(net_close_wait(accepted, CORO_FOREVER), -EPERM);
	assert_int_equal(net_shutdown(accepted, 0), -EINVAL);
	assert_int_equal(net_shutdown(accepted, 4), -EINVAL);
	assert_int_equal(net_send(accepted, NULL, 1), -EINVAL);
	assert_int_equal(net_send(accepted, "x", 1), 1);
	net_close(accepted);
}

static void test_handler_may_close_its_connection(void **state)
{
	struct peer peer;

	serve(close_myself);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(net_here()->n_conns, 0);
}

static int setup(void **state)
{
	shared = accepted = NULL;
	other = 54321;
	return peer_listen(state);
}

static void note_end(struct net_conn *conn, void *arg)
{
	struct net_view view;

	result = net_recv_view(conn, &view);
	ended++;
}

static void
test_connection_reset_while_queued_leaves_the_backlog_once(void **state)
{
	struct peer gone, next;

	peer_connect(&gone, 4000, 7, 1000);
	peer_send(&gone, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(2);
	serve(note_end);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECONNRESET);
	assert_int_equal(listener->pending, 0);
	peer_connect(&next, 4001, 7, 1000);
	assert_int_equal(net_here()->stats.cookies_sent, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)

/* ---- net_listener_drain ---- */

static void wait_for_byte(struct net_conn *conn, void *arg)
{
	char byte;

	shared = conn;
	result = net_recv(conn, &byte, 1);
	ended++;
}

static void expect_rst_for_syn(uint16_t port)
{
	struct peer late = {
		.port = port, .stack_port = 7, .snd = NEAR_WRAP, .wnd = 1000};
	struct segment s;

	peer_send(&late, PEER_SYN, NULL, 0);
	do /* another connection's may come before it */
		assert_true(peer_next(&s));
	while (s.dst != port);
	assert_int_equal(s.flags, PEER_RST | PEER_ACK);
}

static void shut_and_leave(struct net_conn *conn, void *arg)
{
	net_shutdown(conn, NET_SHUT_WR);
	coro_sleep_ns(10000000);
}

/* RFC 2525 2.17: unread data has not been delivered, so the peer gets a RST. */
static void test_close_behind_our_fin_resets_if_bytes_are_unread(void **state)
{
	struct peer peer;
	struct segment s;

	serve(shut_and_leave);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	expect(&s, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, "unread", 6);
	run_ms(20);
	assert_true(peer_next(&s));
	while (!(s.flags & PEER_RST))
		assert_true(peer_next(&s));
	assert_int_equal(s.seq, peer.rcv);
	assert_int_equal(net_here()->n_conns, 0);
}

static void
test_draining_listener_completes_handshakes_and_starts_none(void **state)
{
	struct peer peer = {
		.port = 1000, .stack_port = 7, .snd = NEAR_WRAP, .wnd = 1000};
	struct segment s;

	serve(wait_for_byte);
	peer_send(&peer, PEER_SYN, NULL, 0);
	expect(&s, PEER_SYN | PEER_ACK, ANY, peer.snd, 0);
	peer.rcv = s.seq + 1;
	assert_int_equal(net_listener_drain(listener), 1);
	expect_rst_for_syn(1001);
	/* The repeated SYN, whose answer was lost, continues the handshake. */
	peer.snd = NEAR_WRAP;
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	assert_int_equal(s.flags & (PEER_SYN | PEER_RST), PEER_SYN);
	peer_send(&peer, PEER_ACK, "x", 1);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 1);
	assert_int_equal(net_listener_drain(listener), 0);
	expect_rst_for_syn(1002);
	assert_int_equal(net_listener_drain(NULL), -EBADF);
}

static void test_draining_listener_counts_unaccepted_connections(void **state)
{
	struct peer peer;

	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	assert_int_equal(net_listener_drain(listener), 1);
	assert_int_equal(net_listener_drain(listener), 1);
	net_listener_close(listener);
	listener = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_linger_ends_when_the_fin_is_acknowledged),
		T(test_linger_after_the_peers_fin_ends_in_last_ack),
		T(test_reset_after_linger_has_ended),
		T(test_fin_wait_2_timeout_starts_at_the_close),
		T(test_close_does_not_shrink_the_window),
		T(test_linger_in_close_wait_ends_at_the_last_ack),
		T(test_linger_deadline_resets_and_is_etimedout),
		T(test_linger_returns_a_reset_by_the_peer),
		T(test_linger_discards_received_bytes),
		T(test_linger_cancelled_still_delivers),
		T(test_linger_ended_by_abort_is_econnaborted),
		T(test_cancel_ends_a_blocked_reader),
		T(test_cancelled_connection_can_still_linger),
		T(test_cancel_ends_a_blocked_writer),
		T(test_close_under_blocked_calls_is_ebadf),
		T(test_abort_under_blocked_calls_is_ebadf),
		T(test_shutdown_under_blocked_calls_ends_them),
		T(test_close_behind_our_fin_resets_if_bytes_are_unread),
		T(test_second_reader_and_second_writer_are_ebusy),
		T(test_linger_under_a_blocked_writer_is_ebusy),
		T(test_null_is_ebadf_or_ignored),
		T(test_closed_handle_is_ebadf_while_it_lasts),
		T(test_no_call_blocks_outside_a_coroutine),
		T(test_handler_may_close_its_connection),
		T(test_connection_reset_while_queued_leaves_the_backlog_once),
		T(test_draining_listener_completes_handshakes_and_starts_none),
		T(test_draining_listener_counts_unaccepted_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
