/*
 * Calls at the wrong time or with the wrong arguments: in a handshake, after an
 * end, twice; limits of one context that must not be another's; watches and
 * views of connections with TLS.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/net/tls_pair.h"

static long results[8];
static struct net_conn *other;

static void expect_no_handler(struct net_conn *conn, void *arg)
{
	fail_msg("a handler runs");
}

static void wait_for_end(struct net_conn *conn, void *arg)
{
	char byte;

	while (net_recv(conn, &byte, 1) > 0)
		;
}

static struct net_conn *dial_plain(const char *text)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse(text, -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), 0);
	return conn;
}

/* ---- arguments ---- */

static void misuse_conn(struct net_conn *conn, void *arg)
{
	results[0] = net_tls_accept(conn, server_tls);
	results[1] = net_tls_connect(conn, client_tls, "server.test");
	results[2] = net_tls_info(conn, NULL);
	results[3] = net_recv_until(conn, NULL, 5, "x", 1);
	results[4] = net_peek(conn, NULL, 5);
	results[5] = net_send(conn, NULL, 5);
	results[6] = net_shutdown(conn, 0);
	results[7] = net_send_all(conn, NULL, 0);
}

static void test_wrong_arguments_are_refused(void **state)
{
	struct net_tls *none = NULL;

	tls_run(wait_for_end, misuse_conn);
	for (unsigned i = 0; i < 7; i++)
		assert_int_equal(results[i], -EINVAL);
	assert_int_equal(results[7], 0);
	assert_int_equal(net_tls_accept(NULL, server_tls), -EBADF);
	assert_int_equal(net_tls_accept(NULL, NULL), -EINVAL);
	assert_int_equal(net_tls_accept(NULL, client_tls), -EINVAL);
	assert_int_equal(net_tls_connect(NULL, client_tls, NULL), -EBADF);
	assert_int_equal(net_tls_connect(NULL, server_tls, NULL), -EINVAL);
	assert_int_equal(net_tls_server(NULL, &none), -EINVAL);
	assert_int_equal(net_tls_client(&client_opts, NULL), -EINVAL);
	net_tls_free(NULL);
}

static void *accept_in_vain(void *arg)
{
	struct net_conn *conn;

	results[0] = net_accept(listener, &conn);
	ended++;
	return NULL;
}

static void test_accept_is_for_listeners_without_tls(void **state)
{
	ended = 0;
	net_spawn(stack, "accept", accept_in_vain, NULL);
	run_ms(2);
	assert_int_equal(ended, 1);
	assert_int_equal(results[0], -EINVAL);
}

/* ---- during a handshake ---- */

/* What another coroutine does to a connection whose handshake waits. */
static void (*disturb)(struct net_conn *conn);
static long handshake_result;

static void upgrade_conn(struct net_conn *conn, void *arg)
{
	other = conn;
	handshake_result = net_tls_accept(conn, server_tls);
	other = NULL;
	ended++;
}

static void *disturb_soon(void *arg)
{
	for (unsigned i = 0; i < 10 && !other; i++)
		coro_sleep_ns(1000000);
	coro_sleep_ns(2000000); /* it waits by now */
	if (other)
		disturb(other);
	ended++;
	return NULL;
}

/* Begins a hello, and waits for the end. */
static void begin_hello(const char *at, size_t len)
{
	struct net_conn *conn = dial_plain(at);

	net_send(conn, "\x16\x03", len);
	wait_for_end(conn, NULL);
	net_close(conn);
	ended++;
}

static void *stay_silent(void *arg)
{
	begin_hello("10.0.0.1:9", 2);
	return NULL;
}

static long run_disturbed(void (*fn)(struct net_conn *conn))
{
	struct net_listener *plain;

	server_opts.handshake_ms = 20;
	tls_remake();
	net_listen(stack, &net_addr_any(9), 64, &plain);
	net_listener_serve(plain, upgrade_conn, NULL);
	disturb = fn;
	ended = 0;
	handshake_result = 1;
	net_spawn(stack, "silent", stay_silent, NULL);
	net_spawn(stack, "disturb", disturb_soon, NULL);
	run_ms(40);
	assert_int_equal(ended, 3);
	net_listener_close(plain);
	return handshake_result;
}

static void call_all(struct net_conn *conn)
{
	struct net_view view;
	char byte;

	results[0] = net_send(conn, "x", 1);
	results[1] = net_writable(conn);
	results[2] = net_tls_accept(conn, server_tls);
	results[3] = net_tls_info(conn, &(struct net_tls_info){0});
	results[4] = net_recv(conn, &byte, 1);
	results[5] = net_recv_view(conn, &view);
	results[6] = net_ready(conn, NET_WRITABLE);
	assert_string_equal(net_tls_error(conn), "");
}

