/*
 * Handshakes on the threads of net_offload(): what a client sees is the same,
 * and a connection may end while another thread has its session.
 *
 * There is one thread, and one function may wait for it.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <coronet/coro_io.h>

#include "netstack/tls/tls_priv.h"
#include "tests/net/tls_pair.h"

#define HANDSHAKE_MS 3600000u /* virtual time passes while threads compute */

static pthread_t main_thread;
static atomic_uint steps_here, steps_elsewhere;
static atomic_int hold_at; /* of OpenSSL's info callback; 0: nowhere */
static sem_t has_begun, may_go_on;
static struct net_conn *accepted;

static void hold(void)
{
	sem_post(&has_begun);
	while (sem_wait(&may_go_on) < 0)
		;
}

/* OpenSSL's callback, on the thread that does the step. */
static void note_thread(const SSL *ssl, int where, int value)
{
	if (where & SSL_CB_HANDSHAKE_START) {
		if (pthread_equal(pthread_self(), main_thread))
			steps_here++;
		else
			steps_elsewhere++;
	}
	if (where & hold_at)
		hold();
}

static void remake(void)
{
	tls_remake();
	SSL_CTX_set_info_callback(server_tls->pairs[0], note_thread);
}

static void echo_counted(struct net_conn *conn, void *arg)
{
	echo_end(conn, arg);
	ended++;
}

static int offload_setup(void **state)
{
	int err = tls_setup(state);

	main_thread = pthread_self();
	steps_here = steps_elsewhere = 0;
	hold_at = 0;
	sem_init(&has_begun, 0, 0);
	sem_init(&may_go_on, 0, 0);
	server_opts.offload = true;
	server_opts.handshake_ms = client_opts.handshake_ms = HANDSHAKE_MS;
	dial_opts.timeout_ms = HANDSHAKE_MS;
	remake();
	serve(echo_counted);
	return err;
}

static void run_round(void)
{
	fake_now_ns += 1000;
	net_stack_round(stack);
}

/* Runs until `ended` is `want`, however long the thread takes. */
static void run_until(unsigned want)
{
	while (ended < want)
		run_round();
	assert_int_equal(ended, want);
}

static void run_until_begun(void)
{
	while (sem_trywait(&has_begun) < 0)
		run_round();
}

/* ---- lives ---- */

static void ask_hello(struct net_conn *conn, void *arg)
{
	char text[6] = "";

	assert_int_equal(net_send_all(conn, "hello", 5), 5);
	assert_int_equal(net_recv_full(conn, text, 5), 5);
	assert_string_equal(text, "hello");
}

static void run_life(void)
{
	ended = 0;
	tls_start(ask_hello);
	run_until(2);
	assert_int_equal(dialed, 0);
	assert_int_equal(result, 0);
}

static void test_handshake_is_elsewhere(void **state)
{
	static const enum net_tls_version versions[] = {NET_TLS_1_2,
							NET_TLS_1_3};

	for (unsigned i = 0; i < 2; i++) {
		server_opts.max_version = versions[i];
		remake();
		run_life();
		assert_int_equal(steps_elsewhere, i + 1);
	}
	server_opts.verify = NET_TLS_VERIFY_REQUIRE;
	client_opts.pairs[0] = (struct net_tls_pair){cert_path("client.pem"),
						     cert_path("client.key")};
	client_opts.n_pairs = 1;
	remake();
	run_life();
	assert_int_equal(steps_elsewhere, 3);
	assert_int_equal(steps_here, 0);
}

static size_t hello_bytes;

static void note_hello(struct net_conn *conn, void *arg)
{
	hello_bytes = relays[RELAY_TO_SERVER].passed;
	ask_hello(conn, arg);
}

/* The relay pauses behind the ClientHello, and passes the rest on at once. */
static void test_data_behind_the_handshake_stays(void **state)
{
	relays[RELAY_TO_SERVER].is_used = true;
	for (unsigned i = 0; i < 2; i++) {
		ended = 0;
		relays[RELAY_TO_SERVER].passed = 0;
		tls_start(note_hello);
		run_until(2);
		assert_int_equal(dialed, 0);
		relays[RELAY_TO_SERVER].stall_at = (long)hello_bytes;
	}
	assert_int_equal(steps_elsewhere, 2);
}

