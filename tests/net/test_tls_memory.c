/*
 * Memory of TLS: what OpenSSL holds is charged to the budget and freed, little
 * of the stack is in use while a connection waits, and an allocation that fails
 * ends a life without harm.
 */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/crypto.h>

#include "netstack/conn/tls.h"
#include "netstack/mem/mem.h"
#include "netstack/tls/tls_priv.h"
#include "tests/net/tls_pair.h"

#define IDLE 20u

static struct net_conn *idle_conns[IDLE];
static unsigned n_idle;

/* ---- allocations of OpenSSL ---- */

static long openssl_bytes, openssl_peak;

static void count_bytes(long bytes)
{
	openssl_bytes += bytes;
	if (openssl_bytes > openssl_peak)
		openssl_peak = openssl_bytes;
}

static void *count_malloc(size_t n, const char *file, int line)
{
	void *mem = malloc(n);

	count_bytes(mem ? (long)malloc_usable_size(mem) : 0);
	return mem;
}

static void count_free(void *mem, const char *file, int line)
{
	count_bytes(mem ? -(long)malloc_usable_size(mem) : 0);
	free(mem);
}

static void *count_realloc(void *was, size_t n, const char *file, int line)
{
	long before = was ? (long)malloc_usable_size(was) : 0;
	void *mem = realloc(was, n);

	if (mem)
		count_bytes((long)malloc_usable_size(mem) - before);
	return mem;
}

/* ---- idle connections ---- */

static void idle_until_end(struct net_conn *conn, void *arg)
{
	struct net_view view;

	idle_conns[n_idle++] = conn;
	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
}

static void hold_open(struct net_conn *conn, void *arg)
{
	struct net_view view;

	net_send_all(conn, "hello", 5);
	if (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
}

static void *hold_plain(void *arg)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse("10.0.0.1:9", -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), 0);
	hold_open(conn, NULL);
	net_close(conn);
	return NULL;
}

static void end_idle(void)
{
	for (unsigned i = 0; i < n_idle; i++)
		net_cancel(idle_conns[i]);
	run_ms(50);
	n_idle = 0;
}

static void open_idle(void)
{
	serve(idle_until_end);
	n_idle = 0;
	for (unsigned i = 0; i < IDLE; i++)
		tls_start(hold_open);
	run_ms(100);
	assert_int_equal(n_idle, IDLE);
}

static void test_charge_covers_what_openssl_holds(void **state)
{
	uint64_t budget = net_budget_elsewhere();
	long bytes, charged = 0;

	open_idle(); /* what is allocated once */
	end_idle();
	bytes = openssl_bytes;
	openssl_peak = bytes;
	open_idle();
	for (unsigned i = 0; i < IDLE; i++)
		charged += net_conn_tls(idle_conns[i])->held;
	bytes = (openssl_bytes - bytes) / (2 * IDLE); /* both ends */
	charged /= IDLE;
	print_message("# an idle session: %ld bytes of %ld; peak %ld\n", bytes,
		      charged, openssl_peak);
	assert_in_range(bytes, charged / 2, charged);
	end_idle();
	run_ms(3000);
	assert_in_range(net_budget_elsewhere() - budget, 0, 300000);
}

static struct net_conn *slow;
static long slow_charge, idle_charge, part_bytes;

/* Both ends of one handshake, at its most. */
static void test_charge_covers_a_handshake(void **state)
{
	long before;

	tls_run(echo_end, hold_open);
	before = openssl_bytes;
	openssl_peak = before;
	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	client_opts.pairs[0] = (struct net_tls_pair){cert_path("client.pem"),
						     cert_path("client.key")};
	client_opts.n_pairs = 1;
	tls_remake();
	before = openssl_bytes;
	openssl_peak = before;
	tls_start(hold_open);
	run_ms(20);
	print_message("# a handshake: %ld bytes\n", openssl_peak - before);
	assert_in_range(openssl_peak - before, 20000, 2 * 256 * 1024);
}

static void note_conn(struct net_conn *conn, void *arg)
{
	slow = conn;
	echo_end(conn, arg);
}

