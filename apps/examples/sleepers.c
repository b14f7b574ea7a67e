/*
 * sleepers.c - sorts its arguments by sleeping that many milliseconds.
 */
#include <stdio.h>
#include <stdlib.h>

#include <coronet/coro.h>

static void *sleeper(void *arg)
{
	long ms = *(const long *)arg;

	coro_sleep_ns(ms * 1000000);
	printf("%ld\n", ms);
	return NULL;
}

int main(int argc, char **argv)
{
	static long ms[64];
	struct coro_sched *s;
	int err;

	if (coro_sched_open(NULL, &s) < 0)
		return 1;
	for (int i = 1; i < argc && i <= 64; i++) {
		ms[i - 1] = strtol(argv[i], NULL, 10);
		coro_spawn(s, NULL, sleeper, &ms[i - 1], NULL);
	}
	err = coro_sched_run(s);
	coro_sched_close(s);
	return err < 0;
}
