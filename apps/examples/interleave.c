/*
 * interleave.c - two coroutines that yield to each other: 1 100 2 101 ...
 */
#include <stdio.h>

#include <coronet/coro.h>

static void *count(void *arg)
{
	int start = *(int *)arg;

	for (int i = 0; i < 5; i++) {
		printf("coroutine %s: %d\n", start == 1 ? "one" : "two",
		       start + i);
		coro_suspend(NULL, NULL);
	}
	return NULL;
}

int main(void)
{
	static int start[2] = {1, 100};
	struct coro_sched *s;
	struct coro *co[2];

	if (coro_sched_open(NULL, &s) < 0)
		return 1;
	for (int i = 0; i < 2; i++)
		if (coro_create(s, NULL, count, &co[i]) < 0)
			return 1;
	printf("main start\n");
	/* The argument is what the first resume brings. */
	while (coro_status(co[0]) != CORO_DEAD &&
	       coro_status(co[1]) != CORO_DEAD)
		for (int i = 0; i < 2; i++)
			coro_resume(co[i], &start[i], NULL);
	printf("main end\n");
	coro_destroy(co[0]);
	coro_destroy(co[1]);
	coro_sched_close(s);
	return 0;
}
