/*
 * TLS between two ends of one stack: every call of a connection, on plaintext.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/net/tls_pair.h"

#define BULK (1u << 20)

static struct net_tls_info server_info, client_info;
static long results[8];

static uint8_t pattern(size_t at)
{
	return (uint8_t)(at * 2654435761u >> 13);
}

static void fill_pattern(uint8_t *buf, size_t len, size_t at)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern(at + i);
}

static bool is_pattern(const uint8_t *buf, size_t len, size_t at)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != pattern(at + i))
			return false;
	return true;
}

/* ---- the handshake ---- */

static void note_server(struct net_conn *conn, void *arg)
{
	net_tls_info(conn, &server_info);
	echo_end(conn, arg);
}

static void ask_hello(struct net_conn *conn, void *arg)
{
	char text[6] = "";

	net_tls_info(conn, &client_info);
	assert_int_equal(net_send_all(conn, "hello", 5), 5);
	assert_int_equal(net_recv_full(conn, text, 5), 5);
	assert_string_equal(text, "hello");
	assert_int_equal(net_shutdown(conn, NET_SHUT_WR), 0);
	results[0] = net_recv(conn, text, 5);
}

static void expect_hello(void)
{
	results[0] = 1;
	tls_run(note_server, ask_hello);
	assert_int_equal(dialed, 0);
	assert_int_equal(result, 0);
	assert_int_equal(results[0], 0);
	assert_string_equal(dial_error, "");
}

static void test_handshake_agrees_on_tls_1_3(void **state)
{
	uint64_t done = net_here()->stats.tls_handshakes;

	expect_hello();
	assert_string_equal(server_info.version, "TLSv1.3");
	assert_string_equal(client_info.version, "TLSv1.3");
	assert_string_equal(client_info.cipher, server_info.cipher);
	assert_string_equal(server_info.server_name, "server.test");
	assert_true(client_info.peer_verified);
	assert_string_equal(client_info.peer_name, "server");
	assert_string_equal(client_info.peer_subject, "CN=server,O=coronet");
	assert_false(server_info.peer_verified);
	assert_string_equal(server_info.peer_name, "");
	assert_int_equal(net_here()->stats.tls_handshakes, done + 2);
}

static void test_handshake_agrees_on_tls_1_2(void **state)
{
	client_opts.max_version = NET_TLS_1_2;
	tls_remake();
	expect_hello();
	assert_string_equal(server_info.version, "TLSv1.2");
	assert_non_null(strstr(client_info.cipher, "ECDHE-ECDSA"));
}

/* A name that is none leaves the connection in plaintext. */
static void connect_later(struct net_conn *conn, void *arg)
{
	char text[6] = "";

	results[0] = net_tls_connect(conn, client_tls, "");
	results[1] = net_tls_info(conn, &client_info);
	results[2] = net_tls_connect(conn, server_tls, "server.test");
	results[3] = net_tls_connect(conn, client_tls, "server.test");
	results[4] = net_tls_info(conn, &client_info);
	net_send_all(conn, "hello", 5);
	net_shutdown(conn, NET_SHUT_WR);
	results[5] = net_recv_full(conn, text, 6);
}

static void test_plain_connection_becomes_a_clients(void **state)
{
	dial_opts.tls = NULL;
	tls_run(note_server, connect_later);
	assert_int_equal(results[0], -EINVAL);
	assert_int_equal(results[1], -ENOTCONN);
	assert_int_equal(results[2], -EINVAL);
	assert_int_equal(results[3], 0);
	assert_int_equal(results[4], 0);
	assert_int_equal(results[5], 5);
	assert_int_equal(result, 0);
}

static void test_versions_without_overlap_fail(void **state)
{
	client_opts.max_version = NET_TLS_1_2;
	server_opts.min_version = NET_TLS_1_3;
	tls_remake();
	tls_run(note_server, ask_hello);
	assert_int_equal(dialed, -EPROTO);
	assert_non_null(strstr(dial_error, "protocol version"));
}

