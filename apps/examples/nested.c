/*
 * nested.c - a coroutine resumes another, and each part asks where it runs.
 */
#include <stdio.h>

#include <coronet/coro.h>

static struct coro_sched *sched;

static void where(const char *who)
{
	printf("%s: running in a %s\n", who,
	       coro_inside() ? "coroutine" : "thread");
}

static void *inner(void *arg)
{
	where("inner, first half");
	coro_suspend("half", NULL);
	where("inner, second half");
	return "whole";
}

static void *outer(void *arg)
{
	struct coro *co;
	void *out = NULL;

	where("outer, before");
	if (coro_create(sched, NULL, inner, &co) < 0)
		return NULL;
	coro_resume(co, NULL, &out);
	printf("outer: inner has done %s\n", (const char *)out);
	coro_resume(co, NULL, &out);
	printf("outer: inner has done the %s\n", (const char *)out);
	coro_destroy(co);
	where("outer, after");
	return NULL;
}

int main(void)
{
	struct coro *co;

	if (coro_sched_open(NULL, &sched) < 0)
		return 1;
	where("main, before");
	if (coro_create(sched, NULL, outer, &co) < 0)
		return 1;
	coro_resume(co, NULL, NULL);
	where("main, after");
	coro_destroy(co);
	coro_sched_close(sched);
	return 0;
}
