/*
 * Pools of backends: shares by weight, slow starts on a clock of the test's,
 * ejection, backup servers, bounds of sessions, names, and what a reload keeps.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/proxy/pool.h"

#define S INT64_C(1000000000)

static struct pool *pool;
static struct pool_cursor cursor;
static int64_t now_ns;

static const struct pool_rules usual = {.kind = BALANCE_RR,
					.rise = 2,
					.fall = 3,
					.eject_after = 3,
					.eject_ns = 10 * S,
					.slow_start_ns = 10 * S};

static struct pool *build_pool(const struct pool_rules *rules,
			       const char *texts, const struct pool *old)
{
	static struct backend_spec specs[BALANCE_MAX];
	char copy[4096], *next = copy;
	struct opt_error error;
	unsigned n = 0;

	snprintf(copy, sizeof(copy), "%s", texts);
	while (next)
		assert_int_equal(backend_spec_parse(strsep(&next, " "),
						    &specs[n++], &error),
				 0);
	return pool_build(specs, n, rules, old, now_ns);
}

/* texts: one or more of --to, with a blank between two. */
static void make_pool(const struct pool_rules *rules, const char *texts)
{
	pool = build_pool(rules, texts, NULL);
	assert_non_null(pool);
	cursor = (struct pool_cursor){0};
}

static void reload_pool(const struct pool_rules *rules, const char *texts)
{
	struct pool *next = build_pool(rules, texts, pool);

	assert_non_null(next);
	pool_replace(pool, next, now_ns);
	pool_unref(pool);
	pool = next;
	cursor = (struct pool_cursor){0};
}

static int setup(void **state)
{
	now_ns = 1000 * S;
	return 0;
}

static int teardown(void **state)
{
	pool_unref(pool);
	pool = NULL;
	return 0;
}

static struct backend *backend_at(int i)
{
	return pool->entries[i].backend;
}

static int take_of(uint64_t hash, uint64_t allowed, uint64_t tried)
{
	const struct pool_wish wish = {.hash = hash,
				       .allowed = allowed,
				       .tried = tried,
				       .now_ns = now_ns};

	return pool_take(pool, &cursor, &wish);
}

static int take_any(void)
{
	return take_of(0, POOL_ALL, 0);
}

/* Takes a backend and releases it at once. */
static int visit_backend(uint64_t hash)
{
	int i = take_of(hash, POOL_ALL, 0);

	if (i >= 0)
		backend_release(backend_at(i));
	return i;
}

static void count_choices(unsigned n, unsigned *counts)
{
	memset(counts, 0, BALANCE_MAX * sizeof(*counts));
	for (uint32_t i = 0; i < n; i++) {
		int chosen = visit_backend(balance_hash(&i, sizeof(i)));

		assert_true(chosen >= 0);
		counts[chosen]++;
	}
}

static void eject_backend(int i)
{
	for (unsigned k = 1; k < usual.eject_after; k++)
		assert_false(pool_failed(pool, (unsigned)i, now_ns));
	assert_true(pool_failed(pool, (unsigned)i, now_ns));
}

static void take_down(int i)
{
	for (int k = 0; k < 2; k++)
		assert_false(pool_report(pool, (unsigned)i, false, now_ns));
	assert_true(pool_report(pool, (unsigned)i, false, now_ns));
}

static void test_equal_weights_take_turns(void **state)
{
	make_pool(&usual, "10.9.0.1:1 10.9.0.2:1 10.9.0.3:1");
	cursor.next = 1;
	for (int i = 0; i < 9; i++)
		assert_int_equal(visit_backend(0), (i + 1) % 3);
}

static void test_turns_are_in_proportion_and_apart(void **state)
{
	static const int order[] = {0, 0, 1, 0, 2, 0, 0};
	unsigned counts[BALANCE_MAX];

	make_pool(&usual, "a=10.9.0.1:1,weight=5 b=10.9.0.2:1 c=10.9.0.3:1");
	for (int i = 0; i < 7; i++)
		assert_int_equal(visit_backend(0), order[i]);
	count_choices(700, counts);
	assert_int_equal(counts[0], 500);
	assert_int_equal(counts[1], 100);
}

