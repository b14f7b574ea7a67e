/*
 * munmap() on another thread waits for the burst under way.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpdk_glue/burst_sync.h"

#define BYTES 4096

static bool unmapped;

static void sleep_ms(long ms)
{
	const struct timespec t = {.tv_nsec = ms * 1000000};

	nanosleep(&t, NULL);
}

static char *map_page(void)
{
	char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void *unmap_page(void *p)
{
	int err = munmap(p, BYTES);

	__atomic_store_n(&unmapped, true, __ATOMIC_SEQ_CST);
	return (void *)(intptr_t)err;
}

static unsigned *bursts;

static bool is_unmapped(void)
{
	return __atomic_load_n(&unmapped, __ATOMIC_SEQ_CST);
}

static void unmap_on_another_thread(char *p, pthread_t *thread)
{
	__atomic_store_n(&unmapped, false, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_create(thread, NULL, unmap_page, p), 0);
}

static void expect_done(pthread_t thread)
{
	void *err;

	pthread_join(thread, &err);
	assert_null(err);
	assert_true(is_unmapped());
}

static void test_unmapping_waits_for_the_burst(void **state)
{
	char *p = map_page();
	pthread_t thread;

	glue_burst_begin(bursts);
	unmap_on_another_thread(p, &thread);
	sleep_ms(50);
	assert_false(is_unmapped());
	p[0] = 1; /* it is still there */
	glue_burst_end(bursts);
	expect_done(thread);
}

static void test_unmapping_between_bursts_does_not_wait(void **state)
{
	pthread_t thread;

	glue_burst_begin(bursts);
	glue_burst_end(bursts);
	unmap_on_another_thread(map_page(), &thread);
	expect_done(thread);
}

/* munmap() does not wait for later bursts that follow without a pause. */
static void test_unmapping_does_not_wait_for_later_bursts(void **state)
{
	pthread_t thread;

	glue_burst_begin(bursts);
	unmap_on_another_thread(map_page(), &thread);
	for (unsigned i = 0; i < 2000 && !is_unmapped(); i++) {
		sleep_ms(1);
		glue_burst_end(bursts);
		glue_burst_begin(bursts);
	}
	assert_true(is_unmapped());
	glue_burst_end(bursts);
	expect_done(thread);
}

static void test_polling_thread_never_waits_for_itself(void **state)
{
	glue_burst_begin(bursts);
	assert_int_equal(munmap(map_page(), BYTES), 0);
	glue_burst_end(bursts);
}

/* A child has no thread that would end the burst. */
static void test_child_forked_during_a_burst_does_not_wait(void **state)
{
	pid_t child;
	int status;

	glue_burst_begin(bursts);
	child = fork();
	if (child == 0)
		_exit(glue_sync_works());
	glue_burst_end(bursts);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(glue_sync_works());
}

static void test_libraries_call_our_munmap(void **state)
{
	assert_ptr_equal(dlsym(RTLD_DEFAULT, "munmap"), (void *)munmap);
	assert_ptr_not_equal(dlsym(RTLD_NEXT, "munmap"), (void *)munmap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unmapping_waits_for_the_burst),
		cmocka_unit_test(test_unmapping_between_bursts_does_not_wait),
		cmocka_unit_test(test_unmapping_does_not_wait_for_later_bursts),
		cmocka_unit_test(test_polling_thread_never_waits_for_itself),
		cmocka_unit_test(
			test_child_forked_during_a_burst_does_not_wait),
		cmocka_unit_test(test_libraries_call_our_munmap),
	};

	bursts = glue_sync_count(0);
	if (glue_sync_start() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
