/*
 * Peers and paths that mean harm: records cut, ended and damaged at every byte,
 * garbage, handshakes that never end.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/net/tls_pair.h"

#define TEXT	 "a hundred bytes would be too many for this"
#define TEXT_LEN (sizeof(TEXT) - 1)
/* A length that was damaged makes a reader wait for bytes that never come. */
#define READ_MS 50
#define READ_NS (READ_MS * INT64_C(1000000))

static long client_end, client_got;
static bool is_wrong; /* other bytes than those that were sent have come */

/* ---- through the relay ---- */

static void ask_text(struct net_conn *conn, void *arg)
{
	char text[TEXT_LEN + 8] = "";

	net_set_read_deadline(conn, net_now_ns(stack) + READ_NS);
	net_send_all(conn, TEXT, TEXT_LEN);
	net_shutdown(conn, NET_SHUT_WR);
	client_got = 0;
	do {
		client_end = net_recv(conn, text + client_got,
				      sizeof(text) - (size_t)client_got);
		client_got += client_end > 0 ? client_end : 0;
	} while (client_end > 0 && client_got < (long)sizeof(text));
	is_wrong |= memcmp(text, TEXT, (size_t)client_got) != 0;
}

static void echo_text(struct net_conn *conn, void *arg)
{
	char text[TEXT_LEN + 8];
	size_t got_bytes = 0;
	long n;

	net_set_read_deadline(conn, net_now_ns(stack) + READ_NS);
	while ((n = net_recv(conn, text + got_bytes,
			     sizeof(text) - got_bytes)) > 0) {
		is_wrong |= memcmp(text + got_bytes, TEXT + got_bytes,
				   (size_t)n) != 0;
		net_send_all(conn, text + got_bytes, (size_t)n);
		got_bytes += (size_t)n;
	}
	result = n;
}

static void run_life(void)
{
	relays[0].is_used = true;
	result = client_end = 1;
	client_got = 0;
	tls_run(echo_text, ask_text);
	assert_false(is_wrong);
}

/* Returns how many bytes pass in one direction of a whole life. */
static size_t whole_life(enum relay_direction direction)
{
	relay_reset();
	run_life();
	assert_int_equal(dialed, 0);
	assert_int_equal(result, 0);
	assert_int_equal(client_end, 0);
	assert_int_equal(client_got, TEXT_LEN);
	return relays[direction].passed;
}

static void use_version(bool tls_1_2)
{
	client_opts.max_version = tls_1_2 ? NET_TLS_1_2 : NET_TLS_ANY;
	client_opts.pairs[0] = (struct net_tls_pair){cert_path("client.pem"),
						     cert_path("client.key")};
	client_opts.n_pairs = 1;
	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	server_opts.handshake_ms = client_opts.handshake_ms = READ_MS;
	tls_remake();
}

static void test_records_cut_at_every_byte_are_whole(void **state)
{
	for (unsigned old = 0; old < 2; old++) {
		use_version(old);
		relay_reset();
		relays[0].piece = relays[1].piece = 1;
		run_life();
		assert_int_equal(dialed, 0);
		assert_int_equal(result, 0);
		assert_int_equal(client_end, 0);
		assert_int_equal(client_got, TEXT_LEN);
	}
}

/*
 * Lengths vary by a few bytes from life to life (signatures), so the last bytes
 * of the close_notify, which may be the first to be missing, are left out.
 */
#define MARGIN 12

static void test_end_before_close_notify_is_never_clean(void **state)
{
	for (unsigned old = 0; old < 2; old++) {
		long step = old ? 7 : 1;

		use_version(old);
		for (unsigned direction = 0; direction < RELAY_DIRECTIONS;
		     direction++) {
			long whole = (long)whole_life(direction);

			for (long at = 0; at < whole - MARGIN; at += step) {
				relay_reset();
				relays[direction].end_at = at;
				run_life();
				if (direction == RELAY_TO_SERVER)
					assert_int_not_equal(result, 0);
				else
					assert_true(dialed < 0 ||
						    client_end == -EPROTO);
			}
		}
	}
}

/* Every byte that matters is authenticated; the rest is version numbers. */
static void test_damaged_byte_is_never_passed_on(void **state)
{
	unsigned refused = 0;

	use_version(false);
	for (unsigned direction = 0; direction < RELAY_DIRECTIONS;
	     direction++) {
		long whole = (long)whole_life(direction);

		for (long at = 0; at < whole - MARGIN; at += 3) {
			relay_reset();
			relays[direction].flip_at = at;
			run_life();
			refused += dialed < 0 || result < 0 || client_end < 0 ||
				   result == 1;
			if (result == 0 && dialed == 0 && client_end == 0)
				assert_int_equal(client_got, TEXT_LEN);
		}
		assert_true(refused > (unsigned)whole / 3 * 9 / 10);
		refused = 0;
	}
}