/* The thread that finds what is wrong gives the reason. */
static void test_failure_has_its_reason(void **state)
{
	uint64_t failed = net_here()->stats.tls_failed;

	server_opts.min_version = NET_TLS_1_3;
	client_opts.max_version = NET_TLS_1_2;
	remake();
	ended = 0;
	tls_start(ask_hello);
	run_until(1);
	assert_int_equal(dialed, -EPROTO);
	assert_string_equal(dial_error,
			    "the peer sent an alert: protocol version");
	assert_int_equal(net_here()->stats.tls_failed - failed, 2);
	assert_int_equal(steps_elsewhere, 1);
}

static void *dial_garbage(void *arg)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), 0);
	net_send_all(conn, "GET / HTTP/1.1\r\n\r\n", 18);
	while (net_recv(conn, &(char[64]){0}, 64) > 0)
		;
	net_close(conn);
	ended++;
	return NULL;
}

static void test_garbage_is_refused(void **state)
{
	ended = 0;
	net_spawn(stack, "garbage", dial_garbage, NULL);
	run_until(1);
	assert_string_equal(net_tls_error(NULL), "http request");
	assert_int_equal(steps_elsewhere, 1);
}

/* ---- the thread is busy ---- */

static void *hold_thread(void *arg)
{
	hold();
	return NULL;
}

static void *offload_hold(void *arg)
{
	assert_int_equal(net_offload(hold_thread, NULL, NULL, CORO_FOREVER), 0);
	ended++;
	return NULL;
}

static void take_thread(void)
{
	net_spawn(stack, "hold", offload_hold, NULL);
	run_until_begun();
}

static void free_threads(unsigned n)
{
	ended = 0;
	for (unsigned i = 0; i < n; i++)
		sem_post(&may_go_on);
	run_until(n);
}

static void test_step_is_here_if_the_queue_is_full(void **state)
{
	take_thread();
	net_spawn(stack, "wait", offload_hold, NULL);
	run_ms(1);
	run_life();
	assert_int_equal(steps_elsewhere, 0);
	assert_int_equal(steps_here, 1);
	free_threads(2);
}

static void test_deadline_ends_the_wait_for_a_thread(void **state)
{
	uint64_t failed = net_here()->stats.tls_failed;

	server_opts.handshake_ms = 100;
	remake();
	take_thread();
	ended = 0;
	tls_start(ask_hello);
	run_ms(99);
	assert_int_equal(net_here()->stats.tls_failed, failed);
	run_until(1);
	assert_int_equal(dialed, -ECONNRESET);
	assert_int_equal(steps_elsewhere + steps_here, 0);
	free_threads(1);
	server_opts.handshake_ms = HANDSHAKE_MS;
	remake();
	run_life();
}

/* ---- a connection ends meanwhile ---- */

static struct net_conn *plain;

static void *dial_hello(void *arg)
{
	struct net_addr addr;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &plain), 0);
	/* OpenSSL begins with the first byte, and waits for the others. */
	net_send_all(plain, "\x16", 1);
	return NULL;
}

static void begin_step(void)
{
	net_spawn(stack, "hello", dial_hello, NULL);
	hold_at = SSL_CB_HANDSHAKE_START;
	run_until_begun();
	hold_at = 0;
}

static void expect_reset(struct net_conn *conn, void *arg)
{
	assert_int_equal(net_recv(conn, &(char){0}, 1), -ECONNRESET);
}

static void reset_by_peer(void)
{
	net_abort(plain);
}

/* Returns the connection whose step is elsewhere, or NULL. */
static struct net_conn *find_stepping(void)
{
	struct net_conn_tls *tls = net_here()->tls_conns;

	while (tls && !net_tls_of(tls->conn)->step)
		tls = tls->next;
	return tls ? tls->conn : NULL;
}

/* As an operator does, or a stack whose memory is short. */
static void drop_here(void)
{
	net_conn_drop(find_stepping());
	assert_null(find_stepping());
	net_abort(plain);
}

static void expect_end(uint64_t failed)
{
	while (net_here()->stats.tls_failed == failed)
		run_round();
	run_ms(1);
	assert_int_equal(net_here()->n_conns, 0);
}

static void end_during_a_step(void (*end)(void))
{
	uint64_t failed = net_here()->stats.tls_failed;
	uint64_t charged = net_budget_elsewhere();

	begin_step();
	assert_true(net_budget_elsewhere() > charged + 100000);
	end();
	run_ms(10);
	assert_int_equal(net_here()->stats.tls_failed, failed);
	sem_post(&may_go_on);
	expect_end(failed);
	assert_true(net_budget_elsewhere() < charged + 100000);
}

