/* Which backend each client had last: its life, its bound, and threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/proxy/sticky.h"

#define S    INT64_C(1000000000)
#define LIFE (10 * S)
#define MANY (STICKY_SETS * STICKY_SLOTS)

static struct sticky *sticky;

/* The secret decides which clients are neighbours, so it is always the same. */
static int setup(void **state)
{
	sticky = sticky_new();
	assert_non_null(sticky);
	sticky->secret = 0x123456789abcdef;
	return 0;
}

static int teardown(void **state)
{
	free(sticky);
	return 0;
}

static uint64_t client4(uint32_t number)
{
	return sticky_client(sticky, 4, &number, 0);
}

static void test_client_keeps_its_backend_until_its_life_ends(void **state)
{
	uint64_t a = client4(1), b = client4(2);

	assert_int_equal(sticky_find(sticky, a, S, LIFE), 0);
	assert_false(sticky_put(sticky, a, 7, S, LIFE));
	assert_false(sticky_put(sticky, b, 8, S, LIFE));
	assert_int_equal(sticky_find(sticky, a, S + LIFE, LIFE), 7);
	assert_int_equal(sticky_find(sticky, b, S, LIFE), 8);
	assert_int_equal(sticky_find(sticky, a, S + LIFE + S / 100, LIFE), 0);
	assert_false(sticky_put(sticky, a, 9, 2 * S, LIFE));
	assert_int_equal(sticky_find(sticky, a, S, LIFE), 9); /* a late clock */
}

static void test_use_extends_the_life_of_the_same_backend_only(void **state)
{
	uint64_t a = client4(1);

	sticky_put(sticky, a, 7, S, LIFE);
	sticky_use(sticky, a, 7, 6 * S);
	assert_int_equal(sticky_find(sticky, a, 16 * S, LIFE), 7);
	sticky_use(sticky, a, 8, 12 * S); /* a session of before */
	assert_int_equal(sticky_find(sticky, a, 17 * S, LIFE), 0);
	sticky_use(sticky, client4(2), 7, S);
	assert_int_equal(sticky_find(sticky, client4(2), S, LIFE), 0);
}

static void test_prefix_of_an_address_is_the_client(void **state)
{
	uint8_t six[16] = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 9}, other[16];
	uint8_t mapped[16] = {[10] = 0xff, 0xff, 10, 9, 0, 1};
	const uint8_t four[4] = {10, 9, 0, 1};

	memcpy(other, six, sizeof(six));
	other[15] = 1;
	assert_int_equal(sticky_client(sticky, 6, six, 0),
			 sticky_client(sticky, 6, other, 0));
	other[7]++;
	assert_int_not_equal(sticky_client(sticky, 6, six, 0),
			     sticky_client(sticky, 6, other, 0));
	assert_int_equal(sticky_client(sticky, 4, four, 0),
			 sticky_client(sticky, 6, mapped, 0));
	mapped[15]++;
	assert_int_not_equal(sticky_client(sticky, 4, four, 0),
			     sticky_client(sticky, 6, mapped, 0));
	assert_int_not_equal(sticky_client(sticky, 4, four, 0),
			     sticky_client(sticky, 4, four, 1));
}

/* A flood fills the table and no more; then the oldest of a set gives way. */
static void test_flood_displaces_the_oldest_and_takes_no_more(void **state)
{
	static const uint32_t backends[] = {3, 7};
	uint64_t displaced = 0, recent = client4(1);
	unsigned found = 0;
	int64_t now_ns = S;

	assert_int_equal(sizeof(sticky->entries), STICKY_BYTES);
	for (uint32_t i = 2; i < 4 * MANY; i++) {
		now_ns += 1000;
		displaced += sticky_put(sticky, client4(i), 7, now_ns, LIFE);
		if (i % 1024 == 0)
			sticky_put(sticky, recent, 3, now_ns, LIFE);
	}
	assert_int_equal(sticky_count(sticky, backends, 2, now_ns, LIFE), MANY);
	assert_in_range(displaced, 3 * MANY - 3, 3 * MANY - 1);
	assert_int_equal(sticky_find(sticky, recent, now_ns, LIFE), 3);
	assert_int_equal(sticky_find(sticky, client4(2), now_ns, LIFE), 0);
	/* Two for each set: only those that are the ninth of theirs are lost.
	 */
	for (uint32_t i = 4 * MANY - 2 * STICKY_SETS; i < 4 * MANY; i++)
		found += sticky_find(sticky, client4(i), now_ns, LIFE) == 7;
	assert_in_range(found, 2 * STICKY_SETS * 99 / 100, 2 * STICKY_SETS);
	assert_int_equal(sticky_count(sticky, backends, 1, now_ns, LIFE), 1);
	/* What has ended is no loss. */
	now_ns += LIFE + S;
	assert_int_equal(sticky_count(sticky, backends, 2, now_ns, LIFE), 0);
	assert_false(sticky_put(sticky, client4(5), 7, now_ns, LIFE));
}

/* ---- threads ---- */

#define CLIENTS 64u /* of one set */
#define TURNS	2000000

static uint64_t clients[CLIENTS];

/* A client's backend is always its number: another one is a torn entry. */
static void *use_set(void *arg)
{
	uintptr_t wrong = 0;
	uint32_t random = (uint32_t)(uintptr_t)arg;

	for (int i = 0; i < TURNS; i++) {
		uint32_t c, found;

		random = random * 1664525 + 1013904223;
		c = (random >> 16) % CLIENTS;
		found = sticky_find(sticky, clients[c], S, LIFE);
		wrong += found && found != c + 1;
		if (random >> 30)
			sticky_put(sticky, clients[c], c + 1, S, LIFE);
		else
			sticky_use(sticky, clients[c], c + 1, S);
	}
	return (void *)wrong;
}

static void test_threads_never_see_the_backend_of_another_client(void **state)
{
	pthread_t threads[4];
	unsigned n = 0;

	for (uint32_t i = 1; n < CLIENTS; i++)
		if ((client4(i) >> 32) % STICKY_SETS == 5)
			clients[n++] = client4(i);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, use_set, (void *)(i + 1));
	for (int i = 0; i < 4; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		assert_ptr_equal(wrong, NULL);
	}
}

/* Two shards that serve the same client leave it one entry. */
static void *use_client(void *arg)
{
	for (int i = 0; i < TURNS; i++)
		sticky_put(sticky, clients[0], 7, S + i * (S / 1000), LIFE);
	return NULL;
}

static void test_two_shards_of_a_client_make_one_entry(void **state)
{
	static const uint32_t backends[] = {7};
	pthread_t thread;

	clients[0] = client4(1);
	sticky_put(sticky, clients[0], 7, S, LIFE);
	pthread_create(&thread, NULL, use_client, NULL);
	use_client(NULL);
	pthread_join(thread, NULL);
	assert_int_equal(sticky_count(sticky, backends, 1, S, 1000 * LIFE), 1);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_client_keeps_its_backend_until_its_life_ends),
		CASE(test_use_extends_the_life_of_the_same_backend_only),
		CASE(test_prefix_of_an_address_is_the_client),
		CASE(test_flood_displaces_the_oldest_and_takes_no_more),
		CASE(test_threads_never_see_the_backend_of_another_client),
		CASE(test_two_shards_of_a_client_make_one_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