/* ---- peers without TLS ---- */

static struct net_conn *dial_plain_at(const char *text)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse(text, -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), 0);
	return conn;
}

static struct net_conn *dial_plain(void)
{
	return dial_plain_at("10.0.0.1:7");
}

/* Bytes in place of a ClientHello, and the bytes of the answer. */
static const struct garbage {
	const char *bytes;
	size_t len;
	long answer; /* an alert has 7; OpenSSL sends none to HTTP */
} garbage[] = {
	{"GET / HTTP/1.1\r\n\r\n", 18, 0},
	{"\x16\x03\x01\x00\x08\x02"
	 "garbage",
	 13, 7},
	{"\x17\x03\x03\x00\x07"
	 "garbage",
	 12, 7},
};

static void *send_garbage(void *arg)
{
	const struct garbage *what = arg;
	struct net_conn *conn = dial_plain();
	uint8_t answer[64] = {0};

	net_send_all(conn, what->bytes, what->len);
	client_got = net_recv_full(conn, answer, sizeof(answer));
	client_end = answer[0];
	net_close(conn);
	ended++;
	return NULL;
}

static void expect_no_handler(struct net_conn *conn, void *arg)
{
	fail_msg("a handler runs");
}

static void expect_garbage_refused(const struct garbage *what)
{
	uint64_t failed = net_here()->stats.tls_failed;

	ended = 0;
	serve(expect_no_handler);
	net_spawn(stack, "garbage", send_garbage, (void *)(uintptr_t)what);
	tls_until(1);
	run_ms(5);
	assert_int_equal(net_here()->stats.tls_failed, failed + 1);
	assert_int_equal(client_got, what->answer);
	assert_int_equal(client_end, what->answer ? 21 : 0);
}

static void test_garbage_gets_no_handler(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		expect_garbage_refused(&garbage[i]);
}

static void answer_garbage(struct net_conn *conn, void *arg)
{
	net_send_all(conn, "220 smtp.test ready\r\n", 21);
	coro_sleep_ns(1000000);
}

static void expect_no_tls(struct net_conn *conn, void *arg)
{
	fail_msg("there is no TLS");
}

static void test_dial_to_a_server_without_tls_fails(void **state)
{
	struct net_listener *plain;
	struct net_addr addr;

	net_addr_parse("10.1.0.1:7", -1, &addr); /* before every address */
	assert_int_equal(net_listen(stack, &addr, 0, &plain), 0);
	net_listener_serve(plain, answer_garbage, NULL);
	net_addr_parse("10.1.0.1:7", -1, &dial_addr);
	ended = 0;
	tls_start(expect_no_tls);
	tls_until(1);
	assert_int_equal(dialed, -EPROTO);
	assert_string_equal(dial_error, "wrong version number");
	run_ms(5);
	net_listener_close(plain);
}

/* ---- handshakes that do not end ---- */

#define SILENT 6u

/* arg: the address to dial, which is the source as well. */
static void *stay_silent(void *arg)
{
	struct net_conn *conn = dial_plain_at(arg);
	char byte;

	net_send(conn, "\x16", 1); /* a record begins */
	if (net_recv(conn, &byte, 1) == -ECONNRESET)
		client_got++;
	net_close(conn);
	ended++;
	return NULL;
}

static void test_handshakes_are_bounded_in_number_and_time(void **state)
{
	struct net_stats *stats = &net_here()->stats;
	uint64_t refused = stats->tls_refused, failed = stats->tls_failed;

	server_opts.max_handshakes = 4;
	server_opts.handshake_ms = 100;
	tls_remake();
	serve(expect_no_handler);
	ended = 0;
	client_got = 0;
	for (unsigned i = 0; i < SILENT; i++)
		net_spawn(stack, "silent", stay_silent, "10.0.0.1:7");
	run_ms(50);
	assert_int_equal(stats->tls_refused - refused, SILENT - 4);
	assert_int_equal(client_got, SILENT - 4);
	assert_int_equal(stats->tls_failed - failed, 0);
	run_ms(100);
	assert_int_equal(stats->tls_failed - failed, 4);
	assert_int_equal(ended, SILENT);
	serve(echo_end); /* and there is room again */
	ended = 0;
	tls_start(ask_text);
	tls_until(1);
	assert_int_equal(dialed, 0);
}