/* The handshake goes on, to its deadline. */
static void test_calls_during_a_handshake_are_refused(void **state)
{
	assert_int_equal(run_disturbed(call_all), -ETIMEDOUT);
	assert_int_equal(results[0], -EPIPE);
	assert_int_equal(results[1], -EPIPE);
	assert_int_equal(results[2], -EBUSY);
	assert_int_equal(results[3], -ENOTCONN);
	assert_int_equal(results[4], -EBUSY); /* it reads itself */
	assert_int_equal(results[5], -EBUSY);
}

static void shut_reading(struct net_conn *conn)
{
	assert_int_equal(net_shutdown(conn, NET_SHUT_RD), 0);
}

static void shut_writing(struct net_conn *conn)
{
	assert_int_equal(net_shutdown(conn, NET_SHUT_WR), 0);
}

static void cancel_it(struct net_conn *conn)
{
	assert_int_equal(net_cancel(conn), 0);
}

static void close_it(struct net_conn *conn)
{
	net_close(conn);
	net_close(conn);
	net_abort(conn);
}

static void close_and_wait(struct net_conn *conn)
{
	results[0] = net_close_wait(conn, CORO_FOREVER);
}

static void test_handshake_ends_when_its_connection_does(void **state)
{
	assert_int_equal(run_disturbed(shut_reading), -ENOTCONN);
	assert_int_equal(run_disturbed(shut_writing), -EPROTO); /* its FIN */
	assert_int_equal(run_disturbed(cancel_it), -ECANCELED);
	assert_int_equal(run_disturbed(close_it), -EBADF);
	assert_int_equal(run_disturbed(net_abort), -EBADF);
	assert_int_equal(run_disturbed(close_and_wait), -EBADF);
	assert_int_equal(results[0], 0);
}

/* ---- limits are a context's own ---- */

static void *hold_handshake(void *arg)
{
	begin_hello("10.0.0.1:7", 1);
	return NULL;
}

/* A flood of handshakes at a listener does not stop what the program dials. */
static void test_handshakes_of_a_server_leave_dials_alone(void **state)
{
	struct net_tls *second = NULL;
	struct net_listener *quiet;

	assert_int_equal(net_tls_server(&server_opts, &second), 0);
	server_opts.max_handshakes = client_opts.max_handshakes = 2;
	server_opts.handshake_ms = 100;
	tls_remake();
	net_listen(stack, &net_addr_any(9), 64, &quiet);
	net_listener_set_tls(quiet, second);
	net_listener_serve(quiet, wait_for_end, NULL);
	serve(expect_no_handler);
	ended = 0;
	for (unsigned i = 0; i < 4; i++)
		net_spawn(stack, "hold", hold_handshake, NULL);
	run_ms(5);
	assert_int_equal(ended, 2); /* the others were refused */
	net_addr_parse("10.0.0.1:9", -1, &dial_addr);
	dialed = 1;
	tls_start(misuse_conn);
	run_ms(10);
	assert_int_equal(dialed, 0);
	run_ms(200);
	net_listener_close(quiet);
	run_ms(3000);
	net_tls_free(second);
}

/* ---- a context that is replaced ---- */

static void leave(struct net_conn *conn, void *arg)
{
}

/* Its owner frees it while the hello of a client has come in part. */
static void test_context_is_freed_when_its_handshakes_are_over(void **state)
{
	struct net_tls *old = server_tls;

	relays[RELAY_TO_SERVER] = (struct relay){
		.is_used = true, .end_at = -1, .flip_at = -1, .stall_at = 50};
	relays[RELAY_TO_CLIENT].is_used = true;
	serve(wait_for_end);
	dialed = 1;
	tls_start(leave);
	run_ms(5);
	assert_int_equal(dialed, 1);
	assert_int_equal(net_tls_server(&server_opts, &server_tls), 0);
	assert_int_equal(net_listener_set_tls(listener, server_tls), 0);
	net_tls_free(old);
	run_ms(100);
	assert_int_equal(dialed, 0);
}

/* ---- ends ---- */

static void end_twice(struct net_conn *conn, void *arg)
{
	struct net_view view;
	char text[6] = "";

	results[0] = net_recv_view(conn, &view);
	results[1] = net_shutdown(conn, NET_SHUT_WR);
	results[2] = net_shutdown(conn, NET_SHUT_WR);
	net_close(conn);
	net_close(conn);
	memcpy(text, view.data, 5); /* until the handler returns */
	results[3] = strcmp(text, "hello");
	results[4] = net_recv(conn, text, 5);
	results[5] = net_shutdown(conn, NET_SHUT_RDWR);
	results[6] = net_tls_info(conn, &(struct net_tls_info){0});
	net_view_release(conn, &view);
}

static void send_hello(struct net_conn *conn, void *arg)
{
	char byte;

	net_send_all(conn, "hello", 5);
	results[7] = net_recv(conn, &byte, 1);
}

static void test_connection_may_be_closed_twice(void **state)
{
	tls_run(end_twice, send_hello);
	assert_int_equal(results[0], 5);
	assert_int_equal(results[1], 0);
	assert_int_equal(results[2], 0);
	assert_int_equal(results[3], 0);
	assert_int_equal(results[4], -EBADF);
	assert_int_equal(results[5], -EBADF);
	assert_int_equal(results[6], -EBADF);
	assert_int_equal(results[7], 0);
}

