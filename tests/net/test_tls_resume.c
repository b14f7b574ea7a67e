/*
 * Sessions that are resumed: with which keys, by which client, for how long.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/tls/tls_priv.h"
#include "tests/net/tls_pair.h"

static struct net_tls_info server_info, client_info;
static long reset_result;
static char key_file[] = "/tmp/coronet-test-keys.XXXXXX";

/* ---- lives ---- */

static void serve_noting(struct net_conn *conn, void *arg)
{
	net_tls_info(conn, &server_info);
	echo_end(conn, arg);
}

static void ask_hello(struct net_conn *conn, void *arg)
{
	char text[6] = "";

	net_tls_info(conn, &client_info);
	assert_int_equal(net_send_all(conn, "hello", 5), 5);
	assert_int_equal(net_recv_full(conn, text, 5), 5); /* and the ticket */
	assert_string_equal(text, "hello");
}

/* Returns whether the session was resumed, as both ends say. */
static bool run_life(void)
{
	uint64_t resumed = net_here()->stats.tls_resumed;

	memset(&server_info, 0, sizeof(server_info));
	memset(&client_info, 0, sizeof(client_info));
	tls_run(serve_noting, ask_hello);
	assert_int_equal(dialed, 0);
	assert_int_equal(result, 0);
	assert_int_equal(server_info.resumed, client_info.resumed);
	assert_int_equal(net_here()->stats.tls_resumed - resumed,
			 2 * client_info.resumed);
	return client_info.resumed;
}

/* A new server's context with the present options; the client's stays. */
static void restart_server(void)
{
	net_tls_free(server_tls);
	server_tls = NULL;
	if (net_tls_server(&server_opts, &server_tls) < 0)
		fail_msg("server: %s", server_opts.error);
	assert_int_equal(net_listener_set_tls(listener, server_tls), 0);
}

static int keep_sessions(void **state)
{
	int err = tls_setup(state);

	client_opts.max_sessions = 4;
	tls_remake();
	return err;
}

/* Writes bytes that depend on `first`, one key after the other. */
static void write_keys(size_t bytes, unsigned char first)
{
	FILE *file = fopen(key_file, "w");

	assert_non_null(file);
	for (size_t i = 0; i < bytes; i++)
		fputc((int)(first + i / 80), file);
	assert_int_equal(fclose(file), 0);
	server_opts.ticket_keys = key_file;
}

/* ---- resumption, and none ---- */

static void test_second_handshake_resumes(void **state)
{
	assert_false(run_life());
	for (unsigned i = 0; i < 5; i++) {
		assert_true(run_life());
		assert_string_equal(client_info.version, "TLSv1.3");
		assert_string_equal(server_info.server_name, "server.test");
		assert_true(client_info.peer_verified);
		assert_string_equal(client_info.peer_name, "server");
	}
}

static void test_tls_1_2_resumes(void **state)
{
	client_opts.max_version = NET_TLS_1_2;
	tls_remake();
	assert_false(run_life());
	assert_true(run_life());
	assert_string_equal(client_info.version, "TLSv1.2");
}

static void test_without_tickets_or_sessions_none_resumes(void **state)
{
	server_opts.tickets = NET_TLS_TICKETS_OFF;
	tls_remake();
	assert_false(run_life());
	assert_false(run_life());
	server_opts.tickets = NET_TLS_TICKETS_ON;
	client_opts.max_sessions = 0;
	tls_remake();
	assert_false(run_life());
	assert_false(run_life());
}

static void test_client_certificate_is_shown_again(void **state)
{
	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	client_opts.pairs[0] = (struct net_tls_pair){cert_path("client.pem"),
						     cert_path("client.key")};
	client_opts.n_pairs = 1;
	tls_remake();
	assert_false(run_life());
	assert_true(run_life());
	assert_true(server_info.peer_verified);
	assert_string_equal(server_info.peer_name, "client 7");
}

/* ---- keys ---- */

