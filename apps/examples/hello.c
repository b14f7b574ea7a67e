/* Two coroutines print in turn, since each sleeps between its lines. */
#include <stdio.h>
#include <coronet/coro.h>

static void *hello(void *arg)
{
	for (int i = 0; i < 3; i++) {
		coro_sleep_ns(100000000);
		printf("%s %d\n", (const char *)arg, i);
	}
	return NULL;
}

int main(void)
{
	struct coro_sched *s;

	if (coro_sched_open(NULL, &s) < 0)
		return 1;
	coro_spawn(s, NULL, hello, "one", NULL);
	coro_spawn(s, NULL, hello, "two", NULL);
	coro_sched_run(s);
	coro_sched_close(s);
	return 0;
}