static void test_least_counts_sessions_per_weight(void **state)
{
	struct pool_rules rules = usual;

	rules.kind = BALANCE_LEAST;
	make_pool(&rules, "a=10.9.0.1:1,weight=3 b=10.9.0.2:1");
	for (int i = 0; i < 400; i++)
		assert_true(take_any() >= 0);
	assert_int_equal(backend_at(0)->active, 300);
	assert_int_equal(backend_at(1)->active, 100);
	backend_release(backend_at(1));
	assert_int_equal(take_any(), 1);
}

static void test_hash_is_in_proportion_and_steady(void **state)
{
	struct pool_rules rules = usual;
	unsigned counts[BALANCE_MAX];

	rules.kind = BALANCE_HASH;
	make_pool(&rules, "a=10.9.0.1:1,weight=3 b=10.9.0.2:1");
	count_choices(40000, counts);
	assert_in_range(counts[0], 28500, 31500);
	assert_int_equal(visit_backend(77), visit_backend(77));
}

static void test_weight_0_gets_no_sessions_and_keeps_those_it_has(void **state)
{
	static const enum balance_kind kinds[] = {BALANCE_RR, BALANCE_LEAST,
						  BALANCE_HASH};
	unsigned counts[BALANCE_MAX];

	for (int k = 0; k < 3; k++) {
		struct pool_rules rules = usual;

		rules.kind = kinds[k];
		make_pool(&rules, "a=10.9.0.1:1");
		assert_int_equal(take_any(), 0);
		reload_pool(&rules, "a=10.9.0.1:1,weight=0 b=10.9.0.2:1");
		assert_int_equal(backend_at(0)->active, 1);
		assert_int_equal(pool_usable(pool, now_ns), 1);
		count_choices(1000, counts);
		assert_int_equal(counts[0], 0);
		backend_release(backend_at(0));
		reload_pool(&rules, "a=10.9.0.1:1,weight=0");
		assert_int_equal(take_any(), -ENOENT);
		pool_unref(pool);
	}
	pool = NULL;
}

static void test_slow_start_grows_to_the_full_weight(void **state)
{
	static const enum balance_kind kinds[] = {BALANCE_RR, BALANCE_HASH};
	unsigned counts[BALANCE_MAX];

	for (int k = 0; k < 2; k++) {
		struct pool_rules rules = usual;

		rules.kind = kinds[k];
		make_pool(&rules, "a=10.9.0.1:1 b=10.9.0.2:1");
		take_down(1);
		assert_false(pool_report(pool, 1, true, now_ns));
		assert_true(pool_report(pool, 1, true, now_ns));
		count_choices(10000, counts);
		assert_in_range(counts[1], 0, 100);
		now_ns += 5 * S; /* half the weight of the other */
		count_choices(10000, counts);
		assert_in_range(counts[1], 2200, 3600);
		now_ns += 5 * S;
		count_choices(10000, counts);
		assert_in_range(counts[1], 4800, 5200);
		pool_unref(pool);
	}
	pool = NULL;
}

static void test_backend_is_ejected_after_failures_and_returns(void **state)
{
	unsigned counts[BALANCE_MAX];

	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1");
	assert_false(pool_failed(pool, 1, now_ns));
	assert_false(pool_failed(pool, 1, now_ns));
	pool_connected(pool, 1); /* begins again */
	eject_backend(1);
	assert_int_equal(pool_usable(pool, now_ns), 1);
	count_choices(1000, counts);
	assert_int_equal(counts[1], 0);
	now_ns += 10 * S;
	assert_int_equal(pool_usable(pool, now_ns), 2);
	count_choices(1000, counts);
	assert_in_range(counts[1], 1, 50); /* slowly at first */
	now_ns += 10 * S;
	count_choices(1000, counts);
	assert_int_equal(counts[1], 500);
	assert_int_equal(backend_at(1)->ejections, 1);
	assert_int_equal(backend_at(1)->failed, 5);
}

static void test_last_backend_is_used_although_ejected(void **state)
{
	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1,backup");
	eject_backend(0);
	assert_int_equal(visit_backend(0), 1);
	eject_backend(1);
	assert_int_equal(visit_backend(0), 0);
	/* A check that finds it up again ends the ejection with the fall. */
	take_down(0);
	assert_int_equal(visit_backend(0), 1);
}