/* A life of another client, while the sessions stay as they are. */
static void run_without_sessions(void)
{
	struct net_tls *was = client_tls;

	client_opts.max_sessions = 0;
	assert_int_equal(net_tls_client(&client_opts, &client_tls), 0);
	dial_opts.tls = client_tls;
	assert_false(run_life());
	net_tls_free(client_tls);
	dial_opts.tls = client_tls = was;
}

static void test_context_replaces_its_keys_by_the_clock(void **state)
{
	assert_false(run_life());
	server_tls->keys->made_s -= NET_TLS_TICKET_S;
	assert_true(run_life()); /* by the key before, and gets a new ticket */
	server_tls->keys->made_s -= NET_TLS_TICKET_S;
	assert_true(run_life());
	server_tls->keys->made_s -= NET_TLS_TICKET_S;
	run_without_sessions();
	server_tls->keys->made_s -= NET_TLS_TICKET_S;
	assert_false(run_life()); /* two keys later */
}

static void test_other_contexts_keys_differ(void **state)
{
	assert_false(run_life());
	restart_server();
	assert_false(run_life());
	assert_true(run_life());
}

static void test_key_file_outlives_the_context(void **state)
{
	write_keys(80, 'a');
	tls_remake();
	assert_false(run_life());
	restart_server();
	assert_true(run_life());
}

/* The first key encrypts, the others are for older tickets. */
static void test_key_file_rotates(void **state)
{
	write_keys(80, 'b');
	tls_remake();
	assert_false(run_life());
	write_keys(160, 'a'); /* 'a', then 'b' */
	restart_server();
	assert_true(run_life());
	write_keys(80, 'a');
	restart_server();
	assert_true(run_life()); /* its ticket was of 'a' */
	write_keys(80, 'b');
	restart_server();
	assert_false(run_life());
}

static void test_wrong_key_files_are_refused(void **state)
{
	static const size_t wrong[] = {0, 1, 48, 79, 81, 17 * 80};
	struct net_tls *tls = NULL;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		write_keys(wrong[i], 'a');
		assert_int_equal(net_tls_server(&server_opts, &tls), -EINVAL);
		assert_non_null(strstr(server_opts.error,
				       "has not 1 to 16 keys of 80 bytes"));
		assert_non_null(strstr(server_opts.error, key_file));
	}
	write_keys(16 * 80, 'a');
	assert_int_equal(net_tls_server(&server_opts, &tls), 0);
	net_tls_free(tls);
	server_opts.ticket_keys = "/nonexistent";
	assert_int_equal(net_tls_server(&server_opts, &tls), -ENOENT);
	assert_non_null(strstr(server_opts.error, "'/nonexistent'"));
	server_opts.ticket_keys = NULL;
	client_opts.max_sessions = NET_TLS_MAX_SESSIONS + 1;
	assert_int_equal(net_tls_client(&client_opts, &tls), -EINVAL);
}

/* ---- the clients and names of a session ---- */

/* With the same keys: who proved nothing is not let in by a ticket. */
static void test_ticket_is_for_what_the_client_proved(void **state)
{
	write_keys(80, 'a');
	tls_remake();
	assert_false(run_life());
	assert_true(run_life());
	server_opts.verify = NET_TLS_VERIFY_ASK;
	restart_server();
	assert_false(run_life());
	server_opts.ca = cert_path("other-ca.pem");
	restart_server();
	assert_false(run_life());
	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	restart_server();
	result = 1;
	tls_run(serve_noting, echo_end);
	assert_int_not_equal(result, 0); /* refused: no certificate */
}

static void test_session_is_for_its_name(void **state)
{
	server_opts.pairs[1] = (struct net_tls_pair){cert_path("www.pem"),
						     cert_path("www.key")};
	server_opts.n_pairs = 2;
	tls_remake();
	assert_false(run_life());
	dial_opts.tls_name = "www.wild.test";
	assert_false(run_life());
	assert_string_equal(client_info.peer_name, "www");
	assert_true(run_life());
	assert_string_equal(client_info.peer_name, "www");
	dial_opts.tls_name = "SERVER.test.";
	assert_true(run_life());
	assert_string_equal(client_info.peer_name, "server");
	dial_opts.tls_name = NULL; /* the address */
	assert_false(run_life());
	assert_true(run_life());
	dial_opts.tls_name = "10.0.0.1"; /* the same, but nothing is kept */
	assert_false(run_life());
}

