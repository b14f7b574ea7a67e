/*
 * A peer that sends records which OpenSSL's client would not: floods without
 * data, ends within a record, sizes at the limits.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/net/tls_rogue.h"

#define HANDSHAKE 22
#define ALERT	  21
#define DATA	  23

static long got_bytes;

static void read_to_end(struct net_conn *conn, void *arg)
{
	char byte;
	long n;

	while ((n = net_recv(conn, &byte, 1)) > 0)
		got_bytes++;
	result = n;
	snprintf(serve_error, sizeof(serve_error), "%s", net_tls_error(conn));
	ended++;
}

static void run_rogue_with(net_handler server, coro_fn rogue)
{
	serve(server);
	ended = 0;
	got_bytes = 0;
	serve_error[0] = '\0';
	net_spawn(stack, "rogue", rogue, NULL);
	tls_until(2);
	run_ms(5);
}

static void run_rogue(coro_fn rogue)
{
	run_rogue_with(read_to_end, rogue);
}

/* ---- TLS 1.3 ---- */

static void *flood_key_updates(void *arg)
{
	struct rogue rogue;

	rogue_open(&rogue, TLS1_3_VERSION);
	for (unsigned i = 0; i < 1000; i++) {
		if (SSL_key_update(rogue.ssl, SSL_KEY_UPDATE_REQUESTED) != 1)
			break;
		SSL_do_handshake(rogue.ssl);
		rogue_flush(&rogue);
	}
	rogue_close(&rogue);
	return NULL;
}

static void test_flood_of_key_updates_is_ended(void **state)
{
	run_rogue(flood_key_updates);
	assert_int_equal(result, -EPROTO);
	assert_string_equal(serve_error, "too many records without data");
}

/* But a few between data are obeyed. */
static void *update_keys(void *arg)
{
	struct rogue rogue;

	rogue_open(&rogue, TLS1_3_VERSION);
	for (unsigned i = 0; i < 100; i++) {
		SSL_key_update(rogue.ssl, SSL_KEY_UPDATE_REQUESTED);
		SSL_write(rogue.ssl, "x", 1);
		rogue_flush(&rogue);
	}
	rogue_shut(&rogue);
	return NULL;
}

static void test_key_updates_between_data_are_obeyed(void **state)
{
	run_rogue(update_keys);
	assert_int_equal(got_bytes, 100);
	assert_int_equal(result, 0);
}

static void *send_large_records(void *arg)
{
	static char record[SSL3_RT_MAX_PLAIN_LENGTH];
	struct rogue rogue;

	rogue_open(&rogue, TLS1_3_VERSION);
	for (unsigned i = 0; i < 3; i++) {
		SSL_write(rogue.ssl, record, sizeof(record));
		rogue_flush(&rogue);
	}
	rogue_shut(&rogue);
	return NULL;
}

static void test_largest_records_are_read(void **state)
{
	run_rogue(send_large_records);
	assert_int_equal(got_bytes, 3 * SSL3_RT_MAX_PLAIN_LENGTH);
	assert_int_equal(result, 0);
}

static void *renegotiate(void *arg)
{
	struct rogue rogue;
	unsigned n = 0;

	rogue_open(&rogue, TLS1_2_VERSION);
	while (n < 1000 && SSL_renegotiate(rogue.ssl) == 1) {
		SSL_do_handshake(rogue.ssl);
		rogue_flush(&rogue);
		n++;
		if (!rogue_fill(&rogue))
			break;
	}
	rogue_close(&rogue);
	return NULL;
}

static void test_renegotiation_is_refused(void **state)
{
	run_rogue(renegotiate);
	assert_true(result < 0); /* the client gives up, or is given up */
	assert_int_equal(got_bytes, 0);
}

static void *end_without_notice(void *arg)
{
	struct rogue rogue;

	rogue_open(&rogue, TLS1_3_VERSION);
	SSL_write(rogue.ssl, "data", 4);
	rogue_flush(&rogue);
	net_shutdown(rogue.conn, NET_SHUT_WR);
	rogue_close(&rogue);
	return NULL;
}