static void test_server_chooses_alpn_by_its_preference(void **state)
{
	server_opts.alpn = "h2,http/1.1";
	client_opts.alpn = "http/1.1,h2";
	tls_remake();
	expect_hello();
	assert_string_equal(client_info.alpn, "h2");
	assert_string_equal(server_info.alpn, "h2");
}

static void test_without_common_alpn_there_is_no_connection(void **state)
{
	server_opts.alpn = "h2";
	client_opts.alpn = "http/1.1";
	tls_remake();
	tls_run(note_server, ask_hello);
	assert_int_equal(dialed, -EPROTO);
	assert_non_null(strstr(dial_error, "no application protocol"));
}

static void ask_as(const char *name, const char *expected)
{
	dial_opts.tls_name = name;
	expect_hello();
	assert_string_equal(client_info.peer_name, expected);
	assert_string_equal(server_info.server_name, name);
}

static void test_name_chooses_the_certificate(void **state)
{
	server_opts.pairs[1] = (struct net_tls_pair){cert_path("wild.pem"),
						     cert_path("wild.key")};
	server_opts.pairs[2] = (struct net_tls_pair){cert_path("www.pem"),
						     cert_path("www.key")};
	server_opts.n_pairs = 3;
	tls_remake();
	ask_as("server.test", "server");
	ask_as("www.wild.test", "www"); /* exact, though a wildcard is first */
	ask_as("mail.wild.test", "wild");
	ask_as("MAIL.wild.test", "wild");
	client_opts.verify =
		NET_TLS_VERIFY_NONE; /* the default's name is not */
	tls_remake();
	ask_as("a.b.wild.test", "server");
	ask_as("wild.test", "server");
}

/* ---- data ---- */

static void send_bulk(struct net_conn *conn, void *arg)
{
	uint8_t *all = malloc(BULK);
	struct iovec parts[] = {
		{all, 1}, {all + 1, 0}, {all + 1, 99999}, {all + 100000, 7}};

	fill_pattern(all, BULK, 0);
	assert_int_equal(net_sendv_all(conn, parts, 4), 100007);
	for (size_t at = 100007; at < BULK;) {
		long n = net_send(conn, all + at, BULK - at);

		assert_true(n > 0);
		at += (size_t)n;
	}
	results[1] = net_shutdown(conn, NET_SHUT_WR);
	results[2] = net_send(conn, "x", 1);
	results[3] = net_recv(conn, all, 10);
	free(all);
}

static void receive_bulk(struct net_conn *conn, void *arg)
{
	struct net_view view;
	size_t at = 0;

	while (net_recv_view(conn, &view) > 0) {
		assert_true(is_pattern(view.data, view.len, at));
		at += view.len;
		net_view_release(conn, &view);
	}
	results[0] = (long)at;
	assert_int_equal(net_send_all(conn, "done", 4), 4);
}

static void test_bulk_arrives_as_it_was_sent(void **state)
{
	tls_run(receive_bulk, send_bulk);
	assert_int_equal(results[0], BULK);
	assert_int_equal(results[1], 0);
	assert_int_equal(results[2], -EPIPE);
	assert_int_equal(results[3], 4); /* the other half is still open */
}

static unsigned released;

static void count_release(void *arg)
{
	released++;
}

static void send_owned(struct net_conn *conn, void *arg)
{
	static uint8_t page[70000];

	fill_pattern(page, sizeof(page), 0);
	results[1] =
		net_send_owned(conn, page, sizeof(page), count_release, NULL);
	results[2] = net_send_owned(conn, page, 1, NULL, NULL);
	results[3] = net_writable(conn);
}

static void test_owned_buffer_is_given_back_once(void **state)
{
	released = 0;
	tls_run(receive_bulk, send_owned);
	assert_int_equal(results[0], 70000);
	assert_int_equal(results[1], 70000);
	assert_int_equal(results[2], -EINVAL);
	assert_true(results[3] > 1000);
	assert_int_equal(released, 1);
}

/* ---- reading ---- */

static void send_lines(struct net_conn *conn, void *arg)
{
	net_send_all(conn, "first", 5);
	coro_sleep_ns(1000000);
	net_send_all(conn, " line\r", 6);
	coro_sleep_ns(1000000);
	net_send_all(conn, "\nsecond\r\nthe rest", 17);
}

