/*
 * select_timeout.c - wait for whichever of two sources speaks first, but no
 * longer than a deadline.
 */
#include <errno.h>
#include <stdio.h>

#include <coronet/coro.h>
#include <coronet/coro_chan.h>

static struct coro_chan *fast, *slow;

static void *ticks(void *arg)
{
	for (int i = 0; i < 3; i++) {
		coro_sleep_ns(2000000);
		coro_chan_send(fast, &i);
	}
	return NULL;
}

static void *listens(void *arg)
{
	struct coro_sched *s = coro_sched_self();
	int a, b;

	for (;;) {
		struct coro_case cases[] = {
			{.chan = fast, .op = CORO_RECV, .value = &a},
			{.chan = slow, .op = CORO_RECV, .value = &b},
		};
		int i = coro_select_until(cases, 2,
					  coro_sched_clock(s) + 200000000);

		if (i == -ETIMEDOUT)
			break;
		printf("%s: %d\n", i == 0 ? "fast" : "slow", i == 0 ? a : b);
	}
	printf("timeout\n");
	return NULL;
}

int main(void)
{
	struct coro_sched *s;
	int err;

	if (coro_sched_open(NULL, &s) < 0 ||
	    coro_chan_open(sizeof(int), 0, &fast) < 0 ||
	    coro_chan_open(sizeof(int), 0, &slow) < 0)
		return 1;
	coro_spawn(s, NULL, ticks, NULL, NULL);
	coro_spawn(s, NULL, listens, NULL, NULL);
	err = coro_sched_run(s);
	coro_chan_free(fast);
	coro_chan_free(slow);
	coro_sched_close(s);
	return err < 0;
}