static void
test_fin_without_close_notify_is_an_error_after_the_data(void **state)
{
	run_rogue(end_without_notice);
	assert_int_equal(got_bytes, 4);
	assert_int_equal(result, -EPROTO);
	assert_string_equal(serve_error,
			    "the peer closed without close_notify");
}

static void tune_fragments(SSL *ssl)
{
	SSL_set_tlsext_max_fragment_length(ssl, TLSEXT_max_fragment_length_512);
}

#define MUCH 50000

/* RFC 6066 4: each record of the server has at most 512 bytes of data. */
static void *ask_for_fragments(void *arg)
{
	static uint8_t data[MUCH];
	struct rogue rogue;
	int n;

	rogue_tune = tune_fragments;
	rogue_open(&rogue, TLS1_3_VERSION);
	rogue_tune = NULL;
	while (got_bytes < MUCH && rogue_fill(&rogue))
		while ((n = SSL_read(rogue.ssl, data, sizeof(data))) > 0)
			got_bytes += n;
	rogue_shut(&rogue);
	return NULL;
}

static void send_much(struct net_conn *conn, void *arg)
{
	static const uint8_t much[MUCH];

	result = net_send_all(conn, much, sizeof(much));
	ended++;
}

static void test_small_fragments_are_obeyed(void **state)
{
	run_rogue_with(send_much, ask_for_fragments);
	assert_int_equal(result, MUCH);
	assert_int_equal(got_bytes, MUCH);
}

#define UPDATES 4000

static void *update_keys_often(void *arg)
{
	struct rogue rogue;

	rogue_open(&rogue, TLS1_3_VERSION);
	for (unsigned i = 0; i < UPDATES; i++) {
		SSL_key_update(rogue.ssl, SSL_KEY_UPDATE_REQUESTED);
		SSL_write(rogue.ssl, "x", 1);
		rogue_flush(&rogue);
	}
	rogue_shut(&rogue);
	return NULL;
}

static void end_then_read(struct net_conn *conn, void *arg)
{
	assert_int_equal(net_shutdown(conn, NET_SHUT_WR), 0);
	read_to_end(conn, arg);
}

/* There is no way to answer any more. */
static void test_key_updates_after_the_own_end_are_harmless(void **state)
{
	run_rogue_with(end_then_read, update_keys_often);
	assert_string_equal(serve_error, "");
	assert_int_equal(result, 0);
	assert_int_equal(got_bytes, UPDATES);
}

/* RFC 8446 5: one such record is ignored within a handshake. */
static void *flood_change_cipher_spec(void *arg)
{
	static uint8_t bytes[6 * 1000];
	struct rogue rogue;

	for (size_t i = 0; i < sizeof(bytes); i += 6)
		memcpy(bytes + i, "\x14\x03\x03\x00\x01\x01", 6);
	rogue_begin(&rogue, TLS1_3_VERSION);
	for (unsigned i = 0; i < 30; i++)
		if (net_send_all(rogue.conn, bytes, sizeof(bytes)) < 0)
			break;
	rogue_close(&rogue);
	return NULL;
}

static void test_flood_within_a_handshake_is_ended(void **state)
{
	uint64_t failed = net_here()->stats.tls_failed;

	serve(read_to_end);
	ended = 0;
	net_spawn(stack, "flood", flood_change_cipher_spec, NULL);
	tls_until(1);
	run_ms(5);
	assert_int_equal(net_here()->stats.tls_failed, failed + 1);
}

static void expect_no_life(struct net_conn *conn, void *arg)
{
	fail_msg("the handshake succeeds");
}

static void test_chain_beyond_the_limit_is_refused(void **state)
{
	server_opts.pairs[0].cert = certs_chain(150);
	tls_remake();
	tls_run(expect_no_life, expect_no_life);
	assert_int_equal(dialed, -EPROTO);
	assert_string_equal(dial_error, "excessive message size");
}

/* ---- records by hand ---- */

/* Sends n records of one type, many at once. */
static void send_records(struct rogue *rogue, uint8_t type, const void *data,
			 size_t len, unsigned n)
{
	static uint8_t bytes[65536];
	size_t used = 0;

	while (n--) {
		used += rogue_seal(rogue, type, data, len, bytes + used);
		if (n && used < sizeof(bytes) - 1100)
			continue;
		if (net_send_all(rogue->conn, bytes, used) < 0)
			return;
		used = 0;
	}
}