/* Each of several connections at a time has a session of its own. */
static void test_connections_at_a_time_have_their_own(void **state)
{
	uint64_t resumed = net_here()->stats.tls_resumed;

	serve(serve_noting);
	for (unsigned round = 0; round < 3; round++) {
		ended = 0;
		for (unsigned i = 0; i < 4; i++)
			tls_start(ask_hello);
		tls_until(4);
		run_ms(1);
	}
	assert_int_equal(net_here()->stats.tls_resumed - resumed, 2 * 2 * 4);
}

static void answer_and_abort(struct net_conn *conn, void *arg)
{
	char text[5];

	net_recv_full(conn, text, sizeof(text));
	net_send_all(conn, text, sizeof(text));
	coro_sleep_ns(1000000); /* the answer arrives before the RST */
	net_abort(conn);
}

static void ask_until_reset(struct net_conn *conn, void *arg)
{
	char byte;

	ask_hello(conn, arg);
	reset_result = net_recv(conn, &byte, 1);
}

/* A reset is no failure of TLS. */
static void test_reset_connection_leaves_its_session(void **state)
{
	tls_run(answer_and_abort, ask_until_reset);
	assert_int_equal(dialed, 0);
	assert_int_equal(reset_result, -ECONNRESET);
	assert_true(run_life());
}

/* RFC 8446 C.4: one ticket is not for two connections. */
static void test_ticket_is_used_once(void **state)
{
	uint64_t resumed;

	assert_false(run_life());
	resumed = net_here()->stats.tls_resumed;
	serve(serve_noting);
	ended = 0;
	tls_start(ask_hello);
	tls_start(ask_hello);
	tls_until(2);
	run_ms(1);
	assert_int_equal(net_here()->stats.tls_resumed - resumed, 2);
}

static void test_oldest_session_gives_way(void **state)
{
	server_opts.pairs[1] = (struct net_tls_pair){cert_path("www.pem"),
						     cert_path("www.key")};
	server_opts.n_pairs = 2;
	client_opts.max_sessions = 1;
	tls_remake();
	for (unsigned i = 0; i < 3; i++) {
		dial_opts.tls_name = "server.test";
		assert_false(run_life());
		assert_true(run_life());
		dial_opts.tls_name = "www.wild.test";
		assert_false(run_life());
	}
}

/* The ticket comes when nobody but the connection has the context. */
static void free_before_ticket(struct net_conn *conn, void *arg)
{
	net_tls_free(client_tls);
	client_tls = NULL;
	ask_hello(conn, arg);
}

static void test_ticket_after_the_context_was_freed(void **state)
{
	tls_run(serve_noting, free_before_ticket);
	assert_int_equal(dialed, 0);
	assert_int_equal(result, 0);
	tls_remake();
	assert_false(run_life());
	assert_true(run_life());
}

#define CASE(name)                                                             \
	cmocka_unit_test_setup_teardown(name, keep_sessions, tls_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {

		CASE(test_second_handshake_resumes),
		CASE(test_tls_1_2_resumes),
		CASE(test_without_tickets_or_sessions_none_resumes),
		CASE(test_client_certificate_is_shown_again),
		CASE(test_context_replaces_its_keys_by_the_clock),
		CASE(test_other_contexts_keys_differ),
		CASE(test_key_file_outlives_the_context),
		CASE(test_key_file_rotates),
		CASE(test_wrong_key_files_are_refused),
		CASE(test_ticket_is_for_what_the_client_proved),
		CASE(test_session_is_for_its_name),
		CASE(test_connections_at_a_time_have_their_own),
		CASE(test_reset_connection_leaves_its_session),
		CASE(test_ticket_is_used_once),
		CASE(test_oldest_session_gives_way),
		CASE(test_ticket_after_the_context_was_freed),
	};
	int fd = mkstemp(key_file), failed;

	if (fd < 0)
		return 1;
	close(fd);
	failed = cmocka_run_group_tests_name("tls_resume", tests, NULL, NULL);
	unlink(key_file);
	return failed;
}
