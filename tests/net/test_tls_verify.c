/*
 * Who the peer is: certificates that do not verify, names, client certificates.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/net/tls_pair.h"

static struct net_tls_info server_info;
static long client_result;

static void serve_noting(struct net_conn *conn, void *arg)
{
	memset(&server_info, 0, sizeof(server_info));
	net_tls_info(conn, &server_info);
	echo_end(conn, arg);
}

static void ask_hello(struct net_conn *conn, void *arg)
{
	char text[6] = "";

	net_send_all(conn, "hello", 5);
	client_result = net_recv_full(conn, text, 5);
	if (client_result == 5)
		assert_string_equal(text, "hello");
	net_shutdown(conn, NET_SHUT_WR);
}

static void use_pair(const char *cert, const char *key)
{
	server_opts.pairs[0] =
		(struct net_tls_pair){cert_path(cert), cert_path(key)};
	tls_remake();
}

static void run_life(void)
{
	client_result = 0;
	result = 1;
	tls_run(serve_noting, ask_hello);
}

static void expect_good(void)
{
	run_life();
	assert_int_equal(dialed, 0);
	assert_int_equal(client_result, 5);
	assert_int_equal(result, 0);
}

static void expect_dial_error(const char *text)
{
	run_life();
	assert_int_equal(dialed, -EPROTO);
	if (!strstr(dial_error, text))
		fail_msg("'%s' lacks '%s'", dial_error, text);
	assert_int_equal(result, 1); /* no handler has run */
}

/* ---- the server's certificate ---- */

static void test_wrong_name_is_refused(void **state)
{
	dial_opts.tls_name = "other.test";
	expect_dial_error("hostname mismatch");
	dial_opts.tls_name = "server.test";
	expect_good();
}

/* RFC 6066 3: the dot of an absolute name is not asked for. */
static void test_dot_at_the_end_of_a_name_is_left_out(void **state)
{
	dial_opts.tls_name = "server.test.";
	expect_good();
	assert_string_equal(server_info.server_name, "server.test");
	dial_opts.tls_name = "server.test..";
	expect_dial_error("hostname mismatch");
}

static void test_address_is_verified_without_a_name(void **state)
{
	dial_opts.tls_name = NULL;
	expect_good();
	use_pair("wild.pem", "wild.key");
	expect_dial_error("IP address mismatch");
	dial_opts.tls_name = "10.0.0.9";
	expect_dial_error("IP address mismatch");
}

static void test_certificate_of_another_ca_is_refused(void **state)
{
	use_pair("alien.pem", "alien.key");
	expect_dial_error("unable to get local issuer certificate");
	client_opts.ca = cert_path("other-ca.pem");
	tls_remake();
	expect_good();
}

static void test_expired_certificate_is_refused(void **state)
{
	use_pair("expired.pem", "expired.key");
	expect_dial_error("certificate has expired");
	client_opts.verify = NET_TLS_VERIFY_NONE;
	tls_remake();
	expect_good();
}

/* The server learns from the alert why. */
static void test_refusal_is_counted_at_both_ends(void **state)
{
	uint64_t failed = net_here()->stats.tls_failed;

	dial_opts.tls_name = "other.test";
	expect_dial_error("hostname mismatch");
	run_ms(10);
	assert_int_equal(net_here()->stats.tls_failed, failed + 2);
}

static void test_empty_name_is_no_name(void **state)
{
	dial_opts.tls_name = "";
	run_life();
	assert_int_equal(dialed, -EINVAL);
	dial_opts.tls_name = ".";
	run_life();
	assert_int_equal(dialed, -EINVAL);
}

/* ---- the client's certificate ---- */

static void give_certificate(const char *cert, const char *key)
{
	client_opts.pairs[0] =
		(struct net_tls_pair){cert_path(cert), cert_path(key)};
	client_opts.n_pairs = 1;
	tls_remake();
}

static void test_required_certificate_is_shown_to_the_handler(void **state)
{
	static const uint8_t none[32];

	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	give_certificate("client.pem", "client.key");
	expect_good();
	assert_true(server_info.peer_verified);
	assert_string_equal(server_info.peer_name, "client 7");
	assert_string_equal(server_info.peer_subject, "CN=client 7,O=coronet");
	assert_memory_not_equal(server_info.peer_sha256, none, 32);
}

/* With TLS 1.3 the client has finished before it is refused. */
static void expect_client_refused(void)
{
	run_life();
	assert_int_equal(dialed, 0);
	assert_int_equal(client_result, -EPROTO);
	if (!strstr(dial_error, "alert"))
		fail_msg("'%s' names no alert", dial_error);
	assert_int_equal(result, 1);
}

static void test_client_without_a_required_certificate_is_refused(void **state)
{
	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	tls_remake();
	expect_client_refused();
	assert_non_null(strstr(dial_error, "certificate required"));
}

static void test_client_of_another_ca_is_refused(void **state)
{
	server_opts.verify = NET_TLS_VERIFY_ASK;
	give_certificate("alien.pem", "alien.key");
	expect_client_refused();
	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	give_certificate("expired.pem", "expired.key");
	expect_client_refused();
}

static void test_client_that_is_asked_may_have_no_certificate(void **state)
{
	server_opts.verify = NET_TLS_VERIFY_ASK;
	tls_remake();
	expect_good();
	assert_false(server_info.peer_verified);
	assert_string_equal(server_info.peer_name, "");
	give_certificate("client.pem", "client.key");
	expect_good();
	assert_true(server_info.peer_verified);
}

/* With the older version the dial itself fails. */
static void test_client_is_refused_by_tls_1_2_as_well(void **state)
{
	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	client_opts.max_version = NET_TLS_1_2;
	tls_remake();
	run_life();
	assert_int_equal(dialed, -EPROTO);
	assert_non_null(strstr(dial_error, "alert"));
	give_certificate("client.pem", "client.key");
	expect_good();
	assert_true(server_info.peer_verified);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, tls_setup, tls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_wrong_name_is_refused),
		TEST(test_dot_at_the_end_of_a_name_is_left_out),
		TEST(test_address_is_verified_without_a_name),
		TEST(test_certificate_of_another_ca_is_refused),
		TEST(test_expired_certificate_is_refused),
		TEST(test_refusal_is_counted_at_both_ends),
		TEST(test_empty_name_is_no_name),
		TEST(test_required_certificate_is_shown_to_the_handler),
		TEST(test_client_without_a_required_certificate_is_refused),
		TEST(test_client_of_another_ca_is_refused),
		TEST(test_client_that_is_asked_may_have_no_certificate),
		TEST(test_client_is_refused_by_tls_1_2_as_well),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