/* The relay pauses in the middle of a record. */
static void send_part(struct net_conn *conn, void *arg)
{
	static uint8_t much[3000];
	long before;
	char byte;

	net_send_all(conn, "a", 1);
	net_recv(conn, &byte, 1);
	before = openssl_bytes;
	idle_charge = net_conn_tls(slow)->held;
	relays[RELAY_TO_SERVER].stall_at =
		(long)relays[RELAY_TO_SERVER].passed + 1000;
	net_send_all(conn, much, sizeof(much));
	coro_sleep_ns(10000000);
	part_bytes = openssl_bytes - before;
	slow_charge = net_conn_tls(slow)->held;
	net_recv_full(conn, much, sizeof(much));
	assert_int_equal(net_conn_tls(slow)->held, idle_charge);
}

static void test_charge_covers_a_part_of_a_record(void **state)
{
	relays[0].is_used = true;
	tls_run(note_conn, send_part);
	print_message("# a part of a record: %ld bytes\n", part_bytes);
	assert_in_range(part_bytes, 10000, slow_charge - idle_charge);
}

static struct net_conn *kept;

static void keep_open(struct net_conn *conn, void *arg)
{
	struct net_view view;

	kept = conn;
	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
}

/* A ClientHello of the most bytes that OpenSSL allows, but for its end. */
static void *claim_much(void *arg)
{
	static uint8_t record[5 + 16384] = {0x16, 3, 1, 0x40, 0};
	struct net_conn *conn = NULL;
	struct net_addr addr;
	char byte;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), 0);
	net_send_all(conn, "\x16\x03\x01\x00\x04\x01\x02\x01\x44", 9);
	for (unsigned i = 0; i < 7; i++)
		net_send_all(conn, record, sizeof(record));
	net_recv(conn, &byte, 1);
	net_close(conn);
	return NULL;
}

static void test_charge_covers_a_long_hello(void **state)
{
	uint64_t budget;
	long before, bytes;

	tls_run(echo_end, hold_open);
	run_ms(3000);
	server_opts.handshake_ms = 50;
	tls_remake();
	budget = net_budget_elsewhere();
	before = openssl_bytes;
	net_spawn(stack, "claim", claim_much, NULL);
	run_ms(20);
	bytes = openssl_bytes - before;
	budget = net_budget_elsewhere() - budget;
	print_message("# a long ClientHello: %ld bytes\n", bytes);
	assert_in_range(bytes, 131072, budget);
	run_ms(100);
	assert_in_range(openssl_bytes, before - 1000, before + 1000);
}

/* A server's chain stays with the client as long as its session. */
static void test_charge_covers_a_long_chain(void **state)
{
	long before, bytes;
	unsigned charged;

	server_opts.pairs[0].cert = certs_chain(70);
	tls_remake();
	tls_run(echo_end, hold_open);
	run_ms(3000);
	before = openssl_bytes;
	openssl_peak = before;
	serve(note_conn);
	tls_start(keep_open);
	run_ms(20);
	bytes = openssl_bytes - before;
	charged = net_conn_tls(kept)->held + net_conn_tls(slow)->held;
	print_message("# a long chain: %ld bytes of %u, peak %ld\n", bytes,
		      charged, openssl_peak - before);
	assert_in_range(bytes, 60000, charged);
	assert_in_range(openssl_peak - before, bytes, 2 * 256 * 1024);
	net_cancel(kept);
	run_ms(50);
}

/* ---- ends ---- */

/* The owner never closes what it has dialed. */
static void *dial_and_leave(void *arg)
{
	struct net_addr addr;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	assert_int_equal(net_dial(stack, &addr, &dial_opts, &kept), 0);
	return NULL;
}

static void abort_conn(struct net_conn *conn, void *arg)
{
	net_abort(conn);
}

static void test_stack_frees_sessions_that_nobody_closes(void **state)
{
	long before;

	tls_run(echo_end, hold_open);
	run_ms(3000);
	before = openssl_bytes;
	serve(abort_conn);
	for (unsigned i = 0; i < 3; i++)
		net_spawn(stack, "leave", dial_and_leave, NULL);
	run_ms(50);
	assert_int_equal(net_here()->n_conns, 0);
	assert_true(openssl_bytes > before + 10000);
	net_listener_close(listener);
	net_tls_free(server_tls);
	net_tls_free(client_tls);
	server_tls = client_tls = NULL;
	peer_teardown(state);
	assert_true(openssl_bytes < before);
	assert_int_equal(tls_setup(state), 0);
}

