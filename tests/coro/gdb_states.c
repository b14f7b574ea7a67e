/*
 * gdb_states.c - coroutines in every state, for gdb to inspect when the program
 * stops in stop_here(). Most share one stack, so that only one has its bytes
 * there, and the others' are in save buffers. With any argument the program
 * aborts there instead.
 */
#include <stdio.h>
#include <stdlib.h>

#include <coronet/coro.h>
#include <coronet/coro_chan.h>
#include <coronet/coro_sync.h>

#define noinline __attribute__((noinline, noclone))
/* Placed after a call, so that it is no tail call and its frame is visible. */
#define STAY __asm__ volatile("" : : : "memory")

static struct coro_sched *sched;
static struct coro_mutex mutex, cond_mutex;
static struct coro_rwlock rw;
static struct coro_cond cond;
static struct coro_sem sem;
static struct coro_wait_group group = {.count = 1};
static struct coro_barrier barrier;
static struct coro_chan *full, *empty;
static struct coro *joined, *inner;
static bool leave_core;

noinline static void in_park(void)
{
	coro_park();
	STAY;
}

noinline static void in_sleep(void)
{
	coro_sleep_ns(INT64_C(1000000000000));
	STAY;
}

noinline static void in_yield(void)
{
	coro_yield();
	STAY;
}

noinline static void in_suspend(void)
{
	coro_suspend(NULL, NULL);
	STAY;
}

noinline static void in_mutex(void)
{
	coro_mutex_lock(&mutex);
	STAY;
}

noinline static void in_rdlock(void)
{
	coro_rwlock_rdlock(&rw);
	STAY;
}

noinline static void in_wrlock(void)
{
	coro_rwlock_wrlock(&rw);
	STAY;
}

noinline static void in_cond(void)
{
	coro_mutex_lock(&cond_mutex);
	coro_cond_wait(&cond, &cond_mutex);
	STAY;
}

noinline static void in_sem(void)
{
	coro_sem_wait(&sem);
	STAY;
}

noinline static void in_group(void)
{
	coro_wait_group_wait(&group);
	STAY;
}

noinline static void in_barrier(void)
{
	coro_barrier_wait(&barrier);
	STAY;
}

noinline static void in_send(void)
{
	coro_chan_send(full, &(int){7});
	STAY;
}

noinline static void in_recv(void)
{
	int value;

	coro_chan_recv(empty, &value);
	STAY;
}

noinline static void in_select(void)
{
	int value = 7;
	struct coro_case cases[] = {{full, CORO_SEND, &value, 0},
				    {empty, CORO_RECV, &value, 0}};

	coro_select(cases, 2);
	STAY;
}

noinline static void in_join(void)
{
	coro_join(joined, NULL);
	STAY;
}

/* Holds the objects that the others wait for. */
noinline static void in_holder(void)
{
	coro_mutex_lock(&mutex);
	coro_rwlock_wrlock(&rw);
	coro_park_at("holding on", CORO_FOREVER);
	STAY;
}

void stop_here(void);

noinline void stop_here(void)
{
	if (leave_core)
		abort();
	STAY;
}

noinline static void in_code(void)
{
	stop_here();
	STAY;
}

noinline static void in_resume(void)
{
	coro_resume(inner, (void *)in_code, NULL);
	STAY;
}

noinline static void at_once(void)
{
}

noinline static void deeper(void (*block)(void))
{
	char locals[200];

	__asm__ volatile("" : : "r"(locals) : "memory");
	block();
	STAY;
}

static void *run_state(void *arg)
{
	deeper((void (*)(void))arg);
	STAY;
	return NULL;
}

enum how { SPAWN, RESUME, CREATE };

static struct coro *new_coro(const char *name, void (*block)(void),
			     enum how how, enum coro_stack_kind kind)
{
	const struct coro_attr attr = {
		.name = name,
		.stack = kind,
		.shared_stack = kind == CORO_STACK_SHARED,
		.save_fp = kind == CORO_STACK_PRIVATE,
	};
	struct coro *co = NULL;
	int err = how == SPAWN ? coro_spawn(sched, &attr, run_state, block, &co)
			       : coro_create(sched, &attr, run_state, &co);

	if (err < 0)
		exit(1);
	if (how == RESUME)
		coro_resume(co, block, NULL);
	return co;
}

static void make_those_that_wait(void)
{
	static const struct {
		const char *name;
		void (*block)(void);
	} them[] = {
		{"holder", in_holder},	{"parker", in_park},
		{"sleeper", in_sleep},	{"locker", in_mutex},
		{"reader", in_rdlock},	{"writer", in_wrlock},
		{"waiter", in_cond},	{"counter", in_sem},
		{"grouped", in_group},	{"barred", in_barrier},
		{"sender", in_send},	{"receiver", in_recv},
		{"chooser", in_select}, {"joiner", in_join},
	};

	joined = new_coro("loner", in_park, SPAWN, CORO_STACK_PRIVATE);
	for (size_t i = 0; i < sizeof(them) / sizeof(them[0]); i++)
		new_coro(them[i].name, them[i].block, SPAWN, CORO_STACK_SHARED);
}

int main(int argc, char **argv)
{
	struct coro *resumer;

	leave_core = argc > 1; /* --abort */
	if (coro_sched_open(NULL, &sched) < 0 ||
	    coro_chan_open(sizeof(int), 0, &full) < 0 ||
	    coro_chan_open(sizeof(int), 0, &empty) < 0 ||
	    coro_barrier_init(&barrier, 2) < 0)
		return 1;
	make_those_that_wait();
	coro_sched_round(sched);
	new_coro("suspended", in_suspend, RESUME, CORO_STACK_SHARED);
	new_coro("ended", at_once, RESUME, CORO_STACK_SHARED);
	new_coro("yielder", in_yield, SPAWN, CORO_STACK_SHARED);
	coro_sched_round(sched);
	new_coro("fresh", in_park, CREATE, CORO_STACK_SHARED);
	new_coro("unborn", in_park, SPAWN, CORO_STACK_SHARED);
	inner = new_coro("runner", in_code, CREATE, CORO_STACK_SHARED);
	resumer = new_coro("resumer", in_resume, CREATE, CORO_STACK_SHARED);
	coro_resume(resumer, (void *)in_resume, NULL);
	coro_sched_close(sched);
	coro_chan_free(full);
	coro_chan_free(empty);
	puts("closed");
	return 0;
}