static void read_lines(struct net_conn *conn, void *arg)
{
	char line[64];
	struct iovec parts[] = {{line, 2}, {line + 10, 20}};

	results[0] = net_peek(conn, line, sizeof(line));
	results[1] = net_recv_until(conn, line, 4, "\r\n", 2);
	results[2] = net_recv_until(conn, line, sizeof(line), "\r\n", 2);
	assert_memory_equal(line, "first line\r\n", 12);
	results[3] = net_recv_until(conn, line, sizeof(line), "\r\n", 2);
	assert_memory_equal(line, "second\r\n", 8);
	results[4] = net_recv_until(conn, line, sizeof(line), "\r\n", 2);
	results[5] = net_recvv(conn, parts, 2);
	assert_memory_equal(line, "th", 2);
	assert_memory_equal(line + 10, "e rest", 6);
	results[6] = net_recv_full(conn, line, 5);
	results[7] = net_recv(conn, NULL, 5);
}

static void test_calls_that_copy_read_plaintext(void **state)
{
	tls_run(read_lines, send_lines);
	assert_int_equal(results[0], 5);
	assert_int_equal(results[1], -EMSGSIZE);
	assert_int_equal(results[2], 12);
	assert_int_equal(results[3], 8);
	assert_int_equal(results[4], -ENODATA);
	assert_int_equal(results[5], 8);
	assert_int_equal(results[6], 0);
	assert_int_equal(results[7], -EINVAL);
}

/* A reader that does not read shuts the window, as in plaintext. */
static void hold_still(struct net_conn *conn, void *arg)
{
	struct net_conn_stats now;

	results[1] = 99; /* the sender is not done */
	coro_sleep_ns(50000000);
	results[4] = results[1];
	net_conn_stats(conn, &now);
	results[5] = now.unread;
	receive_bulk(conn, arg);
}

static void test_slow_reader_holds_the_sender_back(void **state)
{
	tls_run(hold_still, send_bulk);
	assert_int_equal(results[0], BULK);
	assert_int_equal(results[4], 99);
	assert_in_range(results[5], 65536, BULK / 2);
}

static void exceed_views(struct net_conn *conn, void *arg)
{
	struct net_view views[NET_VIEWS_MAX + 1];
	unsigned n = 0;
	char byte;

	while ((results[0] = net_recv_view(conn, &views[n])) > 0) {
		n++;
		net_send_all(conn, "+", 1);
	}
	results[1] = n;
	while (n)
		net_view_release(conn, &views[--n]);
	results[2] = net_recv(conn, &byte, 1);
}

static void send_bytes(struct net_conn *conn, void *arg)
{
	char byte;

	for (unsigned i = 0; i <= NET_VIEWS_MAX; i++) {
		net_send_all(conn, "x", 1);
		if (i < NET_VIEWS_MAX)
			net_recv(conn, &byte, 1);
	}
	net_recv(conn, &byte, 1);
}

static void test_views_are_bounded(void **state)
{
	tls_run(exceed_views, send_bytes);
	assert_int_equal(results[0], -ENOBUFS);
	assert_int_equal(results[1], NET_VIEWS_MAX);
	assert_int_equal(results[2], 1);
}

/* ---- waiting ---- */

static void poll_then_read(struct net_conn *conn, void *arg)
{
	struct net_poll_item item = {.conn = conn, .events = NET_READABLE};
	int64_t now = net_now_ns(stack);
	char text[8];

	results[0] = net_poll(&item, 1, now + 1000000); /* nothing yet */
	item.events = NET_WRITABLE;
	results[1] = net_poll(&item, 1, now + 1000000);
	net_send_all(conn, "go", 2);
	item.events = NET_READABLE;
	results[2] = net_poll(&item, 1, CORO_FOREVER);
	results[3] = (long)item.revents;
	results[4] = net_recv(conn, text, sizeof(text));
	item.events = NET_PEER_CLOSED;
	net_poll(&item, 1, CORO_FOREVER);
	results[5] = (long)item.revents;
	results[6] = (long)net_ready(conn, NET_READABLE);
	results[7] = net_recv(conn, text, sizeof(text));
}

