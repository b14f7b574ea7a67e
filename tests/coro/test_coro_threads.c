/*
 * Several threads, each with a scheduler and coroutines that send, receive and
 * select at random over shared channels and one of the thread's own, with
 * deadlines, cancels, and channels that are closed and replaced at any moment.
 * Every sent value arrives once, values of one sender arrive in order, and
 * every coroutine ends. Then the same with coroutines that are destroyed and
 * schedulers that close at random: every received value was sent.
 */
#include <sched.h>
#include <stdatomic.h>

#include <coronet/coro_chan.h>

#include "peer.h"

#define THREADS 3
#define COROS	6 /* of a thread */
#define SLOTS	4
#define CASES	3
#define OPS	(RUNNING_ON_VALGRIND ? 300 : MANY(12000))

struct value {
	uint32_t generation; /* of its channel */
	uint32_t sender;
	uint64_t number;
	unsigned char rest[40]; /* larger than what a register copies */
};

/* A channel that is replaced now and then. */
struct slot {
	pthread_mutex_t lock;
	struct coro_chan *ch;
	uint32_t generation;
	size_t capacity;
};

struct holder { /* of a reference, for as long as an operation takes */
	struct coro_chan *ch;
	uint32_t generation;
};

struct member {
	struct world *world;
	struct coro *co;
	unsigned id;
	uint64_t number; /* of its next value */
	struct holder held[CASES];
	struct coro_chan_watch watch; /* of the first that is held */
	/* The last value from each sender. */
	struct {
		uint32_t generation;
		uint64_t number;
	} last[THREADS * COROS];
};

struct world { /* of a thread */
	pthread_t th;
	unsigned index;
	unsigned seed;
	struct coro_sched *s;
	struct coro_chan *own;
	struct member members[COROS];
	uint64_t sent, sent_sum, got, got_sum;
	unsigned disorder, torn;
	int running;
};

static struct slot slots[SLOTS];
static struct world worlds[THREADS];
static _Atomic uint32_t generations;
static _Atomic int leaders;
static _Atomic bool over;
static bool chaos; /* coroutines are destroyed as well */

static unsigned draw_below(struct world *w, unsigned n)
{
	return (unsigned)rand_r(&w->seed) % n;
}

static uint64_t digest(const struct value *v)
{
	return (v->number * 1000003 + v->sender) * 1000003 + v->generation;
}

/* ---- slots ---- */

static void slot_open(struct slot *slot)
{
	slot->generation = ++generations;
	assert_int_equal(coro_chan_open_shared(sizeof(struct value),
					       slot->capacity, &slot->ch),
			 0);
}

static void hold_slot(struct member *me, unsigned i, struct slot *slot)
{
	pthread_mutex_lock(&slot->lock);
	me->held[i].ch = coro_chan_ref(slot->ch);
	me->held[i].generation = slot->generation;
	pthread_mutex_unlock(&slot->lock);
}

static void drop_all(void *arg)
{
	struct member *me = arg;

	coro_chan_unwatch(&me->watch);
	for (unsigned i = 0; i < CASES; i++) {
		if (me->held[i].ch != me->world->own)
			coro_chan_free(me->held[i].ch);
		me->held[i].ch = NULL;
	}
}

/* ---- values ---- */

static struct value value_new(struct member *me, unsigned i)
{
	struct value v = {.generation = me->held[i].generation,
			  .sender = me->id,
			  .number = me->number++};

	memset(v.rest, (int)v.number, sizeof(v.rest));
	return v;
}

static void value_sent(struct member *me, const struct value *v)
{
	me->world->sent++;
	me->world->sent_sum += digest(v);
}

static void value_got(struct member *me, const struct value *v)
{
	struct world *w = me->world;

	w->got++;
	w->got_sum += digest(v);
	for (size_t i = 0; i < sizeof(v->rest); i++)
		w->torn += v->rest[i] != (unsigned char)v->number;
	if (me->last[v->sender].generation == v->generation)
		w->disorder += v->number <= me->last[v->sender].number;
	me->last[v->sender].generation = v->generation;
	me->last[v->sender].number = v->number;
}