static void test_source_has_a_part_of_the_handshakes(void **state)
{
	struct net_stats *stats = &net_here()->stats;
	uint64_t refused = stats->tls_refused, failed = stats->tls_failed;

	server_opts.max_handshakes = 4;
	server_opts.handshakes_per_source = 2;
	server_opts.handshake_ms = 100;
	tls_remake();
	serve(expect_no_handler);
	ended = 0;
	for (unsigned i = 0; i < SILENT; i++)
		net_spawn(stack, "silent", stay_silent, "10.0.0.1:7");
	run_ms(20);
	assert_int_equal(stats->tls_refused - refused, SILENT - 2);
	for (unsigned i = 0; i < SILENT; i++)
		net_spawn(stack, "silent", stay_silent, "10.1.0.1:7");
	run_ms(20);
	assert_int_equal(stats->tls_refused - refused, 2 * (SILENT - 2));
	run_ms(150);
	assert_int_equal(stats->tls_failed - failed, 4);
	assert_int_equal(ended, 2 * SILENT);
	for (unsigned i = 0; i < 2;
	     i++) /* the first source may have two again */
		net_spawn(stack, "silent", stay_silent, "10.0.0.1:7");
	run_ms(20);
	assert_int_equal(stats->tls_refused - refused, 2 * (SILENT - 2));
	run_ms(150);
	assert_int_equal(stats->tls_failed - failed, 6);
}

static void *drip_bytes(void *arg)
{
	struct net_conn *conn = dial_plain();

	net_send(conn, "\x16\x03\x01\x02\x00\x01", 6);
	while (net_send(conn, "x", 1) > 0 && coro_sleep_ns(10000000) == 0)
		;
	net_close(conn);
	ended++;
	return NULL;
}

static void test_dripping_bytes_do_not_prolong_a_handshake(void **state)
{
	server_opts.handshake_ms = 200;
	tls_remake();
	serve(expect_no_handler);
	ended = 0;
	net_spawn(stack, "drip", drip_bytes, NULL);
	run_ms(180);
	assert_int_equal(ended, 0);
	run_ms(60);
	assert_int_equal(ended, 1);
}

/* Records of a ClientHello that says to have 16 MiB, or of 128 KiB. */
static void *send_long_hello(void *arg)
{
	static uint8_t record[5 + 16384] = {0x16, 3, 1, 0x40, 0};
	struct net_conn *conn = dial_plain();
	unsigned n = 0;

	memcpy(record + 5, arg, 4);
	while (n < 32 && net_send_all(conn, record, sizeof(record)) > 0) {
		memset(record + 5, 0, 4);
		n++;
	}
	client_got = n;
	net_close(conn);
	ended++;
	return NULL;
}

static void test_long_hello_is_refused(void **state)
{
	static char hellos[2][5] = {"\x01\xff\xff\xff", "\x01\x02\x00\x00"};

	for (unsigned i = 0; i < 2; i++) {
		uint64_t failed = net_here()->stats.tls_failed;

		serve(expect_no_handler);
		ended = 0;
		net_spawn(stack, "hello", send_long_hello, hellos[i]);
		tls_until(1);
		run_ms(50);
		assert_int_equal(net_here()->stats.tls_failed, failed + 1);
	}
}

static void *reset_midway(void *arg)
{
	struct net_conn *conn = dial_plain();

	net_send(conn, "\x16\x03\x01\x02\x00\x01", 6);
	coro_sleep_ns(1000000);
	net_abort(conn);
	ended++;
	return NULL;
}

static void test_reset_in_a_handshake_ends_it(void **state)
{
	uint64_t failed = net_here()->stats.tls_failed;

	serve(expect_no_handler);
	ended = 0;
	net_spawn(stack, "reset", reset_midway, NULL);
	tls_until(1);
	run_ms(5);
	assert_int_equal(net_here()->stats.tls_failed, failed + 1);
	assert_int_equal(net_here()->n_conns, 0);
}

static int reset_relays(void **state)
{
	is_wrong = false;
	dial_addr = (struct net_addr){0};
	return tls_setup(state);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, reset_relays, tls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_records_cut_at_every_byte_are_whole),
		TEST(test_end_before_close_notify_is_never_clean),
		TEST(test_damaged_byte_is_never_passed_on),
		TEST(test_garbage_gets_no_handler),
		TEST(test_dial_to_a_server_without_tls_fails),
		TEST(test_handshakes_are_bounded_in_number_and_time),
		TEST(test_source_has_a_part_of_the_handshakes),
		TEST(test_dripping_bytes_do_not_prolong_a_handshake),
		TEST(test_long_hello_is_refused),
		TEST(test_reset_in_a_handshake_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
