/* The ring of line_log.h, with a thread that takes records one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include "apps/common/line_log.h"

#define ACCEPTED_MAX 4000u
#define LETTERS_MAX  150u

static sem_t gate; /* a record each */
static _Atomic unsigned taken;

static int64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static size_t format(const void *text, unsigned form, int64_t wall_ns,
		     char *line)
{
	while (sem_wait(&gate))
		;
	taken++;
	return (size_t)sprintf(line, "%s\n", (const char *)text);
}

static bool is_json(unsigned form)
{
	return false;
}

static const struct line_log_kind kind = {
	.program = "test-ring",
	.ring_bytes = 4096,
	.line_max = LETTERS_MAX + 32,
	.format = format,
	.is_json = is_json,
};

static size_t write_text(unsigned number, char *out)
{
	unsigned letters = number * 7919 % LETTERS_MAX;
	int n = sprintf(out, "%u ", number);

	memset(out + n, 'a' + number % 26, letters);
	out[n + (int)letters] = '\0';
	return (size_t)n + letters + 1;
}

static bool add_record(struct line_log *log, unsigned number)
{
	char text[LETTERS_MAX + 32];
	size_t n = write_text(number, text);
	char *at = line_log_begin(log, 0, n);

	if (!at)
		return false;
	assert_int_equal((uintptr_t)at % LINE_LOG_ALIGN, 0);
	memcpy(at, text, n);
	line_log_end(log, 0, clock_ns());
	return true;
}

/* Whenever the ring is full, a few records are taken, so that its end and its
 * beginning meet at every distance. */
static void test_full_ring_overwrites_no_record(void **state)
{
	char path[] = "/tmp/line-ring-XXXXXX", line[256], expected[256];
	static unsigned accepted[ACCEPTED_MAX];
	unsigned n = 0, refused = 0, passed = 0;
	struct line_log *log;
	int fd = mkstemp(path);
	FILE *in;

	assert_true(fd >= 0);
	sem_init(&gate, 0, 0);
	assert_int_equal(line_log_open(&kind, path, 0, 1, clock_ns, NULL, &log),
			 0);
	for (unsigned number = 0; n < ACCEPTED_MAX; number++) {
		if (add_record(log, number)) {
			accepted[n++] = number;
			continue;
		}
		refused++;
		while (taken < passed)
			usleep(100);
		for (unsigned i = number % 3; i < 3; i++, passed++)
			sem_post(&gate);
	}
	assert_int_equal(line_log_lost(log), refused);
	for (unsigned i = 0; i < n; i++)
		sem_post(&gate);
	line_log_close(log);
	in = fdopen(fd, "r");
	for (unsigned i = 0; i < n;) {
		assert_non_null(fgets(line, sizeof(line), in));
		if (strstr(line, "Z lost="))
			continue;
		write_text(accepted[i++], expected);
		strcat(expected, "\n");
		assert_string_equal(line, expected);
	}
	fclose(in);
	unlink(path);
	sem_destroy(&gate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_ring_overwrites_no_record),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