static long shut_results[3];

/* Without memory for close_notify there is no FIN, which would look forged. */
static void shut_without_memory(struct net_conn *conn, void *arg)
{
	char byte;

	net_mem_fail_after(1);
	shut_results[0] = net_shutdown(conn, NET_SHUT_WR);
	net_mem_fail_after(0);
	shut_results[1] = net_shutdown(conn, NET_SHUT_WR);
	shut_results[2] = net_recv(conn, &byte, 1);
}

static void test_shutdown_without_memory_can_be_repeated(void **state)
{
	result = 1;
	tls_run(echo_end, shut_without_memory);
	assert_int_equal(shut_results[0], -ENOMEM);
	assert_int_equal(shut_results[1], 0);
	assert_int_equal(shut_results[2], 0);
	assert_int_equal(result, 0); /* a clean end */
}

static long received, write_results[5];

static void count_received(struct net_conn *conn, void *arg)
{
	struct net_view view;

	received = 0;
	while (net_recv_view(conn, &view) > 0) {
		received += (long)view.len;
		net_view_release(conn, &view);
	}
}

/* A record waits for TCP, which takes none, with nothing in flight. */
static void write_without_memory(struct net_conn *conn, void *arg)
{
	struct net_tls_session *s = net_tls_of(conn);
	struct net_view view;

	net_set_write_deadline(conn, net_now_ns(stack) + 5000000);
	assert_true(net_tls_add_chunk(s, 64));
	s->out->len = s->out_bytes = 10;
	conn->pcb.snd_queuelen = UINT16_MAX; /* as if memory were short */
	write_results[0] = net_ready(conn, NET_WRITABLE);
	write_results[1] = net_writable(conn);
	write_results[2] = net_shutdown(conn, NET_SHUT_WR);
	conn->pcb.snd_queuelen = 0;
	write_results[3] = net_tls_fail(s, "no memory");
	s->err = -ENOMEM; /* as if OpenSSL had found none */
	write_results[4] = net_recv_view(conn, &view);
	net_abort(conn);
}

static void test_writer_does_not_wait_for_memory_in_vain(void **state)
{
	server_opts.tickets = NET_TLS_TICKETS_OFF; /* nothing is in flight */
	tls_remake();
	tls_run(write_without_memory, count_received);
	assert_int_equal(write_results[0], NET_WRITABLE);
	assert_int_equal(write_results[1], -ENOMEM);
	assert_int_equal(write_results[2], -ENOMEM);
	assert_int_equal(write_results[3], -EPROTO);
	assert_int_equal(write_results[4], -ENOMEM); /* -ENOBUFS would pass */
	assert_int_equal(received, 0);
}

/* A chunk for a record with n bytes, and the longest at first (write.c). */
#define RECORD_CHUNK(n) (sizeof(struct net_tls_chunk) + (n) + 256)
#define RECORD_AT_FIRST 3840u

static size_t watched_len;

static void ignore_event(struct net_conn *conn, struct net_watch *watch)
{
}

/* Takes all memory of these sizes, except for one piece of a record's. */
static void **hog_memory(size_t record_chunk)
{
	const size_t sizes[] = {record_chunk, 64,  128,	 192,  256,
				384,	      512, 1024, 1664, 2304};
	void **last = NULL, **hog;

	net_mem_set_max(net_mem_bytes());
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		while ((hog = net_mem_malloc(sizes[i]))) {
			*hog = last;
			last = hog;
		}
	return last;
}

static void free_hogs(void **hog)
{
	while (hog) {
		void **next = *hog;

		net_mem_free(hog);
		hog = next;
	}
	net_mem_set_max(UINT64_MAX);
}

/* The second record is made, but TCP has no memory for it. */
static void write_watched(struct net_conn *conn, void *arg)
{
	static struct net_watch watch = {.fn = ignore_event};
	static const char bytes[RECORD_AT_FIRST + 1];
	size_t chunk = RECORD_CHUNK(LWIP_MIN(watched_len, RECORD_AT_FIRST));
	void **piece = net_mem_malloc(chunk), **hogs;

	net_set_watch(conn, &watch);
	write_results[0] = net_send(conn, "a", 1);
	hogs = hog_memory(chunk);
	net_mem_free(piece);
	write_results[1] = net_send(conn, bytes, watched_len);
	write_results[2] = net_tls_of(conn)->out != NULL;
	free_hogs(hogs);
	net_set_watch(conn, NULL);
}