static void answer_go(struct net_conn *conn, void *arg)
{
	char text[8];

	net_recv(conn, text, 2);
	coro_sleep_ns(1000000);
	net_send_all(conn, "answer", 6);
}

static void test_poll_reports_plaintext(void **state)
{
	tls_run(poll_then_read, answer_go);
	assert_int_equal(results[0], 0);
	assert_int_equal(results[1], 1);
	assert_int_equal(results[2], 1);
	assert_int_equal(results[3], NET_READABLE);
	assert_int_equal(results[4], 6);
	assert_true(results[5] & NET_PEER_CLOSED);
	assert_int_equal(results[6], NET_READABLE);
	assert_int_equal(results[7], 0);
}

static void *cancel_soon(void *arg)
{
	coro_sleep_ns(1000000);
	net_cancel(arg);
	return NULL;
}

static void wait_in_vain(struct net_conn *conn, void *arg)
{
	static uint8_t much[BULK];
	struct net_view view;
	char byte;

	net_set_read_deadline(conn, net_now_ns(stack) + 2000000);
	results[0] = net_recv(conn, &byte, 1);
	net_set_read_deadline(conn, CORO_FOREVER);
	coro_deadline_set(net_now_ns(stack) + 2000000);
	results[1] = net_recv_view(conn, &view);
	coro_deadline_set(CORO_FOREVER);
	net_set_write_deadline(conn, net_now_ns(stack) + 50000000);
	results[2] = net_send_all(conn, much, sizeof(much));
	net_spawn(stack, "cancel", cancel_soon, conn);
	results[3] = net_recv_view(conn, &view);
	results[4] = net_send(conn, "x", 1);
}

static void sleep_long(struct net_conn *conn, void *arg)
{
	coro_sleep_ns(100000000);
}

static void test_deadlines_and_cancel_end_waits(void **state)
{
	tls_run(wait_in_vain, sleep_long);
	assert_int_equal(results[0], -ETIMEDOUT);
	assert_int_equal(results[1], -ETIMEDOUT);
	assert_int_equal(results[2], -ETIMEDOUT);
	assert_int_equal(results[3], -ECANCELED);
	assert_int_equal(results[4], -ECANCELED);
}

/* ---- ends ---- */

static void close_and_wait(struct net_conn *conn, void *arg)
{
	net_send_all(conn, "last words", 10);
	results[1] = net_close_wait(conn, CORO_FOREVER);
}

static void read_to_end(struct net_conn *conn, void *arg)
{
	char text[16];

	results[2] = net_recv_full(conn, text, sizeof(text));
	results[3] = net_recv(conn, text, 1);
}

static void test_close_wait_delivers_and_ends_cleanly(void **state)
{
	tls_run(close_and_wait, read_to_end);
	assert_int_equal(results[1], 0);
	assert_int_equal(results[2], 10);
	assert_int_equal(results[3], 0);
}

static void leave_unread(struct net_conn *conn, void *arg)
{
	coro_sleep_ns(2000000);
}

static void send_then_read(struct net_conn *conn, void *arg)
{
	char byte;

	net_send_all(conn, "unread", 6);
	results[0] = net_recv(conn, &byte, 1);
}

/* RFC 2525 2.17 */
static void test_close_with_unread_plaintext_resets(void **state)
{
	tls_run(leave_unread, send_then_read);
	assert_int_equal(results[0], -ECONNRESET);
}

static void leave_part(struct net_conn *conn, void *arg)
{
	char byte;

	net_recv(conn, &byte, 1); /* the rest of the record is decrypted */
}

static void test_close_with_a_part_of_a_record_unread_resets(void **state)
{
	tls_run(leave_part, send_then_read);
	assert_int_equal(results[0], -ECONNRESET);
}

static void abort_it(struct net_conn *conn, void *arg)
{
	net_abort(conn);
}

static void test_abort_resets(void **state)
{
	tls_run(abort_it, send_then_read);
	assert_int_equal(results[0], -ECONNRESET);
}