static void test_backups_serve_only_while_no_primary_is_up(void **state)
{
	make_pool(&usual, "a=10.9.0.1:1,maxconn=1 b=10.9.0.2:1,backup "
			  "c=10.9.0.3:1,backup");
	assert_int_equal(visit_backend(0), 0);
	/* A backend that failed the session is not tried again. */
	assert_int_equal(take_of(0, POOL_ALL, 1), 1);
	backend_release(backend_at(1));
	/* A full backend is not down. */
	assert_int_equal(take_any(), 0);
	assert_int_equal(take_any(), -EAGAIN);
	take_down(0);
	assert_int_equal(visit_backend(0), 2);
	assert_int_equal(visit_backend(0), 1);
}

static void test_maxconn_is_never_exceeded(void **state)
{
	make_pool(&usual, "a=10.9.0.1:1,maxconn=2 b=10.9.0.2:1,maxconn=3");
	for (int i = 0; i < 5; i++)
		assert_true(take_any() >= 0);
	assert_int_equal(take_any(), -EAGAIN);
	assert_int_equal(backend_at(0)->active, 2);
	assert_int_equal(backend_at(1)->active, 3);
	backend_release(backend_at(0));
	assert_int_equal(take_any(), 0);
	assert_int_equal(take_any(), -EAGAIN);
	take_down(0);
	take_down(1);
	assert_int_equal(take_any(), -ENOENT);
}

#define THREADS 4

static struct worker {
	pthread_t thread;
	unsigned most, taken;
} workers[THREADS];

/*
 * A shard: takes and releases backends, and records the most active sessions.
 */
static void *take_and_give(void *arg)
{
	struct worker *worker = arg;
	struct pool_cursor own = {0};
	const struct pool_wish wish = {.allowed = POOL_ALL, .now_ns = 1};

	while (worker->taken < 20000) {
		int i = pool_take(pool, &own, &wish);
		unsigned active;

		if (i < 0)
			continue;
		active = backend_at(i)->active;
		if (active > worker->most)
			worker->most = active;
		worker->taken++;
		backend_release(backend_at(i));
	}
	return NULL;
}

static void test_maxconn_holds_for_all_shards(void **state)
{
	struct pool_rules rules = usual;
	char texts[4096] = "b0=10.9.0.1:1,maxconn=1";

	/*
	 * All threads want the same backend, and try many before they take it.
	 */
	rules.kind = BALANCE_HASH;
	for (size_t i = 1; i < BALANCE_MAX; i++)
		snprintf(texts + strlen(texts), sizeof(texts) - strlen(texts),
			 " b%zu=10.9.0.%zu:1,maxconn=1", i, i + 1);
	make_pool(&rules, texts);
	memset(workers, 0, sizeof(workers));
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL,
						take_and_give, &workers[i]),
				 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].most, 1);
	}
	for (int i = 0; i < BALANCE_MAX; i++)
		assert_int_equal(backend_at(i)->active, 0);
}

static void test_draining_backend_gets_no_new_sessions(void **state)
{
	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1,state=drain");
	for (int i = 0; i < 4; i++)
		assert_int_equal(visit_backend(0), 0);
	backend_set_state(backend_at(0), BACKEND_DOWN, now_ns);
	assert_int_equal(take_any(), -ENOENT);
	backend_set_state(backend_at(1), BACKEND_READY, now_ns);
	assert_int_equal(backend_at(1)->since_ns, now_ns);
	assert_int_equal(visit_backend(0), 1);
}

static void test_names_choose_backends(void **state)
{
	make_pool(&usual, "a=10.9.0.1:1,sni=www.example.com|example.com "
			  "b=10.9.0.2:1,sni=*.example.com "
			  "c=10.9.0.3:1,sni=*.eu.example.com d=10.9.0.4:1");
	assert_int_equal(pool_for_name(pool, "www.example.com"), 1);
	assert_int_equal(pool_for_name(pool, "example.com"), 1);
	assert_int_equal(pool_for_name(pool, "a.example.com"), 2);
	assert_int_equal(pool_for_name(pool, "a.eu.example.com"), 4);
	assert_int_equal(pool_for_name(pool, "notexample.com"), 8);
	assert_int_equal(pool_for_name(pool, NULL), 8);
	assert_int_equal(pool_for_name(pool, ""), 8);
	for (int i = 0; i < 4; i++)
		assert_int_equal(take_of(0, 2, 0), 1);
	pool_unref(pool);
	make_pool(&usual, "a=10.9.0.1:1,sni=www.example.com");
	assert_int_equal(pool_for_name(pool, "other.example"), 0);
	assert_int_equal(take_of(0, 0, 0), -ENOENT);
}