/* It must not return -EAGAIN, after which the bytes would be sent twice. */
static void test_watched_write_is_not_repeated(void **state)
{
	watched_len = 1;
	tls_run(count_received, write_watched);
	assert_int_equal(write_results[0], 1);
	assert_int_equal(write_results[1], 1);
	assert_int_equal(write_results[2], 1);
	assert_int_equal(received, 2);
}

static void test_record_of_a_longer_watched_write_is_not_repeated(void **state)
{
	watched_len = RECORD_AT_FIRST + 1;
	tls_run(count_received, write_watched);
	assert_int_equal(write_results[1], RECORD_AT_FIRST);
	assert_int_equal(write_results[2], 1);
	assert_int_equal(received, 1 + RECORD_AT_FIRST);
}

/* OpenSSL has no memory for its answer: it is not the peer that is wrong. */
static void test_handshake_without_memory_says_so(void **state)
{
	unsigned n_short = 0;

	for (unsigned n = 1; n < 60; n++) {
		serve(echo_end);
		ended = 0;
		tls_start(hold_open);
		net_mem_fail_after(n);
		for (unsigned i = 0; i < 3000 && ended < 1; i++) {
			fake_now_ns += 100000;
			net_stack_round(stack);
		}
		net_mem_fail_after(0);
		n_short += strstr(dial_error, "no memory") ||
			   strstr(dial_error, "Cannot allocate");
		assert_null(strstr(dial_error, "broke the protocol"));
		run_ms(50);
	}
	assert_true(n_short > 0);
}

/* ---- stacks ---- */

static void test_private_stacks_of_default_size_suffice(void **state)
{
	size_t client, server;

	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	client_opts.pairs[0] = (struct net_tls_pair){cert_path("client.pem"),
						     cert_path("client.key")};
	client_opts.n_pairs = 1;
	tls_remake();
	tls_run(echo_end, hold_open);
	assert_int_equal(dialed, 0);
	client = coro_name_high_water(stack->sched, "client");
	server = coro_name_high_water(stack->sched, "conn");
	print_message("# stacks: client %zu, server %zu\n", client, server);
	assert_in_range(client, 1000, 48 * 1024);
	assert_in_range(server, 1000, 48 * 1024);
}

/* OpenSSL's frames are off the stack of a connection that waits. */
static void test_idle_connection_has_a_small_stack(void **state)
{
	struct net_listener *plain;
	size_t before, bare, with_tls;

	net_listen(stack, &net_addr_any(9), 64, &plain);
	net_listener_serve(plain, idle_until_end, NULL);
	before = coro_sched_memory_live(stack->sched);
	n_idle = 0;
	for (unsigned i = 0; i < IDLE; i++)
		net_spawn(stack, "client", hold_plain, NULL);
	run_ms(100);
	bare = coro_sched_memory_live(stack->sched) - before;
	end_idle();
	before = coro_sched_memory_live(stack->sched);
	open_idle();
	with_tls = coro_sched_memory_live(stack->sched) - before;
	print_message("# idle: %zu bytes of coroutines, with TLS %zu\n",
		      bare / IDLE, with_tls / IDLE);
	assert_true(with_tls < bare + IDLE * 2 * 512);
	end_idle();
	net_listener_close(plain);
}

/* ---- shortage ---- */

static int accepted;
static bool is_short;
static char text_got[8];

/* As after STARTTLS. */
static void upgrade_conn(struct net_conn *conn, void *arg)
{
	memset(text_got, 0, sizeof(text_got));
	if (is_short)
		net_budget_set(net_budget_used() * 17 / 16);
	accepted = net_tls_accept(conn, arg);
	net_budget_set(0);
	if (accepted < 0)
		return;
	net_recv_full(conn, text_got, 5);
	assert_int_equal(net_tls_accept(conn, arg), -EINVAL);
}