/* Receives the values left in a closed channel. */
static void drain_channel(struct member *me, struct coro_chan *ch)
{
	struct value v;

	while (coro_chan_tryrecv(ch, &v) == 0)
		value_got(me, &v);
}

/* ---- actions of a coroutine ---- */

static int64_t some_deadline(struct member *me)
{
	struct world *w = me->world;

	if (me != &w->members[0] && draw_below(w, 3) == 0)
		return CORO_FOREVER;
	return coro_sched_clock(w->s) + draw_below(w, 200000);
}

static void does_send(struct member *me)
{
	struct value v = value_new(me, 0);
	int err = draw_below(me->world, 3) == 0
			  ? coro_chan_trysend(me->held[0].ch, &v)
			  : coro_chan_send_until(me->held[0].ch, &v,
						 some_deadline(me));

	if (err == 0)
		value_sent(me, &v);
}

static void does_receive(struct member *me)
{
	struct value v;
	int err = draw_below(me->world, 3) == 0
			  ? coro_chan_tryrecv(me->held[0].ch, &v)
			  : coro_chan_recv_until(me->held[0].ch, &v,
						 some_deadline(me));

	if (err == 0)
		value_got(me, &v);
}

static void does_select(struct member *me)
{
	struct world *w = me->world;
	struct coro_case cases[CASES];
	struct value v[CASES];
	unsigned n = 1 + draw_below(w, CASES);
	int i;

	for (unsigned k = 1; k < n; k++)
		hold_slot(me, k, &slots[draw_below(w, SLOTS)]);
	if (draw_below(w, 3) == 0) {
		if (me->held[0].ch != w->own)
			coro_chan_free(me->held[0].ch);
		me->held[0] = (struct holder){w->own, 0};
	}
	for (unsigned k = 0; k < n; k++) {
		v[k] = value_new(me, k);
		cases[k] = (struct coro_case){
			me->held[k].ch,
			draw_below(w, 2) ? CORO_SEND : CORO_RECV, &v[k], 0};
	}
	i = draw_below(w, 4) == 0
		    ? coro_select_try(cases, n)
		    : coro_select_until(cases, n, some_deadline(me));
	if (i < 0 || cases[i].err < 0)
		return;
	if (cases[i].op == CORO_SEND)
		value_sent(me, &v[i]);
	else
		value_got(me, &v[i]);
}

static void note_change(struct coro_chan_watch *w)
{
	struct member *me =
		(struct member *)((char *)w - offsetof(struct member, watch));

	if (coro_sched_self() != me->world->s)
		abort();
	if (draw_below(me->world, 2))
		coro_chan_unwatch(w);
	coro_unpark(me->co);
}

static void does_watch(struct member *me)
{
	me->watch.fn = note_change;
	assert_int_equal(coro_chan_watch(me->held[0].ch, &me->watch), 0);
	coro_park_until(coro_sched_clock(me->world->s) +
			draw_below(me->world, 100000));
}

static void does_replace(struct member *me)
{
	struct slot *slot = &slots[draw_below(me->world, SLOTS)];
	struct coro_chan *old;

	pthread_mutex_lock(&slot->lock);
	if (over) {
		pthread_mutex_unlock(&slot->lock);
		return;
	}
	old = slot->ch;
	slot_open(slot);
	pthread_mutex_unlock(&slot->lock);
	coro_chan_close(old);
	drain_channel(me, old);
	coro_chan_free(old);
}

static void does_something(struct member *me)
{
	unsigned what = draw_below(me->world, 100);

	hold_slot(me, 0, &slots[draw_below(me->world, SLOTS)]);
	if (what < 30)
		does_send(me);
	else if (what < 60)
		does_receive(me);
	else if (what < 90)
		does_select(me);
	else if (what < 94)
		coro_cancel(
			me->world->members[draw_below(me->world, COROS)].co);
	else if (what < 95)
		does_replace(me);
	else if (what < 98)
		does_watch(me);
	else
		coro_yield();
	drop_all(me);
}