static int take_kept(uint32_t number, uint64_t tried)
{
	const struct pool_wish wish = {.allowed = POOL_ALL,
				       .tried = tried,
				       .now_ns = now_ns,
				       .kept = number};

	return pool_take(pool, &cursor, &wish);
}

static void test_client_keeps_a_backend_while_that_is_up(void **state)
{
	uint32_t number;

	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1,maxconn=2 c=10.9.0.3:1");
	number = backend_at(1)->number;
	assert_int_equal(take_kept(number, 0), 1);
	reload_pool(&usual, "d=10.9.0.4:1 c=10.9.0.3:1,weight=9 "
			    "b=10.9.0.2:1,maxconn=2,weight=3");
	assert_int_equal(take_kept(number, 0), 2);
	assert_int_equal(take_kept(number, 0), -EAGAIN); /* it waits */
	backend_release(backend_at(2));
	assert_int_not_equal(take_kept(number, 4), 2); /* which has failed */
	assert_int_equal(take_kept(number, 0), 2);
	backend_release(backend_at(2));
	reload_pool(&usual, "d=10.9.0.4:1");
	assert_int_equal(take_kept(number, 0), 0);
}

/* Each end of use gives the backend's clients to others, also if it returns. */
static void test_clients_are_free_once_a_backend_was_out_of_use(void **state)
{
	static const char *const weights[] = {"a=10.9.0.1:1,weight=0",
					      "a=10.9.0.1:1"};
	uint32_t number;

	make_pool(&usual, "a=10.9.0.1:1");
	number = backend_at(0)->number;
	take_down(0);
	assert_int_not_equal(backend_at(0)->number, number);
	pool_report(pool, 0, true, now_ns);
	assert_true(pool_report(pool, 0, true, now_ns));
	number = backend_at(0)->number;
	backend_set_state(backend_at(0), BACKEND_DRAIN, now_ns);
	assert_int_not_equal(backend_at(0)->number, number);
	number = backend_at(0)->number;
	backend_set_state(backend_at(0), BACKEND_READY, now_ns);
	assert_int_equal(backend_at(0)->number, number);
	eject_backend(0);
	assert_int_not_equal(backend_at(0)->number, number);
	number = backend_at(0)->number;
	for (int i = 0; i < 2; i++)
		reload_pool(&usual, weights[i]);
	assert_int_not_equal(backend_at(0)->number, number);
	number = backend_at(0)->number;
	reload_pool(&usual, "a=10.9.0.1:1,weight=3");
	assert_int_equal(backend_at(0)->number, number);
}

static void test_groups_differ_by_their_server_names(void **state)
{
	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1");
	assert_int_equal(pool_group(pool, POOL_ALL), 0);
	pool_unref(pool);
	make_pool(&usual,
		  "a=10.9.0.1:1,sni=a.example b=10.9.0.2:1 "
		  "c=10.9.0.3:1,sni=c.example d=10.9.0.4:1,sni=a.example");
	assert_int_equal(pool_group(pool, 2), 0);
	assert_int_not_equal(pool_group(pool, 1), pool_group(pool, 4));
	assert_int_equal(pool_group(pool, 1), pool_group(pool, 8));
}

static void test_reload_keeps_backends_that_stay_or_have_sessions(void **state)
{
	struct backend *a, *b;

	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1");
	a = backend_at(0);
	b = backend_ref(backend_at(1)); /* a session's */
	assert_int_equal(take_any(), 0);
	assert_int_equal(take_any(), 1);
	now_ns += S;
	reload_pool(&usual, "c=10.9.0.3:1 a=10.9.0.1:1,weight=7,maxconn=1");
	assert_ptr_equal(backend_at(1), a);
	assert_int_equal(a->active, 1);
	assert_int_equal(a->since_ns, 0);
	assert_int_equal(backend_at(0)->since_ns,
			 now_ns); /* new: a slow start */
	assert_int_equal(pool_find(pool, b), -ENOENT);
	assert_int_equal(b->refs, 1);
	backend_release(b);
	assert_int_equal(b->active, 0);
	backend_unref(b);
	/* The same name with another address is another backend. */
	reload_pool(&usual, "a=10.9.0.9:1");
	assert_int_equal(backend_at(0)->active, 0);
}

