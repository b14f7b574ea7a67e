/* The table of UDP sessions: what is found, and in which order it was used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "apps/proxy/udp_table.h"

#define N 1000u

static struct udp_table table;
static struct udp_entry entries[N];

static int make_table(void **state)
{
	memset(entries, 0, sizeof(entries));
	return udp_table_init(&table, 64); /* chains are longer than one */
}

static int free_table(void **state)
{
	udp_table_fini(&table);
	return 0;
}

static struct net_addr addr_of(uint32_t host, uint16_t port)
{
	struct net_addr addr = {.family = 4, .port = port};

	memcpy(addr.ip, &host, sizeof(host));
	return addr;
}

static const struct net_addr local = {.family = 4, .port = 53, .ip = {10}};

static void add_entry(unsigned i)
{
	entries[i].client = addr_of(i / 4, (uint16_t)(1000 + i % 4));
	entries[i].local = local;
	udp_table_add(&table, &entries[i], i);
}

static struct udp_entry *find_entry(unsigned i)
{
	struct net_addr client = addr_of(i / 4, (uint16_t)(1000 + i % 4));

	return udp_table_find(&table, &client, &local);
}

static void test_entries_are_found_until_they_are_removed(void **state)
{
	for (unsigned i = 0; i < N; i++)
		add_entry(i);
	assert_int_equal(table.n, N);
	for (unsigned i = 0; i < N; i++)
		assert_ptr_equal(find_entry(i), &entries[i]);
	for (unsigned i = 0; i < N; i += 2)
		udp_table_remove(&table, &entries[i]);
	assert_int_equal(table.n, N / 2);
	for (unsigned i = 0; i < N; i++)
		assert_ptr_equal(find_entry(i), i % 2 ? &entries[i] : NULL);
}

static void test_all_of_both_addresses_counts(void **state)
{
	struct net_addr other = local, six;

	add_entry(0);
	assert_ptr_equal(find_entry(0), &entries[0]);
	other.port = 54;
	assert_null(udp_table_find(&table, &entries[0].client, &other));
	other = local;
	other.ip[3] = 1;
	assert_null(udp_table_find(&table, &entries[0].client, &other));
	six = entries[0].client;
	six.family = 6;
	assert_null(udp_table_find(&table, &six, &local));
	other = local;
	other.prefix_len = 24; /* says nothing about the address */
	assert_ptr_equal(udp_table_find(&table, &entries[0].client, &other),
			 &entries[0]);
}

static void test_longest_unused_entry_is_the_oldest(void **state)
{
	for (unsigned i = 0; i < 4; i++)
		add_entry(i);
	assert_ptr_equal(TAILQ_FIRST(&table.by_use), &entries[0]);
	udp_table_use(&table, &entries[0], 10);
	assert_ptr_equal(TAILQ_FIRST(&table.by_use), &entries[1]);
	udp_table_use(&table, &entries[2], 11);
	udp_table_use(&table, &entries[2], 12); /* the newest stays it */
	assert_int_equal(entries[2].used_ns, 12);
	udp_table_remove(&table, &entries[3]);
	udp_table_remove(&table, &entries[1]);
	assert_ptr_equal(TAILQ_FIRST(&table.by_use), &entries[0]);
	udp_table_remove(&table, &entries[0]);
	assert_ptr_equal(TAILQ_FIRST(&table.by_use), &entries[2]);
	assert_ptr_equal(TAILQ_LAST(&table.by_use, udp_entries), &entries[2]);
	udp_table_remove(&table, &entries[2]);
	assert_null(TAILQ_FIRST(&table.by_use));
	assert_null(TAILQ_LAST(&table.by_use, udp_entries));
	assert_int_equal(table.n, 0);
}

/* Two tables have the same entries in different chains: their keys are random.
 */
static void test_chains_depend_on_a_secret(void **state)
{
	struct udp_table other;
	unsigned same = 0;

	for (unsigned i = 0; i < N; i++)
		add_entry(i);
	assert_int_equal(udp_table_init(&other, 64), 0);
	assert_int_equal(other.mask, table.mask);
	for (unsigned i = 0; i <= table.mask; i++)
		other.chains[i] = table.chains[i];
	for (unsigned i = 0; i < N; i++)
		same += udp_table_find(&other, &entries[i].client, &local) ==
			&entries[i];
	assert_in_range(same, 0, N / 4);
	udp_table_fini(&other);
}

int main(void)
{
#define T(test_) cmocka_unit_test_setup_teardown(test_, make_table, free_table)
	const struct CMUnitTest tests[] = {
		T(test_entries_are_found_until_they_are_removed),
		T(test_all_of_both_addresses_counts),
		T(test_longest_unused_entry_is_the_oldest),
		T(test_chains_depend_on_a_secret),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
