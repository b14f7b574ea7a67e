/*
 * random_world.h - the state of test_coro_random.c: slots of coroutines, the
 * objects they wait for, and random numbers.
 */
#pragma once

#include "test_coro.h"

#include <coronet/coro_chan.h>

#include "coro/coro_priv.h"

#define SLOTS	     16
#define MUTEXES	     2
#define CHANS	     3
#define TOKENS	     2
#define STEPS	     150
#define SEEDS	     3000
#define PARTIES	     3
#define NO_SLOT	     -1
#define DEADLINE_MAX (20 * MS)

enum op {
	NOTHING,
	MUTEX,
	RDLOCK,
	WRLOCK,
	COND,
	SEM,
	GROUP,
	BARRIER,
	SEND,
	RECV,
	SELECT,
	SLEEP,
	PARK,
	JOIN,
	RESUME,
	OPS,
};

struct slot {
	struct coro *co; /* NULL: free */
	bool handle;	 /* the test holds a handle: to be released */
	bool cancelled;	 /* and the cancel not yet returned */
	enum op op;	 /* the call it is blocked in, or about to make */
	unsigned obj;
	int64_t deadline;
	bool has_mutex[MUTEXES], has_read, has_write;
	unsigned tokens;
	int child;    /* that it joins or resumes */
	int parent;   /* that joins or resumes it */
	bool resumed; /* by hand, and not by the scheduler */
};

static struct slot slots[SLOTS];
static struct coro_sched *s;
static uint64_t rng;
static bool ending; /* bodies are to return */

static struct coro_mutex mutexes[MUTEXES];
static struct coro_rwlock rw;
static struct coro_cond cond; /* with mutexes[0] */
static struct coro_sem sem;
static struct coro_wait_group group;
static struct coro_barrier barrier;
static struct coro_chan *chans[CHANS];
static const size_t capacity[CHANS] = {0, 1, 3};
static unsigned long sent[CHANS], received[CHANS]; /* values */

static unsigned draw_below(unsigned n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (unsigned)(rng >> 33) % n;
}

static bool chance(unsigned percent)
{
	return draw_below(100) < percent;
}

static int64_t some_deadline(void)
{
	return chance(30) ? CORO_FOREVER : fake_now + draw_below(DEADLINE_MAX);
}

static struct coro_attr some_attr(void)
{
	return (struct coro_attr){.stack = chance(20) ? CORO_STACK_PRIVATE
						      : CORO_STACK_SHARED};
}

static int free_slot(void)
{
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].co == NULL)
			return i;
	return NO_SLOT;
}
