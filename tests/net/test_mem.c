/* Slabs: chunks that are returned, their bound, and failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/mem/mem.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MANY 20000u

static void *objects[MANY];

static unsigned allocate_objects(unsigned n, unsigned long size)
{
	unsigned i = 0;

	while (i < n && (objects[i] = net_mem_malloc(size))) {
		memset(objects[i], 0xa5, size);
		i++;
	}
	return i;
}

static void give_back(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		net_mem_free(objects[i]);
}

static void test_free_chunks_serve_another_class(void **state)
{
	uint64_t before = net_mem_bytes(), most;

	assert_int_equal(allocate_objects(MANY, 1000), MANY);
	most = net_mem_bytes();
	assert_true(most - before > 19 * 1000 * 1000);
	give_back(MANY);
	/* The class keeps the chunk it allocates from. */
	assert_in_range(net_mem_bytes(), before, before + NET_MEM_CHUNK_BYTES);
	net_mem_set_max(most + NET_MEM_CHUNK_BYTES);
	assert_int_equal(allocate_objects(2000, 9000), 2000);
	give_back(2000);
}

static void test_freed_objects_are_reused(void **state)
{
	uint64_t most;

	assert_int_equal(allocate_objects(MANY, 100), MANY);
	most = net_mem_bytes();
	for (unsigned k = 0; k < 7; k++) /* every chunk is full, then not */
		for (unsigned i = k; i < MANY; i += 7)
			if (i % 2)
				net_mem_free(objects[i]);
	for (unsigned i = 1; i < MANY; i += 2)
		objects[i] = net_mem_malloc(100);
	assert_int_equal(net_mem_bytes(), most);
	give_back(MANY);
}

static void test_growth_stops_at_the_bound(void **state)
{
	uint64_t max = net_mem_bytes() + net_budget_elsewhere() + (16u << 20);
	unsigned n;

	net_mem_set_max(max);
	n = allocate_objects(MANY, 9000);
	assert_in_range(n, 1000, 1900);
	assert_true(net_mem_bytes() + net_budget_elsewhere() <= max);
	assert_true(stack->stats.memory_refused > 0);
	/* Memory for an ACK is still available. */
	objects[n] = net_mem_malloc(128);
	assert_non_null(objects[n]);
	give_back(n + 1);
	assert_int_equal(allocate_objects(100, 9000), 100);
	give_back(100);
}

static void test_pages_of_free_chunks_are_returned(void **state)
{
	unsigned trimmed = 0;

	assert_int_equal(allocate_objects(MANY, 1000), MANY);
	assert_false(net_mem_trim());
	give_back(MANY);
	while (net_mem_trim())
		trimmed++;
	assert_in_range(trimmed, 30, 80);
	assert_int_equal(allocate_objects(MANY, 300), MANY);
	give_back(MANY);
}

static void test_the_nth_allocation_fails(void **state)
{
	void *mem[4];

	net_mem_fail_after(3);
	for (unsigned i = 0; i < 4; i++)
		mem[i] = i % 2 ? memp_malloc(MEMP_PBUF) : net_mem_malloc(64);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(mem[i] == NULL, i == 2);
	net_mem_free(mem[0]);
	memp_free(MEMP_PBUF, mem[1]);
	memp_free(MEMP_PBUF, mem[3]);
	assert_int_equal(stack->stats.no_memory, 1);
}

/* Over several regions, and after chunks have lost their pages. */
static void test_reference_yields_its_object(void **state)
{
	static uint32_t refs[MANY];

	for (unsigned turn = 0; turn < 2; turn++) {
		assert_int_equal(allocate_objects(MANY, 1000), MANY);
		for (unsigned i = 0; i < MANY; i++) {
			refs[i] = net_mem_ref(objects[i]);
			assert_int_not_equal(refs[i], 0);
		}
		for (unsigned i = 0; i < MANY; i++)
			assert_ptr_equal(net_mem_at(refs[i]), objects[i]);
		give_back(MANY);
		while (net_mem_trim())
			;
	}
}

#define T(test) cmocka_unit_test_setup_teardown(test, peer_setup, peer_teardown)

static void hold_conn(struct net_conn *conn, void *arg)
{
	net_recv(conn, got, sizeof(got));
}

/*
 * lwIP reports the connection that it gives up; no other must take the report
 * for its own.
 */
static void test_syn_without_memory_leaves_connections_alone(void **state)
{
	struct peer peer = {.port = 1000, .stack_port = 7, .wnd = 1000};

	assert_int_equal(net_listen(stack, &net_addr_any(7), 8, &listener), 0);
	serve(hold_conn);
	for (unsigned n = 1; n <= 6; n++) {
		net_mem_fail_after(n);
		peer.port++;
		peer_send(&peer, PEER_SYN, NULL, 0);
		run_ms(3);
	}
	net_mem_fail_after(0);
	fake_reset();
	run_ms(30000); /* half-open connections expire */
	fake_reset();
	peer_connect(&peer, 2000, 7, 99);
	assert_int_equal(coro_sched_live(net_here()->sched), 1);
	net_listener_close(listener);
}

#define ROUNDS 50u

static struct net_conn *served;
static bool polls;

/* Sends twice; memory runs out in between. */
static void send_twice(struct net_conn *conn, void *arg)
{
	struct net_poll_item item = {.conn = conn, .events = NET_WRITABLE};

	served = conn;
	net_send(conn, "first", 5);
	coro_yield();
	net_mem_fail_after(1);
	if (polls) {
		net_set_write_deadline(conn, 0);
		result = net_send(conn, "again", 5);
		net_set_write_deadline(conn, CORO_FOREVER);
		assert_int_equal(net_poll(&item, 1, CORO_FOREVER), 1);
	}
	result = net_send(conn, "again", 5);
	net_recv(conn, got, sizeof(got));
}

/* A writer without memory retries after an ACK, which may have freed some. */
static void refuse_the_second(bool polled)
{
	struct peer peer = {.port = 1000, .stack_port = 7, .wnd = 1000};

	polls = polled;
	result = 0;
	assert_int_equal(net_listen(stack, &net_addr_any(7), 8, &listener), 0);
	serve(send_twice);
	peer_connect(&peer, 1000, 7, 99);
	expect(NULL, PEER_PSH | PEER_ACK, peer.rcv, peer.snd, 5);
	for (unsigned i = 0; i < ROUNDS; i++) {
		net_mem_fail_after(1);
		run_rounds(1);
	}
	assert_in_range(stack->stats.no_memory, 1, 2);
	assert_in_range(-result, 0, 200); /* none of it is queued */
	net_mem_fail_after(0);
	peer.rcv += 5;
	peer_send(&peer, PEER_ACK, NULL, 0);
	expect(NULL, PEER_PSH | PEER_ACK, peer.rcv, peer.snd, 5);
	assert_int_equal(result, 5);
	net_listener_close(listener);
}

static void test_writer_without_memory_waits_for_an_ack(void **state)
{
	refuse_the_second(false);
}

static void test_poll_for_room_waits_for_an_ack(void **state)
{
	refuse_the_second(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_free_chunks_serve_another_class),
		T(test_freed_objects_are_reused),
		T(test_growth_stops_at_the_bound),
		T(test_pages_of_free_chunks_are_returned),
		T(test_reference_yields_its_object),
		T(test_the_nth_allocation_fails),
		T(test_syn_without_memory_leaves_connections_alone),
		T(test_writer_without_memory_waits_for_an_ack),
		T(test_poll_for_room_waits_for_an_ack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