static void run_upgrade(void)
{
	struct net_listener *plain;

	accepted = 1;
	net_addr_parse("10.0.0.1:9", -1, &dial_addr);
	net_listen(stack, &net_addr_any(9), 64, &plain);
	net_listener_serve(plain, upgrade_conn, server_tls);
	tls_start(hold_open);
	run_ms(20);
	net_listener_close(plain);
}

static void test_plain_connection_is_upgraded(void **state)
{
	is_short = false;
	run_upgrade();
	assert_int_equal(accepted, 0);
	assert_string_equal(text_got, "hello");
}

static void test_short_budget_refuses_handshakes(void **state)
{
	uint64_t refused = net_here()->stats.tls_refused;

	is_short = true;
	run_upgrade();
	assert_int_equal(accepted, -ENOMEM);
	assert_int_equal(net_here()->stats.tls_refused, refused + 1);
}

static long dropped_result;

static void wait_for_drop(struct net_conn *conn, void *arg)
{
	char byte;

	slow = conn;
	dropped_result = net_recv(conn, &byte, 1);
	dropped_result = net_recv(conn, &byte, 1);
	coro_sleep_ns(10000000);
}

static void sleep_then_close(struct net_conn *conn, void *arg)
{
	coro_sleep_ns(5000000);
}

/* A reset because memory is short frees it before the handler returns. */
static void test_reset_frees_the_session_at_once(void **state)
{
	serve(wait_for_drop);
	slow = NULL;
	tls_start(sleep_then_close);
	while (!slow)
		run_ms(1);
	assert_true(net_conn_tls(slow)->held > 0);
	net_shortage_reset(slow);
	assert_int_equal(net_conn_tls(slow)->held, 0);
	run_ms(30);
	assert_int_equal(dropped_result, -ENOBUFS);
}

static void exchange(struct net_conn *conn, void *arg)
{
	static uint8_t much[60000];
	struct net_view view;
	size_t got_bytes = 0;

	if (net_send_all(conn, much, sizeof(much)) < 0)
		return;
	while (got_bytes < sizeof(much) && net_recv_view(conn, &view) > 0) {
		got_bytes += view.len;
		net_view_release(conn, &view);
	}
	if (net_shutdown(conn, NET_SHUT_WR) < 0)
		return;
	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
}

/* The listener's connections end as well: tls_teardown() checks. */
static void test_any_allocation_may_fail(void **state)
{
	uint64_t refused = 0;
	unsigned n = 0, step = 1;

	for (; n < 4000; n += step) {
		uint64_t no_memory = net_here()->stats.no_memory;

		serve(echo_end);
		ended = 0;
		tls_start(exchange);
		net_mem_fail_after(n + 1);
		for (unsigned i = 0; i < 20000 && (ended < 1 || i < 20); i++) {
			fake_now_ns += 100000;
			net_stack_round(stack);
		}
		net_mem_fail_after(0);
		if (ended != 1)
			fail_msg("allocation %u: the client still waits", n);
		run_ms(50);
		if (net_here()->stats.no_memory == no_memory)
			break;
		refused++;
		step = n / 40 + 1;
	}
	assert_true(refused > 40);
}

static int reset_addr(void **state)
{
	dial_addr = (struct net_addr){0};
	return tls_setup(state);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, reset_addr, tls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_charge_covers_what_openssl_holds),
		TEST(test_charge_covers_a_handshake),
		TEST(test_charge_covers_a_part_of_a_record),
		TEST(test_charge_covers_a_long_hello),
		TEST(test_charge_covers_a_long_chain),
		TEST(test_stack_frees_sessions_that_nobody_closes),
		TEST(test_shutdown_without_memory_can_be_repeated),
		TEST(test_writer_does_not_wait_for_memory_in_vain),
		TEST(test_watched_write_is_not_repeated),
		TEST(test_record_of_a_longer_watched_write_is_not_repeated),
		TEST(test_handshake_without_memory_says_so),
		TEST(test_private_stacks_of_default_size_suffice),
		TEST(test_idle_connection_has_a_small_stack),
		TEST(test_plain_connection_is_upgraded),
		TEST(test_short_budget_refuses_handshakes),
		TEST(test_reset_frees_the_session_at_once),
		TEST(test_any_allocation_may_fail),
	};

	setenv("CORO_MEASURE_STACKS", "1", 1);
	if (CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) !=
	    1)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