struct flood {
	uint8_t type;
	size_t len;
	const char *data;
};

static void *send_flood(void *arg)
{
	const struct flood *flood = arg;
	struct rogue rogue;

	rogue_open(&rogue, TLS1_2_VERSION);
	rogue_steal_keys(&rogue);
	send_records(&rogue, flood->type, flood->data, flood->len, 20000);
	rogue_close(&rogue);
	return NULL;
}

static void expect_flood_ended(const struct flood *flood)
{
	serve(read_to_end);
	ended = 0;
	got_bytes = 0;
	net_spawn(stack, "flood", send_flood, (void *)(uintptr_t)flood);
	tls_until(2);
	run_ms(5);
	assert_int_equal(result, -EPROTO);
	assert_int_equal(got_bytes, 0);
}

/* OpenSSL answers each, and looks for the next one by itself. */
static void test_flood_of_hellos_is_ended(void **state)
{
	static const char hello[64] = {1, 0, 0, 60};
	const struct flood flood = {HANDSHAKE, sizeof(hello), hello};

	expect_flood_ended(&flood);
	assert_string_equal(serve_error, "too many records without data");
}

static void test_flood_of_empty_records_is_ended(void **state)
{
	expect_flood_ended(&(struct flood){DATA, 0, ""});
}

static void test_flood_of_warnings_is_ended(void **state)
{
	expect_flood_ended(&(struct flood){ALERT, 2, "\x01\x5a"});
}

/* Many small records with data are nothing bad. */
static void *send_small_records(void *arg)
{
	struct rogue rogue;

	rogue_open(&rogue, TLS1_2_VERSION);
	rogue_steal_keys(&rogue);
	send_records(&rogue, DATA, "x", 1, 5000);
	send_records(&rogue, ALERT, "\x01\x00", 2, 1); /* close_notify */
	rogue_close(&rogue);
	return NULL;
}

static void test_small_records_with_data_are_read(void **state)
{
	run_rogue(send_small_records);
	assert_int_equal(result, 0);
	assert_int_equal(got_bytes, 5000);
}

static bool is_reset;

static void *end_in_record(void *arg)
{
	uint8_t bytes[100];
	struct rogue rogue;

	rogue_open(&rogue, TLS1_2_VERSION);
	rogue_steal_keys(&rogue);
	rogue_seal(&rogue, DATA, "never complete", 14, bytes);
	net_send_all(rogue.conn, bytes, 20);
	coro_sleep_ns(1000000);
	if (is_reset) {
		net_abort(rogue.conn);
		rogue_forget(&rogue);
	} else {
		net_shutdown(rogue.conn, NET_SHUT_WR);
		rogue_close(&rogue);
	}
	return NULL;
}

static void test_end_within_a_record_is_an_error(void **state)
{
	is_reset = false;
	run_rogue(end_in_record);
	assert_int_equal(result, -EPROTO);
	assert_string_equal(serve_error,
			    "the peer closed without close_notify");
	is_reset = true;
	run_rogue(end_in_record);
	assert_int_equal(result, -ECONNRESET);
	assert_int_equal(got_bytes, 0);
}

static int reset_rogue(void **state)
{
	dial_addr = (struct net_addr){0};
	return tls_setup(state);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, reset_rogue, tls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_flood_of_key_updates_is_ended),
		TEST(test_key_updates_between_data_are_obeyed),
		TEST(test_largest_records_are_read),
		TEST(test_renegotiation_is_refused),
		TEST(test_fin_without_close_notify_is_an_error_after_the_data),
		TEST(test_flood_of_hellos_is_ended),
		TEST(test_flood_of_empty_records_is_ended),
		TEST(test_flood_of_warnings_is_ended),
		TEST(test_small_records_with_data_are_read),
		TEST(test_end_within_a_record_is_an_error),
		TEST(test_small_fragments_are_obeyed),
		TEST(test_key_updates_after_the_own_end_are_harmless),
		TEST(test_chain_beyond_the_limit_is_refused),
		TEST(test_flood_within_a_handshake_is_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