static void test_backend_that_leaves_notes_the_time(void **state)
{
	struct pool *next;
	struct backend *b;

	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1");
	b = backend_ref(backend_at(1));
	next = build_pool(&usual, "a=10.9.0.1:1", pool);
	pool_replace(pool, next, now_ns);
	assert_int_equal(b->gone_ns, now_ns);
	assert_int_equal(backend_at(0)->gone_ns, 0);
	backend_unref(b);
	pool_unref(next);
}

static void test_a_reload_sets_states_that_the_file_changes(void **state)
{
	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1,state=drain");
	backend_set_state(backend_at(0), BACKEND_DOWN, now_ns); /* by hand */
	reload_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1");
	assert_int_equal(backend_at(0)->state, BACKEND_DOWN);
	assert_int_equal(backend_at(1)->state, BACKEND_READY);
	reload_pool(&usual, "a=10.9.0.1:1,state=drain b=10.9.0.2:1");
	assert_int_equal(backend_at(0)->state, BACKEND_DRAIN);
}

static void test_pool_that_is_not_used_changes_no_backend(void **state)
{
	uint32_t number;

	make_pool(&usual, "a=10.9.0.1:1");
	number = backend_at(0)->number;
	pool_unref(
		build_pool(&usual, "a=10.9.0.1:1,state=drain,weight=0", pool));
	assert_int_equal(backend_at(0)->state, BACKEND_READY);
	assert_int_equal(backend_at(0)->number, number);
}

static void test_backend_is_used_once_its_name_resolves(void **state)
{
	const struct net_addr addr = {.family = 4, .port = 80};
	struct pool *next;

	make_pool(&usual, "a=web.example:80 b=10.9.0.2:1,backup");
	assert_int_equal(visit_backend(0), 1);
	next = pool_readdress(pool, 0, &addr);
	pool_unref(pool);
	pool = next;
	assert_int_equal(visit_backend(0), 0);
	reload_pool(&usual, "b=10.9.0.2:1,backup a=web.example:80,weight=2");
	assert_int_equal(pool->entries[1].addr.family, 4);
}

static void test_retries_are_a_fraction_of_sessions(void **state)
{
	struct retry_budget budget;
	unsigned spent = 0;

	retry_budget_init(&budget);
	for (int i = 0; i < RETRY_BUDGET_MAX; i++)
		assert_true(retry_budget_spend(&budget));
	for (int i = 0; i < 1000; i++) {
		retry_budget_earn(&budget, 20);
		spent += retry_budget_spend(&budget);
	}
	assert_int_equal(spent, 200);
	for (int i = 0; i < 1000; i++)
		retry_budget_earn(&budget, 100);
	for (spent = 0; retry_budget_spend(&budget);)
		spent++;
	assert_int_equal(spent, RETRY_BUDGET_MAX);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void test_health_shows_why_a_backend_gets_no_sessions(void **state)
{
	make_pool(&usual, "a=10.9.0.1:1 b=10.9.0.2:1 c=host.example:1");
	assert_int_equal(pool_health(pool, 0, now_ns), BACKEND_UP);
	assert_int_equal(pool_ramp_percent(pool, 0, now_ns), 100);
	assert_int_equal(pool_health(pool, 2, now_ns), BACKEND_UNRESOLVED);
	take_down(0);
	assert_int_equal(pool_health(pool, 0, now_ns), BACKEND_FAILS);
	eject_backend(1);
	assert_int_equal(pool_health(pool, 1, now_ns), BACKEND_EJECTED);
	now_ns += 10 * S;
	assert_int_equal(pool_health(pool, 1, now_ns), BACKEND_WARMING);
	assert_int_equal(pool_ramp_percent(pool, 1, now_ns), 1);
	now_ns += 5 * S;
	assert_in_range(pool_ramp_percent(pool, 1, now_ns), 49, 51);
	now_ns += 5 * S;
	assert_int_equal(pool_health(pool, 1, now_ns), BACKEND_UP);
	for (int i = 0; i < BACKEND_HEALTHS; i++)
		assert_non_null(backend_health_name((enum backend_health)i));
}

static void test_failures_count_by_reason(void **state)
{
	static const struct {
		int err;
		enum backend_failure why;
	} cases[] = {{-ECONNREFUSED, BACKEND_REFUSED},
		     {-ETIMEDOUT, BACKEND_TIMEOUT},
		     {-EHOSTUNREACH, BACKEND_UNREACHABLE},
		     {-ENETUNREACH, BACKEND_UNREACHABLE},
		     {-EADDRNOTAVAIL, BACKEND_NO_PORT},
		     {-ENOMEM, BACKEND_NO_MEMORY},
		     {-EPROTO, BACKEND_BAD_TLS},
		     {-EIO, BACKEND_OTHER}};

	make_pool(&usual, "a=10.9.0.1:1");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t before = backend_at(0)->not_made[cases[i].why];

		backend_count_failure(backend_at(0), cases[i].err);
		assert_int_equal(backend_at(0)->not_made[cases[i].why],
				 before + 1);
	}
	for (int i = 0; i < BACKEND_FAILURES; i++)
		assert_non_null(backend_failure_name((enum backend_failure)i));
}

