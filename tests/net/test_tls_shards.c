/*
 * One context for servers and one for clients, on several shards at once: each
 * is a thread with a fake port, and dials itself. Under ThreadSanitizer this
 * shows what the shards share.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/net/tls_pair.h"

#define SHARDS	3u
#define CLIENTS 4u /* of a shard, at once */
#define LIVES	6u /* of a client, one after the other */
#define BYTES	20000u

static struct net_opts opts;
static struct shard {
	pthread_t thread;
	unsigned number;
	int err;
	unsigned done, echoed; /* clients; lives */
	uint64_t handshakes;
} shards[SHARDS];

static void echo_all(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

static bool live_once(void)
{
	const struct net_dial_opts how = {.tls = client_tls,
					  .tls_name = "server.test"};
	static const uint8_t data[BYTES] = {1, 2, 3};
	struct net_conn *conn = NULL;
	struct net_addr addr;
	struct net_view view;
	size_t got_bytes = 0;
	bool is_same = true;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	if (net_dial(stack, &addr, &how, &conn) < 0)
		return false;
	net_send_all(conn, data, sizeof(data));
	net_shutdown(conn, NET_SHUT_WR);
	while (net_recv_view(conn, &view) > 0) {
		is_same &= memcmp(view.data, data + got_bytes, view.len) == 0;
		got_bytes += view.len;
		net_view_release(conn, &view);
	}
	net_close(conn);
	return is_same && got_bytes == sizeof(data);
}

static void *client(void *arg)
{
	struct shard *me = arg;

	for (unsigned i = 0; i < LIVES; i++)
		me->echoed += live_once();
	me->done++;
	return NULL;
}

static int open_here(struct shard *me)
{
	int err = net_shard_open(&opts, me->number);

	fake_flow_shard = me->number; /* it dials itself */
	stack = net_here();
	if (err == 0)
		err = net_listen(stack, &net_addr_any(7), 0, &listener);
	if (err == 0)
		err = net_listener_set_tls(listener, server_tls);
	if (err == 0)
		err = net_listener_serve(listener, echo_all, NULL);
	for (unsigned i = 0; err == 0 && i < CLIENTS; i++)
		err = net_spawn(stack, "client", client, me);
	return err;
}

static void *shard_main(void *arg)
{
	struct shard *me = arg;

	fake_now_ns = 1000000000;
	me->err = open_here(me);
	for (unsigned i = 0; me->err == 0 && i < 20000 && me->done < CLIENTS;
	     i++) {
		fake_now_ns += 100000;
		net_stack_round(stack);
	}
	me->handshakes = stack->stats.tls_handshakes;
	if (stack->sched)
		net_shard_close(stack);
	fake_reset();
	return NULL;
}

static void test_shards_share_contexts(void **state)
{
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.poll = NET_POLL_BUSY;
	opts.shards = SHARDS;
	opts.max_conns = 64 * SHARDS;
	assert_int_equal(net_program_open(&opts), 0);
	for (unsigned i = 0; i < SHARDS; i++) {
		shards[i].number = i;
		assert_int_equal(pthread_create(&shards[i].thread, NULL,
						shard_main, &shards[i]),
				 0);
	}
	for (unsigned i = 0; i < SHARDS; i++)
		pthread_join(shards[i].thread, NULL);
	net_program_close();
	for (unsigned i = 0; i < SHARDS; i++) {
		assert_int_equal(shards[i].err, 0);
		assert_int_equal(shards[i].echoed, CLIENTS * LIVES);
		assert_int_equal(shards[i].handshakes, 2 * CLIENTS * LIVES);
	}
}

static int make_contexts(void **state)
{
	certs_make();
	server_opts = (struct net_tls_opts){
		.pairs = {{cert_path("server.pem"), cert_path("server.key")}},
		.n_pairs = 1,
	};
	client_opts = (struct net_tls_opts){.ca = cert_path("ca.pem")};
	return net_tls_server(&server_opts, &server_tls) < 0 ||
			       net_tls_client(&client_opts, &client_tls) < 0
		       ? -1
		       : 0;
}

static int free_contexts(void **state)
{
	net_tls_free(server_tls);
	net_tls_free(client_tls);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_shards_share_contexts,
						make_contexts, free_contexts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
