/*
 * Ephemeral ports (RFC 6056): all are used, none is reused soon, and ports of
 * one destination do not reveal those of another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static ip_addr_t local, remote;

static int setup(void **state)
{
	IP_ADDR4(&local, 10, 0, 0, 1);
	IP_ADDR4(&remote, 10, 0, 0, 2);
	return peer_setup(state);
}

static uint16_t first_port(uint16_t remote_port)
{
	struct net_ephemeral search =
		net_ephemeral_dial(&local, &remote, remote_port);

	return net_ephemeral_next(&search);
}

static void test_a_search_visits_every_port_once(void **state)
{
	static uint8_t seen[65536];
	struct net_ephemeral search[] = {
		net_ephemeral_dial(&local, &remote, 80),
		net_ephemeral_listen(),
	};

	for (unsigned k = 0; k < 2; k++) {
		memset(seen, 0, sizeof(seen));
		for (unsigned i = 0; i < NET_PORT_COUNT; i++)
			seen[net_ephemeral_next(&search[k])]++;
		for (unsigned port = 0; port < 65536; port++)
			assert_int_equal(seen[port], port >= NET_PORT_FIRST);
	}
}

/* Steps of one to four: a port is reused after a quarter of all. */
static void test_ports_are_not_reused_soon(void **state)
{
	static uint8_t seen[65536];

	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i < NET_PORT_COUNT / 4; i++)
		assert_int_equal(seen[first_port(80)]++, 0);
}

static unsigned distance(uint16_t from, uint16_t to)
{
	return (unsigned)(to - from + NET_PORT_COUNT) % NET_PORT_COUNT;
}

/* A common counter would give each destination a port near the last one. */
static void test_ports_of_different_destinations_are_unrelated(void **state)
{
	uint16_t last = first_port(1);
	unsigned near = 0;

	for (uint16_t port = 2; port < 1026; port++) {
		uint16_t next = first_port(port);

		near += distance(last, next) < 64;
		last = next;
	}
	assert_in_range(near, 0, 16); /* by chance one or two */
}

/* The ports of one destination do not reveal the next one. */
static void test_the_step_is_not_constant(void **state)
{
	unsigned steps[8] = {0};
	uint16_t last = first_port(80);

	for (unsigned i = 0; i < 400; i++) {
		uint16_t next = first_port(80);

		assert_in_range(distance(last, next), 1, 4);
		steps[distance(last, next)]++;
		last = next;
	}
	for (unsigned step = 1; step <= 4; step++)
		assert_in_range(steps[step], 50, 150);
}

static void test_ports_differ_after_a_restart(void **state)
{
	uint16_t ports[64];
	unsigned same = 0;

	for (unsigned i = 0; i < 64; i++)
		ports[i] = first_port((uint16_t)(1000 + i));
	net_ephemeral_init();
	for (unsigned i = 0; i < 64; i++)
		same += distance(ports[i], first_port((uint16_t)(1000 + i))) <
			64;
	assert_in_range(same, 0, 4);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_search_visits_every_port_once),
		T(test_ports_are_not_reused_soon),
		T(test_ports_of_different_destinations_are_unrelated),
		T(test_the_step_is_not_constant),
		T(test_ports_differ_after_a_restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