static void test_times_are_counted_by_their_bounds(void **state)
{
	struct backend_times times = {0};

	backend_count_time(&times, -5); /* clocks of two rounds */
	backend_count_time(&times, 100000);
	backend_count_time(&times, 100001);
	backend_count_time(&times, 10 * S);
	backend_count_time(&times, 10 * S + 1);
	assert_int_equal(times.counts[0], 2);
	assert_int_equal(times.counts[1], 1);
	assert_int_equal(times.counts[BACKEND_BOUNDS - 1], 1);
	assert_int_equal(times.counts[BACKEND_BOUNDS], 1);
	assert_int_equal(times.sum_ns, 20 * S + 200002);
	for (unsigned i = 1; i < BACKEND_BOUNDS; i++)
		assert_true(backend_bounds_s[i] > backend_bounds_s[i - 1]);
}

static void test_bytes_are_counted_by_the_mib_and_all_at_the_end(void **state)
{
	_Atomic uint64_t counter = 0;
	uint64_t now = 0, step = 100000;

	for (int i = 0; i < 25; i++) {
		backend_carried(&counter, now, now + step, false);
		now += step;
		assert_true(counter <= now && now - counter < BACKEND_STEP);
	}
	assert_int_equal(counter, 2 * BACKEND_STEP);
	backend_carried(&counter, now, now + 5 * BACKEND_STEP, false);
	now += 5 * BACKEND_STEP;
	backend_carried(&counter, now, now, true);
	assert_int_equal(counter, now);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_equal_weights_take_turns),
		CASE(test_turns_are_in_proportion_and_apart),
		CASE(test_least_counts_sessions_per_weight),
		CASE(test_hash_is_in_proportion_and_steady),
		CASE(test_weight_0_gets_no_sessions_and_keeps_those_it_has),
		CASE(test_slow_start_grows_to_the_full_weight),
		CASE(test_backend_is_ejected_after_failures_and_returns),
		CASE(test_last_backend_is_used_although_ejected),
		CASE(test_backups_serve_only_while_no_primary_is_up),
		CASE(test_maxconn_is_never_exceeded),
		CASE(test_maxconn_holds_for_all_shards),
		CASE(test_draining_backend_gets_no_new_sessions),
		CASE(test_names_choose_backends),
		CASE(test_client_keeps_a_backend_while_that_is_up),
		CASE(test_clients_are_free_once_a_backend_was_out_of_use),
		CASE(test_groups_differ_by_their_server_names),
		CASE(test_reload_keeps_backends_that_stay_or_have_sessions),
		CASE(test_backend_that_leaves_notes_the_time),
		CASE(test_a_reload_sets_states_that_the_file_changes),
		CASE(test_pool_that_is_not_used_changes_no_backend),
		CASE(test_backend_is_used_once_its_name_resolves),
		CASE(test_retries_are_a_fraction_of_sessions),
		CASE(test_health_shows_why_a_backend_gets_no_sessions),
		CASE(test_failures_count_by_reason),
		CASE(test_times_are_counted_by_their_bounds),
		CASE(test_bytes_are_counted_by_the_mib_and_all_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
