/*
 * net_resolve() over TCP, after an answer that says that it was cut off.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "netstack/mem/mem.h"
#include "netstack/resolve/resolve_priv.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/name_server.h"
#include "tests/net/peer.h"

#define MANY 10u

static struct lookup a, many[MANY];
static struct query q, q2;
static struct response r;

static void serve_dns(struct net_conn *conn, void *arg)
{
	uint8_t bytes[600];

	if (net_recv_full(conn, bytes, 2) != 2 ||
	    net_recv_full(conn, bytes + 2, get16(bytes)) < 12)
		return;
	query_read(&q2, bytes + 2, (unsigned)get16(bytes));
	response_begin(&r, &q2, 0);
	for (unsigned i = 0; i < 100; i++)
		response_add4(&r, 9, "10.1.0.1");
	put16(bytes, r.len);
	net_send_all(conn, bytes, 2);
	net_send_all(conn, r.data, r.len);
	net_recv(conn, bytes, 1);
}

/* Answers the query that a server's socket has got, so that TCP is tried. */
static void truncate_answer(struct net_udp *udp)
{
	struct net_datagram info;

	run_rounds(3);
	assert_int_equal(net_udp_peek(udp, &info), 0);
	query_read(&q, info.data, (unsigned)info.len);
	response_begin(&r, &q, DNS_TRUNCATED);
	assert_int_equal(net_udp_send(udp, &info.peer, r.data, r.len), r.len);
	assert_int_equal(net_udp_discard(udp), 0);
}

/* The server is the stack itself, so that its TCP needs no script. */
static void test_truncated_answer_is_asked_for_again_over_tcp(void **state)
{
	struct net_addr at = udp_at(udp_us4, 53);
	struct net_udp *udp;

	write_resolv_conf("nameserver 10.0.0.1\n");
	assert_int_equal(net_udp_open(stack, &at, NULL, &udp), 0);
	assert_int_equal(net_listen(stack, &at, 0, &listener), 0);
	assert_int_equal(net_listener_serve(listener, serve_dns, NULL), 0);
	lookup_begin(&a, "a.test", 4);
	truncate_answer(udp);
	run_ms(50);
	lookup_check(&a, (int)NET_RESOLVE_ADDRS);
	assert_string_equal(q2.name, "a.test");
}

static void test_refused_tcp_after_truncation_is_reported(void **state)
{
	struct net_addr at = udp_at(udp_us4, 53);
	struct net_udp *udp;

	write_resolv_conf("nameserver 10.0.0.1\n");
	assert_int_equal(net_udp_open(stack, &at, NULL, &udp), 0);
	lookup_begin(&a, "a.test", 4);
	truncate_answer(udp);
	run_ms(8000);
	lookup_check(&a, -EAGAIN);
}

static void say_nothing(struct net_conn *conn, void *arg)
{
	coro_sleep_ns(INT64_C(20000000000));
}

static bool is_writing(const struct net_resolver *resolver)
{
	for (unsigned i = 0; i < NET_DNS_SOCKETS; i++)
		if (resolver->sockets[i].conn &&
		    resolver->sockets[i].conn->writer)
			return true;
	return false;
}

/* Inside of c-ares nothing may wait: the stack's end would free it. */
static void test_query_over_tcp_does_not_wait_for_memory(void **state)
{
	struct net_addr at = udp_at(udp_us4, 53);
	struct net_resolver *resolver;
	struct net_udp *udp;

	write_resolv_conf("nameserver 10.0.0.1\n");
	assert_int_equal(net_udp_open(stack, &at, NULL, &udp), 0);
	assert_int_equal(net_listen(stack, &at, 0, &listener), 0);
	assert_int_equal(net_listener_serve(listener, say_nothing, NULL), 0);
	lookup_begin(&a, "a.test", 4);
	truncate_answer(udp);
	run_rounds(12); /* TCP is up, and has a query that it holds on to */
	assert_int_equal(net_resolver_get(&resolver), 0);
	for (unsigned n = 1; n < MANY; n++) {
		char name[16];

		snprintf(name, sizeof(name), "b%u.test", n);
		lookup_begin(&many[n], name, 4);
		truncate_answer(udp);
		net_mem_fail_after(n);
		run_rounds(4);
		net_mem_fail_after(0);
		assert_false(is_writing(resolver));
		run_rounds(4);
	}
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, names_setup, names_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_truncated_answer_is_asked_for_again_over_tcp),
		TEST(test_refused_tcp_after_truncation_is_reported),
		TEST(test_query_over_tcp_does_not_wait_for_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
