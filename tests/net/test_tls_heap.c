/*
 * OpenSSL's memory: objects of any size keep their bytes, also if another
 * thread frees them, lie where core dumps do not look, and go back to the
 * system.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "netstack/tls/tls_priv.h"
#include "tests/net/random.h"

#define OBJECTS 2000u
#define TURNS	20000u
#define THREADS 4u

static void *allocate(size_t n)
{
	return net_tls_heap_malloc(n, "", 0);
}

static void *reallocate(void *mem, size_t n)
{
	return net_tls_heap_realloc(mem, n, "", 0);
}

static void give_back(void *mem)
{
	net_tls_heap_free(mem, "", 0);
}

struct piece {
	uint8_t *mem;
	size_t n;
	uint8_t mark;
};

static void fill_piece(struct piece *piece, uint8_t mark)
{
	piece->mark = mark;
	memset(piece->mem, mark, piece->n);
}

static void check_piece(const struct piece *piece, size_t n)
{
	for (size_t i = 0; i < n; i += i + 100 < n ? 1 + n / 256 : 1)
		if (piece->mem[i] != piece->mark)
			fail_msg("byte %zu of %zu is another", i, piece->n);
}

static void change_piece(struct rng *rng, struct piece *piece)
{
	size_t n = rng_log(rng, 1, 100000);

	if (!piece->mem) {
		*piece = (struct piece){.mem = allocate(n), .n = n};
	} else if (rng_chance(rng, 300)) {
		size_t kept = LWIP_MIN(n, piece->n);

		piece->mem = reallocate(piece->mem, n);
		piece->n = n;
		check_piece(piece, kept);
	} else {
		check_piece(piece, piece->n);
		give_back(piece->mem);
		piece->mem = NULL;
		return;
	}
	assert_non_null(piece->mem);
	assert_int_equal((uintptr_t)piece->mem % 16, 0);
	fill_piece(piece, (uint8_t)rng_next(rng));
}

static void free_all(struct piece *pieces)
{
	for (unsigned i = 0; i < OBJECTS; i++) {
		if (pieces[i].mem)
			check_piece(&pieces[i], pieces[i].n);
		give_back(pieces[i].mem);
		pieces[i].mem = NULL;
	}
}

static void test_objects_keep_their_bytes(void **state)
{
	static struct piece pieces[OBJECTS];
	struct rng rng = {7};

	for (unsigned i = 0; i < TURNS; i++)
		change_piece(&rng, &pieces[rng_below(&rng, OBJECTS)]);
	free_all(pieces);
}

static void test_every_size_has_room(void **state)
{
	struct piece before = {.mem = allocate(1), .n = 1};

	fill_piece(&before, 0x77);
	for (size_t n = 1; n < 40000; n += n < 1100 ? 1 : 13) {
		struct piece piece = {.mem = allocate(n), .n = n};

		fill_piece(&piece, (uint8_t)n);
		check_piece(&before, 1);
		give_back(before.mem);
		before = piece;
	}
	give_back(before.mem);
}

static void test_nothing_and_too_much(void **state)
{
	void *mem;

	assert_null(allocate(0));
	assert_null(allocate(SIZE_MAX));
	assert_null(allocate(SIZE_MAX - 100000));
	assert_null(allocate(SIZE_MAX - 2 * 262144));
	give_back(NULL);
	mem = reallocate(NULL, 100);
	assert_non_null(mem);
	assert_null(reallocate(mem, SIZE_MAX)); /* which leaves it as it is */
	assert_null(reallocate(mem, 0));
}

/* ---- threads ---- */

static struct piece shared[OBJECTS];
static pthread_mutex_t locks[OBJECTS];

static void *share_pieces(void *arg)
{
	struct rng rng = {(uintptr_t)arg};

	for (unsigned i = 0; i < TURNS / 4; i++) {
		unsigned at = rng_below(&rng, OBJECTS);

		pthread_mutex_lock(&locks[at]);
		change_piece(&rng, &shared[at]);
		pthread_mutex_unlock(&locks[at]);
	}
	return NULL;
}

static void test_threads_free_each_others(void **state)
{
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < OBJECTS; i++)
		pthread_mutex_init(&locks[i], NULL);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, share_pieces,
						(void *)(uintptr_t)(i + 1)),
				 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	free_all(shared);
}

/* ---- the mappings ---- */

static struct mapping {
	unsigned long from, to;
	unsigned long kib; /* resident */
	bool dumped;
} mappings[4096];
static unsigned n_mappings;

static void read_mappings(void)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	struct mapping *at = NULL;

	assert_non_null(file);
	n_mappings = 0;
	while (fgets(line, sizeof(line), file)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
			assert_true(n_mappings < 4096);
			at = &mappings[n_mappings++];
			*at = (struct mapping){.from = from, .to = to};
		}
		if (at && strncmp(line, "Rss:", 4) == 0)
			at->kib = strtoul(line + 4, NULL, 10);
		if (at && strncmp(line, "VmFlags:", 8) == 0)
			at->dumped = !strstr(line, " dd");
	}
	fclose(file);
}

static const struct mapping *mapping_of(const void *mem)
{
	for (unsigned i = 0; i < n_mappings; i++)
		if ((uintptr_t)mem >= mappings[i].from &&
		    (uintptr_t)mem < mappings[i].to)
			return &mappings[i];
	fail_msg("no mapping");
	return NULL;
}

static void test_dumps_leave_all_out(void **state)
{
	static const size_t sizes[] = {1, 1000, 32768, 32769, 1000000};
	void *all[5];

	for (unsigned i = 0; i < 5; i++)
		all[i] = allocate(sizes[i]);
	read_mappings();
	for (unsigned i = 0; i < 5; i++) {
		assert_false(mapping_of(all[i])->dumped);
		give_back(all[i]);
	}
	assert_true(mapping_of(mappings)->dumped); /* the check can fail */
}

/* Is it AddressSanitizer's own mapping, which it keeps out of dumps as well? */
static bool is_shadow(const struct mapping *mapping)
{
#if defined(__SANITIZE_ADDRESS__)
	size_t scale, offset;

	__asan_get_shadow_mapping(&scale, &offset);
	return mapping->from >= offset &&
	       mapping->from < offset + (UINT64_C(1) << (47 - scale));
#else
	return false;
#endif
}

static unsigned long undumped_kib(void)
{
	unsigned long kib = 0;

	read_mappings();
	for (unsigned i = 0; i < n_mappings; i++)
		if (!mappings[i].dumped && !is_shadow(&mappings[i]))
			kib += mappings[i].kib;
	return kib;
}

static void *use_much(void *arg)
{
	static void *much[100000];

	for (unsigned i = 0; i < 100000; i++)
		memset(much[i] = allocate(500), 1, 500);
	assert_true(undumped_kib() > 100000 / 2);
	for (unsigned i = 0; i < 100000; i++)
		give_back(much[i]);
	return NULL;
}

/* Also what a thread had of its own, when it ends. */
static void test_memory_goes_back(void **state)
{
	pthread_t thread;
	unsigned long before = undumped_kib(), after;

	assert_int_equal(pthread_create(&thread, NULL, use_much, NULL), 0);
	pthread_join(thread, NULL);
	after = undumped_kib();
	if (after > before + 2048)
		fail_msg("%lu KiB before, %lu after", before, after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects_keep_their_bytes),
		cmocka_unit_test(test_every_size_has_room),
		cmocka_unit_test(test_nothing_and_too_much),
		cmocka_unit_test(test_threads_free_each_others),
		cmocka_unit_test(test_dumps_leave_all_out),
		cmocka_unit_test(test_memory_goes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
