/* Two ends of a TLS connection in one stack, and a relay. */
#include "tests/net/tls_pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/mem/mem.h"

struct net_tls_opts server_opts, client_opts;
struct net_tls *server_tls, *client_tls;
struct net_dial_opts dial_opts;
struct net_addr dial_addr;
int dialed;
char dial_error[256], serve_error[256];
struct relay relays[RELAY_DIRECTIONS];

static struct net_listener *relay_listener;
static uint64_t live_bytes;

/* ---- setting up ---- */

void relay_reset(void)
{
	for (unsigned i = 0; i < RELAY_DIRECTIONS; i++)
		relays[i] = (struct relay){
			.end_at = -1, .flip_at = -1, .stall_at = -1};
}

void tls_remake(void)
{
	net_tls_free(server_tls);
	net_tls_free(client_tls);
	server_tls = client_tls = NULL;
	if (net_tls_server(&server_opts, &server_tls) < 0)
		fail_msg("server: %s", server_opts.error);
	if (net_tls_client(&client_opts, &client_tls) < 0)
		fail_msg("client: %s", client_opts.error);
	dial_opts.tls = client_tls;
	assert_int_equal(net_listener_set_tls(listener, server_tls), 0);
}

static void serve_relay(struct net_conn *conn, void *arg);

int tls_setup(void **state)
{
	certs_make();
	if (peer_listen_on_two_links(state) < 0 ||
	    net_listen(stack, &net_addr_any(8), 64, &relay_listener) < 0)
		return -1;
	net_listener_serve(relay_listener, serve_relay, NULL);
	server_opts = (struct net_tls_opts){
		.pairs = {{cert_path("server.pem"), cert_path("server.key")}},
		.n_pairs = 1,
		.ca = cert_path("ca.pem"),
	};
	client_opts = (struct net_tls_opts){.ca = cert_path("ca.pem")};
	dial_opts = (struct net_dial_opts){.tls_name = "server.test"};
	relay_reset();
	live_bytes = net_mem_live_bytes();
	tls_remake();
	return 0;
}

/* Connections of the last life may still be in TIME_WAIT. */
int tls_teardown(void **state)
{
	run_ms(3000);
	assert_int_equal(net_mem_live_bytes(), live_bytes);
	assert_int_equal(net_here()->n_conns, 0);
	net_listener_close(relay_listener);
	net_listener_close(listener);
	net_tls_free(server_tls);
	net_tls_free(client_tls);
	server_tls = client_tls = NULL;
	return peer_teardown(state);
}

/* ---- lives ---- */

static net_handler server_fn;

static void serve_counted(struct net_conn *conn, void *arg)
{
	server_fn(conn, arg);
	snprintf(serve_error, sizeof(serve_error), "%s", net_tls_error(conn));
	ended++;
}

static void *dial_counted(void *arg)
{
	net_handler client = (net_handler)(uintptr_t)arg;
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse(relays[0].is_used ? "10.0.0.1:8" : "10.0.0.1:7", -1,
		       &addr);
	if (dial_addr.family)
		addr = dial_addr;
	dialed = net_dial(stack, &addr, &dial_opts, &conn);
	snprintf(dial_error, sizeof(dial_error), "%s", net_tls_error(NULL));
	if (dialed == 0) {
		client(conn, NULL);
		snprintf(dial_error, sizeof(dial_error), "%s",
			 net_tls_error(conn));
		net_close(conn);
	}
	ended++;
	return NULL;
}

void tls_start(net_handler client)
{
	assert_int_equal(net_spawn(stack, "client", dial_counted,
				   (void *)(uintptr_t)client),
			 0);
}

void tls_until(unsigned want)
{
	for (unsigned i = 0; i < 2000000 && ended < want; i++) {
		fake_now_ns += 1000;
		net_stack_round(stack);
	}
	assert_int_equal(ended, want);
}

/* If the handshake fails on either side, there is one end to count less. */
void tls_run(net_handler server, net_handler client)
{
	uint64_t failed = net_here()->stats.tls_failed;

	ended = 0;
	dialed = 1;
	dial_error[0] = serve_error[0] = '\0';
	server_fn = server;
	serve(serve_counted);
	tls_start(client);
	for (unsigned i = 0; i < 2000000; i++) {
		uint64_t missing = net_here()->stats.tls_failed - failed;
		/* The dial always ends; the server's handshake may fail. */
		bool over = ended == 2 || (ended == 1 && dialed != 1 &&
					   missing > (dialed < 0));

		if (over)
			break;
		if (ended == 1 && dialed == -EINVAL)
			break;
		fake_now_ns += 1000;
		net_stack_round(stack);
	}
	assert_true(ended >= 1);
	assert_int_not_equal(dialed, 1);
	run_ms(2);
}

void echo_end(struct net_conn *conn, void *arg)
{
	struct net_view view;
	long n;

	while ((n = net_recv_view(conn, &view)) > 0) {
		n = net_send_view(conn, &view);
		if (n < 0)
			break;
	}
	result = n;
}

/* ---- the relay ---- */

struct pump {
	struct net_conn *from, *to;
	struct relay *how;
};

static size_t next_piece(const struct relay *how, size_t room)
{
	return how->piece && how->piece < room ? how->piece : room;
}

/* Damages or ends what was read; returns how much goes on. */
static size_t alter_piece(const struct relay *how, uint8_t *piece, size_t n)
{
	long at = (long)how->passed, end = at + (long)n;

	if (how->flip_at >= at && how->flip_at < end)
		piece[how->flip_at - at] ^= 0x55;
	return how->end_at >= at && how->end_at < end
		       ? (size_t)(how->end_at - at)
		       : n;
}

/* Passes the bytes before the pause on, and removes them from the piece. */
static void stall_before(struct pump *pump, uint8_t *piece, long *n)
{
	long first = pump->how->stall_at - (long)pump->how->passed;

	if (pump->how->stall_at < 0 || first < 0 || first >= *n)
		return;
	net_send_all(pump->to, piece, (size_t)first);
	coro_sleep_ns(20000000);
	memmove(piece, piece + first, (size_t)(*n - first));
	pump->how->passed += (size_t)first;
	pump->how->stall_at = -1;
	*n -= first;
}

static void *pump_bytes(void *arg)
{
	struct pump *pump = arg;
	uint8_t piece[4096];
	size_t keep;
	long n;

	while ((n = net_recv(pump->from, piece,
			     next_piece(pump->how, sizeof(piece)))) > 0) {
		stall_before(pump, piece, &n);
		keep = alter_piece(pump->how, piece, (size_t)n);
		pump->how->passed += keep;
		if (keep && net_send_all(pump->to, piece, keep) < 0)
			break;
		if (keep < (size_t)n)
			break;
		if (pump->how->piece)
			coro_yield(); /* each piece in a segment of its own */
	}
	net_shutdown(pump->to, NET_SHUT_WR);
	return NULL;
}

static void serve_relay(struct net_conn *conn, void *arg)
{
	struct pump *pumps = calloc(2, sizeof(*pumps));
	struct net_conn *on = NULL;
	struct net_addr addr;
	struct coro *other = NULL;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	if (net_dial(stack, &addr, NULL, &on) == 0) {
		pumps[0] = (struct pump){conn, on, &relays[RELAY_TO_SERVER]};
		pumps[1] = (struct pump){on, conn, &relays[RELAY_TO_CLIENT]};
		coro_spawn(stack->sched, NULL, pump_bytes, &pumps[1], &other);
		pump_bytes(&pumps[0]);
		coro_join(other, NULL);
		net_close(on);
	}
	free(pumps);
}