/* Both sides send the end first and read on. */
static void shut_then_read(struct net_conn *conn, void *arg)
{
	char byte;

	net_send_all(conn, "x", 1);
	net_shutdown(conn, NET_SHUT_WR);
	coro_sleep_ns(1000000);
	results[arg ? 1 : 0] = net_recv(conn, &byte, 1);
	results[arg ? 3 : 2] = net_recv(conn, &byte, 1);
	results[arg ? 5 : 4] = net_send(conn, &byte, 1);
}

static void shut_then_read_as_server(struct net_conn *conn, void *arg)
{
	shut_then_read(conn, conn);
}

static void test_both_sides_may_end_first(void **state)
{
	tls_run(shut_then_read_as_server, shut_then_read);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(results[i], 1);
		assert_int_equal(results[2 + i], 0);
		assert_int_equal(results[4 + i], -EPIPE);
	}
}

/* ---- views and watches ---- */

/* A view of one connection is sent on another, as a proxy does. */
static void forward_views(struct net_conn *conn, void *arg)
{
	struct net_conn *plain = dial_plain("10.0.0.1:9");
	struct net_view view;

	if (net_recv_view(conn, &view) > 0)
		results[0] = net_send_view(plain, &view);
	if (net_recv_view(plain, &view) > 0)
		results[1] = net_send_view(conn, &view);
	results[2] = net_send_view(conn, &view); /* empty by now */
	net_close(plain);
}

static void ask_through(struct net_conn *conn, void *arg)
{
	char text[6] = "";

	net_send_all(conn, "hello", 5);
	results[3] = net_recv_full(conn, text, 5);
	results[4] = strcmp(text, "hello");
}

static void test_views_pass_between_tls_and_plaintext(void **state)
{
	struct net_listener *plain;

	net_listen(stack, &net_addr_any(9), 64, &plain);
	net_listener_serve(plain, echo_end, NULL);
	tls_run(forward_views, ask_through);
	net_listener_close(plain);
	assert_int_equal(results[0], 5);
	assert_int_equal(results[1], 5);
	assert_int_equal(results[2], 0);
	assert_int_equal(results[3], 5);
	assert_int_equal(results[4], 0);
}

static long watched_bytes, watched_end;

static void on_event(struct net_conn *conn, struct net_watch *watch)
{
	struct net_view view;

	while ((watched_end = net_recv_view(conn, &view)) > 0) {
		watched_bytes += watched_end;
		net_view_release(conn, &view);
	}
}

static struct net_watch watch;

static void watch_it(struct net_conn *conn, void *arg)
{
	watch = (struct net_watch){.fn = on_event};
	net_set_watch(conn, &watch);
	on_event(conn, &watch);
	assert_int_equal(watched_end, -EAGAIN);
	results[0] = net_send(conn, "go", 2);
	results[1] = net_tls_accept(conn, server_tls);
	coro_sleep_ns(20000000);
	net_set_watch(conn, NULL);
}

static void send_on_demand(struct net_conn *conn, void *arg)
{
	static uint8_t much[40000];
	char text[2];

	net_recv_full(conn, text, 2);
	net_send_all(conn, much, sizeof(much));
}

static void test_watch_sees_plaintext(void **state)
{
	watched_bytes = 0;
	tls_run(send_on_demand, watch_it);
	assert_int_equal(results[0], 2);
	assert_int_equal(results[1], -EINVAL);
	assert_int_equal(watched_bytes, 40000);
	assert_int_equal(watched_end, 0);
}

static void set_timeout(struct net_conn *conn, void *arg)
{
	struct net_conn_stats stats;

	results[0] = net_set_user_timeout(conn, 1000);
	results[1] = net_conn_stats(conn, &stats);
	results[2] = net_set_user_timeout(conn, 0);
	results[3] = net_set_keepalive(conn, 10, 10, 3);
}

static void test_options_of_tcp_can_be_set(void **state)
{
	tls_run(wait_for_end, set_timeout);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(results[i], 0);
}

static int reset_addr(void **state)
{
	dial_addr = (struct net_addr){0};
	memset(results, 0, sizeof(results));
	return tls_setup(state);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, reset_addr, tls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_wrong_arguments_are_refused),
		TEST(test_accept_is_for_listeners_without_tls),
		TEST(test_calls_during_a_handshake_are_refused),
		TEST(test_handshake_ends_when_its_connection_does),
		TEST(test_handshakes_of_a_server_leave_dials_alone),
		TEST(test_context_is_freed_when_its_handshakes_are_over),
		TEST(test_connection_may_be_closed_twice),
		TEST(test_both_sides_may_end_first),
		TEST(test_views_pass_between_tls_and_plaintext),
		TEST(test_watch_sees_plaintext),
		TEST(test_options_of_tcp_can_be_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