static void all_over(void)
{
	over = true;
	for (unsigned i = 0; i < SLOTS; i++) {
		pthread_mutex_lock(&slots[i].lock);
		coro_chan_close(slots[i].ch);
		pthread_mutex_unlock(&slots[i].lock);
	}
	/* Each thread closes its own: see member_main(). */
}

static void *member_main(void *arg)
{
	struct member *me = arg;
	struct world *w = me->world;

	coro_cleanup_push(drop_all, me);
	if (me != &w->members[0]) {
		while (!over)
			does_something(me);
		return NULL;
	}
	for (int i = 0; i < OPS; i++) {
		does_something(me);
		if (chaos && draw_below(w, 20) == 0)
			coro_sched_stop(w->s); /* to end the loop */
	}
	if (--leaders == 0)
		all_over();
	while (!over)
		coro_sleep_ns(100000);
	coro_chan_close(w->own);
	coro_sched_stop(w->s);
	return NULL;
}

static void spawn_member(struct world *w, unsigned i)
{
	assert_int_equal(coro_spawn(w->s, NULL, member_main, &w->members[i],
				    &w->members[i].co),
			 0);
}

static void *world_main(void *arg)
{
	struct world *w = arg;

	assert_int_equal(coro_sched_open(NULL, &w->s), 0);
	coro_chan_open(sizeof(struct value), w->index, &w->own);
	for (unsigned i = 0; i < COROS; i++) {
		w->members[i] = (struct member){
			.world = w, .id = w->index * COROS + i, .number = 1};
		spawn_member(w, i);
	}
	while (coro_sched_run(w->s) == 0 && !over) {
		unsigned i = 1 + draw_below(w, COROS - 1);

		assert_true(chaos);
		assert_int_equal(coro_destroy(w->members[i].co), 0);
		spawn_member(w, i);
	}
	if (!chaos)
		for (unsigned i = 0; i < COROS; i++)
			while (coro_join(w->members[i].co, NULL) == -EBUSY)
				coro_sched_run(w->s);
	if (!chaos)
		drain_channel(&w->members[0], w->own);
	/* In chaos, some still wait. */
	coro_sched_close(w->s);
	coro_chan_free(w->own);
	return NULL;
}

static void live_through(unsigned seed)
{
	uint64_t sent = 0, sent_sum = 0, got = 0, got_sum = 0;
	static const size_t capacities[SLOTS] = {0, 0, 1, 5};
	struct member rest = {.world = &worlds[0]};

	memset(worlds, 0, sizeof(worlds));
	over = false;
	leaders = THREADS;
	for (unsigned i = 0; i < SLOTS; i++) {
		pthread_mutex_init(&slots[i].lock, NULL);
		slots[i].capacity = capacities[i];
		slot_open(&slots[i]);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		worlds[i].index = i;
		worlds[i].seed = seed * THREADS + i + 1;
		pthread_create(&worlds[i].th, NULL, world_main, &worlds[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(worlds[i].th, NULL);
	for (unsigned i = 0; i < SLOTS; i++) {
		drain_channel(&rest, slots[i].ch);
		coro_chan_free(slots[i].ch);
		pthread_mutex_destroy(&slots[i].lock);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		sent += worlds[i].sent;
		sent_sum += worlds[i].sent_sum;
		got += worlds[i].got;
		got_sum += worlds[i].got_sum;
		assert_int_equal(worlds[i].disorder, 0);
		assert_int_equal(worlds[i].torn, 0);
	}
	assert_true(sent > OPS / 10);
	if (chaos) {
		assert_true(got > 0);
		return;
	}
	assert_int_equal(got, sent);
	assert_true(got_sum == sent_sum);
}

static void test_nothing_is_lost_or_doubled(void **state)
{
	chaos = false;
	for (unsigned seed = 0; seed < 3; seed++)
		live_through(seed);
}

static void test_destroying_and_closing_at_any_moment(void **state)
{
	chaos = true;
	for (unsigned seed = 10; seed < 13; seed++)
		live_through(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_lost_or_doubled),
		cmocka_unit_test(test_destroying_and_closing_at_any_moment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