static void test_reset_during_a_step(void **state)
{
	end_during_a_step(reset_by_peer);
	end_during_a_step(drop_here);
	run_life();
}

/* A handshake that would have succeeded has failed. */
static void test_drop_during_the_last_step(void **state)
{
	uint64_t done = net_here()->stats.tls_handshakes;

	ended = 0;
	hold_at = SSL_CB_HANDSHAKE_DONE;
	tls_start(expect_reset);
	run_until_begun();
	hold_at = 0;
	net_conn_drop(find_stepping());
	run_until(1);
	sem_post(&may_go_on);
	expect_end(net_here()->stats.tls_failed);
	assert_int_equal(net_here()->stats.tls_handshakes - done, 1);
}

static void end_before_a_step(void (*end)(void))
{
	uint64_t failed = net_here()->stats.tls_failed;

	take_thread();
	net_spawn(stack, "hello", dial_hello, NULL);
	while (!find_stepping())
		run_round(); /* it waits for the thread */
	end();
	run_ms(1);
	free_threads(1);
	expect_end(failed);
}

static void test_reset_before_a_step(void **state)
{
	end_before_a_step(reset_by_peer);
	end_before_a_step(drop_here);
	run_life();
}

static void *accept_by_hand(void *arg)
{
	struct net_conn *conn;

	assert_int_equal(net_accept(listener, &conn), 0);
	accepted = conn;
	result = net_tls_accept(conn, server_tls);
	ended++;
	return NULL;
}

/* Another coroutine closes what is in a handshake. */
static void test_close_during_a_step(void **state)
{
	ended = 0;
	net_listener_close(listener);
	assert_int_equal(net_listen(stack, &net_addr_any(7), 64, &listener), 0);
	net_spawn(stack, "accept", accept_by_hand, NULL);
	begin_step();
	assert_int_equal(net_send(accepted, "x", 1), -EPIPE);
	net_close(accepted);
	run_ms(1);
	assert_int_equal(ended, 0);
	sem_post(&may_go_on);
	run_until(1);
	assert_int_equal(result, -EBADF);
	net_close(plain);
	run_ms(1);
}

/* The coroutine is ended; the connection is still the program's. */
static void test_destroyed_coroutine_leaves_its_step(void **state)
{
	struct coro *acceptor;

	ended = 0;
	net_listener_close(listener);
	assert_int_equal(net_listen(stack, &net_addr_any(7), 64, &listener), 0);
	take_thread();
	assert_int_equal(
		coro_spawn(stack->sched, NULL, accept_by_hand, NULL, &acceptor),
		0);
	net_spawn(stack, "hello", dial_hello, NULL);
	while (!find_stepping())
		run_round();
	assert_int_equal(coro_destroy(acceptor), 0);
	assert_null(find_stepping());
	assert_int_equal(accepted->waiters, 0);
	assert_int_equal(ended, 0);
	net_abort(accepted);
	net_abort(plain);
	free_threads(1);
}

static void *let_go_on(void *arg)
{
	sem_post(&may_go_on);
	return NULL;
}

/* The stack waits for the thread, and then nothing of the step is left. */
static int close_during_a_step(void **state)
{
	pthread_t thread;

	net_listener_close(listener);
	net_tls_free(server_tls);
	net_tls_free(client_tls);
	server_tls = client_tls = NULL;
	pthread_create(&thread, NULL, let_go_on, NULL);
	peer_teardown(state);
	pthread_join(thread, NULL);
	return 0;
}

static void test_stack_closes_during_a_step(void **state)
{
	begin_step();
}

int main(void)
{
#define ROW(name_)                                                             \
	cmocka_unit_test_setup_teardown(name_, offload_setup, tls_teardown)
	const struct CMUnitTest tests[] = {
		ROW(test_handshake_is_elsewhere),
		ROW(test_data_behind_the_handshake_stays),
		ROW(test_failure_has_its_reason),
		ROW(test_garbage_is_refused),
		ROW(test_step_is_here_if_the_queue_is_full),
		ROW(test_deadline_ends_the_wait_for_a_thread),
		ROW(test_reset_during_a_step),
		ROW(test_drop_during_the_last_step),
		ROW(test_reset_before_a_step),
		ROW(test_close_during_a_step),
		ROW(test_destroyed_coroutine_leaves_its_step),
		cmocka_unit_test_setup_teardown(test_stack_closes_during_a_step,
						offload_setup,
						close_during_a_step),
	};

	coro_offload_limits(1, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