static void shut_reading(struct net_conn *conn, void *arg)
{
	char byte;

	results[0] = net_shutdown(conn, NET_SHUT_RD);
	results[1] = net_recv(conn, &byte, 1);
	results[2] = net_send_all(conn, "still", 5);
}

static void test_reading_can_be_shut(void **state)
{
	tls_run(shut_reading, read_to_end);
	assert_int_equal(results[0], 0);
	assert_int_equal(results[1], -ENOTCONN);
	assert_int_equal(results[2], 5);
}

/* ---- contexts ---- */

static void expect_refused(struct net_tls_opts *opts, bool server, int err,
			   const char *text)
{
	struct net_tls *tls = NULL;

	assert_int_equal(server ? net_tls_server(opts, &tls)
				: net_tls_client(opts, &tls),
			 err);
	assert_null(tls);
	if (!strstr(opts->error, text))
		fail_msg("'%s' lacks '%s'", opts->error, text);
}

static void test_wrong_options_are_refused_with_a_reason(void **state)
{
	const char *cert = cert_path("server.pem");
	const char *key = cert_path("server.key");
	struct net_tls_opts none = {0};
	struct net_tls_opts missing = {.pairs = {{"/nonexistent.pem", key}},
				       .n_pairs = 1};
	struct net_tls_opts swapped = {.pairs = {{key, cert}}, .n_pairs = 1};
	struct net_tls_opts others = {.pairs = {{cert, cert_path("wild.key")}},
				      .n_pairs = 1};
	struct net_tls_opts ciphers = {.ciphers = "NONSENSE"};
	struct net_tls_opts alpn = {.alpn = "h2,,h3"};
	struct net_tls_opts versions = {.min_version = NET_TLS_1_3,
					.max_version = NET_TLS_1_2};
	struct net_tls_opts ca = {.ca = key};
	struct net_tls_opts no_ca = {.pairs = {{cert, key}},
				     .n_pairs = 1,
				     .verify = NET_TLS_VERIFY_ASK};

	expect_refused(&none, true, -EINVAL, "needs a certificate");
	expect_refused(&missing, true, -ENOENT, "/nonexistent.pem");
	expect_refused(&swapped, true, -EINVAL, "is no certificate");
	expect_refused(&others, true, -EINVAL, "is no key for");
	expect_refused(&ciphers, false, -EINVAL, "NONSENSE");
	expect_refused(&alpn, false, -EINVAL, "an empty name");
	expect_refused(&versions, false, -EINVAL, "versions");
	expect_refused(&ca, false, -EINVAL, "has no CA");
	expect_refused(&no_ca, true, -EINVAL, "needs a ca");
	assert_int_equal(net_listener_set_tls(listener, client_tls), -EINVAL);
	assert_int_equal(net_listener_set_tls(listener, NULL), -EINVAL);
	assert_int_equal(net_listener_set_tls(NULL, server_tls), -EBADF);
	assert_int_equal(net_tls_info(NULL, &server_info), -EBADF);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, tls_setup, tls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_handshake_agrees_on_tls_1_3),
		TEST(test_handshake_agrees_on_tls_1_2),
		TEST(test_plain_connection_becomes_a_clients),
		TEST(test_versions_without_overlap_fail),
		TEST(test_server_chooses_alpn_by_its_preference),
		TEST(test_without_common_alpn_there_is_no_connection),
		TEST(test_name_chooses_the_certificate),
		TEST(test_bulk_arrives_as_it_was_sent),
		TEST(test_owned_buffer_is_given_back_once),
		TEST(test_calls_that_copy_read_plaintext),
		TEST(test_slow_reader_holds_the_sender_back),
		TEST(test_views_are_bounded),
		TEST(test_poll_reports_plaintext),
		TEST(test_deadlines_and_cancel_end_waits),
		TEST(test_close_wait_delivers_and_ends_cleanly),
		TEST(test_close_with_unread_plaintext_resets),
		TEST(test_close_with_a_part_of_a_record_unread_resets),
		TEST(test_abort_resets),
		TEST(test_reading_can_be_shut),
		TEST(test_wrong_options_are_refused_with_a_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
